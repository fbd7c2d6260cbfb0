"""Runs scenarios of remote eager execution with a stock client, on the servers at --target or on stock servers in this
process.

    python run.py [--target grpc://HOST:PORT,grpc://HOST:PORT,grpc://HOST:PORT] [SCENARIO ...]

The client calls the first two servers the workers and the last one the parameter server. Each scenario is a module of
this folder with a function `run(targets)`. What it prints must not depend on the servers.
"""

import argparse
import faulthandler
import importlib
import os
import pathlib
import sys
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
# What scenarios print, and raw calls.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import environment  # noqa: E402, F401

import tensorflow as tf  # noqa: E402

SCENARIOS = [
    "protocol",
    "operations",
]


# All scenarios take seconds. If they take longer than this, one hangs, and the process ends with where it was.
SECONDS = 600


def main():
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--target")
    parser.add_argument("scenario", nargs="*", default=SCENARIOS)
    arguments = parser.parse_args()
    if arguments.target is None:
        servers = [tf.distribute.Server.create_local_server() for _ in range(3)]
        targets = [server.target for server in servers]
    else:
        targets = arguments.target.split(",")
    first, second, last = [target.removeprefix("grpc://") for target in targets]
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": [first, second], "ps": [last]}), job_name="client")
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
