"""Ferroflow tasks that are asked to end in the middle of a step: clients that wait for them hear that they are gone, with a code
after which training programs look for the next one.
"""

import os
import signal

import tasks
from report import v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours", "our-ps")

# What is left of a server when it ends differs from time to time.
ROUNDS = 2


def orchestrate(layout, binary):
    cluster = tasks.Cluster({"ps": layout["ps"][:2], "worker": layout["worker"][:2]}, binary)
    ours = [task for task in cluster.tasks if task.kind == tasks.OURS]
    for task in ours:
        task.arguments = ["--drain", "0"]
    with cluster:
        # Where workers are ours one of them is the master's own task.
        for victim in ours[-2:]:
            outcomes = [ended(cluster, victim) for _ in range(ROUNDS)]
            expected = [["waits", "Unavailable or Aborted", "goes on"]] * ROUNDS
            print(f"{victim.name}, {outcomes}: {outcomes == expected}", flush=True)


def ended(cluster, victim):
    """The words of a client whose step needs a task that is asked to end, and then is there again."""
    client = tasks.Client(ask, cluster.target())
    client.wait_for("waits", 60)
    victim.kill(signal.SIGTERM)
    victim.start()
    victim.wait()
    return client.finish(45)


def ask(target):
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            blocked = v1.FIFOQueue(1, tf.float32, [], shared_name="blocked").dequeue()
        with tf.device("/job:ps/task:1"):
            onward = blocked + 1.0
        with tf.device("/job:worker/task:1"):
            result = onward + blocked

        def waiting():
            """Whether a session of all tasks waits; one of stock's may believe for a while that a task is still away."""
            try:
                # It is not closed: masters of stock's wait for a task that has gone.
                found.append(v1.Session(target, graph=graph))
                found[-1].run(result, options=v1.RunOptions(timeout_in_ms=300))
            except tf.errors.DeadlineExceededError:
                return True
            except (tf.errors.UnavailableError, tf.errors.AbortedError):
                return False

        found = []
        if tasks.until(waiting, 30):
            print("waits", flush=True)
        try:
            found[-1].run(result)
        except (tf.errors.UnavailableError, tf.errors.AbortedError):
            print("Unavailable or Aborted", flush=True)
        if tasks.until(waiting, 30):
            print("goes on", flush=True)
        # Without the farewells that the end of the interpreter would send.
        os._exit(0)
