"""The programs of the scenario `coordination`: `coordination_program.py WORKER WORKER PS values|strategy`."""

import os
import pathlib
import socket
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import environment

if sys.argv[4] == "strategy":
    os.environ["TF_PSS_ENABLE_COORDINATION_SERVICE"] = "1"

from report import show, show_failure

import tensorflow as tf
from tensorflow.python.eager import context


def values(first, second, ps):
    context.context().configure_coordination_service(
        service_type="standalone", service_leader="/job:ps/replica:0/task:0"
    )
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec({"worker": [first, second], "ps": [ps]}), job_name="client"
    )
    show("devices", sorted(device.name for device in tf.config.list_logical_devices()))
    states = lambda: context.context().get_task_states([("worker", 2), ("ps", 1)])
    show("states", states())
    keys = context.context()
    keys.set_config_key_value("a/x", "one")
    keys.set_config_key_value("a/y", "two")
    show("values", [keys.get_config_key_value(key) for key in ("a/x", "a/y")])
    show_failure("set again", lambda: keys.set_config_key_value("a/x", "three"))
    keys.delete_config_key_value("a/x")
    keys.set_config_key_value("a/x", "four")
    show("after that", keys.get_config_key_value("a/x"))
    with tf.device("/job:worker/task:1"):
        v = tf.Variable([1.0, 2.0])

    @tf.function
    def step(x):
        v.assign_add([x, x])
        return tf.reduce_sum(v)

    with tf.device("/job:worker/task:0"):
        show("a function", step(tf.constant(1.0)).numpy())
    show("states", states())


def strategy(first, second, ps):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = tf.train.ClusterSpec({"chief": [f"127.0.0.1:{port}"], "worker": [first, second], "ps": [ps]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, rpc_layer="grpc", task_type="chief", task_id=0
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    show("who looks for lost tasks", type(coordinator._cluster.failure_handler).__name__)
    show("states", context.context().get_task_states([("worker", 2), ("ps", 1)]))
    with strategy.scope():
        v = tf.Variable(0.0)

    @tf.function
    def step(x):
        v.assign_add(x)
        return x * 2.0

    values = [coordinator.schedule(step, args=(tf.constant(float(number)),)) for number in range(10)]
    coordinator.join()
    show("scheduled", [sorted(float(value.fetch()) for value in values), v.numpy()])


if __name__ == "__main__":
    globals()[sys.argv[4]](*sys.argv[1:4])
    sys.stdout.flush()
    os._exit(0)
