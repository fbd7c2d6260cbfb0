"""Unchanged programs with stock's servers in their processes, and with Ferroflow's: the ratio suite of the switch.

    python oracle/bench/switched.py --python PYTHON [--rounds N]

PYTHON is an interpreter with stock TensorFlow and the package, such as one into which `pip` has installed both. The
clusters of a row run at the same time and are measured in turn; a ratio above 1 means that the switched program is faster.
A busy machine makes the figures meaningless: run it on an idle one, or as root with `chrt --rr 10`.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).resolve().parent / "switched_program.py"

# Model, workers, and the least ratio that is good enough.
ROWS = [(model, workers, bar) for model, bar in (("mlp", 3), ("variables", 10), ("sparse", 3)) for workers in (1, 2, 4)]

LABELS = {
    "mlp": "small classifier",
    "variables": "200 variables",
    "sparse": "256 rows of a table of 100,000",
    "nothing": "empty step",
}


class Cluster:
    """A parameter server and workers, all of them the program."""

    def __init__(self, python, switch, model, workers, direct="1"):
        held = [socket.socket() for _ in range(workers + 1)]
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
        for one in held:
            one.close()
        jobs = json.dumps({"ps": addresses[:1], "worker": addresses[1:]})

        def start(job, task):
            return subprocess.Popen(
                [python, str(PROGRAM), model, job, str(task), jobs],
                env={**os.environ, "FERROFLOW": switch, "FERROFLOW_DIRECT": direct, "FERROFLOW_LOG": "warn"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

        self.tasks = [start("ps", 0)] + [start("worker", task) for task in range(workers)]

    def ready(self):
        """Waits until every worker has made a step."""
        for worker in self.tasks[1:]:
            if worker.stdout.readline().strip() != "ready":
                raise RuntimeError("a worker ended before it was ready")

    def sample(self, what):
        """Steps per second of all workers together."""
        for worker in self.tasks[1:]:
            worker.stdin.write(what + "\n")
            worker.stdin.flush()
        lines = [worker.stdout.readline() for worker in self.tasks[1:]]
        if not all(lines):
            raise RuntimeError(f"a worker ended: {[task.poll() for task in self.tasks]}")
        return sum(map(float, lines))

    def stop(self):
        """Ends all tasks."""
        for task in self.tasks:
            task.kill()
            task.wait()


def measure(python, model, workers, rounds):
    """Samples by what is run and by the servers."""
    clusters = {"stock": Cluster(python, "0", model, workers), "switched": Cluster(python, "1", model, workers)}
    kinds = ["train"]
    # An empty step is measured with the first model only, and so are steps over the loopback interface.
    if (model, workers) == ("mlp", 1):
        kinds.append("nothing")
        clusters["loopback"] = Cluster(python, "1", model, workers, direct="0")
    samples = {kind: {name: [] for name in clusters} for kind in kinds}
    try:
        for cluster in clusters.values():
            cluster.ready()
        for cluster in clusters.values():
            cluster.sample("train")
        for number in range(rounds):
            order = list(clusters) if number % 2 == 0 else list(clusters)[::-1]
            for kind in kinds:
                for name in order:
                    samples[kind][name].append(clusters[name].sample(kind))
    finally:
        for cluster in clusters.values():
            cluster.stop()
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="only rows of this model")
    args = parser.parse_args()
    print("| unchanged program | unit | stock | switched | ratio | smallest–largest | bar |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for model, workers, bar in ROWS:
        if args.only not in model:
            continue
        for kind, samples in measure(args.python, model, workers, args.rounds).items():
            label = LABELS[kind if kind == "nothing" else model]
            many = "1 worker" if workers == 1 else f"{workers} workers"
            stock = samples.pop("stock")
            for name, ours in samples.items():
                ratios = [one / other for one, other in zip(ours, stock)]
                ratio, least = statistics.median(ratios), bar if (kind, name) == ("train", "switched") else None
                verdict = "" if least is None else f"≥ {least}× {'met' if ratio >= least else '**missed**'}"
                how = ", over loopback" if name == "loopback" else ""
                speeds = f"{statistics.median(stock):.0f} | {statistics.median(ours):.0f} | {ratio:.2f}×"
                spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
                print(f"| {label}, {many}{how} | steps/s | {speeds} | {spread} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
