"""Tasks are killed under a coordinator: a worker that comes back is used again, no scheduled function is lost, and a lost
parameter server is told as such.

    python lost_tasks.py --server BINARY [--rounds N] [--seed N] [--layout NAME]

kills workers for as many rounds as asked, at random moments, one or two at a time; those that survive, and the parameter
servers, must not grow, nor must the number of values, functions and plans that they keep.
"""

import argparse
import math
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve()
    sys.path += [str(here.parents[1] / "cluster"), str(here.parents[1])]

# Must come first: it says how TensorFlow is to be started.
import tasks  # isort: skip

import restarts
from coordinator import program
from report import show_failure

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours", "our-ps", "our-workers")

SECONDS = 300

# Functions that are scheduled before the program waits for all of them.
BATCH = 24

# How long work may take to go on after a task was killed. A coordinator looks for a lost worker every few seconds.
RECOVERY_SECONDS = 60

# Things that a task of ours says that it keeps for coordinators.
KEPT = ("values", "functions", "parts", "plans")

# Places in the memory that processes share: functions that are known to have run, rounds of them in which every worker did
# some, and a wish for a new function.
DONE, BY_ALL, RENEW = range(3)


class Work:
    """Functions on the workers, each of which leaves its trace on a parameter server."""

    def __init__(self, cluster):
        self.strategy, self.coordinator = program.connect(cluster)
        self.workers = len(cluster.spec["worker"])
        with self.strategy.scope():
            # How often each function of a batch ran, and what it computed.
            self.ran = tf.Variable(tf.zeros([BATCH], tf.int64))
            self.computed = tf.Variable(tf.zeros([BATCH]))
            self.weights = tf.Variable(tf.ones([16, 16]))
        # Every worker makes its own, and one that comes back makes it again.
        dataset = self.coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(1.0).repeat())
        self.ones = iter(dataset)
        self.renew()

    def renew(self):
        """Another function, which the workers have to be told of."""

        @tf.function
        def step(number, x, ones):
            product = tf.linalg.matmul(x, self.weights) * next(ones)
            self.weights.assign_add(0.0 * product)
            self.computed.scatter_nd_update([[number]], [tf.reduce_sum(product)])
            self.ran.scatter_nd_add([[number]], tf.ones([1], tf.int64))
            return product

        self.step = step

    def batch(self):
        """Runs a batch; returns what went wrong, and the devices that had a part in it."""
        values = [
            self.coordinator.schedule(self.step, (tf.constant(number), tf.fill([16, 16], float(number)), self.ones))
            for number in range(BATCH)
        ]
        self.coordinator.join()
        wrong = ""
        ran, computed = self.ran.numpy(), self.computed.numpy()
        if not (ran >= 1).all():
            wrong = f"functions that never ran: {[i for i, times in enumerate(ran) if times < 1]}"
        expected = [float(number * 16**3) for number in range(BATCH)]
        if computed.tolist() != expected:
            wrong = wrong or f"computed {computed.tolist()}"
        self.ran.assign(tf.zeros([BATCH], tf.int64))
        self.computed.assign(tf.zeros([BATCH]))
        # The tensors of a worker that was lost have no device.
        return wrong, {value._values.backing_device for value in values if value._values is not None}


def work(cluster, tally):
    """Runs batches for ever."""
    here, renewed = Work(cluster), 0
    while True:
        if tally[RENEW] > renewed:
            renewed = tally[RENEW]
            here.renew()
        wrong, devices = here.batch()
        if wrong:
            print(f"wrong: {wrong}", flush=True)
            return
        tally[DONE] += BATCH
        tally[BY_ALL] += len(devices) == here.workers


class Load:
    """A coordinator at work, and whether it makes progress."""

    def __init__(self, cluster):
        self.tally = restarts.Tally(3)
        self.client = tasks.Client(work, cluster, self.tally)

    def progress(self, place, more):
        """Waits until a number of the tally has grown by so much; says what keeps it from that, or nothing."""
        goal = self.tally[place] + more
        deadline = time.monotonic() + RECOVERY_SECONDS
        while self.tally[place] < goal:
            if self.client.read(0):
                return f"the coordinator ended: {self.client.lines()} {self.client.errors(6)}"
            if time.monotonic() > deadline:
                return f"the coordinator does not go on: {self.client.errors(4)}"
            time.sleep(0.01)
        return None


def killed(cluster, load, victims, away):
    """Kills workers, and starts them again after a while; what went wrong."""
    for victim in victims:
        victim.kill()
    time.sleep(away)
    for victim in victims:
        victim.start()
    for victim in victims:
        victim.wait()
    # All of them have work again.
    return load.progress(BY_ALL, 2)


def orchestrate(layout, binary):
    kinds = {"ps": layout["ps"][:1], "worker": [*layout["worker"][:2], layout["worker"][0]]}
    with tasks.Cluster(kinds, binary) as cluster:
        workers = [task for task in cluster.tasks if task.job == "worker"]
        # A coordinator waits for a worker that is late.
        workers[0].kill()
        load = Load(cluster)
        workers[0].start()
        report("work begins when the last worker is there", load.progress(BY_ALL, 1))
        report("a worker is killed, and used again", killed(cluster, load, workers[:1], 0))
        report("two workers are killed at once", killed(cluster, load, workers[1:], 0.3))
        workers[1].kill()
        report("the others go on without one", load.progress(DONE, 4 * BATCH))
        load.client.kill()
    lost_server(kinds, binary)


