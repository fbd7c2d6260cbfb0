"""A coordinator's program: variables on the parameter server, functions scheduled on any worker."""

from program import run_program


def run(targets):
    run_program("coordinator_program", targets)
