"""The programs of the scenario `clusters`: `clusters_program.py WORKER WORKER PS WHICH [NUMBER]`."""

import copy
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import environment
from report import show, show_failure

import tensorflow as tf
from tensorflow.python.eager import context


def changes(first, second, ps):
    cluster = tf.train.ClusterSpec({"worker": [first]})
    tf.config.experimental_connect_to_cluster(cluster, job_name="client")
    with tf.device("/job:worker/task:0"):
        v = tf.Variable([1.0, 2.0])
        value = tf.constant(5.0)

    @tf.function
    def double(x):
        return x * 2.0

    with tf.device("/job:worker/task:0"):
        show("alone", double(v).numpy())
    show_failure("not there yet", lambda: on("/job:worker/task:1", lambda: tf.constant(1.0) + 1.0))
    update(lambda jobs: jobs["worker"].tasks.update({1: second}))
    show("devices", sorted(device.name for device in tf.config.list_logical_devices()))
    show("added", on("/job:worker/task:1", lambda: double(tf.constant(4.0)).numpy()))
    show("kept", [v.numpy(), value.numpy()])
    show("between both", on("/job:worker/task:1", lambda: [(v + value).numpy()]))

    @tf.function
    def both(x):
        v.assign_add([x, x])
        with tf.device("/job:worker/task:1"):
            there = x * 3.0
        return there + tf.reduce_sum(v)

    show("a function of both", on("/job:worker/task:1", lambda: both(tf.constant(1.0)).numpy()))
    show("the other way", on("/job:worker/task:0", lambda: both(tf.constant(1.0)).numpy()))
    with tf.device("/job:worker/task:1"):
        w = tf.Variable(7.0)
    update(lambda jobs: jobs["worker"].tasks.pop(1))
    show("without it", [v.numpy(), value.numpy()])
    show_failure("a value that is gone", w.numpy)
    show_failure("a task that is gone", lambda: on("/job:worker/task:1", lambda: tf.constant(1.0) + 1.0))
    show("the first goes on", on("/job:worker/task:0", lambda: double(v).numpy()))
    update(lambda jobs: jobs["worker"].tasks.update({1: second}))
    show("back", on("/job:worker/task:1", lambda: double(tf.constant(9.0)).numpy()))
    show("a function of both again", on("/job:worker/task:0", lambda: both(tf.constant(1.0)).numpy()))
    update(lambda jobs: jobs["worker"].tasks.update({1: ps}))
    show("another in its place", on("/job:worker/task:1", lambda: both(tf.constant(1.0)).numpy()))
    show("alive", [context.check_alive(f"/job:worker/replica:0/task:{task}") for task in (0, 1)])
    filters(first, second, ps)
    # A cluster that is called otherwise is a new one.
    cluster = tf.train.ClusterSpec({"trainer": [second], "ps": [ps]})
    tf.config.experimental_connect_to_cluster(cluster, job_name="chief")
    show("renamed", sorted(device.name for device in tf.config.list_logical_devices()))
    with tf.device("/job:ps"):
        u = tf.Variable(1.0)
    show("new state", on("/job:trainer", lambda: tf.function(lambda: u.assign_add(2.0) * 2.0)().numpy()))
    show_failure("old state", v.numpy)


def filters(first, second, ps):
    """Tasks that do not see all others."""
    filters = tf.config.experimental.ClusterDeviceFilters()
    for task in range(2):
        filters.set_device_filters("worker", task, ["/job:ps", "/job:client"])
    cluster = tf.train.ClusterSpec({"worker": [first, second], "ps": [ps]})
    tf.config.experimental_connect_to_cluster(cluster, job_name="client", cluster_device_filters=filters)
    with tf.device("/job:ps"):
        v = tf.Variable(1.0)
    with tf.device("/job:worker/task:1"):
        w = tf.Variable(5.0)

    @tf.function
    def step(x):
        v.assign_add(x)
        return v * 2.0

    @tf.function
    def hidden(x):
        return x + w

    show("seen", [on(f"/job:worker/task:{task}", lambda: step(tf.constant(1.0)).numpy()) for task in (0, 1)])
    show("its own", on("/job:worker/task:1", lambda: hidden(tf.constant(1.0)).numpy()))
    show_failure("not seen", lambda: on("/job:worker/task:0", lambda: hidden(tf.constant(1.0)).numpy()))
    tf.experimental.async_clear_error()


def update(change):
    server = copy.deepcopy(context.get_server_def())
    change({job.name: job for job in server.cluster.job})
    context.update_server_def(server)


def on(device, call):
    with tf.device(device):
        return call()


def limited(first, second, ps):
    """A client that gives its operations little time."""
    context.context().operation_timeout_in_ms = 3000
    cluster = tf.train.ClusterSpec({"worker": [first, second], "ps": [ps]})
    tf.config.experimental_connect_to_cluster(cluster, job_name="client")
    for keeper in ("/job:client/task:0", "/job:ps"):
        with tf.device(keeper):
            never = tf.queue.FIFOQueue(1, tf.float32, shapes=[[]])

        @tf.function
        def wait():
            return never.dequeue()

        def call():
            with tf.device("/job:worker/task:0"):
                wait()
            context.async_wait()

        show_failure(f"nothing comes from {keeper}", call)
        tf.experimental.async_clear_error()


def client(number, first, second, ps):
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec({"worker": [first, second], "ps": [ps]}), job_name=f"client{number}"
    )
    with tf.device("/job:ps"):
        v = tf.Variable(float(number))
    show("connected", number)
    sys.stdin.readline()

    @tf.function
    def step(x):
        v.assign_add(x)
        return tf.reduce_sum(x) + v

    for number_of_step in range(20):
        with tf.device(f"/job:worker/task:{number_of_step % 2}"):
            result = step(tf.constant(1.0))
    show("state of its own", [result.numpy(), v.numpy()])


if __name__ == "__main__":
    tasks, which = sys.argv[1:4], sys.argv[4]
    if which == "client":
        client(int(sys.argv[5]), *tasks)
    else:
        globals()[which](*tasks)
    sys.stdout.flush()
    os._exit(0)
