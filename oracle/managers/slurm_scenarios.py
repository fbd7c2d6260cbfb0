"""Acts of a user of Slurm: stock's trainer behind `ferroflow join`, on nodes whose names do not sort as numbers."""

import os
import re
import sys

from nodes import until
from slurm import KILL_WAIT

# As numbers 9 comes first, as text last: a resolver that sorts names sends every task to a wrong host.
NODES = ("n9", "n10", "n11")

TRAINER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer.py")

# Generous: several interpreters load TensorFlow at the same time.
SECONDS = 300


class Site:
    """A cluster, our binary, and a directory for what a scenario writes."""

    def __init__(self, slurm, binary, directory):
        self.slurm, self.binary, self.directory = slurm, binary, directory

    def path(self, name):
        return os.path.join(self.directory, name)

    def join(self, jobs, *options, steps=40):
        """The command of every task: join the cluster, then train."""
        return [self.binary, "join", "--jobs", jobs, *options, "--", sys.executable, TRAINER, f"--steps={steps}"]

    def step(self, *command):
        """The output of a step; it must end well and leave nothing."""
        said = self.slurm.ask("srun", *command, timeout=SECONDS)
        self.check_gone(said)
        return said

    def submit(self, name, jobs, *options, program):
        """The number of a submitted training."""
        command = [self.binary, "submit", "slurm", "--jobs", jobs, "--name", name, "--dir", self.directory, *options]
        said = self.slurm.ask(*command, "--", sys.executable, TRAINER, *program)
        return int(re.search(r"Submitted batch job (\d+)", said).group(1))

    def output(self, name, job):
        """The output of a submitted training so far."""
        try:
            with open(self.path(f"{name}-{job}.out")) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def wait_for_end(self, name, job, state):
        """Waits until a training is in a state, from which it does not come back."""
        going = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
        until(
            lambda: self.slurm.state(job) not in going,
            SECONDS,
            lambda: f"job {job} does not end: {self.output(name, job)}",
        )
        said = self.output(name, job)
        assert self.slurm.state(job) == state, f"{self.slurm.state(job)}, not {state}: {said}"
        self.check_gone(said)
        return said

    def wait_for_output(self, name, job, words):
        until(
            lambda: words in self.output(name, job),
            SECONDS,
            lambda: f"job {job} does not print {words!r}: {self.output(name, job)}",
        )

    def check_gone(self, said):
        """No process may be left on any node; Slurm itself needs a moment to see that."""
        left = self.slurm.left_over
        until(lambda: not left(), KILL_WAIT + 10, lambda: f"left over: {left()}\n{said}")


def placed(said):
    """On which node each task says that it runs."""
    return dict(re.findall(r"(\w+:\d+) runs on (\w+)", said))


def check_trained(said, steps=40):
    assert f"chief:0 trained to step {steps}" in said, said


def the_process_manager_tells_the_addresses(site):
    options = ("--nodes=3", "--serve=none")
    job = site.submit("pmi", "chief:1,ps:1,worker:1", *options, program=["--steps=40"])
    said = site.wait_for_end("pmi", job, "COMPLETED")
    check_trained(said)
    assert placed(said) == {"chief:0": "n9", "ps:0": "n10", "worker:0": "n11"}, said


def tasks_are_dealt_out_in_turn(site):
    said = site.step("--mpi=pmi2", "-N3", "-n5", "--distribution=cyclic", *site.join("chief:1,ps:2,worker:2"))
    check_trained(said)
    # Slurm fills the first node once the others are full.
    assert {placed(said)[task] for task in ("chief:0", "ps:0", "ps:1")} == set(NODES), said


def a_heterogeneous_step_is_one_cluster(site):
    command = site.join("ps:1,chief:1,worker:1")
    said = site.step("--mpi=pmi2", "-n1", "-N1", *command, ":", "-n2", "-N2", *command)
    check_trained(said)
    assert len(set(placed(said).values())) == 3, said


def a_shared_directory_serves_too_and_so_do_our_servers(site):
    place = f"file://{site.path('rendezvous')}"
    os.mkdir(site.path("rendezvous"), 0o700)
    options = ("--nodes=3", "--rendezvous", place)
    job = site.submit("files", "chief:1,ps:1,worker:1", *options, program=["--steps=40"])
    said = site.wait_for_end("files", job, "COMPLETED")
    check_trained(said)
    assert "serves /job:ps/replica:0/task:0" in said, said


def a_cancelled_training_leaves_nothing(site):
    program = ["--steps=100000", "--pause=0.2"]
    job = site.submit("cancelled", "chief:1,ps:1,worker:1", "--nodes=3", program=program)
    site.wait_for_output("cancelled", job, "chief:0 starts at step")
    site.slurm.ask("scancel", str(job))
    site.wait_for_end("cancelled", job, "CANCELLED")


def a_requeued_training_goes_on(site):
    program = ["--steps=60", "--pause=0.3", "--dir", site.path("checkpoints")]
    job = site.submit("requeued", "chief:1,ps:1,worker:1", "--nodes=3", program=program)

    def saved():
        try:
            with open(site.path("checkpoints/checkpoint")) as file:
                return int(re.search(r"model\.ckpt-(\d+)", file.read()).group(1))
        except FileNotFoundError:
            return 0

    site.wait_for_output("requeued", job, "chief:0 starts at step")
    reached = until(saved, SECONDS, lambda: f"no checkpoint is written: {site.output('requeued', job)}")
    site.slurm.ask("scontrol", "requeue", str(job))
    until(lambda: site.slurm.state(job) == "PENDING", SECONDS, "the job is not requeued")
    # By itself Slurm waits for two minutes; within the same second, nodes would still refuse the job.
    soon = ("scontrol", "update", f"JobId={job}", "StartTime=now+5")
    until(lambda: not site.slurm.ask(*soon, check=False), SECONDS, "the job cannot be started again")
    said = site.wait_for_end("requeued", job, "COMPLETED")
    check_trained(said, 60)
    starts = [int(step) for step in re.findall(r"chief:0 starts at step (\d+)", said)]
    assert len(starts) == 2 and starts[1] >= reached, said


def a_failure_ends_all(site):
    job = site.submit("failing", "chief:1,ps:1,worker:1", "--nodes=3", program=["--no-such-flag"])
    said = site.wait_for_end("failing", job, "FAILED")
    assert "unrecognized arguments" in said, said


SCENARIOS = (
    the_process_manager_tells_the_addresses,
    tasks_are_dealt_out_in_turn,
    a_heterogeneous_step_is_one_cluster,
    a_shared_directory_serves_too_and_so_do_our_servers,
    a_cancelled_training_leaves_nothing,
    a_requeued_training_goes_on,
    a_failure_ends_all,
)
