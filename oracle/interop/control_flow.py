"""Both generations of conditionals and loops: nesting, parallel iterations, values that are never computed."""

from report import session, show, show_failure, v1

import tensorflow as tf


def run(target):
    for enable, kind in [(v1.disable_control_flow_v2, "first"), (v1.enable_control_flow_v2, "second")]:
        enable()
        with tf.Graph().as_default():
            flow(target, kind)
    v1.disable_control_flow_v2()


def flow(target, kind):
    x = v1.placeholder(tf.float32, [])
    branch = tf.cond(x > 0.0, lambda: x * 2.0, lambda: x - 1.0)
    nested = tf.cond(x > 0.0, lambda: tf.cond(x > 10.0, lambda: 3.0, lambda: 2.0), lambda: 1.0)
    only_taken = tf.cond(x > 0.0, lambda: x, lambda: tf.debugging.check_numerics(x / 0.0, "untaken"))
    count = tf.while_loop(lambda i: i < 10, lambda i: i + 3, [0])
    pair = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * x), [0, 1.0], parallel_iterations=4)

    def outer(i, total):
        inner = tf.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t + j), [0, 0])
        return i + 1, total + inner[1]

    table = tf.while_loop(lambda i, total: i < 6, outer, [0, 0])
    grown = tf.while_loop(
        lambda v: tf.size(v) < 20,
        lambda v: tf.concat([v, v], 0),
        [tf.constant([1, 2])],
        shape_invariants=[tf.TensorShape([None])],
    )
    in_branch = tf.cond(x > 0.0, lambda: tf.while_loop(lambda i: i < x, lambda i: i + 1.0, [0.0]), lambda: [-1.0])
    case = tf.switch_case(tf.cast(x, tf.int32), [lambda: 10, lambda: 20, lambda: 30])
    y = tf.constant(3.0)
    power = tf.while_loop(lambda i, p: i < 4, lambda i, p: (i + 1, p * y), [0, 1.0])[1]
    slope = tf.gradients(power, y)[0]
    branch_slope = tf.gradients(tf.cond(x > 0.0, lambda: x * x, lambda: -x), x)[0]
    with session(target) as sess:
        for value in [4.0, -2.0]:
            feed = {x: value}
            show(f"{kind} generation, x = {value}", sess.run([branch, nested, in_branch, branch_slope], feed))
        show("untaken branch", sess.run(only_taken, {x: 1.0}))
        show_failure("taken branch", lambda: sess.run(only_taken, {x: -1.0}))
        show("loops", sess.run([count, pair, table, grown], {x: 2.0}))
        show("case", [sess.run(case, {x: float(i)}) for i in [0, 1, 2]])
        show("gradient of a loop", sess.run([power, slope]))
        if kind == "first":
            dead = v1.placeholder_with_default(True, [])
            off, on = tf.raw_ops.Switch(data=5.0, pred=dead)
            merged = tf.raw_ops.Merge(inputs=[off * 2.0, on * 3.0])
            show("merge", sess.run([merged.output, merged.value_index]))
            show("an unused branch", sess.run(tf.raw_ops.Merge(inputs=[off, on + 1.0]).output))
