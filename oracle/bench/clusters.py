"""The ratio suite on clusters: all of stock's tasks, our parameter servers with stock's workers, and all ours.

Every workload runs in client processes of its own, on all three clusters in turn.
"""

import dataclasses
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import typing

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))

import tasks
from tasks import OURS, STOCK

CLUSTERS = {
    "stock": {"ps": [STOCK] * 2, "worker": [STOCK] * 4},
    "mixed": {"ps": [OURS] * 2, "worker": [STOCK] * 4},
    "ours": {"ps": [OURS] * 2, "worker": [OURS] * 4},
}

# A sample that takes longer hangs.
SECONDS = 120

# How many times its rounds a workload takes at most, while its samples lie on both sides of a bar.
CLOSE = 4


@dataclasses.dataclass
class Workload:
    """`open(cluster, index)` prepares the client of one worker and returns what takes a sample.

    The samples of all clients of a workload are taken at the same time and added.
    """

    name: str
    unit: str
    open: typing.Callable
    clients: int = 1
    rate: bool = True
    least_ours: float | None = None
    least_mixed: float | None = 1.0
    rounds: int = 5


@dataclasses.dataclass
class Row:
    """One line of the table: samples by cluster."""

    name: str
    unit: str
    samples: dict
    rate: bool
    least: dict
    error: str = ""

    def ratios(self, cluster):
        pairs = zip(self.samples[cluster], self.samples["stock"])
        return [(one / stock if self.rate else stock / one) for one, stock in pairs]

    def missed(self, cluster):
        """Whether there is a bar and it is not met."""
        least = self.least.get(cluster)
        return least is not None and (
            bool(self.error) or not self.ratios(cluster) or statistics.median(self.ratios(cluster)) < least
        )

    def is_close(self):
        """Whether some samples meet a bar and others do not."""
        return any(straddles(least, self.ratios(cluster)) for cluster, least in self.least.items())

    def met(self):
        if all(least is None for least in self.least.values()):
            return None
        return not any(self.missed(cluster) for cluster in self.least)

    def text(self):
        if self.error:
            return f"| {self.name} | failed: {self.error} |" + " |" * (2 * len(self.samples) - 1)
        cells = [f"{_round(statistics.median(samples))}" if samples else "" for samples in self.samples.values()]
        for cluster in (cluster for cluster in self.samples if cluster != "stock"):
            ratios = self.ratios(cluster)
            bar = self.least.get(cluster)
            verdict = "" if bar is None else f", bar {bar:g}× {'**missed**' if self.missed(cluster) else 'met'}"
            cells.append(
                f"{statistics.median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f}){verdict}" if ratios else ""
            )
        return f"| {self.name} | {self.unit} | " + " | ".join(cells) + " |"


def straddles(bar, values):
    """Whether some values lie below a bar and others do not."""
    return bar is not None and bool(values) and min(values) < bar <= max(values)


