"""Server processes, ours and stock's, handled alike. Imports no TensorFlow, so that starting one is cheap to time."""

import pathlib
import re
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
    """Starts one of ours."""
    return Server([str(binary), "serve", "--port", "0", "--log", "warn"])
