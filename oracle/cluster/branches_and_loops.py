"""Conditions and loops whose bodies lie on several tasks: nested, with gradients, with state, of both generations."""

from report import show, show_failure, v1

import tensorflow as tf


def run(cluster):
    for enabled in [False, True]:
        (v1.enable_control_flow_v2 if enabled else v1.disable_control_flow_v2)()
        with tf.Graph().as_default():
            generation(cluster, "second" if enabled else "first")
    v1.disable_control_flow_v2()
    with tf.Graph().as_default():
        dead_edges(cluster)
    with tf.Graph().as_default():
        long_loop(cluster)


def on(task):
    return tf.device(f"/job:ps/task:{task}")


def generation(cluster, kind):
    x = v1.placeholder(tf.float32, [], name="x")

    def far(value):
        with on(0):
            value = value * 2.0
        with on(1):
            return value + 1.0

    def near(value):
        with on(2):
            return -value

    branch = tf.cond(x > 0.0, lambda: far(x), lambda: near(x))
    nested = tf.cond(
        x > 0.0, lambda: tf.cond(x > 3.0, lambda: far(far(x)), lambda: near(far(x))), lambda: near(near(x))
    )
    with on(1):
        predicate = x > 1.0
    elsewhere = tf.cond(predicate, lambda: far(x), lambda: near(x))

    def body(i, total):
        with on(0):
            square = tf.square(tf.cast(i, tf.float32))
        with on(1):
            total = total + square * x
        return i + 1, total

    loop = v1.while_loop(lambda i, total: i < 5, body, [tf.constant(0), tf.constant(0.0)])

    def condition(i, total):
        with on(2):
            return total < 100.0

    far_condition = v1.while_loop(condition, lambda i, total: (i + 1, far(total)), [tf.constant(0), x])

    def outer(i, total):
        inner = v1.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, far(t)), [tf.constant(0), total], name="inner")
        return i + 1, tf.cond(inner[1] > 50.0, lambda: near(inner[1]), lambda: inner[1] + 1.0)

    nested_loop = v1.while_loop(lambda i, t: i < 4, outer, [tf.constant(0), x], name="outer")
    y = v1.placeholder(tf.float32, [2, 2], name="y")
    with on(0):
        weights = tf.reshape(tf.range(4.0), [2, 2]) / 4.0

    def multiply(i, m):
        with on(1):
            return i + 1, tf.tanh(tf.matmul(m, weights))

    power = v1.while_loop(lambda i, m: i < 3, multiply, [tf.constant(0), y])[1]
    slopes = tf.gradients(power, [y, weights])
    branch_slope = tf.gradients(elsewhere, x)[0]

    def gather(i, array):
        with on(2):
            return i + 1, array.write(i, tf.cast(i, tf.float32) * x)

    array = v1.while_loop(lambda i, a: i < 4, gather, [tf.constant(0), tf.TensorArray(tf.float32, 4)])[1]
    rows = tf.map_fn(lambda row: far(tf.reduce_sum(row)), tf.reshape(tf.range(6.0), [3, 2]) * x)
    with v1.Session(cluster.target()) as sess:
        for value in [4.0, 2.0, -1.0]:
            feed = {x: value}
            show(f"{kind} generation, branches at {value}", sess.run([branch, nested, elsewhere, branch_slope], feed))
            show("loops", sess.run([loop, nested_loop], feed))
            show("array and map", sess.run([array.stack(), rows], feed))
        show("condition elsewhere", sess.run(far_condition, {x: 1.0}))
        feed = {y: [[1.0, 0.5], [-0.25, 2.0]]}
        print(
            "~" + kind,
            "gradient of a loop:",
            *(f"{number:.7g}" for value in sess.run([power, *slopes], feed) for number in value.flat),
        )


def dead_edges(cluster):
    """Edges between tasks that carry nothing, because their branch was not taken."""
    choice = v1.placeholder(tf.bool, [])
    with on(0):
        data = tf.constant([1.0, 2.0])
        off, on_ = tf.raw_ops.Switch(data=data, pred=choice)
    with on(1):
        low, high = off * 10.0, on_ * 100.0
        merged, index = tf.raw_ops.Merge(inputs=[low, high])
    with on(2):
        v = v1.get_variable("touched", [], initializer=v1.zeros_initializer(), use_resource=True)
        update = v1.assign_add(v, tf.reduce_sum(high))
    with tf.device("/job:worker/task:1"):
        deep = tf.raw_ops.Merge(inputs=[low + 1.0, high + 2.0]).output
    with v1.Session(cluster.target()) as sess:
        sess.run(v.initializer)
        for value in [True, False, True]:
            show(f"choice {value}", sess.run([merged, index, deep], {choice: value}))
        show("a live update", sess.run([merged, update], {choice: True})[0])
        show_failure("a dead fetch", lambda: sess.run(high, {choice: False}))
        show("dead targets do nothing", sess.run([merged, update.op], {choice: False})[0])
        show("so that only one was counted", sess.run(v))


def long_loop(cluster):
    """A thousand iterations, each of which crosses tasks, and a loop that fails on the way."""

    def body(i, total):
        with on(1):
            total = total + tf.cast(i, tf.float32)
        return i + 1, total

    v = v1.placeholder_with_default(1000, [])
    loop = v1.while_loop(lambda i, t: i < v, body, [tf.constant(0), tf.constant(0.0)], parallel_iterations=10)

    def failing(i):
        with on(2):
            checked = v1.Assert(i < 5, ["too far", i])
            with tf.control_dependencies([checked]):
                return i + 1

    failure = v1.while_loop(lambda i: i < 100, failing, [tf.constant(0)])
    with v1.Session(cluster.target()) as sess:
        show("a thousand iterations", sess.run(loop))
        show("none", sess.run(loop, {v: 0}))
        show_failure("fails on the way", lambda: sess.run(failure))
        show("and again", sess.run(loop, {v: 17}))
