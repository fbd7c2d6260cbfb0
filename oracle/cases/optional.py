"""Optionals: a tuple of tensors or nothing, on their own and where gradients of conditionals need them."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
raw_ops = tf.raw_ops


def value(*components):
    return raw_ops.OptionalFromValue(components=[tf.convert_to_tensor(component) for component in components])


def get(optional, types, shapes=None):
    return raw_ops.OptionalGetValue(optional=optional, output_types=types, output_shapes=shapes or [None] * len(types))


def cases(c):
    def has_value():
        x = v1.placeholder(tf.float32, [2])
        return [
            (
                {x: np.float32([1, 2])},
                [raw_ops.OptionalHasValue(optional=o) for o in (value(x), raw_ops.OptionalNone())],
            )
        ]

    def several_components():
        x, s = v1.placeholder(tf.float32, [None]), v1.placeholder(tf.string, [])
        return [({x: np.float32([1, 2]), s: b"a"}, get(value(x, s, 3), [tf.float32, tf.string, tf.int32]))]

    def refused():
        x = v1.placeholder(tf.float32, [None])
        held = value(x)
        steps = [get(raw_ops.OptionalNone(), [tf.float32]), get(held, [tf.int32]), get(held, [tf.float32, tf.float32])]
        steps += [
            get(held, [tf.float32], [[3]]),
            get(held, [tf.float32], [[None, None]]),
            get(held, [tf.float32], [[None]]),
        ]
        return [({x: np.float32([1, 2])}, step) for step in steps]

    def no_optional():
        handle = raw_ops.EmptyTensorList(element_shape=np.int32([]), max_num_elements=-1, element_dtype=tf.float32)
        batch = tf.stack([value(1.0), value(2.0)])
        asked = [raw_ops.OptionalHasValue(optional=handle), raw_ops.OptionalHasValue(optional=batch)]
        return [({}, [has]) for has in asked] + [({}, get(handle, [tf.float32]))]

    def zeros_like():
        held, none = value([1.0, 2.0], [3, 4]), raw_ops.OptionalNone()
        return [
            (
                {},
                get(raw_ops.ZerosLike(x=held), [tf.float32, tf.int32])
                + [raw_ops.OptionalHasValue(optional=raw_ops.ZerosLike(x=none))],
            )
        ]

    def sums():
        add = lambda *optionals: raw_ops.AddN(inputs=list(optionals))
        held, none = value([1.0, 2.0], [3, 4]), raw_ops.OptionalNone()
        steps = [
            get(add(held, held, held), [tf.float32, tf.int32]),
            [raw_ops.OptionalHasValue(optional=add(none, none))],
        ]
        steps += [get(add(held, none), [tf.float32, tf.int32])]
        return [({}, step) for step in steps]

    def gradient(build, *feeds):
        def differentiated():
            x = v1.placeholder(tf.float32, [None])
            y = build(x)
            return [({x: np.float32(feed)}, [y, *tf.gradients(y, x)]) for feed in feeds]

        return differentiated

    def loop(x):
        return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, x))[1]

    above = lambda x, limit: tf.reduce_sum(x) > limit
    nested = lambda x: tf.cond(
        above(x, 1), lambda: tf.cond(above(x, 5), lambda: x * 3, lambda: x * x), lambda: tf.exp(x)
    )
    in_loop = lambda x: tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, tf.cond(above(y, 2), lambda: tf.sin(y) * x, lambda: y * y)), (0, x)
    )[1]
    sides = ([0.25, 0.5], [1.0, 2.0], [3.0, 4.0])

    for build in (has_value, several_components, refused, no_optional, zeros_like, sums):
        c.traced(build.__name__, build)
    c.traced("nested_conditionals", gradient(nested, *sides), accuracy="rounding")
    c.traced(
        "loop_in_conditional",
        gradient(lambda x: tf.cond(above(x, 1), lambda: loop(x), lambda: x), *sides),
        accuracy="rounding",
    )
    c.traced("conditional_in_loop", gradient(in_loop, *sides), accuracy="rounding")
