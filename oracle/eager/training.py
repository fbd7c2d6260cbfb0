"""Programs as users write them: a model on a remote task, trained by loops of all kinds."""

from program import run_program


def run(targets):
    run_program("training_program", targets)
