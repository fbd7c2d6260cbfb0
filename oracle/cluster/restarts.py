"""Every task is killed and started again, at random moments under load; training goes on and the others do not grow.

    python restarts.py --server BINARY [--rounds N] [--seed N] [--layout NAME]

Two trainers run all the time, each on its own worker. In the first half of the rounds the first parameter server and the
first worker take turns in being killed while the second of each survive and are watched; then the other way around.
"""

import argparse
import functools
import mmap
import random
import statistics
import struct
import sys
import tempfile
import time

# Must come first: it says how TensorFlow is to be started.
import tasks  # isort: skip

import guide
from report import v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours",)

# How long training may take to go on after a task was killed.
RECOVERY_SECONDS = 60

SECONDS = 600


class Tally:
    """Numbers that processes share: how many steps each trainer has done."""

    def __init__(self, count):
        self._memory = mmap.mmap(-1, 8 * count)

    def __getitem__(self, i):
        return struct.unpack_from("q", self._memory, 8 * i)[0]

    def __setitem__(self, i, value):
        struct.pack_into("q", self._memory, 8 * i, value)


def train(cluster, index, directory, tally):
    """Trains for ever; a monitored session must survive whatever happens to the tasks."""
    from tensorflow.python.training import monitored_session

    # By default a worker that finds the variables uninitialized sleeps for half a minute.
    monitored_session.sm.SessionManager = functools.partial(v1.train.SessionManager, recovery_wait_secs=0.2)
    with tf.Graph().as_default():
        x, y, _, loss, update = guide.model(index, True)
        with v1.train.MonitoredTrainingSession(
            master=cluster.target("worker", index),
            is_chief=index == 0,
            checkpoint_dir=directory,
            config=v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"]),
            save_checkpoint_steps=50,
            save_checkpoint_secs=None,
            log_step_count_steps=None,
            save_summaries_steps=None,
            save_summaries_secs=None,
        ) as session:
            source = guide.batches(index)
            while True:
                values, labels = next(source)
                session.run([loss, update], {x: values, y: labels})
                tally[index] = tally[index] + 1


class Load:
    """Two trainers, and whether they make progress."""

    def __init__(self, cluster, directory):
        self.tally = Tally(2)
        self.clients = []
        for index in range(2):
            self.clients.append(tasks.Client(train, cluster, index, directory, self.tally))
            # The second trainer finds variables to work with.
            self.progress([index])

    def progress(self, indices=(0, 1), steps=5):
        """Waits until each trainer has done `steps` more steps; says what keeps one from it, or nothing."""
        goal = [self.tally[i] + steps for i in range(2)]
        deadline = time.monotonic() + RECOVERY_SECONDS
        while any(self.tally[i] < goal[i] for i in indices):
            for i, client in enumerate(self.clients):
                if client.read(0):
                    return f"trainer {i} ended: {client.errors(4)}"
            if time.monotonic() > deadline:
                stuck = [i for i in indices if self.tally[i] < goal[i]]
                return f"trainers {stuck} do not go on: {[self.clients[i].errors(3) for i in stuck]}"
            time.sleep(0.02)
        return None


def grown(samples, slack, share):
    """Whether the last quarter of a series lies above the second."""
    quarter = max(len(samples) // 4, 1)
    early, late = statistics.median(samples[quarter : 2 * quarter] or samples), statistics.median(samples[-quarter:])
    return late > early * (1 + share) + slack


def growths(task, memory, files, note):
    """The growth of a task that was there all the time."""
    sizes = [f"{size / 1e6:.0f}" for size in memory]
    every = max(len(sizes) // 10, 1)
    note(f"{task.name}: MB {' '.join(sizes[::every])}; files {files[::every]}")
    if grown(memory, 24e6, 0.1):
        yield f"memory of {task.name}: {sizes}"
    if grown(files, 8, 0):
        yield f"open files of {task.name}: {files}"


def rounds_of(cluster, load, rounds, chance, note):
    """Kills and restarts; returns what went wrong."""
    wrong = []
    for phase in range(2):
        victims = [("ps", phase), ("worker", phase)]
        survivors = [cluster.task(job, 1 - phase) for job in ("ps", "worker")]
        memory, files = ({task: [] for task in survivors} for _ in range(2))
        # Pools fill within the first rounds, and a short run sees little else: what grows without end does so in more
        # rounds, too.
        for attempt in range(3):
            for number in range(attempt * (rounds // 2), (attempt + 1) * (rounds // 2)):
                time.sleep(chance.uniform(0, 0.4))
                victim = cluster.task(*victims[number % 2])
                began = time.monotonic()
                victim.kill()
                time.sleep(chance.choice([0, 0, 0.2, 1.0]))
                victim.start()
                victim.wait()
                failure = load.progress()
                note(f"phase {phase}, round {number}: {victim.name}, {time.monotonic() - began:.1f} s {failure or ''}")
                if failure:
                    wrong.append(f"{victim.name}, round {number}: {failure}")
                    return wrong
                for task in survivors:
                    memory[task].append(task.resident())
                    files[task].append(task.descriptors())
            more = [growth for task in survivors for growth in growths(task, memory[task], files[task], note)]
            if not more:
                break
        wrong += more
    return wrong


def orchestrate(layout, binary, rounds=8, seed=1):
    layout = {"ps": layout["ps"][:2], "worker": layout["worker"][:2]}

    def note(text):
        print(text, file=sys.stderr, flush=True)

    with tasks.Cluster(layout, binary) as cluster, tempfile.TemporaryDirectory() as directory:
        load = Load(cluster, directory)
        wrong = rounds_of(cluster, load, rounds, random.Random(seed), note)
        for client in load.clients:
            client.kill()
    print(f"training went on, nothing grew {wrong or ''}: {not wrong}", flush=True)
    return wrong


def main():
    import run

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="our binary")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", default="ours", choices=run.LAYOUTS)
    arguments = parser.parse_args()
    tasks.preload()
    sys.exit(1 if orchestrate(run.LAYOUTS[arguments.layout], arguments.server, arguments.rounds, arguments.seed) else 0)


if __name__ == "__main__":
    main()
