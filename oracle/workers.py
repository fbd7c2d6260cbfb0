"""Processes that ask stock, any of which may die of a case without taking the rest along.

A job is a function of the caller's module that runs in one of the processes. Before each case it calls `begin` with the
case's name. If stock then ends the process, or stays silent, the parent knows the case: it reports that as a finding and
runs the job again in a fresh process, without the case.
"""

import ctypes
import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import sys
import tempfile
import time
import traceback

import environment

# How long a case may take. Steps have deadlines of their own; a stock server that misses them does not come back.
SILENCE_SECONDS = 150
# How often a case may be silent before that is a finding: on a busy machine stock does, rarely, miss an answer.
TRIES = 2

_PR_SET_PDEATHSIG = 1

# The parent of a worker process, and the cases that it is not to run.
_parent, _skipped = None, frozenset()


def begin(case):
    """Says that a case is about to run; returns whether it should. Outside of a worker process it always should."""
    if _parent is None:
        return True
    if case in _skipped:
        return False
    _parent.send(("case", case))
    return True


@dataclasses.dataclass
class Outcome:
    """The result of one job."""

    # What the function returned; None if it failed.
    value: object = None
    # The function's own failure: one line, and the part of the stack that is its own.
    failure: str = ""
    # Cases that stock did not survive, with how it ended.
    deaths: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Job:
    key: object
    function: object
    arguments: tuple
    outcome: Outcome = dataclasses.field(default_factory=Outcome)
    silences: dict = dataclasses.field(default_factory=dict)


class _Worker:
    """A process, the job that it has, and the case that it said last."""

    def __init__(self, context):
        self.connection, other = context.Pipe()
        # What stock says on the side; of a death, only its last words are shown.
        self.errors = tempfile.NamedTemporaryFile("r", errors="replace")
        self.process = context.Process(target=_work, args=(other, sys.path, self.errors.name), daemon=True)
        self.process.start()
        other.close()
        self.job = None

    def give(self, job):
        self.job, self.case = job, None
        self.heard = time.monotonic()
        self.connection.send((job.function, job.arguments, frozenset(job.outcome.deaths)))

    def silent(self):
        return time.monotonic() - self.heard > SILENCE_SECONDS

    def ending(self):
        """The end of a process that is gone, and why stock ended it, if it said so."""
        self.process.join()
        code = self.process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        why = re.findall(r"^F\d{4} .*?\] (.*)$", self.errors.read(), re.MULTILINE)
        return f"{how}: {why[-1].strip()}" if why else how

    def end(self):
        self.process.kill()
        self.process.join()
        self.connection.close()
        self.errors.close()


def _work(connection, path, errors):
    """The body of a worker process: jobs until the parent is gone."""
    global _parent, _skipped
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with open(errors, "ab") as file:
        os.dup2(file.fileno(), 2)
    sys.path[:] = path
    _parent = connection
    while True:
        try:
            function, arguments, _skipped = connection.recv()
        except EOFError:
            return
        try:
            answer = ("value", function(*arguments))
        except Exception as error:
            # Of the stack, what is the job's own.
            frames = traceback.extract_tb(error.__traceback__)[1:]
            where = "".join(f"\n  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-3:])
            answer = ("failure", f"{type(error).__name__}: {error}{where}")
        connection.send(answer)


def run(jobs, count):
    """Runs jobs, `(key, function, *arguments)`, in `count` processes; yields `(key, Outcome)` as they end."""
    context = multiprocessing.get_context("spawn")
    waiting = [_Job(key, function, arguments) for key, function, *arguments in jobs]
    waiting.reverse()
    workers = []
    try:
        while waiting or any(worker.job for worker in workers):
            while waiting and len(workers) < count:
                workers.append(_Worker(context))
            for worker in workers:
                if worker.job is None and waiting:
                    worker.give(waiting.pop())
            busy = {worker.connection: worker for worker in workers if worker.job}
            for connection in multiprocessing.connection.wait(list(busy), timeout=1):
                worker = busy[connection]
                job = worker.job
                try:
                    kind, said = connection.recv()
                except (EOFError, ConnectionResetError):
                    _blame(job, worker.case, worker.ending())
                    workers.remove(worker)
                    worker.end()
                    if job.outcome.failure:
                        yield job.key, job.outcome
                    else:
                        waiting.append(job)
                    continue
                worker.heard = time.monotonic()
                if kind == "case":
                    worker.case = said
                    continue
                setattr(job.outcome, kind, said)
                worker.job = None
                yield job.key, job.outcome
            for worker in [worker for worker in busy.values() if worker.job and worker in workers and worker.silent()]:
                job = worker.job
                job.silences[worker.case] = job.silences.get(worker.case, 0) + 1
                workers.remove(worker)
                worker.end()
                if job.silences[worker.case] == TRIES:
                    _blame(job, worker.case, f"does not answer within {SILENCE_SECONDS} seconds, {TRIES} times")
                if job.outcome.failure:
                    yield job.key, job.outcome
                else:
                    waiting.append(job)
    finally:
        for worker in workers:
            worker.end()


def _blame(job, case, ending):
    """Notes a death; without a case to leave out the job cannot be run again."""
    if case is None or case in job.outcome.deaths:
        job.outcome.failure = f"stock {ending}, at no case"
    else:
        job.outcome.deaths[case] = ending
