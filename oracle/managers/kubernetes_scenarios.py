"""Acts of a user of Kubernetes: stock's trainer on our parameter servers, from each kind of manifest."""

import functools
import os
import subprocess
import sys

from kubelet import Kubernetes

TRAINER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer.py")

SECONDS = 300

# What pods have to end when they are deleted.
GRACE = 30


class Site:
    """Our binary and a directory."""

    def __init__(self, _, binary, directory):
        self.binary, self.directory = binary, directory


def trained(flavor, site):
    command = [
        site.binary,
        "submit",
        "k8s",
        "--dry-run",
        "--force",
        "--image=train:1",
        f"--flavor={flavor}",
        "--name=train",
    ]
    command += ["--dir", site.directory, "--jobs=chief:1,ps:2,worker:1", "--", sys.executable, TRAINER, "--steps=40"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    pods = Kubernetes(os.path.join(site.directory, "train.yaml"), site.binary, site.directory)
    try:
        pods.wait(("chief", "worker"), SECONDS)
        said = pods.said()
        assert "chief:0 trained to step 40" in said, said
        assert pods.probe() == 2, "the servers are probed"
        servers = pods.delete(GRACE)
        assert len(servers) == 2, f"only {servers} were left:\n{pods.said()}"
    finally:
        pods.close()


def scenario(flavor, name):
    found = functools.partial(trained, flavor)
    found.__name__ = name
    return found


SCENARIOS = (
    scenario("plain", "stateful_sets_and_indexed_jobs_train"),
    scenario("tfjob", "a_tfjob_trains"),
    scenario("jobset", "a_job_set_trains"),
)
