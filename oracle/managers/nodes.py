"""Machines of a cluster on one Linux machine: each has a name, an address and an IP stack of its own.

A node is a network namespace on a common bridge; what is started on it sees its own host name and an `/etc/hosts` that
knows all nodes. File systems are shared. Needs root.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time


class Forbidden(Exception):
    """This machine cannot run the manager; says why."""


def call(*command, **options):
    """Runs a command; its output is part of the error if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def until(condition, seconds, what):
    """Waits for a condition, and says what did not come about if it takes longer."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what()}, after {seconds} s" if callable(what) else f"{what}, after {seconds} s")
        time.sleep(0.1)
    return found


class Nodes:
    """Nodes of these names; the machine itself is reachable from them under `host_address`. Others know a node by its name
    with each of the domains, too."""

    def __init__(self, names, directory, domains=()):
        if os.geteuid() != 0:
            raise Forbidden("network namespaces need root")
        missing = [tool for tool in ("ip", "nsenter", "unshare") if not shutil.which(tool)]
        if missing:
            raise Forbidden(f"{', '.join(missing)} not found")
        tag = os.getpid()
        subnet = f"10.{100 + tag // 250 % 100}.{tag % 250}"
        self.host_address = f"{subnet}.254"
        self.addresses = {name: f"{subnet}.{i + 1}" for i, name in enumerate(names)}
        self._bridge = f"ffb{tag}"
        self._namespaces = {name: f"ff{tag}-{name}" for name in names}
        self.hosts = os.path.join(directory, "hosts")
        with open(self.hosts, "w") as hosts:
            print("127.0.0.1 localhost\n::1 localhost", file=hosts)
            print(self.host_address, os.uname().nodename, file=hosts)
            for name, address in self.addresses.items():
                print(address, name, *(f"{name}.{domain}" for domain in domains), file=hosts)
        try:
            self._connect(tag)
        except RuntimeError as error:
            self.close()
            raise Forbidden(f"network namespaces cannot be made: {error}") from error

    def _connect(self, tag):
        call("ip", "link", "add", self._bridge, "type", "bridge")
        call("ip", "addr", "add", f"{self.host_address}/24", "dev", self._bridge)
        call("ip", "link", "set", self._bridge, "up")
        for i, (name, namespace) in enumerate(self._namespaces.items()):
            link = f"ff{tag}-{i}"
            call("ip", "netns", "add", namespace)
            call("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            call("ip", "link", "set", link, "master", self._bridge, "up")
            call("ip", "-n", namespace, "addr", "add", f"{self.addresses[name]}/24", "dev", "eth0")
            call("ip", "-n", namespace, "link", "set", "eth0", "up")
            call("ip", "-n", namespace, "link", "set", "lo", "up")

    def on(self, name, *command, setup=""):
        """A command line that runs the command on a node, after some lines of shell in its own mount namespace."""
        script = f'set -e; hostname "$0"; mount --bind "$1" /etc/hosts; {setup} shift; exec "$@"'
        network = ["nsenter", f"--net=/run/netns/{self._namespaces[name]}"]
        return [*network, "unshare", "--mount", "--uts", "sh", "-c", script, name, self.hosts, *command]

    def processes(self, besides=()):
        """Processes on the nodes, as (node, pid, command line), except programs of these names."""
        found = []
        for name, namespace in self._namespaces.items():
            listed = subprocess.run(
                ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False
            ).stdout
            for pid in map(int, listed.split()):
                try:
                    with open(f"/proc/{pid}/cmdline") as file:
                        words = file.read().split("\0")
                except OSError:
                    continue
                if words[0] and os.path.basename(words[0]).partition(":")[0] not in besides:
                    found.append((name, pid, " ".join(words).strip()))
        return found

    def close(self):
        """Ends everything that runs on the nodes, and removes them."""
        for _ in range(3):
            for _, pid, _ in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for namespace in self._namespaces.values():
            # The pair of links goes with the namespace.
            subprocess.run(["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], stderr=subprocess.DEVNULL, check=False)
