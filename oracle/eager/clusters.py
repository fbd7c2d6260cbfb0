"""Clients whose cluster changes: tasks that come, go and come back, several clients at once."""

import pathlib
import subprocess
import sys

from program import LIMIT, run_program

CLIENTS = 3


def run(targets):
    run_program("clusters_program", targets, "changes")
    run_program("clusters_program", targets, "limited")
    program = pathlib.Path(__file__).with_name("clusters_program.py")
    addresses = [target.removeprefix("grpc://") for target in targets]
    command = [sys.executable, program, *addresses]
    start = lambda number: subprocess.Popen(
        [*command, "client", str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    clients = [start(number) for number in range(CLIENTS)]
    # Each waits for the others, so that all of them are there at once.
    for client in clients:
        print(client.stdout.readline(), end="", flush=True)
    for number, client in enumerate(clients):
        print(f"client {number}", flush=True)
        print(client.communicate("go\n", timeout=LIMIT)[0], end="", flush=True)
        print("ended", client.returncode, flush=True)
