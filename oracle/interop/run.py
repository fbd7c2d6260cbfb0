"""Runs scenarios with a stock client, on the server at --target or on a stock server in this process.

    python run.py [--target grpc://HOST:PORT] [SCENARIO ...]

Each scenario is a module of this folder with a function `run(target)`. What it prints must not depend on the server.
"""

import argparse
import faulthandler
import importlib
import os
import pathlib
import sys
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import environment

import tensorflow as tf

SCENARIOS = [
    "sessions",
    "steps",
    "partial_runs",
    "cancellation",
    "tracing",
    "tensors",
    "large_tensors",
    "variables",
    "views",
    "accumulators",
    "queues",
    "datasets",
    "checkpoints",
    "saved_models",
    "control_flow",
    "functions",
    "shared_names",
    "tensor_lists",
    "sparse_features",
    "random_numbers",
    "protocol",
    "worker_service",
    "summaries",
    "images",
    "unused_nodes",
    "hostile_graphs",
    "tables",
    "input_files",
    "text_models",
    "signal_models",
]


# All scenarios take seconds. If they take longer than this, one hangs, and the process ends with where it was.
SECONDS = 600


def main():
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--target")
    parser.add_argument("scenario", nargs="*", default=SCENARIOS)
    arguments = parser.parse_args()
    tf.compat.v1.disable_eager_execution()
    target = arguments.target
    if target is None:
        server = tf.distribute.Server.create_local_server()
        target = server.target
    # Whoever reads this knows what is left if a scenario ends the process.
    print("scenarios", *arguments.scenario, flush=True)
    for name in arguments.scenario:
        print(f"== {name}", flush=True)
        tf.compat.v1.reset_default_graph()
        try:
            with tf.Graph().as_default():
                importlib.import_module(name).run(target)
        except Exception as error:  # A scenario that breaks off must not keep the others from running.
            traceback.print_exc()
            print(f"broke off: {type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
    # The server's threads would keep the process alive.
    os._exit(0)
