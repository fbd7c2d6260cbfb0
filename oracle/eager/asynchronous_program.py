"""The programs of the scenario `asynchronous`: `asynchronous_program.py WORKER WORKER PS streams|calls`."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

if sys.argv[4] == "calls":
    os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"

import environment
from report import show, show_failure

import tensorflow as tf
from tensorflow.python.eager import context, executor

FIRST, SECOND = "/job:worker/task:0", "/job:worker/task:1"


def main(first, second, ps):
    tf.config.experimental.set_synchronous_execution(False)
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec({"worker": [first, second], "ps": [ps]}), job_name="client"
    )
    order()
    functions()
    failures()
    executors()


def order():
    with tf.device(FIRST):
        v = tf.Variable([0.0, 0.0])
        for number in range(50):
            v.assign_add([1.0, float(number)])
        x = tf.constant(1.0)
        for _ in range(50):
            x = x + 1.0
    context.async_wait()
    show("in order", [v.numpy(), x.numpy()])
    with tf.device(SECOND):
        y = x * v
    show("elsewhere", y.numpy())


def functions():
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0)

    @tf.function
    def step(x):
        v.assign_add(x)
        return v * 2.0

    @tf.function
    def update(x):
        v.assign(x)

    with tf.device(FIRST):
        results = [step(tf.constant(1.0)) for _ in range(10)]
        update(tf.constant(100.0))
        results.append(step(tf.constant(1.0)))
    show("functions", [result.numpy() for result in results])


def failures():
    with tf.device(FIRST):
        v = tf.Variable([1.0, 2.0])
    context.async_wait()

    def fail():
        with tf.device(FIRST):
            tf.debugging.check_numerics(tf.constant(1.0) / 0.0, "broken")
            tf.raw_ops.AssignVariableOp(resource=v.handle, value=tf.constant([7.0, 7.0]))
        context.async_wait()

    show_failure("a failure", fail)
    tf.experimental.async_clear_error()
    show("what came after it", v.numpy().tolist() in ([1.0, 2.0], [7.0, 7.0]))

    @tf.function
    def checked(x):
        tf.debugging.assert_positive(x)
        return x + 1.0

    def call():
        with tf.device(SECOND):
            checked(tf.constant(-1.0))
        context.async_wait()

    show_failure("in a function", call)
    tf.experimental.async_clear_error()
    with tf.device(SECOND):
        show("cleared", recovered(lambda: checked(tf.constant(1.0)).numpy()))


def recovered(call):
    """A value after a failure, whose echoes a client may meet more than once."""
    for _ in range(20):
        try:
            return call()
        except tf.errors.OpError:
            tf.experimental.async_clear_error()
    return "never"


def executors():
    """An executor of its own hears nothing of the failures of others."""
    with tf.device(FIRST):
        tf.raw_ops.Assert(condition=False, data=[tf.constant("late")])
    with context.executor_scope(executor.new_executor(enable_async=False, enable_streaming_enqueue=False)):
        with tf.device(SECOND):
            show("another executor", (tf.constant(4.0) / 2.0).numpy())
    show_failure("the first one", context.async_wait)
    tf.experimental.async_clear_error()


if __name__ == "__main__":
    main(*sys.argv[1:4])
    sys.stdout.flush()
    os._exit(0)
