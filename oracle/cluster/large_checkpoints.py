"""Checkpoints of variables that fill a server: how much memory saving and restoring them takes beyond the variables.

python large_checkpoints.py --server BINARY [--gigabytes N]
"""

import argparse
import pathlib
import re
import sys
import tempfile
import threading

# Must come first: it says how TensorFlow is to be started.
import tasks  # isort: skip

from report import v1

import numpy as np
import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours",)

VARIABLES = 8
# What may be needed whatever the variables' size.
SLACK = 48 << 20


def orchestrate(layout, binary, size=256 << 20, note=lambda text: None):
    wrong = []

    def verdict(text, good):
        print(f"{text}: {good}", flush=True)
        wrong.extend([] if good else [text])

    with tempfile.TemporaryDirectory() as directory:
        for work in [save, restore]:
            with tasks.Cluster({"ps": layout["ps"][:1]}, binary) as cluster:
                client = tasks.Client(work, cluster, directory, size)
                lines = client.finish(600)
                for line in (line for line in lines if ": " not in line):
                    note(line)
                told = dict(line.split(": ") for line in lines if ": " in line)
                if client.code != 0:
                    note(client.errors())
                verdict(f"{work.__name__} ends well", client.code == 0)
                for text, beyond in told.items():
                    note(f"{text} takes {int(beyond) >> 20} MB beyond {size >> 20} MB of variables")
                    # Contents that replace others are there beside them, once.
                    verdict(f"{text} takes bounded memory", int(beyond) < SLACK + ("replacing" in text) * size)
    return wrong


def variables(size):
    rows = size // 4 // 64 // VARIABLES
    with tf.device("/job:ps/task:0"):
        return [
            v1.get_variable(f"v{i}", [rows, 64], initializer=v1.constant_initializer(i + 0.5), use_resource=True)
            for i in range(VARIABLES)
        ]


def status(cluster, key):
    text = pathlib.Path(f"/proc/{cluster.task('ps', 0).pid}/status").read_text()
    return int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) << 10


def beyond(cluster, label, baseline, work):
    """Prints by how much the server's memory exceeds the baseline while work is done."""
    with Peak(cluster) as peak:
        work()
    print(f"{label}: {max(peak.size() - baseline, 0)}", flush=True)


class Peak:
    """The most memory that the server has while this is entered."""

    def __init__(self, cluster):
        self._cluster, self._seen, self._over = cluster, 0, threading.Event()
        self._thread = None

    def __enter__(self):
        try:
            # Makes the kernel's own peak start anew, which not every kernel lets us do.
            pathlib.Path(f"/proc/{self._cluster.task('ps', 0).pid}/clear_refs").write_text("5")
        except OSError:
            self._thread = threading.Thread(target=self._watch)
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        if self._thread:
            self._thread.join()

    def _watch(self):
        while not self._over.wait(0.01):
            self._seen = max(self._seen, status(self._cluster, "VmRSS"))

    def size(self):
        return self._seen if self._thread else status(self._cluster, "VmHWM")


def save(cluster, directory, size):
    with tf.Graph().as_default() as graph:
        variables(size)
        saver = v1.train.Saver(sharded=True)
        with v1.Session(cluster.target("ps", 0), graph=graph) as session:
            session.run(v1.global_variables_initializer())
            for label in ["saving", "saving again"]:
                beyond(cluster, label, status(cluster, "VmRSS"), lambda: saver.save(session, f"{directory}/model"))


def restore(cluster, directory, size):
    with tf.Graph().as_default() as graph:
        chosen = variables(size)
        ends = [value for each in chosen for value in (each[0, 0], each[-1, -1])]
        saver = v1.train.Saver(sharded=True)
        rows = chosen[0].shape[0]
        with tf.device("/job:ps/task:0"):
            row = tf.raw_ops.RestoreV2(
                prefix=f"{directory}/model",
                tensor_names=["v0"],
                shape_and_slices=[f"{rows} 64 0,1:0,64"],
                dtypes=[tf.float32],
            )
        with v1.Session(cluster.target("ps", 0), graph=graph) as session:
            # What restoring takes once, however much is restored.
            session.run(row)
            empty = status(cluster, "VmRSS")
            beyond(cluster, "restoring", empty + size, lambda: saver.restore(session, f"{directory}/model"))
            beyond(
                cluster,
                "replacing by restoring",
                status(cluster, "VmRSS"),
                lambda: saver.restore(session, f"{directory}/model"),
            )
            expected = np.repeat(np.arange(VARIABLES) + 0.5, 2)
            assert np.array_equal(session.run(ends), expected), "other values than were saved"


def main():
    import run

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="our binary")
    parser.add_argument("--gigabytes", type=float, default=3)
    arguments = parser.parse_args()
    tasks.preload()
    size = int(arguments.gigabytes * (1 << 30))
    sys.exit(
        1
        if orchestrate(run.LAYOUTS["ours"], arguments.server, size, lambda text: print(f"  {text}", flush=True))
        else 0
    )


if __name__ == "__main__":
    main()
