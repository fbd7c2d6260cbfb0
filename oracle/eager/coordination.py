"""Clients that turn the coordination service on: tasks register with their leader, tell it that they live, and keep what is
to be known to all."""

from program import run_program


def run(targets):
    run_program("coordination_program", targets, "values")
    run_program("coordination_program", targets, "strategy")
