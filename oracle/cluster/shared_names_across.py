"""Functions whose nodes are named alike, on several tasks: drawn programs of calls, conditionals and loops with effects."""

import pathlib
import sys

from report import show

ORACLE = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(ORACLE), str(ORACLE / "differential")]

SEEDS = range(101, 105)


def run(cluster):
    import programs
    import stock

    client = stock.Client(cluster.target())
    devices = ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:1"]
    for seed in SEEDS:
        for step, answer in enumerate(programs.answers(client, programs.Program(seed, devices), optimized=True)):
            rounded = answer if isinstance(answer, str) else [round(float(value), 3) for value in answer]
            show(f"program {seed}, step {step}", rounded)
