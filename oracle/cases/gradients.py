"""Gradients as stock's autodiff builds them: each graph holds a function and the derivative of its sum of squares."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

# Functions of one matrix of both signs.
ONE = {
    "abs": tf.abs,
    "neg": tf.negative,
    "square": tf.square,
    "exp": tf.exp,
    "expm1": tf.math.expm1,
    "sin": tf.sin,
    "cos": tf.cos,
    "tan": tf.tan,
    "atan": tf.atan,
    "sinh": tf.sinh,
    "cosh": tf.cosh,
    "tanh": tf.tanh,
    "asinh": tf.asinh,
    "sigmoid": tf.sigmoid,
    "erf": tf.math.erf,
    "erfc": tf.math.erfc,
    "sign": tf.sign,
    "floor": tf.floor,
    "relu": tf.nn.relu,
    "relu6": tf.nn.relu6,
    "elu": tf.nn.elu,
    "selu": tf.nn.selu,
    "leaky_relu": tf.nn.leaky_relu,
    "softplus": tf.nn.softplus,
    "softsign": tf.nn.softsign,
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "reduce_sum": lambda x: tf.reduce_sum(x, 1),
    "reduce_mean": lambda x: tf.reduce_mean(x, 0),
    "reduce_prod": lambda x: tf.reduce_prod(x, 1),
    "reduce_max": lambda x: tf.reduce_max(x, 1),
    "reduce_min": tf.reduce_min,
    "reduce_logsumexp": lambda x: tf.reduce_logsumexp(x, 1),
    "cumsum": lambda x: tf.cumsum(x, 1, exclusive=True),
    "cumprod": lambda x: tf.math.cumprod(x, 1),
    "transpose": tf.transpose,
    "reshape": lambda x: tf.reshape(x, [3, 2]),
    "expand_dims": lambda x: tf.expand_dims(x, 1),
    "squeeze": lambda x: tf.squeeze(tf.expand_dims(x, 1)),
    "slice": lambda x: tf.slice(x, [0, 1], [2, 2]),
    "strided_slice": lambda x: x[:, ::-2],
    "strided_slice_shrink": lambda x: x[1, tf.newaxis, :2],
    "tile": lambda x: tf.tile(x, [2, 1]),
    "pad": lambda x: tf.pad(x, [[1, 0], [0, 2]]),
    "mirror_pad": lambda x: tf.pad(x, [[1, 0], [1, 1]], "REFLECT"),
    "reverse": lambda x: tf.reverse(x, [1]),
    "gather": lambda x: tf.gather(x, [1, 1, 0]),
    "gather_axis_1": lambda x: tf.gather(x, [2, 0], axis=1),
    "gather_nd": lambda x: tf.gather_nd(x, [[0, 1], [1, 2], [0, 1]]),
    "split": lambda x: tf.split(x, 3, 1)[1] * tf.split(x, 3, 1)[2],
    "unstack": lambda x: tf.unstack(x, axis=1)[0] * tf.unstack(x, axis=1)[2],
    "concat": lambda x: tf.concat([x, x * 2.0], 0),
    "stack": lambda x: tf.stack([x, x * 2.0], 1),
    "broadcast_to": lambda x: tf.broadcast_to(x, [2, 2, 3]),
    "cast": lambda x: tf.cast(tf.cast(x, tf.float64) * 2, tf.float32),
    "l2_loss": tf.nn.l2_loss,
    "top_k": lambda x: tf.nn.top_k(x, 2).values,
    "segment_sum": lambda x: tf.math.segment_sum(x, [0, 0]),
    "segment_mean": lambda x: tf.math.segment_mean(x, [0, 0]),
    "unsorted_segment_sum": lambda x: tf.math.unsorted_segment_sum(x, [1, -1], 3),
    "unsorted_segment_max": lambda x: tf.math.unsorted_segment_max(x, [1, 1], 2),
    "clip_by_value": lambda x: tf.clip_by_value(x, -1.0, 1.0),
    "clip_by_norm": lambda x: tf.clip_by_norm(x, 1.0),
    "scatter_nd": lambda x: tf.scatter_nd([[1], [0]], x, [3, 3]),
    "dynamic_partition": lambda x: tf.dynamic_partition(x, [1, 0], 2)[1] * 3.0,
    "select": lambda x: tf.where(x > 0, x, x * x),
    "roll": lambda x: tf.roll(x, 1, 1),
    "identity_n": lambda x: tf.identity_n([x, x])[1],
    "stop_gradient": lambda x: x * tf.stop_gradient(x),
    "matmul_self": lambda x: tf.matmul(x, x, transpose_b=True),
    "einsum": lambda x: tf.einsum("ij,kj->ik", x, x),
    "diag": tf.linalg.diag,
}
POSITIVE = {
    "sqrt": tf.sqrt,
    "rsqrt": tf.math.rsqrt,
    "log": tf.math.log,
    "log1p": tf.math.log1p,
    "reciprocal": tf.math.reciprocal,
    "lgamma": tf.math.lgamma,
    "digamma": tf.math.digamma,
}
# Functions of a matrix and a row that is broadcast against it.
TWO = {
    "add": tf.add,
    "sub": tf.subtract,
    "mul": tf.multiply,
    "div": tf.divide,
    "div_no_nan": tf.math.divide_no_nan,
    "maximum": tf.maximum,
    "minimum": tf.minimum,
    "squared_difference": tf.math.squared_difference,
    "pow": lambda x, y: tf.pow(tf.abs(x) + 0.5, y),
    "atan2": tf.math.atan2,
    "floormod": tf.math.floormod,
    "xlogy": tf.math.xlogy,
    "xdivy": tf.math.xdivy,
    "bias_add": tf.nn.bias_add,
    "where_broadcast": lambda x, y: tf.where([[True], [False]], x, y),
    "softmax_xent": lambda x, y: tf.nn.softmax_cross_entropy_with_logits(
        labels=tf.nn.softmax(tf.broadcast_to(y, [2, 3])), logits=x
    ),
    "sparse_xent": lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[2, 0], logits=x * y),
    "sigmoid_xent": lambda x, y: tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.sigmoid(tf.broadcast_to(y, [2, 3])), logits=x
    ),
    "matvec": tf.linalg.matvec,
    "tensordot": lambda x, y: tf.tensordot(x, y, 1),
    "l2_normalize": lambda x, y: tf.nn.l2_normalize(x, 1) * y,
    "moments": lambda x, y: tf.nn.moments(x * y, [0])[1],
    "add_n": lambda x, y: tf.add_n([x, x * y, x]),
}


def cases(c):
    c.accuracy("rounding")
    x_value, y_value = arr(2, 3)("float"), pos(3, seed=1)("float")

    def one(function, value):
        def build():
            x = v1.placeholder(tf.float32, value.shape)
            y = function(x)
            dx = tf.gradients(tf.reduce_sum(y * y), x)[0]
            return [({x: value}, [y] + ([tf.convert_to_tensor(dx)] if dx is not None else []))]

        return build

    def two(function):
        def build():
            x, y = v1.placeholder(tf.float32, [None, None]), v1.placeholder(tf.float32, [None])
            x.set_shape([2, 3])
            z = function(x, y)
            derivatives = [d for d in tf.gradients(tf.reduce_sum(z * z), [x, y]) if d is not None]
            return [({x: x_value, y: y_value}, [z, *map(tf.convert_to_tensor, derivatives)])]

        return build

    for name, function in ONE.items():
        c.traced(name, one(function, x_value))
    for name, function in POSITIVE.items():
        c.traced(name, one(function, pos(2, 3)("float")))
    for name, function in TWO.items():
        c.traced(name, two(function))

    for ta in (False, True):
        for tb in (False, True):

            def matmul(ta=ta, tb=tb):
                a = v1.placeholder(tf.float32, [3, 2] if ta else [2, 3])
                b = v1.placeholder(tf.float32, [2, 3] if tb else [3, 2])
                y = tf.matmul(a, b, transpose_a=ta, transpose_b=tb)
                return [
                    ({a: arr(*a.shape)("float"), b: arr(*b.shape, seed=1)("float")}, [y, *tf.gradients(y * y, [a, b])])
                ]

            c.traced(f"matmul_{'t' if ta else 'n'}{'t' if tb else 'n'}", matmul)

    def batch_matmul():
        a, b = v1.placeholder(tf.float32, [2, 2, 3]), v1.placeholder(tf.float32, [3, 2])
        y = tf.matmul(a, b)
        return [({a: arr(2, 2, 3)("float"), b: arr(3, 2)("float")}, [y, *tf.gradients(y * y, [a, b])])]

    def embedding_lookup():
        ids = v1.placeholder(tf.int32, [None])
        for_params = tf.constant(arr(4, 2)("float"))
        y = tf.nn.embedding_lookup(for_params, ids)
        g = tf.gradients(y * y, for_params)[0]
        return [({ids: np.int32([3, 1, 3])}, [y, g.values, g.indices, g.dense_shape, tf.convert_to_tensor(g)])]

    def small_network():
        x = v1.placeholder(tf.float32, [None, 3])
        labels = v1.placeholder(tf.int32, [None])
        w1, w2 = tf.constant(arr(3, 4)("float")), tf.constant(arr(4, 2)("float"))
        hidden = tf.nn.relu(tf.matmul(x, w1) + tf.constant(arr(4, seed=5)("float")))
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=tf.matmul(hidden, w2))
        )
        return [({x: arr(2, 3)("float"), labels: np.int32([1, 0])}, [loss, *tf.gradients(loss, [w1, w2])])]

    def second_derivative():
        x = v1.placeholder(tf.float32, [3])
        first = tf.gradients(tf.sigmoid(x) * tf.exp(x), x)[0]
        return [({x: np.float32([-1, 0, 2])}, [first, tf.gradients(first, x)[0]])]

    def complex_parts():
        x = v1.placeholder(tf.float32, [2])
        z = tf.complex(x, x * 2)
        y = tf.abs(z * tf.math.conj(z) * z)
        return [({x: np.float32([1, -2])}, [y, tf.gradients(y, x)[0]])]

    for build in (batch_matmul, embedding_lookup, small_network, second_derivative, complex_parts):
        c.traced(build.__name__, build)
