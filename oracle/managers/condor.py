"""A real HTCondor pool on one machine: a central manager and an execute machine per node.

HTCondor runs in a file system of its own, made once from Debian's packages, so that it works beside any distribution.
Jobs see the directories that a pool is told to share at their own paths, and run as an ordinary user: HTCondor refuses
those of root.
"""

import os
import shutil
import signal
import sys

import manager
from nodes import Forbidden, call, until

ROOT = os.environ.get("FERROFLOW_CONDOR_ROOT", "/var/tmp/ferroflow-condor")

USER = 1000

CONFIGURATION = """\
RELEASE_DIR = /usr
LOCAL_DIR = {directory}
LOG = $(LOCAL_DIR)/log
SPOOL = $(LOCAL_DIR)/spool
EXECUTE = $(LOCAL_DIR)/execute
RUN = $(LOCAL_DIR)/run
LOCK = $(LOCAL_DIR)/lock
BIN = /usr/bin
SBIN = /usr/sbin
LIB = /usr/lib/condor
LIBEXEC = /usr/libexec/condor
SHARE = /usr/share/condor
ETC = $(LOCAL_DIR)
LOCAL_CONFIG_FILE =
LOCAL_CONFIG_DIR =
REQUIRE_LOCAL_CONFIG_FILE = False
CONDOR_HOST = {manager}
COLLECTOR_HOST = {manager}:9618
NETWORK_INTERFACE = {address}
BIND_ALL_INTERFACES = False
NETWORK_HOSTNAME = {name}
UID_DOMAIN = ferroflow
FILESYSTEM_DOMAIN = ferroflow
TRUST_UID_DOMAIN = True
SOFT_UID_DOMAIN = True
DAEMON_LIST = MASTER, {daemons}
USE_SHARED_PORT = False
SEC_DEFAULT_AUTHENTICATION = OPTIONAL
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, CLAIMTOBE
SEC_CLIENT_AUTHENTICATION_METHODS = FS, CLAIMTOBE
SEC_DEFAULT_ENCRYPTION = OPTIONAL
SEC_DEFAULT_INTEGRITY = OPTIONAL
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
ALLOW_ADMINISTRATOR = *
ALLOW_CLIENT = *
ALLOW_ADVERTISE_MASTER = *
ALLOW_ADVERTISE_STARTD = *
ALLOW_ADVERTISE_SCHEDD = *
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_CYCLE_DELAY = 1
NEGOTIATOR_MIN_INTERVAL = 1
SCHEDD_INTERVAL = 5
SCHEDD_MIN_INTERVAL = 1
UPDATE_INTERVAL = 5
POLLING_INTERVAL = 2
MASTER_UPDATE_INTERVAL = 5
START = True
SUSPEND = False
PREEMPT = False
KILL = False
WANT_SUSPEND = False
KILLING_TIMEOUT = 10
MachineMaxVacateTime = 10
NUM_CPUS = {slots}
MEMORY = 8192
DETECTED_MEMORY = 8192
NUM_SLOTS_TYPE_1 = {slots}
SLOT_TYPE_1 = cpus=1
SLOT_TYPE_1_PARTITIONABLE = False
USE_PID_NAMESPACES = False
CGROUP_MEMORY_LIMIT_POLICY = none
BASE_CGROUP =
MOUNT_UNDER_SCRATCH =
ENABLE_SSH_TO_JOB = False
"""

# Runs in the mount namespace of a node: the pool's file system with the shared directories in it.
ENTER = """
root={root}
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
for place in {shared}; do mkdir -p "$root$place"; mount --bind "$place" "$root$place"; done
mount --bind "$1" "$root/etc/hosts"
"""


