"""Runs scenarios on clusters of stock's tasks, of Ferroflow's, and of both, and compares what they print with all-stock's lines.

    python run.py --server BINARY [--layout NAME ...] [--serve | --shared | SCENARIO ...]

Each scenario is a module of this folder or, with a dot in its name, of another one. Most have `run(cluster)`, called in a client process on a cluster that the
scenarios of a layout share. Those with `orchestrate(layout, binary)` start processes of their own: `LAYOUTS` there names
the layouts that they are about. Where `VERDICTS` is set every line must end with `: True`, no matter who runs the tasks. What
a scenario prints must not depend on who runs the tasks; numbers in lines that start with `~` may differ by rounding.
"""

import argparse
import importlib
import math
import os
import re
import sys
import time
import traceback

import tasks
from tasks import OURS, STOCK

# By name: the kinds of the tasks of job `ps` and of job `worker`.
LAYOUTS = {
    "stock": {"ps": [STOCK] * 3, "worker": [STOCK] * 2},
    "ours": {"ps": [OURS] * 3, "worker": [OURS] * 2},
    "our-ps": {"ps": [OURS] * 3, "worker": [STOCK] * 2},
    "our-workers": {"ps": [STOCK] * 3, "worker": [OURS] * 2},
    "mixed": {"ps": [OURS, STOCK, OURS], "worker": [STOCK, OURS]},
}

SCENARIOS = [
    "placement",
    "branches_and_loops",
    "functions_across",
    "shared_names_across",
    "variants_across",
    "state",
    "queues",
    "embeddings",
    "word_vectors",
    "batches",
    "optimizers",
    "partial_steps",
    "traces",
    "failures",
    "sessions_across",
    "brought_state",
    "cpu_devices",
    "rivals",
    "missing_workers",
    "refusals",
    "replicas",
    "trainers",
    "checkpoints",
    "old_checkpoints",
    "large_checkpoints",
    "killed_saves",
    "guide",
    "start_orders",
    "addresses",
    "waits",
    "pipeline_waits",
    "iterator_states",
    "standstill",
    "long_loops",
    "endings",
    "resets",
    "one_server",
    "counter",
    "restarts",
    "network",
    "coordinator.sharded",
    "coordinator.aggregation",
    "coordinator.training",
    "coordinator.datasets",
    "coordinator.distributed",
    "coordinator.keras_fit",
    "coordinator.tutorial",
    "coordinator.evaluation",
    "coordinator.saving",
    "coordinator.first_strategy",
    "coordinator.first_programs",
    "coordinator.two_devices",
    "coordinator.silence",
    "coordinator.lost_tasks",
]

# A scenario that takes longer hangs.
SECONDS = 300

_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)")


