"""A client that is killed while its operations run: its contexts stay until another client clears them."""

import pathlib
import subprocess
import sys

from protocol import Eager
from report import show


def run(targets):
    program = pathlib.Path(__file__).with_name("abandoned_program.py")
    addresses = [target.removeprefix("grpc://") for target in targets]
    client = subprocess.Popen([sys.executable, program, *addresses], stdout=subprocess.PIPE, text=True)
    context = int(client.stdout.readline())
    client.kill()
    client.wait()
    tasks = [Eager(target) for target in targets]
    there = lambda task: (lambda answer: answer[0] if isinstance(answer, tuple) else "there")(
        task("KeepAlive", context_id=context)
    )
    show("after its client", [there(task) for task in tasks])
    for task in tasks:
        task.create(clear_existing_contexts=True)
    show("cleared", [there(task) for task in tasks])
    show("closed late", [str(task("CloseContext", context_id=context)) for task in tasks])