def install():
    """Makes the file system, once."""
    manager.install(("ip", "nsenter", "unshare"), ("iproute2", "util-linux"))
    if os.path.exists(f"{ROOT}/usr/sbin/condor_master"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Forbidden("HTCondor's file system can only be made by root on a Debian")
    manager.install(("mmdebstrap",), ("mmdebstrap",))
    print(f"making a file system with HTCondor in {ROOT}", flush=True)
    try:
        sources = call("apt-get", "indextargets", "--format", "$(REPO_URI)").split()
        mirror = min(source for source in sources if "security" not in source)
        packages = "condor,procps,iproute2,util-linux,python3"
        call("mmdebstrap", "--variant=minbase", f"--include={packages}", "trixie", ROOT, mirror)
    except (OSError, RuntimeError, ValueError) as error:
        shutil.rmtree(ROOT, ignore_errors=True)
        raise Forbidden(f"HTCondor's file system cannot be made: {error}") from error


class Condor(manager.Manager):
    """A pool with execute machines of these names."""

    def __init__(self, names, directory, slots=2):
        super().__init__(["manager", *names], directory)
        self._shared = [directory]
        try:
            self._start(names, slots)
        except BaseException:
            self.close()
            raise

    def share(self, *directories):
        """Lets what is started from now on see these directories."""
        self._shared.extend(place for place in map(os.path.realpath, directories) if place not in self._shared)

    def _start(self, names, slots):
        os.chown(self._directory, USER, USER)
        # Interpreters may lie in somebody's home.
        os.chmod(f"{ROOT}/root", 0o711)
        with open(f"{ROOT}/etc/passwd", "r+") as users:
            if f":{USER}:" not in users.read():
                users.write(f"trainer:x:{USER}:{USER}::/tmp:/bin/sh\n")
        self.share(sys.base_prefix, sys.prefix, os.path.dirname(os.path.abspath(__file__)))
        for name in ("manager", *names):
            place = f"{self._directory}/{name}"
            for part in ("log", "spool", "execute", "run", "lock"):
                os.makedirs(f"{place}/{part}")
            with open(f"{place}/condor_config", "w") as file:
                file.write(
                    CONFIGURATION.format(
                        directory=place,
                        manager=self.nodes.addresses["manager"],
                        address=self.nodes.addresses[name],
                        name=name,
                        daemons="COLLECTOR, NEGOTIATOR, SCHEDD" if name == "manager" else "STARTD",
                        slots=slots,
                    )
                )
            call("chown", "-R", f"{USER}:{USER}", place)
            self._daemon(name, self._on(name, "condor_master", "-f"))
        until(lambda: "Total" in self.ask("condor_q", check=False), 60, "the scheduler does not answer")
        count = slots * len(names)
        listed = lambda: self.ask("condor_status", "-af", "Name", check=False).split()
        until(lambda: len(listed()) >= count, 120, lambda: f"machines are missing: {listed()}")

    def _on(self, name, *command, directory="/tmp"):
        """A command line in the pool's file system, as the pool's user."""
        environment = [
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME=/tmp",
            "LANG=C.UTF-8",
            f"CONDOR_CONFIG={self._directory}/{name}/condor_config",
        ]
        inside = [
            "chroot",
            f"--userspec={USER}:{USER}",
            ROOT,
            "/usr/bin/env",
            "-i",
            f"--chdir={directory}",
            *environment,
        ]
        setup = ENTER.format(root=ROOT, shared=" ".join(f"'{place}'" for place in self._shared))
        return self.nodes.on(name, *inside, *command, setup=setup)

    def ask(self, *command, check=True, directory="/tmp"):
        """The output of a tool on the central manager."""
        return self._ask(command, self._on("manager", *command, directory=directory), check, timeout=60)

    def left_over(self):
        """Processes on the nodes that are not HTCondor's own."""
        daemons = ("master", "collector", "negotiator", "schedd", "startd", "starter", "shadow", "procd", "shared_port")
        # A machine measures itself once in a while.
        benchmarks = ("kflops", "mips")
        return self.nodes.processes(besides=[*(f"condor_{daemon}" for daemon in daemons), *benchmarks])

    def close(self):
        """Ends all jobs and daemons."""
        self._end(self._daemons, signal.SIGQUIT)
        self.nodes.close()
