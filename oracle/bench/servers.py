"""Server processes, ours and stock's, handled alike. Imports no TensorFlow, so that starting one is cheap to time."""

import json
import pathlib
import re
import socket
import subprocess
import sys
import time

_STOCK = [sys.executable, str(pathlib.Path(__file__).with_name("stock_server.py"))]


class Server:
    """A running server; `target` is what a client connects to, `startup` how long it took to say so."""

    def __init__(self, argv):
        started = time.perf_counter()
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.target = None
        for line in self._process.stdout:
            found = re.search(r"grpc://\S+", line)
            if found:
                self.target = found[0]
                break
        self.startup = time.perf_counter() - started
        if self.target is None:
            raise RuntimeError(f"{argv[0]} ended without saying where it listens")

    def resident(self):
        """Resident memory in bytes."""
        status = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def alive(self):
        return self._process.poll() is None

    def stop(self):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def stock():
    """Starts a stock server."""
    return Server(_STOCK)


def ferroflow(binary):
    """Starts a Ferroflow server."""
    return Server([str(binary), "serve", "--port", "0", "--log", "warn"])


def launched(binary):
    """Seconds from `ferroflow run` to the moment when its parameter server and two workers, ours too, have said that they serve."""
    program = [str(binary), "serve", "--log", "warn"]
    argv = [str(binary), "run", "--ps", "1", "--workers", "2", "--", *program]
    started = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        ready = 0
        for line in process.stdout:
            ready += "grpc://" in line
            if ready == 3:
                break
        seconds = time.perf_counter() - started
        process.terminate()
        process.stdout.read()
    if ready != 3:
        raise RuntimeError("the cluster did not come up")
    return seconds


def stock_by_hand():
    """Seconds until three servers of stock, started at once, have said that they serve."""
    sockets = [socket.socket() for _ in range(3)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    cluster = json.dumps({"ps": addresses[:1], "worker": addresses[1:]})
    started = time.perf_counter()
    tasks = [("ps", "0"), ("worker", "0"), ("worker", "1")]
    processes = [
        subprocess.Popen([*_STOCK, cluster, *task], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for task in tasks
    ]
    targets = [process.stdout.readline() for process in processes]
    seconds = time.perf_counter() - started
    for process in processes:
        process.kill()
        process.wait()
    if not all(targets):
        raise RuntimeError("a server of stock did not start")
    return seconds
