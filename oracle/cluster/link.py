"""A network link in user space, between two namespaces: it delays packets, loses some, or all of them.

`tc netem` would do the same, but many kernels are built without it.
"""

import contextlib
import fcntl
import heapq
import mmap
import os
import pathlib
import random
import select
import signal
import struct
import subprocess
import time

import tasks

_PREFIX = "ferroflow-"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


def _command(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=20)


def _device(namespace):
    """A tunnel device in a namespace; what is routed to it can be read here, what is written here arrives there."""
    tasks.enter_namespace(namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"link0", _IFF_TUN | _IFF_NO_PI))
    return device


class Link:
    """Two namespaces and the link between them."""

    def __init__(self):
        self.names = [f"{_PREFIX}{os.getpid()}-{side}" for side in "ab"]
        # Any private range will do: nothing else is in these namespaces.
        self.hosts = ["10.198.0.1", "10.198.0.2"]
        self._weather = mmap.mmap(-1, 16)
        self._pid = None

    def __enter__(self):
        try:
            self._remove_forgotten()
            for name in self.names:
                _command("ip", "netns", "add", name)
            read_end, write_end = os.pipe()
            self._pid = os.fork()
            if self._pid == 0:
                with contextlib.suppress(BaseException):
                    self._carry(write_end)
                os._exit(1)
            os.close(write_end)
            ready = os.read(read_end, 1)
            os.close(read_end)
            if not ready:
                raise OSError("no tunnel devices")
            for name, own, other in zip(self.names, self.hosts, reversed(self.hosts)):
                _command("ip", "-n", name, "address", "add", own, "peer", other, "dev", "link0")
                _command("ip", "-n", name, "link", "set", "link0", "up")
                _command("ip", "-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def weather(self, delay=0.0, loss=0.0):
        """Sets the behavior of the link from now on, both ways: seconds, and the share of packets that are lost."""
        struct.pack_into("dd", self._weather, 0, delay, loss)

    def cut(self):
        self.weather(loss=1.0)

    def _carry(self, ready):
        """Moves packets until this process is killed."""
        tasks.die_with_parent()
        devices = [_device(name) for name in self.names]
        os.write(ready, b"1")
        chance = random.Random(1)
        waiting = []
        number = 0
        while True:
            left = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
            for device in select.select(devices, [], [], left)[0]:
                with contextlib.suppress(OSError):
                    packet = os.read(device, 65536)
                    delay, loss = struct.unpack_from("dd", self._weather, 0)
                    if chance.random() >= loss:
                        number += 1
                        heapq.heappush(
                            waiting, (time.monotonic() + delay, number, devices[1 - devices.index(device)], packet)
                        )
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, device, packet = heapq.heappop(waiting)
                # A device whose queue is full loses the packet, as a link does.
                with contextlib.suppress(OSError):
                    os.write(device, packet)

    @staticmethod
    def _remove_forgotten():
        """Namespaces of runs that were killed."""
        for path in pathlib.Path("/var/run/netns").glob(_PREFIX + "*"):
            if not pathlib.Path(f"/proc/{path.name.split('-')[1]}").exists():
                subprocess.run(["ip", "netns", "del", path.name], capture_output=True, check=False)
