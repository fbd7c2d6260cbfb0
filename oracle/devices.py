"""Prints where stock's replica_device_setter puts the nodes of a small graph; `tests/tests/sessions.rs` builds the same."""

import environment

import tensorflow as tf
from tensorflow.python.ops import gen_state_ops
from tensorflow.python.training import device_setter

v1 = tf.compat.v1
v1.disable_eager_execution()

CLUSTER = {"ps": ["a:1", "b:1", "c:1"], "worker": ["d:1", "e:1"]}


def variable(name, rows):
    gen_state_ops.variable_v2(shape=[rows, 10], dtype=tf.float32, name=name)


def main():
    # The strategy lives in a module that the wheel no longer exports; its behavior is a dozen lines of arithmetic.
    class Greedy:
        def __init__(self):
            self.loads = [0.0] * 3

        def __call__(self, op):
            task = self.loads.index(min(self.loads))
            self.loads[task] += op.outputs[0].get_shape().num_elements() * op.outputs[0].dtype.size
            return task

    setters = {
        "round_robin": device_setter.replica_device_setter(cluster=CLUSTER, worker_device="/job:worker/task:1"),
        "greedy": device_setter.replica_device_setter(cluster=CLUSTER, ps_strategy=Greedy()),
        "unmerged": device_setter.replica_device_setter(cluster=CLUSTER, merge_devices=False),
        "none": device_setter.replica_device_setter(ps_tasks=0),
    }
    for name, setter in setters.items():
        with tf.Graph().as_default() as graph:
            with v1.device(setter):
                for i, rows in enumerate([100, 5, 5, 50, 200, 1]):
                    variable(f"v{i}", rows)
                tf.constant(1.0, name="c")
                with v1.device("/device:CPU:0"):
                    variable("on_cpu", 2)
                with v1.device("/job:worker/task:0"):
                    variable("on_worker", 2)
                with v1.device("/task:7"):
                    tf.constant(1.0, name="on_task")
            for op in graph.get_operations():
                print(name, op.name, op.device)


main()
