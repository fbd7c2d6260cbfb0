"""Iterators: initialized, initialized again, fed by handle, and those that are not there."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
D = tf.data.Dataset


def initializable():
    limit = v1.placeholder(tf.int64, [])
    iterator = v1.data.make_initializable_iterator(D.range(limit))
    nxt = iterator.get_next()
    start = ({limit: np.int64(2)}, [], [iterator.initializer])
    take = ({}, [nxt])
    return [take, start, take, take, take, take, ({limit: np.int64(1)}, [], [iterator.initializer]), take, take]


def reinitializable():
    iterator = v1.data.Iterator.from_structure(tf.int64, tf.TensorShape([]))
    nxt = iterator.get_next()
    first, second = (iterator.make_initializer(d) for d in (D.range(2), D.range(10, 13).map(lambda x: -x)))
    take = ({}, [nxt])
    return [({}, [], [first]), take, ({}, [], [second]), take, take, ({}, [], [first]), take]


def feedable():
    handle = v1.placeholder(tf.string, [])
    iterator = v1.data.Iterator.from_string_handle(handle, tf.int64, tf.TensorShape([]))
    nxt = iterator.get_next()
    return [({handle: np.array(b"nonsense", object)}, [nxt])]


def chosen_by_handle():
    """Handles stay in the graph: what they look like is not compared."""
    a = v1.data.make_one_shot_iterator(D.range(3))
    b = v1.data.make_one_shot_iterator(D.range(10, 13))
    which = v1.placeholder(tf.bool, [])
    handle = tf.where(which, a.string_handle(), b.string_handle())
    nxt = v1.data.Iterator.from_string_handle(handle, tf.int64, tf.TensorShape([])).get_next()
    return [({which: np.array(w)}, [nxt]) for w in (True, False, False, True)]


def wrong_type():
    a = v1.data.make_one_shot_iterator(D.range(3))
    nxt = v1.data.Iterator.from_string_handle(a.string_handle(), tf.int32, tf.TensorShape([])).get_next()
    return [({}, [nxt])]


def one_shot_failure():
    iterator = v1.data.make_one_shot_iterator(D.range(3).batch(0))
    nxt = iterator.get_next()
    return [({}, [nxt]), ({}, [nxt])]


def optionals():
    iterator = v1.data.make_one_shot_iterator(D.range(2))
    optional = v1.data.experimental.get_next_as_optional(iterator)
    has = optional.has_value()
    value = tf.cond(has, optional.get_value, lambda: tf.constant(-1, tf.int64))
    return [({}, [has, value])] * 3


def several_at_once():
    nxt = v1.data.make_one_shot_iterator(D.range(100)).get_next
    return [({}, [sum(nxt() for _ in range(5))])] * 2


def in_a_loop():
    iterator = v1.data.make_one_shot_iterator(D.range(20))
    total = tf.while_loop(
        lambda i, _: i < 6, lambda i, t: (i + 1, t + iterator.get_next()), (0, tf.constant(0, tf.int64))
    )
    return [({}, [total[1]])] * 2


def in_a_function():
    iterator = v1.data.make_one_shot_iterator(D.range(20))

    @tf.function
    def two():
        first = iterator.get_next()
        with tf.control_dependencies([first]):
            return first, iterator.get_next()

    return [({}, list(two()))] * 2


def cases(c):
    for build in (
        initializable,
        reinitializable,
        feedable,
        chosen_by_handle,
        wrong_type,
        one_shot_failure,
        optionals,
        several_at_once,
        in_a_loop,
        in_a_function,
    ):
        c.traced(build.__name__, build)
