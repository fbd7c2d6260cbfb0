"""Clusters of stock's tasks and ours, as processes that end with the one that started them.

A stock task is a fork of this process, which has imported TensorFlow and must never have used it: so it starts in a
tenth of a second and shares most of its memory. Clients are forks too (`Client`), because a process that has used
TensorFlow can no longer be forked.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

# Scenarios report as those on one server do.
ORACLE = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(ORACLE / "interop"), str(ORACLE)]

import environment

# How long a task may take to say that it is ready.
READY_SECONDS = 60

STOCK, OURS = "stock", "ours"

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000


def die_with_parent():
    """This process ends when the one that started it does."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_namespace(name):
    """Moves this thread, and those it starts, into a network namespace made by `ip netns`."""
    with open(f"/var/run/netns/{name}") as file:
        if _LIBC.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {name}")


def hold_ports(count):
    """Sockets that are bound but do not listen: nobody else is given their ports, but a server can listen there.

    A port that was only looked for could be taken by any connection before its server starts, or while it is away.
    """
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("", 0))
    return sockets


# Those of `free_ports`, as long as this process lives.
_HELD = []


def free_ports(count):
    """Ports that nobody listens on and that nobody else is given."""
    sockets = hold_ports(count)
    _HELD.extend(sockets)
    return [each.getsockname()[1] for each in sockets]


def _fork(body, errors, namespace=None):
    """Runs `body(write_end)` in a child; returns its process id and the read end."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    code = 1
    try:
        die_with_parent()
        os.close(read_end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        if namespace:
            enter_namespace(namespace)
        body(write_end)
        code = 0
    except BaseException:  # Nothing may return into the parent's code.
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _read_until(fd, pattern, deadline):
    """The text of a pipe up to a match of `pattern`; None if it closed or the time was over before."""
    text = b""
    while True:
        found = re.search(pattern, text)
        if found:
            return found
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return None
        data = os.read(fd, 65536)
        if not data:
            return None
        text += data


class Task:
    """One task of a cluster. `start`, `wait`, `kill` and `start` again."""

    def __init__(self, cluster, job, index, kind, namespace=None):
        self.cluster, self.job, self.index, self.kind, self.namespace = cluster, job, index, kind, namespace
        # More of our server's command line.
        self.arguments = []
        # The cluster that the task is told of, if that is not the whole, and whether ours is told by a file.
        self.knows, self.by_file = None, False
        self.pid = self._pipe = self._process = None

    @property
    def name(self):
        return f"/job:{self.job}/replica:0/task:{self.index}"

    @property
    def target(self):
        return "grpc://" + self.cluster.spec[self.job][self.index]

    def start(self):
        assert self.pid is None, f"{self.name} runs already"
        with open(self.log, "ab") as log:
            if self.kind == STOCK:
                self.pid, self._pipe = _fork(self._serve_stock, log.fileno(), self.namespace)
                return
            self._process = subprocess.Popen(
                [
                    *self.cluster.binary,
                    "serve",
                    "--job_name",
                    self.job,
                    "--task_index",
                    str(self.index),
                    "--cluster",
                    self.cluster.told(self),
                    *self.arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=self._prepare,
            )
            self.pid, self._pipe = self._process.pid, self._process.stdout.fileno()

    def _prepare(self):
        die_with_parent()
        if self.namespace:
            enter_namespace(self.namespace)

    def _serve_stock(self, write_end):
        import tensorflow as tf

        server = tf.distribute.Server(
            self.knows or self.cluster.spec,
            job_name=self.job,
            task_index=self.index,
            config=self.cluster.stock_config(),
        )
        os.write(write_end, server.target.encode() + b"\n")
        while True:
            signal.pause()

    def wait(self, deadline=None):
        """Until the task says that it serves."""
        if _read_until(self._pipe, rb"grpc://\S+\s", deadline or time.monotonic() + READY_SECONDS) is None:
            raise RuntimeError(f"{self.kind} {self.name} does not become ready: {self.tail()}")

    def kill(self, number=signal.SIGKILL):
        """Ends the task at once, without a farewell."""
        if self.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        if self._process:
            self._process.wait()
            self._process.stdout.close()
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            os.close(self._pipe)
        self.pid = self._pipe = self._process = None

    def alive(self):
        """Whether the process is there and not a zombie."""
        if self.pid is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        return False

    def resident(self):
        """Resident memory in bytes."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def descriptors(self):
        """The number of open files and sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def log(self):
        return self.cluster.directory / f"{self.job}-{self.index}.log"

    def tail(self, lines=12):
        """The end of what the task logged."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


def _numbered(kinds):
    return kinds.items() if isinstance(kinds, dict) else enumerate(kinds)


