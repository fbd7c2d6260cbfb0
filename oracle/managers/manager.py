"""Parts that all cluster managers on one machine share: their packages, their daemons, their tools."""

import contextlib
import os
import shutil
import subprocess

from nodes import Forbidden, Nodes, call


@contextlib.contextmanager
def no_services():
    """Packages that are installed meanwhile start no services of their own."""
    policy = "/usr/sbin/policy-rc.d"
    if os.path.exists(policy):
        yield
        return
    with open(policy, "w") as file:
        file.write("#!/bin/sh\nexit 101\n")
    os.chmod(policy, 0o755)
    try:
        yield
    finally:
        os.remove(policy)


def install(tools, packages):
    """Installs Debian's packages unless all of these tools are there."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if all(shutil.which(tool) for tool in tools):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Forbidden(f"one of {', '.join(tools)} is missing and cannot be installed")
    print(f"installing {', '.join(packages)}", flush=True)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    try:
        with no_services():
            call("apt-get", "update", "-qq", env=environment)
            call("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, env=environment)
    except (OSError, RuntimeError) as error:
        raise Forbidden(f"{', '.join(packages)} cannot be installed: {error}") from error


class Manager:
    """Daemons on nodes of these names, which end with this value."""

    def __init__(self, names, directory):
        self._directory = directory
        self._daemons = []
        self.nodes = Nodes(names, directory)

    def _daemon(self, name, command):
        with open(f"{self._directory}/{name}.out", "wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self._daemons.append(process)

    def _ask(self, words, command, check, **options):
        """The output of a tool; `command` is how it is started here."""
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def _end(self, daemons, request):
        """Ends daemons by a signal, all at once, and those that do not end by force."""
        for process in daemons:
            process.send_signal(request)
        for process in daemons:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
