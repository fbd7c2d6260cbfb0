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