class Cluster:
    """Tasks by job, from a layout such as `{"ps": ["ours", "stock"], "worker": {4: "stock"}}`."""

    def __init__(self, layout, binary=None, hosts=None, namespaces=None):
        members = [(job, index, kind) for job, kinds in layout.items() for index, kind in _numbered(kinds)]
        assert binary or all(kind == STOCK for *_, kind in members), "a layout with our tasks needs our binary"
        self.binary = [str(binary)]
        self._temporary = tempfile.TemporaryDirectory(prefix="ferroflow-cluster-")
        self.directory = pathlib.Path(self._temporary.name)
        self._held = hold_ports(len(members))
        ports = iter([each.getsockname()[1] for each in self._held])
        host = lambda job, index: (hosts or {}).get((job, index), "localhost")
        addresses = {(job, index): f"{host(job, index)}:{next(ports)}" for job, index, _ in members}
        self.spec = {
            job: {index: addresses[job, index] for index in kinds}
            if isinstance(kinds, dict)
            else [addresses[job, index] for index, _ in _numbered(kinds)]
            for job, kinds in layout.items()
        }
        space = lambda job, index: (namespaces or {}).get((job, index))
        self.tasks = [Task(self, job, index, kind, space(job, index)) for job, index, kind in members]

    def json(self):
        return json.dumps(self.spec)

    def told(self, task):
        """The cluster as a Ferroflow server is told of it."""
        text = json.dumps(task.knows or self.spec)
        if not task.by_file:
            return text
        file = self.directory / f"{task.job}-{task.index}.json"
        file.write_text(text)
        return str(file)

    def stock_config(self):
        """The arguments of stock's tasks."""
        return None

    def task(self, job, index):
        return next(task for task in self.tasks if (task.job, task.index) == (job, index))

    def target(self, job="worker", index=0):
        return self.task(job, index).target

    def start(self):
        """Starts every task, all at the same time, and waits until they serve."""
        for task in self.tasks:
            task.start()
        deadline = time.monotonic() + READY_SECONDS
        for task in self.tasks:
            task.wait(deadline)

    def stop(self):
        for task in self.tasks:
            task.kill()
        for each in self._held:
            each.close()
        self._temporary.cleanup()

    def logs(self):
        """The logs of our tasks, to be shown with a failure."""
        said = [(task.name, task.tail()) for task in self.tasks if task.kind == OURS]
        return "\n".join(f"--- {name}\n{text}" for name, text in said if text)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()


def until(condition, seconds):
    """Asks again and again until the condition holds; whether it does within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Client:
    """A function that runs in a process of its own; what it prints is collected."""

    def __init__(self, function, *arguments, namespace=None):
        self._errors = tempfile.TemporaryFile()
        self._text = b""

        def body(write_end):
            os.dup2(write_end, 1)
            # The descriptor outlives the file object, which a client's own clients replace in turn.
            sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
            function(*arguments)

        sys.stdout.flush()
        self.pid, self._pipe = _fork(body, self._errors.fileno(), namespace)
        self.code = None

    def read(self, seconds):
        """Reads for so long at most; whether the client has ended."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if not select.select([self._pipe], [], [], max(left, 0))[0]:
                return False
            data = os.read(self._pipe, 65536)
            if not data:
                self._reap()
                return True
            self._text += data

    def wait_for(self, pattern, seconds):
        """Reads until a whole line matches; whether one did."""
        deadline = time.monotonic() + seconds
        while True:
            complete = self._text[: self._text.rfind(b"\n") + 1].decode(errors="replace")
            if re.search(pattern, complete, re.MULTILINE):
                return True
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
                return False
            data = os.read(self._pipe, 65536)
            if not data:
                return False
            self._text += data

    def _reap(self):
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def finish(self, seconds):
        """Waits for the end and returns the lines; a client that takes longer is killed and says so in a last line."""
        ended = self.read(seconds)
        if not ended:
            self.kill()
        lines = self.lines()
        if not ended:
            lines.append(f"does not end within {seconds} s")
        elif self.code != 0:
            lines.append(f"ended with {self.code}")
        return lines

    def lines(self):
        """Its output, up to the end of a line."""
        return self._text[: self._text.rfind(b"\n") + 1].decode(errors="replace").splitlines()

    def errors(self, lines=12):
        """The end of what it said on the side, without the frames of tracebacks."""
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").splitlines()
        return "\n".join([line for line in said if line.strip() and not line.startswith((" ", "\t\t", "["))][-lines:])

    def kill(self):
        """Ends the client at once; what it printed before is kept."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            while select.select([self._pipe], [], [], 5)[0]:
                data = os.read(self._pipe, 65536)
                if not data:
                    break
                self._text += data
            self._reap()


def preload():
    """Imports TensorFlow for the forks to come; must be called before anything else in a process."""
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    # Imported on first use otherwise, once in every fork.
    import tensorflow.python.training.saver  # noqa: F401
