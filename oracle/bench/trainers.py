"""The ratio suite of whole training programs: one in stock's Python on stock's parameter servers, and `trainer` on ours.

A program is the worker of its cluster, with a server of its own, as TensorFlow's guide has it. `benches/src/bin/trainer.rs`
has the same models in Rust.
"""

import functools
import subprocess

import clusters
import tasks
from tasks import OURS, STOCK

HEADER = ["| program | unit | stock | ours | ours to stock |", "|---|---|---|---|---|"]


class Cluster(tasks.Cluster):
    """Parameter servers; the worker is the training program."""

    def __init__(self, kind, servers, binary):
        super().__init__({"ps": [kind] * servers, "worker": [kind]}, binary)
        self.tasks = [task for task in self.tasks if task.job == "ps"]


class Trainer:
    """Our program; takes a sample whenever it is asked."""

    def __init__(self, program, model, cluster, _):
        argv = [program, model, *([cluster.json()] if cluster.tasks else [])]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=tasks.die_with_parent
        )
        self._next()

    def _next(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"our program ended with {self._process.wait()}")
        return line

    def ask(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def sample(self):
        return float(self._next())

    def close(self):
        self._process.kill()
        self._process.wait()


def rows(binary, program, wanted, quick):
    """The lines of the table, one after the other."""
    import program_workloads

    tasks.preload()
    for workload, model, servers in program_workloads.all_programs():
        if not wanted.search(workload.name):
            continue
        pair = {"stock": Cluster(STOCK, servers, binary), "ours": Cluster(OURS, servers, binary)}
        try:
            for cluster in pair.values():
                cluster.start()
            starts = {
                "stock": functools.partial(clusters.Sampler, workload, pair["stock"]),
                "ours": functools.partial(Trainer, program, model, pair["ours"]),
            }
            yield clusters.measure(workload, starts, 3 if quick else workload.rounds)
        finally:
            for cluster in pair.values():
                cluster.stop()
