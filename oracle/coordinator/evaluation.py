"""Evaluation while a cluster trains: scheduled on the workers, and by an evaluator beside the cluster that reads checkpoints."""

import functools
import tempfile

import tasks
from coordinator import program
from report import show

import numpy as np
import tensorflow as tf

ROUNDS = 3


def orchestrate(layout, binary):
    with tempfile.TemporaryDirectory() as directory:
        evaluator = tasks.Client(evaluate_beside, directory)
        program.orchestrate(functools.partial(run, directory), layout, binary, workers=2)
        for line in evaluator.finish(program.SECONDS):
            print(line, flush=True)


def line():
    """Points near a line, and the loss of a guess."""
    x = np.linspace(-1, 1, 16).astype(np.float32)
    return x, 3 * x - 1


def make_variables():
    return tf.Variable(0.0, name="slope"), tf.Variable(0.0, name="offset"), tf.Variable(0, name="rounds")


def loss_of(slope, offset, x, y):
    return tf.reduce_mean(tf.square(slope * x + offset - y))


def run(directory, cluster):
    strategy, coordinator = program.connect(cluster)
    with strategy.scope():
        slope, offset, rounds = make_variables()
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
        seen = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(slope=slope, offset=offset, rounds=rounds)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=None)
    x, y = line()

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(slope, offset, x, y)
        for variable, gradient in zip((slope, offset), tape.gradient(loss, (slope, offset))):
            variable.assign_sub(0.3 * gradient)

    @tf.function
    def evaluate(x, y):
        def replica(x, y):
            total.assign_add(tf.reduce_sum(tf.square(slope * x + offset - y)))
            seen.assign_add(tf.size(x, tf.int64))

        strategy.run(replica, args=(x, y))

    for _ in range(ROUNDS):
        # One after the other, so that the order of two workers does not matter.
        for _ in range(5):
            coordinator.schedule(train, (x, y))
            coordinator.join()
        total.assign(0.0)
        seen.assign(0)
        for part in range(4):
            coordinator.schedule(evaluate, (x[4 * part : 4 * part + 4], y[4 * part : 4 * part + 4]))
        coordinator.join()
        rounds.assign_add(1)
        program.show_close("inline", [total / tf.cast(seen, tf.float32)])
        manager.save()


def evaluate_beside(directory):
    """An evaluator: it has no cluster, and waits for checkpoints."""
    tf.compat.v1.enable_eager_execution()
    slope, offset, rounds = make_variables()
    checkpoint = tf.train.Checkpoint(slope=slope, offset=offset, rounds=rounds)
    for path in tf.train.checkpoints_iterator(directory, min_interval_secs=0, timeout=program.SECONDS):
        checkpoint.restore(path).expect_partial()
        # Checkpoints may come faster than they are read; the last one is always read.
        if rounds.numpy() == ROUNDS:
            program.show_close("beside", [loss_of(slope, offset, *line())])
            show("rounds", rounds.numpy())
            return
