"""Partial runs: one step, exchanged over several calls."""

from report import session, show, show_failure, v1

import tensorflow as tf


def run(target):
    a = v1.placeholder(tf.float32, [], name="a")
    b = v1.placeholder(tf.float32, [], name="b")
    first = a * 2.0
    second = first + b
    third = tf.identity(second * a)
    with session(target) as sess:
        handle = sess.partial_run_setup([first, second, third], [a, b])
        show("first part", sess.partial_run(handle, first, {a: 3.0}))
        show("second part", sess.partial_run(handle, [second, third], {b: 1.0}))
        show_failure("after the last", lambda: sess.partial_run(handle, first))
        handle = sess.partial_run_setup([first, second], [a, b])
        show("another run", sess.partial_run(handle, first, {a: 1.0}))
        show_failure("fetched twice", lambda: sess.partial_run(handle, first))
        show_failure("fed twice", lambda: sess.partial_run(handle, second, {a: 1.0}))
        show_failure("not fed", lambda: sess.partial_run(handle, second))
        show("goes on after misuse", sess.partial_run(handle, second, {b: 2.0}))
        handle = sess.partial_run_setup([first], [a])
        show_failure("not declared", lambda: sess.partial_run(handle, second, {a: 1.0}))
    state = tf.Graph()
    with state.as_default():
        a = v1.placeholder(tf.float32, [], name="a")
        noise = v1.random_uniform([], seed=3)
        left, right = noise + 0.0, noise + a
        with session(target, state) as sess:
            handle = sess.partial_run_setup([left, right], [a])
            one = sess.partial_run(handle, left)
            two = sess.partial_run(handle, right, {a: 0.0})
            show("a node runs once", bool(one == two))
