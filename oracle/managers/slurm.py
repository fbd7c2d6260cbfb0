"""A real Slurm on one machine: munged, slurmctld and a slurmd per node, in a directory of their own."""

import os
import shutil
import signal
import subprocess

from nodes import Forbidden, Nodes, call, until

# A task that does not end when it is asked to is killed after so many seconds.
KILL_WAIT = 10

CONFIGURATION = """\
ClusterName=ferroflow
SlurmctldHost={host}({host_address})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000
MpiDefault=none
ReturnToService=2
KillWait={kill_wait}
MinJobAge=300
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
{nodes}
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def install():
    """Installs Debian's packages where they are missing."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    wanted = ("slurmctld", "slurmd", "srun", "sbatch", "munged", "ip")
    if all(shutil.which(tool) for tool in wanted):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Forbidden(f"one of {', '.join(wanted)} is missing and cannot be installed")
    print("installing Slurm", flush=True)
    # The packages would start services of their own.
    policy = "/usr/sbin/policy-rc.d"
    guard = not os.path.exists(policy)
    if guard:
        with open(policy, "w") as file:
            file.write("#!/bin/sh\nexit 101\n")
        os.chmod(policy, 0o755)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    try:
        call("apt-get", "update", "-qq", env=environment)
        packages = ("slurm-wlm", "munge", "iproute2", "util-linux")
        call("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, env=environment)
    except (OSError, RuntimeError) as error:
        raise Forbidden(f"Slurm cannot be installed: {error}") from error
    finally:
        if guard:
            os.remove(policy)


class Slurm:
    """A cluster with nodes of these names."""

    def __init__(self, names, directory, cpus=8):
        self._directory = directory
        self._daemons = []
        self.nodes = Nodes(names, directory)
        try:
            self._start(names, cpus)
        except BaseException:
            self.close()
            raise

    def _start(self, names, cpus):
        directory = self._directory
        os.mkdir(f"{directory}/state")
        with open(f"{directory}/munge.key", "wb") as key:
            os.fchmod(key.fileno(), 0o400)
            key.write(os.urandom(1024))
        files = {"key": "munge.key", "socket": "munge.socket", "pid": "munged.pid", "log": "munged.log", "seed": "seed"}
        options = [
            f"--{kind}={directory}/{file}" if kind == "socket" else f"--{kind}-file={directory}/{file}"
            for kind, file in files.items()
        ]
        self._daemon("munged", ["munged", "--force", "--foreground", *options])
        until(lambda: os.path.exists(f"{directory}/munge.socket"), 20, "munged does not listen")
        nodes = (
            f"NodeName={name} NodeHostname={name} NodeAddr={address} CPUs={cpus} State=UNKNOWN"
            for name, address in self.nodes.addresses.items()
        )
        text = CONFIGURATION.format(
            host=os.uname().nodename,
            host_address=self.nodes.host_address,
            port=16000 + os.getpid() % 10000,
            directory=directory,
            kill_wait=KILL_WAIT,
            nodes="\n".join(nodes),
        )
        self.configuration = f"{directory}/slurm.conf"
        for path, content in ((self.configuration, text), (f"{directory}/cgroup.conf", "")):
            with open(path, "w") as file:
                file.write(content)
        self.environment = dict(os.environ, SLURM_CONF=self.configuration)
        self._daemon("slurmctld", ["slurmctld", "-D", "-c", "-f", self.configuration])
        for name in names:
            slurmd = ["slurmd", "-D", "-f", self.configuration, "-N", name]
            self._daemon(f"slurmd-{name}", self.nodes.on(name, *slurmd))

        def idle():
            listed = self.ask("sinfo", "--noheader", "--Node", "--format=%T", check=False)
            return listed.split() == ["idle"] * len(names)

        until(idle, 60, lambda: f"nodes are not idle: {self.ask('sinfo', '--Node', '--long', check=False)}")

    def _daemon(self, name, command):
        output = open(f"{self._directory}/{name}.out", "wb")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self._daemons.append(process)

    def ask(self, *command, check=True, **options):
        """What a tool of Slurm prints."""
        done = subprocess.run(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def state(self, job):
        """The state of a job, e.g. RUNNING."""
        shown = self.ask("scontrol", "show", "job", str(job))
        return next(word.partition("=")[2] for word in shown.split() if word.startswith("JobState="))

    def left_over(self):
        """Processes on the nodes that are not Slurm's own."""
        return self.nodes.processes(besides=("slurmd", "slurmstepd"))

    def close(self):
        """Ends all jobs and daemons."""
        if len(self._daemons) > 1:
            subprocess.run(["scancel", "--full", "--user=root"], env=getattr(self, "environment", None), timeout=20)
        # The nodes' daemons first: what they started goes with their namespaces.
        for process in reversed(self._daemons):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.nodes.close()
