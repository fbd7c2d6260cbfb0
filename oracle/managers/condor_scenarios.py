"""Acts of a user of HTCondor: vanilla jobs that find each other in a directory that all machines share."""

import os
import re
import shutil
import sys

from condor import USER
from nodes import until

NODES = ("e9", "e10", "e11")

TRAINER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer.py")

SECONDS = 400


class Site:
    """A pool, our binary, and a directory for what a scenario writes."""

    def __init__(self, condor, binary, directory):
        self.condor, self.directory = condor, directory
        # The directory of the binary need not be shared: it is copied to one that is.
        self.binary = os.path.join(directory, "ferroflow")
        shutil.copy(binary, self.binary)
        os.chown(directory, USER, USER)

    def path(self, name):
        return os.path.join(self.directory, name)

    def submit(self, name, jobs, program):
        """The number of a submitted training."""
        command = [self.binary, "submit", "condor", "--jobs", jobs, "--name", name, "--dir", self.directory]
        options = ["--mem=512", "--", sys.executable, TRAINER, *program]
        said = self.condor.ask(*command, *options, directory=self.directory)
        return int(re.search(r"submitted to cluster (\d+)", said).group(1))

    def outputs(self):
        """The output of the tasks so far, by file."""
        found = {}
        for name in sorted(os.listdir(self.directory)):
            if name.endswith((".out", ".err", ".log")):
                with open(self.path(name), errors="replace") as file:
                    found[name] = file.read()
        return found

    def said(self):
        return "\n".join(f"== {name}\n{text}" for name, text in self.outputs().items())

    def waiting(self, cluster):
        """Jobs that are still in the queue."""
        return self.condor.ask("condor_q", str(cluster), "-af", "ProcId", "JobStatus").split()

    def wait_for_end(self, cluster):
        until(
            lambda: not self.waiting(cluster), SECONDS, lambda: f"jobs are left: {self.waiting(cluster)}\n{self.said()}"
        )
        left = self.condor.left_over
        until(lambda: not left(), 30, lambda: f"left over: {left()}\n{self.said()}")
        return self.said()

    def wait_for_output(self, words):
        until(lambda: words in self.said(), SECONDS, lambda: f"nobody prints {words!r}: {self.said()}")

    def codes(self, cluster):
        """The exit codes of all jobs of a training."""
        listed = self.condor.ask("condor_history", str(cluster), "-af", "ExitBySignal", "ExitCode")
        return sorted(listed.splitlines())


def tasks_find_each_other_and_end(site):
    cluster = site.submit("train", "chief:1,ps:1,worker:2", ["--steps=40"])
    said = site.wait_for_end(cluster)
    assert "chief:0 trained to step 40" in said, said
    assert site.codes(cluster) == ["false 0"] * 4, f"{site.codes(cluster)}\n{said}"


def a_removed_training_leaves_nothing(site):
    cluster = site.submit("removed", "chief:1,ps:1,worker:1", ["--steps=100000", "--pause=0.2"])
    site.wait_for_output("chief:0 starts at step")
    site.condor.ask("condor_rm", str(cluster))
    site.wait_for_end(cluster)


def an_evicted_worker_comes_back(site):
    cluster = site.submit("evicted", "chief:1,ps:1,worker:1", ["--steps=150", "--pause=0.2"])
    site.wait_for_output("worker:0 starts at step")
    site.condor.ask("condor_vacate_job", f"{cluster}.2")
    said = site.wait_for_end(cluster)
    assert "Job was evicted" in said, said
    assert "chief:0 trained to step 150" in said, said


SCENARIOS = (tasks_find_each_other_and_end, a_removed_training_leaves_nothing, an_evicted_worker_comes_back)
