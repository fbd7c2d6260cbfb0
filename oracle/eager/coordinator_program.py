"""The program of the scenario `coordinator`: `coordinator_program.py WORKER WORKER PS`, the addresses of its tasks."""

import os
import pathlib
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import environment
from report import show, show_failure

import tensorflow as tf


def main(first, second, ps):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = tf.train.ClusterSpec({"chief": [f"127.0.0.1:{port}"], "worker": [first, second], "ps": [ps]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, rpc_layer="grpc", task_type="chief", task_id=0
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    show("replicas", strategy.num_replicas_in_sync)
    with strategy.scope():
        v = tf.Variable([1.0, 2.0])
        count = tf.Variable(0, dtype=tf.int64)
        sums = [tf.Variable(0.0) for _ in range(5)]
    show("where", [v.device, count.device])

    @tf.function
    def step(x):
        v.assign_sub(0.5 * x * v)
        count.assign_add(1)
        return tf.reduce_sum(v)

    value = coordinator.schedule(step, args=(tf.constant([1.0, 1.0]),))
    coordinator.join()
    show("scheduled", [value.fetch(), v.numpy(), count.numpy()])
    show("done", coordinator.done())

    @tf.function
    def add(amount):
        for total in sums:
            total.assign_add(amount)
        count.assign_add(1)
        return amount * 2.0

    values = [coordinator.schedule(add, args=(tf.constant(float(number)),)) for number in range(20)]
    coordinator.join()
    show("many", sorted(float(value.fetch()) for value in values))
    show("sums", [float(total.numpy()) for total in sums])
    show("count", int(count.numpy()))
    show("fetched", coordinator.fetch([values[3], values[4]]))

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def bad(x):
        return tf.reshape(x, [3])

    coordinator.schedule(bad, args=(tf.constant([1.0, 2.0]),))
    show_failure("a function that fails", coordinator.join)
    values = [coordinator.schedule(add, args=(tf.constant(1.0),)) for _ in range(4)]
    coordinator.join()
    show("after that", [float(value.fetch()) for value in values])
    sharded(strategy, coordinator)
    replicas(strategy, coordinator)
    datasets(strategy, coordinator)


def datasets(strategy, coordinator):
    """Every worker has a pipeline of its own."""
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)
        w = tf.Variable([0.0, 0.0])

    def numbers(context=None):
        ds = tf.data.Dataset.range(10).map(lambda x: x * 2).shuffle(4, seed=1).repeat()
        return ds.batch(5).prefetch(2)

    @tf.function
    def add(iterator):
        batch = next(iterator)
        total.assign_add(tf.reduce_sum(batch))
        return tf.size(batch)

    per_worker = coordinator.create_per_worker_dataset(numbers)
    iterator = iter(per_worker)
    values = [coordinator.schedule(add, args=(iterator,)) for _ in range(8)]
    coordinator.join()
    show("sizes", [value.fetch() for value in values])
    show("every batch came whole", int(total.numpy()) > 0)

    def examples(context):
        xs = tf.reshape(tf.range(24.0), [12, 2]) / 24.0
        ds = tf.data.Dataset.from_tensor_slices((xs, tf.linalg.matvec(xs, [1.0, -1.0])))
        return ds.shard(context.num_input_pipelines, context.input_pipeline_id).repeat().batch(4)

    distributed = coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(examples))
    iterator = iter(distributed)

    @tf.function
    def train(iterator):
        def replica(batch):
            xs, ys = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.linalg.matvec(xs, w) - ys) ** 2)
            w.assign_sub(0.3 * tape.gradient(loss, w))
            return loss

        return strategy.run(replica, args=(next(iterator),))

    values = [coordinator.schedule(train, args=(iterator,)) for _ in range(10)]
    coordinator.join()
    show("learned", bool(tf.reduce_all(tf.math.is_finite(w.read_value()))) and float(values[-1].fetch()) < 0.2)

    @tf.function
    def exhaust(iterator):
        return next(iterator)

    short = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.range(1)))
    for _ in range(3):
        coordinator.schedule(exhaust, args=(short,))
    show_failure("an iterator that has ended", coordinator.join)
    value = coordinator.schedule(add, args=(iter(per_worker),))
    show("goes on", value.fetch())


def sharded(strategy, coordinator):
    with strategy.scope():
        table = tf.Variable(tf.reshape(tf.range(12.0), [6, 2]))

    @tf.function
    def lookup(ids):
        return tf.nn.embedding_lookup(table, ids)

    value = coordinator.schedule(lookup, args=(tf.constant([0, 3, 5]),))
    show("looked up", value.fetch())


def replicas(strategy, coordinator):
    with strategy.scope():
        weight = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)

    @tf.function
    def step(x):
        def replica(x):
            with tf.GradientTape() as tape:
                loss = weight * x
            weight.assign_sub(0.5 * tape.gradient(loss, weight))
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, args=(x,)), axis=None)

    value = coordinator.schedule(step, args=(tf.constant(0.5),))
    coordinator.join()
    show("replicas", [value.fetch(), weight.numpy()])


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # Threads of the coordinator may still be busy.
    os._exit(0)
