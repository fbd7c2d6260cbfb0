"""A real Slurm on one machine: munged, slurmctld and a slurmd per node, in a directory of their own."""

import os
import signal
import subprocess

import manager
from nodes import until

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
    tools = ("slurmctld", "slurmd", "srun", "sbatch", "munged", "ip")
    manager.install(tools, ("slurm-wlm", "munge", "iproute2", "util-linux"))


class Slurm(manager.Manager):
    """A cluster with nodes of these names."""

    def __init__(self, names, directory, cpus=8):
        super().__init__(names, directory)
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

    def ask(self, *command, check=True, **options):
        """The output of a tool of Slurm."""
        return self._ask(command, command, check, env=self.environment, **options)

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
            subprocess.run(
                ["scancel", "--full", "--user=root"], env=getattr(self, "environment", None), timeout=20, check=False
            )
        # The nodes' daemons first: what they started goes with their namespaces.
        for process in reversed(self._daemons):
            self._end([process], signal.SIGTERM)
        self.nodes.close()
