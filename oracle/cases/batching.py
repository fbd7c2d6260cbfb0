"""Batches across steps, each of one step here; tests of the cluster bring several at once."""

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function

v1 = tf.compat.v1


def functions(c):
    def each(name, body, inputs, message="", captured=(), **attrs):
        def build():
            placeholders = [v1.placeholder(x.dtype, [None] * x.ndim) for x in inputs]
            types = [p.dtype for p in placeholders] + [tf.as_dtype(x.dtype) for x in captured]
            f = function.Defun(*types)(body)
            f.add_to_graph(v1.get_default_graph())
            limits = {"num_batch_threads": 1, "max_batch_size": 8, "batch_timeout_micros": 0} | attrs
            outputs = [arg.type for arg in f.definition.signature.output_arg]
            made = tf.raw_ops.BatchFunction(
                in_tensors=placeholders,
                captured_tensors=[tf.constant(x) for x in captured],
                f=f,
                Tout=outputs,
                shared_name=name,
                **limits,
            )
            return [(dict(zip(placeholders, inputs, strict=True)), list(made))]

        c.traced(f"BatchFunction/{name}", build, message=message)

    x = np.float32([[1, 2], [3, 4], [5, 6]])
    each("one", lambda a: a * 2.0, [x])
    each("two", lambda a, b: (a + b, tf.reduce_sum(b, 1)), [x, x])
    each("captured", lambda a, b: a * b, [x], captured=[np.float32(3)])
    each("padded", lambda a: a + tf.cast(tf.shape(a)[0], tf.float32), [x], allowed_batch_sizes=[2, 4, 8])
    split = {"enable_large_batch_splitting": True, "allowed_batch_sizes": [1, 2]}
    each("split", lambda a: a * 2.0, [x], **split)
    each("too_large", lambda a: a, [np.zeros((9, 1), np.float32)])
    each("scalar", lambda a: a, [np.float32(1)], message="Batching input tensors must have at least one dimension")
    each("rows", lambda a, b: (a, b), [x, x[:2]], message="must have equal 0th-dimension size")
    each("sum", lambda a: tf.reduce_sum(a, [0, 1]), [x], message="Batched output tensor has 0 dimensions")
    each("short", lambda a: a[1:], [x], message="0th dimension does not equal the sum of")
    each("sizes", lambda a: a, [x], allowed_batch_sizes=[4, 2], message="must be monotonically increasing")
    each("last", lambda a: a, [x], allowed_batch_sizes=[2, 4], message="must equal max_batch_size")


def kernels(c):
    x = np.float32([[1, 2], [3, 4], [5, 6]])
    p = c.program("Batch/alone")
    p.const(x, name="x")
    limits = {"num_batch_threads": 1, "max_batch_size": 8, "batch_timeout_micros": 0, "grad_timeout_micros": 0}
    p.node("Batch", ["x", "x"], name="batch", T=["float", "float"], **limits)
    near = {"timeout_micros": 1000000, "T": "float"}
    p.node("Unbatch", ["batch:0", "batch:2", "batch:3"], name="back", **near)
    p.node("UnbatchGrad", ["batch:0", "batch:2", "back", "batch:3"], name="grad", T="float")
    p.step(fetch=["batch:0", "batch:1", "back", "grad"])
    p = c.program("Unbatch/parts")
    p.const(x, name="x")
    p.const(np.zeros((0, 2), np.float32), name="none")
    p.const(np.int64([[7, 0, 1], [8, 1, 3]]), name="index")
    p.const(np.zeros((0, 3), np.int64), name="no_index")
    p.const(np.int64(7), name="seven")
    p.const(np.int64(8), name="eight")
    p.node("Unbatch", ["x", "index", "seven"], name="first", shared_name="u", **near)
    p.node("Unbatch", ["none", "no_index", "eight"], name="second", shared_name="u", **near)
    p.step(fetch=["first", "second"])
    late = {"timeout_micros": 1000, "T": "float"}
    p.node("Unbatch", ["none", "no_index", "eight"], name="late", shared_name="v", **late)
    p.step(fetch=["late"], message="Batched data did not arrive within timeout window.")


def cases(c):
    functions(c)
    kernels(c)
