"""The training that `ferroflow demo` runs."""

from __future__ import annotations

import os
import subprocess

from ferroflow import command
from ferroflow.errors import UnknownError


def demo(
    ps: int = 1,
    workers: int = 2,
    steps: int = 2000,
    sync: bool = False,
    model: str = "mlp",
    directory: str | os.PathLike[str] = "ferroflow-demo",
) -> None:
    """Trains a classifier of handwritten digits on a cluster of processes on this machine, as `ferroflow demo` does.

    Args:
        ps: The number of parameter servers.
        workers: The number of workers.
        steps: The number of steps.
        sync: Whether to average the gradients of all workers in every step.
        model: The classifier, `mlp` or `cnn`.
        directory: The directory for checkpoints and events.
    """
    words = [command.script(), "demo"]
    words += ["--ps", str(ps), "--workers", str(workers), "--steps", str(steps), "--model", model]
    words += ["--dir", os.fspath(directory)] + ["--sync"] * sync
    done = subprocess.run(words, check=False)
    if done.returncode != 0:
        raise UnknownError(f"the training ended with code {done.returncode}; its last lines are above")
