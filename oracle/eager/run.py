"""Runs scenarios of remote eager execution with a stock client, on the servers at --target.

    python run.py [--target grpc://HOST:PORT,grpc://HOST:PORT,stock] [SCENARIO ...]

The client calls the first two servers the workers and the last one the parameter server. A target `stock` is a stock
server that this process starts, as all are without --target. Each scenario is a module of
this folder with a function `run(targets)`. What it prints must not depend on the servers.
"""

import argparse
import faulthandler
import importlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
# What scenarios print, and raw calls.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import environment

import tensorflow as tf

TASKS = [("worker", 0), ("worker", 1), ("ps", 0)]

SCENARIOS = [
    "protocol",
    "operations",
    "functions",
    "variables",
    "refusals",
    "elsewhere",
    "spanning",
    "asynchronous",
    "clusters",
    "training",
    "datasets",
    # In stock, a process that has taken part in another coordination service is no leader any more.
    "barriers",
    "coordination",
    "abandoned",
    "summaries",
    "tables",
    "coordinator",
]


# All scenarios take seconds. If they take longer than this, one hangs, and the process ends with where it was.
SECONDS = 600


def as_cluster(targets):
    addresses = [target.removeprefix("grpc://") for target in targets]
    return tf.train.ClusterSpec({"worker": addresses[:2], "ps": addresses[2:]})


def start_stock(targets):
    """Starts a stock server in a process of its own for each target `stock`; it ends when this process does."""
    # Bound but not listening: nobody else is given these ports before the servers listen there.
    sockets = [socket.socket() for target in targets if target == "stock"]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    ports = iter(sockets)
    targets = [
        f"grpc://127.0.0.1:{next(ports).getsockname()[1]}" if target == "stock" else target for target in targets
    ]
    cluster = as_cluster(targets)
    script = pathlib.Path(__file__).resolve().parents[1] / "bench/stock_server.py"
    start = lambda job, index: subprocess.Popen(
        [sys.executable, script, json.dumps(cluster.as_dict()), job, str(index)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    held = {f"grpc://127.0.0.1:{each.getsockname()[1]}" for each in sockets}
    servers = [start(*task) for task, target in zip(TASKS, targets) if target in held]
    for server in servers:
        server.stdout.readline()
    return targets, (servers, sockets)


def main():
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="stock,stock,stock")
    parser.add_argument("scenario", nargs="*", default=SCENARIOS)
    arguments = parser.parse_args()
    targets, _servers = start_stock(arguments.target.split(","))
    tf.config.experimental_connect_to_cluster(as_cluster(targets), job_name="client")
    # Whoever reads this knows what is left if a scenario ends the process.
    print("scenarios", *arguments.scenario, flush=True)
    for name in arguments.scenario:
        print(f"== {name}", flush=True)
        try:
            importlib.import_module(name).run(targets)
        except Exception as error:  # A scenario that breaks off must not keep the others from running.
            traceback.print_exc()
            print(f"broke off: {type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
    # The servers' threads would keep the process alive.
    os._exit(0)
