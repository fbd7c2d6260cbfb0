"""`python -m ferroflow trainer.py --flags` runs an unchanged program with Ferroflow's servers."""

from __future__ import annotations

import os
import runpy
import sys
from typing import NoReturn

from ferroflow import switch

_USAGE = """usage: python -m ferroflow program.py [arguments of the program]
       python -m ferroflow -m module [arguments of the program]

Runs a program of TensorFlow with its tf.distribute.Server replaced by Ferroflow's.
FERROFLOW=1 makes it an error if a server has to be stock's; the default, auto, says why and goes on.
The servers and launchers of Ferroflow are in another command: ferroflow --help
"""


def _refuse(sentence: str) -> NoReturn:
    sys.stderr.write(f"python -m ferroflow: {sentence}\n\n{_USAGE}")
    sys.exit(2)


def main() -> None:
    """Runs the program that the arguments name, as Python itself would."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(_USAGE)
        sys.exit(0 if words else 2)
    try:
        switch.mode()
    except ValueError as error:
        _refuse(str(error))
    # Processes that the program starts are switched, too.
    os.environ.setdefault(switch.VARIABLE, "auto")
    switch.install()
    if words[0] == "-m":
        if len(words) < 2:
            _refuse("-m needs the name of a module")
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    program = words[0]
    if program.startswith("-"):
        _refuse(f"{program} is not an option; the program comes first, its arguments after it")
    try:
        with open(program, "rb") as file:
            source = file.read()
    except OSError as error:
        _refuse(f"cannot read {program}: {error.strerror}")
    sys.argv = words
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    # The program becomes this process's main module, as pickled functions and debuggers expect.
    names = sys.modules["__main__"].__dict__
    kept = {"__name__": "__main__", "__file__": program, "__builtins__": names["__builtins__"]}
    kept.update(__package__=None, __loader__=None, __spec__=None, __doc__=None, __cached__=None)
    code = compile(source, program, "exec", dont_inherit=True)
    names.clear()
    names.update(kept)
    exec(code, names)


if __name__ == "__main__":
    main()