def report(what, failure):
    print(f"{what} {failure or ''}: {not failure}", flush=True)


def lost_server(kinds, binary):
    """A parameter server is lost: the error that programs restart on, and the checkpoint from which they go on."""
    with tasks.Cluster(kinds, binary) as cluster, tempfile.TemporaryDirectory() as directory:
        tally = restarts.Tally(1)
        client = tasks.Client(count, cluster, directory, tally, 0)
        begun = client.wait_for("saved", program.SECONDS)
        server = cluster.task("ps", 0)
        server.kill()
        tally[0] = 1
        lines = client.finish(program.SECONDS)
        print(f"it is told {lines[-1:]}: {begun and lines[-1:] == ['lost: UnavailableError']}", flush=True)
        # Tasks of stock do not find a parameter server that is back so soon.
        again = [server, *(task for task in cluster.tasks if task.job == "worker" and task.kind == tasks.STOCK)]
        for task in again:
            task.kill()
            task.start()
        for task in again:
            task.wait()
        lines = tasks.Client(count, cluster, directory, tally, 10).finish(program.SECONDS)
        print(f"the program goes on from its checkpoint {lines}: {lines == ['from 10', 'counted 20']}", flush=True)


def count(cluster, directory, tally, start):
    """Counts to ten more than it finds, and saves; then until it fails."""
    strategy, coordinator = program.connect(cluster)
    with strategy.scope():
        counter = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(counter=counter)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
    checkpoint.restore(manager.latest_checkpoint)
    if start:
        print(f"from {counter.numpy()}", flush=True)

    @tf.function
    def add():
        return counter.assign_add(1)

    def some():
        for _ in range(10):
            coordinator.schedule(add)
        coordinator.join()

    some()
    if start:
        print(f"counted {counter.numpy()}", flush=True)
        return
    manager.save()
    print("saved", flush=True)

    def until_lost():
        while True:
            some()

    show_failure("lost", until_lost)


def grown(task, numbers, note):
    """Sizes of a task, there all the time, that have grown."""
    limits = [("memory", 24e6, 0.1), ("files", 8, 0), ("threads", 4, 0)]
    limits += [("values", 2 * BATCH, 0), ("functions", 6, 0), ("plans", 6, 0)]
    # A stock client registers its own parts anew whenever its cluster changes, and never says which are over.
    limits += [("parts", math.inf, 0)]
    for what, slack, share in limits:
        samples = [each[what] for each in numbers]
        every = max(len(samples) // 10, 1)
        note(f"{task.name}: {what} {samples[::every]}")
        if restarts.grown(samples, slack, share):
            yield f"{what} of {task.name}: {samples[::every]}"


def sizes(task):
    threads = len(list(pathlib.Path(f"/proc/{task.pid}/task").iterdir()))
    return {"memory": task.resident(), "files": task.descriptors(), "threads": threads, **kept(task)}


def kept(task):
    """Numbers of values, functions and plans that our task keeps for clients, which it logs when asked."""
    if task.kind == tasks.STOCK:
        return dict.fromkeys(KEPT, 0)
    logged = lambda: re.findall(
        r"keep (\d+) values, (\d+) functions, (\d+) parts of functions and (\d+) plans",
        task.log.read_text(errors="replace"),
    )
    before, deadline = len(logged()), time.monotonic() + RECOVERY_SECONDS
    os.kill(task.pid, signal.SIGUSR1)
    while len(logged()) == before:
        assert time.monotonic() < deadline, f"{task.name} does not say what it keeps"
        time.sleep(0.01)
    return dict(zip(KEPT, map(int, logged()[-1])))


def rounds_of(cluster, load, rounds, chance, note):
    """Kills workers again and again; returns what went wrong. The last worker is never killed."""
    workers = [task for task in cluster.tasks if task.job == "worker"]
    survivors = [task for task in cluster.tasks if task not in workers[:-1]]
    seen = {task: [] for task in survivors}
    for number in range(rounds):
        load.tally[RENEW] += number % 3 == 0
        time.sleep(chance.uniform(0, 0.5))
        victims = chance.sample(workers[:-1], chance.choice([1, 1, 2]))
        began = time.monotonic()
        failure = killed(cluster, load, victims, chance.choice([0, 0, 0.2, 1.0, 6.0]))
        names = [victim.index for victim in victims]
        note(f"round {number}: workers {names}, {time.monotonic() - began:.1f} s {failure or ''}")
        if failure:
            return [f"round {number}, workers {names}: {failure}", cluster.logs()]
        for task in survivors:
            seen[task].append(sizes(task))
    return [growth for task in survivors for growth in grown(task, seen[task], note)]


def main():
    import run

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="our binary")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", default="ours", choices=run.LAYOUTS)
    arguments = parser.parse_args()
    tasks.preload()
    layout = run.LAYOUTS[arguments.layout]
    kinds = {"ps": layout["ps"][:2], "worker": [*layout["worker"][:2], layout["worker"][1]]}

    def note(text):
        print(text, file=sys.stderr, flush=True)

    with tasks.Cluster(kinds, arguments.server) as cluster:
        load = Load(cluster)
        wrong = [failure for failure in [load.progress(BY_ALL, 1)] if failure] or rounds_of(
            cluster, load, arguments.rounds, random.Random(arguments.seed), note
        )
        done = load.tally[DONE]
        load.client.kill()
    print(f"{done} functions ran, none was lost, nothing grew {wrong or ''}: {not wrong}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
