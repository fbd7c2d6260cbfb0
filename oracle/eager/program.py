"""Scenarios whose programs need a process that is not connected to anything yet."""

import pathlib
import subprocess
import sys

LIMIT = 300


def run_program(name, targets, *arguments):
    """Runs `name.py` of this folder with the addresses of the tasks and shows what it prints."""
    program = pathlib.Path(__file__).with_name(f"{name}.py")
    addresses = [target.removeprefix("grpc://") for target in targets]
    command = [sys.executable, program, *addresses, *arguments]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, timeout=LIMIT)
    print(done.stdout.decode(), end="", flush=True)
    print("ended", done.returncode, flush=True)
