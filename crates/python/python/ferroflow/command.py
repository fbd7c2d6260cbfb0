"""The `ferroflow` command of this package."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
from typing import NoReturn

from ferroflow import _ferroflow
from ferroflow.errors import NotFoundError


def script() -> str:
    """Returns the file that starts the command: it starts itself again for the tasks of a cluster."""
    if os.path.basename(sys.argv[0]) == "ferroflow" and os.path.isfile(sys.argv[0]):
        return os.path.abspath(sys.argv[0])
    installed = os.path.join(sysconfig.get_path("scripts"), "ferroflow")
    if not os.path.isfile(installed):
        raise NotFoundError(f"there is no {installed}; install the package with pip, which makes it")
    return installed


def main() -> NoReturn:
    """Runs the command with the arguments of this process, and ends the process."""
    # The interpreter would note Ctrl-C and wait for the command's end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_ferroflow.run_command(script(), sys.argv[1:]))
