"""A coordinator is killed while its functions run. When the time is over for which it said that its silence counts for
nothing, its tasks have given everything back."""

import os
import pathlib
import re
import signal

# Must come first: it says how TensorFlow is to be started.
import tasks  # isort: skip

from coordinator import program

import tensorflow as tf
from tensorflow.python.eager import context

VERDICTS = True
LAYOUTS = ("ours", "our-ps", "our-workers")

SECONDS = 300

# How long the coordinator may be silent, in seconds. Its own keep-alive calls come twice as often.
KEEP_ALIVE = 4

VARIABLES = 40


def work(cluster):
    """Fills the tasks: variables, datasets, functions that run until nobody wants them any longer."""
    context._KEEP_ALIVE_SECS = KEEP_ALIVE
    strategy, coordinator = program.connect(cluster)
    with strategy.scope():
        large = [tf.Variable(tf.ones([1 << 18])) for _ in range(VARIABLES)]
    dataset = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(tf.ones([1 << 18])).repeat())
    values = iter(dataset)
    with tf.device("/job:ps/task:0"):
        begun = tf.Variable(0)

    @tf.function
    def endless(values):
        total = tf.constant(0.0)
        begun.assign_add(1)
        while total >= 0.0:
            for variable in large:
                variable.assign_add(next(values))
            total += tf.reduce_mean(large[0])
        return total

    for _ in range(len(cluster.spec["worker"])):
        coordinator.schedule(endless, (values,))
    while begun.numpy() < len(cluster.spec["worker"]):
        pass
    print("at work", flush=True)
    coordinator.join()


def holds(task):
    """The numbers that a task tells of itself: steps under way, contexts, values, mebibytes of tensors."""
    before = len(task.log.read_text())
    os.kill(task.pid, signal.SIGUSR1)
    pattern = r"(\d+) steps under way; .* (\d+) contexts .* (\d+) values, .* hold (\d+) MiB"
    said = lambda: re.search(pattern, task.log.read_text()[before:])
    if not tasks.until(said, program.SECONDS):
        return f"says nothing: {task.tail()}"
    return [int(number) for number in said().groups()]


def threads(task):
    return len(list(pathlib.Path(f"/proc/{task.pid}/task").iterdir()))


def orchestrate(layout, binary):
    kinds = {"ps": layout["ps"][:1], "worker": layout["worker"][:2]}
    with tasks.Cluster(kinds, binary) as cluster:
        ours = [task for task in cluster.tasks if task.kind == tasks.OURS]
        before = {task: holds(task) for task in ours}
        silenced(cluster, ours, lambda task: holds(task) == before[task])
        # Threads that compute or read are started when they are first needed, and stay: one may come late.
        counts = {task: threads(task) for task in ours}
        silenced(cluster, ours, lambda task: holds(task) == before[task] and threads(task) <= counts[task] + 1)


def silenced(cluster, ours, is_clean):
    """Kills a coordinator at work and waits until its tasks are clean."""
    client = tasks.Client(work, cluster)
    begun = client.wait_for("at work", program.SECONDS)
    during = {task.name: holds(task) for task in ours}
    full = begun and all(steps and contexts and values for steps, contexts, values, _ in during.values())
    print(f"tasks are at work {'' if full else (during, client.errors(6))}: {full}", flush=True)
    client.kill()
    clean = tasks.until(lambda: all(is_clean(task) for task in ours), 20 * KEEP_ALIVE)
    left = "" if clean else {task.name: (holds(task), threads(task)) for task in ours}
    print(f"nothing is left {left}: {clean}", flush=True)
