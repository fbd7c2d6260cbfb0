"""Parts that the tests of the package share: programs in processes of their own, and files that stock wrote."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# Anything that takes longer is taken to hang.
PATIENCE = 180


def environment(**changes):
    """The variables of a program, without what this process was told."""
    variables = {name: value for name, value in os.environ.items() if name not in ("FERROFLOW", "TF_CONFIG")}
    variables.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="-1")
    variables.update(changes)
    return variables


def run(*words, **changes):
    """Runs Python with these words to its end, and returns its code and both its outputs."""
    words = [sys.executable, *map(str, words)]
    done = subprocess.run(
        words, check=False, env=environment(**changes), capture_output=True, text=True, timeout=PATIENCE
    )
    return done.returncode, done.stdout, done.stderr


if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Shells start what is to run in the background like that, and programs would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Program:
    """A program that runs beside the test, whose output is read line by line."""

    def __init__(self, *words, at=None, **changes):
        words = [sys.executable, "-u", *map(str, words)]
        # Of its own: tracebacks of other threads would stand in the middle of lines.
        self.errors = tempfile.TemporaryFile("a+")
        self.process = subprocess.Popen(
            words, cwd=at, env=environment(**changes), stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.deadline = threading.Timer(PATIENCE, self.process.kill)
        self.deadline.start()
        self.lines = []

    def line(self):
        """The next line of its output."""
        line = self.process.stdout.readline()
        assert line, "the program ended: " + "".join(self.lines) + self.errors_so_far()
        self.lines.append(line)
        return line.rstrip("\n")

    def line_with(self, text):
        """The next line with this text in it."""
        while True:
            line = self.line()
            if text in line:
                return line

    def interrupt(self):
        """Sends what Ctrl-C sends."""
        self.process.send_signal(signal.SIGINT)

    def wait(self):
        """Waits for its end, and returns its code, and the rest of its output with all its errors."""
        rest = self.process.stdout.read()
        code = self.process.wait()
        self.deadline.cancel()
        return code, rest + self.errors_so_far()

    def errors_so_far(self):
        """Returns its standard error so far."""
        self.errors.seek(0)
        return self.errors.read()

    def kill(self):
        """Ends it at once."""
        self.process.kill()
        self.wait()


@pytest.fixture
def start():
    """Starts programs that end with the test."""
    programs = []

    def begin(*words, **changes):
        programs.append(Program(*words, **changes))
        return programs[-1]

    yield begin
    for program in programs:
        program.kill()


@pytest.fixture(scope="session")
def stock_files(tmp_path_factory):
    """A directory with graphs, a checkpoint and an event file that stock wrote."""
    directory = tmp_path_factory.mktemp("stock")
    code, _, errors = run(HERE / "programs/write_files.py", directory)
    assert code == 0, errors
    return directory