def _round(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


HEADER = [
    "| work | unit | stock | our ps, stock's workers | all ours | the second to stock | all ours to stock |",
    "|---|---|---|---|---|---|---|",
]


class Sampler:
    """A client process that takes a sample whenever it is asked."""

    def __init__(self, workload, cluster, index):
        ask_read, self._ask = os.pipe()
        self._client = tasks.Client(self._answer, ask_read, workload, cluster, index)
        os.close(ask_read)
        self._seen = 0
        self._next()

    @staticmethod
    def _answer(ask, workload, cluster, index):
        sample = workload.open(cluster, index)
        print("ready", flush=True)
        while os.read(ask, 1):
            print(repr(float(sample())), flush=True)

    def _next(self):
        """The next line of the client."""
        deadline = time.monotonic() + SECONDS
        while len(self._client.lines()) <= self._seen:
            if self._client.read(0.01) or time.monotonic() > deadline:
                raise RuntimeError(_reason(self._client.errors()) or f"no answer within {SECONDS} s")
        self._seen += 1
        return self._client.lines()[self._seen - 1]

    def ask(self):
        os.write(self._ask, b"s")

    def sample(self):
        return float(self._next())

    def close(self):
        os.close(self._ask)
        self._client.kill()


def _reason(errors):
    said = [line for line in errors.splitlines() if line.strip()]
    return said[-1].strip()[:160] if said else ""


def measure(workload, starts, rounds):
    """Samples of one workload on all clusters in turn; which goes first changes every round. A close one takes more.

    What starts a cluster's clients gets their indices.
    """
    row = Row(
        workload.name,
        workload.unit,
        {name: [] for name in starts},
        workload.rate,
        {"ours": workload.least_ours, "mixed": workload.least_mixed},
    )
    samplers = {name: [] for name in starts}

    def sample(name):
        for each in samplers[name]:
            each.ask()
        return sum(each.sample() for each in samplers[name])

    try:
        for name, start in starts.items():
            for index in range(workload.clients):
                samplers[name].append(start(index))
            sample(name)
        names = list(starts)
        for number in range(CLOSE * rounds):
            if number >= rounds and not row.is_close():
                break
            for name in names[number % len(names) :] + names[: number % len(names)]:
                row.samples[name].append(sample(name))
    except Exception as error:  # What one cluster cannot do fails its own row, not the suite.
        row.error = f"{name}: {error}"
    for each in (each for every in samplers.values() for each in every):
        each.close()
    return row


def launches(binary, rounds):
    """Processes from nothing to ready, and to the first completed step of a client that waits for them."""
    ready, first = ({name: [] for name in CLUSTERS} for _ in range(2))
    for _number in range(rounds):
        for name, layout in CLUSTERS.items():
            cluster = Fresh({job: kinds[:1] for job, kinds in layout.items()}, binary)
            client = tasks.Client(_first_step, cluster)
            client.wait_for("built", 60)
            start = time.perf_counter()
            with cluster:
                ready[name].append(time.perf_counter() - start)
                os.kill(client.pid, 10)
                if not client.wait_for("stepped", 60):
                    raise RuntimeError(client.errors())
                first[name].append(time.perf_counter() - start)
            client.kill()
    yield Row("two servers, launched to ready", "s", ready, False, {"ours": 10.0, "mixed": None})
    yield Row("launched to the first completed step", "s", first, False, {"ours": None, "mixed": 1.0})


class Fresh(tasks.Cluster):
    """A cluster whose stock tasks are not forks but processes that start from nothing, as a user starts them."""

    def __init__(self, layout, binary):
        super().__init__(layout, binary)
        self._processes = []

    def start(self):
        script = str(pathlib.Path(__file__).with_name("stock_server.py"))
        for task in self.tasks:
            if task.kind == STOCK:
                argv = [sys.executable, script, self.json(), task.job, str(task.index)]
                self._processes.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            else:
                task.start()
        for process in self._processes:
            process.stdout.readline()
        for task in self.tasks:
            if task.kind == OURS:
                task.wait()

    def stop(self):
        for process in self._processes:
            process.kill()
            process.wait()
        super().stop()


def _first_step(cluster):
    import signal

    import cluster_workloads

    step = cluster_workloads.first_step(cluster)
    signal.signal(10, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [10])
    print("built", flush=True)
    signal.sigwait([10])
    step()
    print("stepped", flush=True)
    signal.pause()


def rows(binary, wanted, quick):
    """The lines of the table, one after the other."""
    import cluster_workloads

    tasks.preload()
    if binary == STOCK:
        for layout in CLUSTERS.values():
            layout.update({job: [STOCK] * len(kinds) for job, kinds in layout.items()})
    if wanted.search("launched to ready"):
        yield from launches(binary, 2 if quick else 4)
    with tempfile.TemporaryDirectory() as directory:
        chosen = [each for each in cluster_workloads.all_workloads(pathlib.Path(directory)) if wanted.search(each.name)]
        if not chosen:
            return
        clusters = {name: tasks.Cluster(layout, binary) for name, layout in CLUSTERS.items()}
        try:
            for cluster in clusters.values():
                cluster.start()
            for workload in chosen:
                starts = {name: functools.partial(Sampler, workload, cluster) for name, cluster in clusters.items()}
                yield measure(workload, starts, 3 if quick else workload.rounds)
        finally:
            for cluster in clusters.values():
                cluster.stop()
