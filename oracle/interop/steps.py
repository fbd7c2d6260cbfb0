"""Steps: feeding and fetching anything, targets, callables, devices, and what goes wrong."""

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, rpc_options_pb2


def run(target):
    x = v1.placeholder(tf.float32, name="x")
    y = tf.add(x, 1.0, name="y")
    z = tf.multiply(y, 2.0, name="z")
    v = v1.get_variable("v", [], initializer=v1.zeros_initializer(), use_resource=True)
    bump = v1.assign_add(v, 1.0, name="bump").op
    with session(target) as sess:
        show("fed and fetched", sess.run([y, z], {x: 3.0}))
        show("inner tensors may be fed", sess.run(z, {y: 10.0}))
        show("constants may be fed", sess.run(tf.constant(1.0) + 1.0, {}))
        show("the same fetch twice", sess.run([y, y], {x: 1.0}))
        show("structures", sess.run({"a": y, "b": [z, (y,)]}, {x: 0.0}))
        show("unused feeds", sess.run(tf.constant([1, 2]), {x: 0.0}))
        sess.run(v.initializer)
        show("targets only", sess.run([bump, bump]))
        show("ran once", sess.run(v))
        call = sess.make_callable([z, y], [x])
        show("callable", [call(1.0), call(2.0)])
        show_failure("not fed", lambda: sess.run(y))
        show_failure("wrong type", lambda: sess.run("y:0", {"x:0": "text"}))
        show_failure("unknown fetch", lambda: sess.run("nothing:0"))
        show_failure("numbers checked", lambda: sess.run(tf.debugging.check_numerics(x, "bad"), {x: float("inf")}))
        show("works after errors", sess.run(z, {x: 1.0}))
        devices = [(device.name, device.device_type) for device in sess.list_devices()]
        show("devices", devices)
    raw_callable(target)
    placement(target)
    compression(target)


def raw_callable(target):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [2], name="x")
        tf.reduce_sum(x, name="sum")
        with session(target, graph) as sess:
            options = config_pb2.CallableOptions(feed=["x:0"], fetch=["sum:0"])
            call = sess._make_callable_from_options(options)
            show("callable by names", [call(np.array(pair, np.float32)) for pair in [[1, 2], [3, 4]]])


def placement(target):
    graph = tf.Graph()
    with graph.as_default():
        with tf.device("/device:CPU:0"):
            a = tf.constant(1.0)
        with tf.device("/device:GPU:0"):
            b = a + 1.0
        with session(target, graph, allow_soft_placement=True) as sess:
            show("soft placement", sess.run(b))
        with session(target, graph) as sess:
            show_failure("hard placement", lambda: sess.run(b))
    graph = tf.Graph()
    with graph.as_default(), tf.device("/job:elsewhere/task:3"):
        c = tf.constant(1.0)
        with session(target, graph, allow_soft_placement=True) as sess:
            show_failure("unknown task", lambda: sess.run(c))


def compression(target):
    x = v1.placeholder(tf.float32, [None])
    doubled = x * 2
    for algorithm in ["deflate", "gzip"]:
        # A connection of its own, because the algorithm belongs to the connection.
        options = rpc_options_pb2.RPCOptions(
            compression_algorithm=algorithm, compression_level=2, disable_session_connection_sharing=True
        )
        with session(target, rpc_options=options) as sess:
            show(algorithm, sess.run(doubled, {x: np.arange(300_000) % 7}).sum())
