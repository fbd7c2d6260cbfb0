"""Partial runs and callables over several tasks."""

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2


def run(cluster):
    for index in [0, 1]:
        with tf.Graph().as_default() as graph:
            partial(cluster, graph, index)
    with tf.Graph().as_default() as graph:
        callables(cluster, graph)


def partial(cluster, graph, index):
    a, b, c = (v1.placeholder(tf.float32, [], name=name) for name in "abc")
    with tf.device("/job:ps/task:0"):
        first = a * 2.0
    with tf.device("/job:ps/task:1"):
        second = first + b
    with tf.device("/job:worker/task:1"):
        third = second * c + a
    with session(cluster.target("worker", index), graph) as sess:
        handle = sess.partial_run_setup([first, second, third], [a, b, c])
        show(f"from worker {index}, first part", sess.partial_run(handle, first, {a: 3.0}))
        show("second part", sess.partial_run(handle, second, {b: 1.0}))
        show("third part", sess.partial_run(handle, third, {c: 10.0}))
        show_failure("after the last", lambda: sess.partial_run(handle, first))
        one = sess.partial_run_setup([first, second], [a, b])
        other = sess.partial_run_setup([second, third], [a, b, c])
        show(
            "two at a time", [sess.partial_run(one, first, {a: 1.0}), sess.partial_run(other, second, {a: 5.0, b: 1.0})]
        )
        show_failure("fed twice", lambda: sess.partial_run(one, second, {a: 1.0}))
        show_failure("not fed", lambda: sess.partial_run(one, second))
        show("both go on", [sess.partial_run(one, second, {b: 2.0}), sess.partial_run(other, third, {c: 0.5})])
        show("whole steps too", sess.run(third, {a: 1.0, b: 2.0, c: 3.0}))


def callables(cluster, graph):
    x = v1.placeholder(tf.float32, [2])
    with tf.device("/job:ps/task:2"):
        v = v1.get_variable("v", initializer=[1.0, 1.0], use_resource=True)
        scaled = v * x
        update = v1.assign_add(v, x)
    with tf.device("/job:ps/task:0"):
        source = tf.constant([3.0, 4.0])
        total = tf.reduce_sum(scaled)
    with session(cluster.target(), graph) as sess:
        sess.run(v.initializer)
        read = sess.make_callable([scaled, total], [x])
        write = sess.make_callable([update.op], [x])
        results = []
        for i in range(4):
            results.append(read(np.float32([i, 1.0])))
            write(np.float32([1.0, 2.0]))
        show("callables", results)
        show_failure("wrong shape", lambda: read(np.float32([1.0, 2.0, 3.0])))
        show("afterwards", read(np.float32([1.0, 1.0])))
        connected = config_pb2.CallableOptions(fetch=[total.name])
        connected.tensor_connection.add(from_tensor=source.name, to_tensor=x.name)
        show("a tensor connected to a feed", sess._make_callable_from_options(connected)())