def alike(expected, found):
    """Whether two lines say the same."""
    if expected == found:
        return True
    if not (expected.startswith("~") and found.startswith("~")) or _NUMBER.sub("#", expected) != _NUMBER.sub(
        "#", found
    ):
        return False
    pairs = zip(map(float, _NUMBER.findall(expected)), map(float, _NUMBER.findall(found)))
    return all(math.isclose(a, b, rel_tol=2e-5, abs_tol=2e-6) or (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def difference(expected, found, most=5):
    """The first lines that differ, or None."""
    differing = []
    for i in range(max(len(expected), len(found))):
        one, other = (lines[i] if i < len(lines) else "(nothing)" for lines in (expected, found))
        if not alike(one, other):
            differing.append(f"  stock: {one}\n  here:  {other}")
    return "\n".join(differing[:most]) or None


def broken(lines, verdicts):
    """The first line that is bad on its own, or None."""
    for line in lines:
        if re.match(r"ended with|does not end|.* died$", line) or (
            verdicts and not re.search(r": True$|^skipped", line)
        ):
            return f"  {line}"
    return None


def _in_client(module, cluster):
    """Runs a scenario in this process, a fork."""
    import tensorflow as tf

    tf.compat.v1.reset_default_graph()
    tf.compat.v1.Session.reset(cluster.target())
    with tf.Graph().as_default():
        module.run(cluster)


class Layout:
    """A layout and the cluster that its scenarios share, started when the first one needs it."""

    def __init__(self, name, binary):
        self.name, self.binary, self.cluster = name, binary, None

    def run(self, scenario):
        """The lines of a scenario, and what the processes said on the side."""
        module = importlib.import_module(scenario)
        if hasattr(module, "orchestrate"):
            client = tasks.Client(module.orchestrate, LAYOUTS[self.name], self.binary)
            lines = client.finish(getattr(module, "SECONDS", SECONDS))
            return lines, client.errors()
        if self.cluster is None:
            self.cluster = tasks.Cluster(LAYOUTS[self.name], self.binary)
            self.cluster.start()
        client = tasks.Client(_in_client, module, self.cluster)
        lines = client.finish(getattr(module, "SECONDS", SECONDS))
        aside = client.errors() + "\n" + self.cluster.logs()
        dead = [task.name for task in self.cluster.tasks if not task.alive()]
        lines += [f"{name} died" for name in dead]
        # A task that died or may be stuck would spoil the scenarios to come.
        if dead or client.code != 0:
            self.stop()
        return lines, aside

    def stop(self):
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster = None


def compare(scenarios, names, binary, shared=False, show=False):
    """Runs scenarios on layouts and prints a line about each; returns how many differ from all-stock's."""
    layouts = [Layout("stock", None)] + [Layout(name, binary) for name in names if name != "stock"]
    wrong = 0
    try:
        for scenario in scenarios:
            expected = None
            module = importlib.import_module(scenario)
            if shared and hasattr(module, "orchestrate"):
                continue
            about = getattr(module, "LAYOUTS", LAYOUTS)
            for layout in (layout for layout in layouts if layout.name in about or not binary):
                started = time.monotonic()
                lines, aside = layout.run(scenario)
                if expected is None:
                    expected = lines
                verdicts = hasattr(module, "VERDICTS")
                differs = broken(lines, verdicts) or (None if verdicts else difference(expected, lines))
                wrong += differs is not None
                verdict = "differs" if differs else "ok"
                print(
                    f"{scenario} on {layout.name}: {verdict}, {len(lines)} lines, {time.monotonic() - started:.1f} s",
                    flush=True,
                )
                if show:
                    print("\n".join(f"    {line}" for line in lines), flush=True)
                if differs:
                    print(differs, *(f"    {line}" for line in aside.splitlines()), sep="\n", flush=True)
    finally:
        for layout in layouts:
            layout.stop()
    return wrong


def serve(names, binary):
    """Runs what each line of the standard input asks for, `shared` or names of scenarios, and ends each answer with a line.

    Importing TensorFlow takes longer than most scenarios, so tests share a process.
    """
    # What is said on the side belongs to the answer.
    os.dup2(1, 2)
    for line in sys.stdin:
        shared = line.strip() == "shared"
        try:
            wrong = compare(SCENARIOS if shared else line.split(), names, binary, shared)
        except Exception:
            traceback.print_exc()
            wrong = 1
        print(f"== {wrong} differences", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="our binary")
    parser.add_argument(
        "--layout", action="append", choices=LAYOUTS, help="all unless given; stock is what others are compared with"
    )
    parser.add_argument("--print", action="store_true", help="print the lines too")
    parser.add_argument("--shared", action="store_true", help="the scenarios that share the cluster of a layout")
    parser.add_argument("--serve", action="store_true", help="run what the standard input asks for, line by line")
    parser.add_argument("scenario", nargs="*", default=SCENARIOS)
    arguments = parser.parse_args()
    tasks.preload()
    names = arguments.layout or list(LAYOUTS)
    if not arguments.server:
        names = [name for name in names if name == "stock"]
    if arguments.serve:
        serve(names, arguments.server)
        return
    wrong = compare(arguments.scenario, names, arguments.server, arguments.shared, arguments.print)
    print(f"{wrong} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
