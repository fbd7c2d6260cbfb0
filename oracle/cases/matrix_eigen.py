"""Eigenvalues, singular values and least squares.

Vectors have signs and phases of their own, so that what they make together is compared: the values, the matrix put
together again, and the products of vectors with each other.
"""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
TYPES = ["float", "double", "complex64", "complex128"]


def symmetric(*shape, seed=0):
    def draw(dtype):
        a = arr(*shape, seed=seed)(dtype)
        return ((a + np.conj(np.swapaxes(a, -1, -2))) / 2).astype(NUMPY[dtype])

    return Template(draw)


def put_together(c, name, dtype, template, build):
    """A graph whose fetches are what `build` makes of a placeholder."""

    def traced():
        value = template(dtype)
        x = v1.placeholder(value.dtype, value.shape)
        return [({x: value}, build(x))]

    c.traced(f"{name}/{dtype}", traced)


def eigh(x):
    e, v = tf.raw_ops.SelfAdjointEigV2(input=x)
    return [e, tf.matmul(v * e[..., None, :], v, adjoint_b=True), tf.matmul(v, v, adjoint_a=True)]


def eig(x):
    out = {tf.float32: tf.complex64, tf.float64: tf.complex128}.get(x.dtype, x.dtype)
    e, v = tf.raw_ops.Eig(input=x, Tout=out)
    lengths = tf.reduce_sum(tf.math.real(v * tf.math.conj(v)), axis=-2)
    return [e, tf.matmul(tf.cast(x, out), v) - v * e[..., None, :] + 1.0, lengths]


def svd(full):
    def build(x):
        s, u, v = tf.raw_ops.Svd(input=x, full_matrices=full)
        least = x.shape[-1] if x.shape[-1] < x.shape[-2] else x.shape[-2]
        again = tf.matmul(u[..., :least] * s[..., None, :], v[..., :least], adjoint_b=True)
        return [s, again, tf.matmul(u, u, adjoint_a=True) + 1.0, tf.matmul(v, v, adjoint_a=True) + 1.0]

    return build


def cases(c):
    c.accuracy("rounding")
    nan = float("nan")
    for shape in [(3, 3), (2, 4, 4), (1, 1), (2, 2), (12, 12)]:
        name = "x".join(map(str, shape))
        for dtype in TYPES if shape != (12, 12) else ["double"]:
            put_together(c, f"SelfAdjointEigV2/{name}", dtype, symmetric(*shape), lambda x: eigh(x)[:2])
            put_together(c, f"Svd/{name}", dtype, arr(*shape), svd(False))
            put_together(c, f"Eig/{name}", dtype, arr(*shape), eig)
    for shape in [(4, 2), (2, 5), (2, 3, 2), (1, 4), (17, 3)]:
        name = "x".join(map(str, shape))
        for dtype in TYPES if shape != (17, 3) else ["double"]:
            for full in (False, True):
                put_together(c, f"Svd/{name}_{full}", dtype, arr(*shape), svd(full))
    for dtype in ("double", "complex128"):
        repeated = lit([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
        put_together(c, "SelfAdjointEigV2/repeated", dtype, repeated, eigh)
        put_together(c, "Svd/rank_one", dtype, lit([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]), lambda x: svd(False)(x)[1:])
        put_together(c, "Svd/zeros", dtype, lit([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), svd(True))
        put_together(c, "Eig/rotation", dtype, lit([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 3.0]]), eig)
    c.op("SelfAdjointEigV2", [symmetric(3, 3)], "values", types=TYPES, compute_v=False, fetch=1)
    c.op("BatchSelfAdjointEigV2", [symmetric(2, 3, 3)], "values", types=["float", "double"], compute_v=False, fetch=1)
    c.op("SelfAdjointEigV2", [lit([[1.0, 99.0], [2.0, 3.0]])], "upper_half", T="double", compute_v=False, fetch=1)
    c.op("SelfAdjointEigV2", [empty(2, 0, 0)], "no_rows", T="float")
    c.op("SelfAdjointEigV2", [empty(0, 2, 2)], "no_matrices", T="float")
    c.op("SelfAdjointEigV2", [arr(2, 3)], "not_square", T="float")
    c.op(
        "SelfAdjointEigV2",
        [lit([[nan, 1.0], [1.0, 2.0]])],
        "nan",
        T="float",
        message="decomposition was not successful",
    )
    c.op("SelfAdjointEig", [lit([[5.0]])], "one", T="float")
    c.op("SelfAdjointEig", [empty(0, 0)], "no_rows", T="float")
    c.op("BatchSelfAdjointEig", [lit([[[-2.0]], [[3.0]]])], "one", T="double")
    for real, out in [("float", "complex64"), ("double", "complex128"), ("complex64", "complex64")]:
        c.op("Eig", [arr(4, 4)], "values", T=real, Tout=out, compute_v=False, fetch=1)
    c.op("Eig", [empty(0, 0)], "no_rows", T="float", Tout="complex64")
    c.op("Eig", [arr(2, 3)], "not_square", T="float", Tout="complex64")
    c.op("Eig", [lit([[nan, 1.0], [1.0, 2.0]])], "nan", T="double", Tout="complex128", message="not successful")
    c.op("Svd", [arr(3, 2)], "values", types=TYPES, compute_uv=False, fetch=1)
    c.op("BatchSvd", [arr(2, 2, 3)], "values", types=TYPES, compute_uv=False, fetch=1)
    c.op("Svd", [empty(2, 0, 3)], "no_rows", T="float")
    c.op("Svd", [empty(0, 3)], "no_rows_full", T="float", full_matrices=True)
    c.op("Svd", [empty(3, 0)], "no_columns_full", T="double", full_matrices=True)
    c.op("Svd", [lit([[nan, 1.0], [1.0, 2.0]])], "nan", types=TYPES)
    c.op("Svd", [arr(3)], "vector", T="float")
    zero = np.float64(0.0)
    for fast in (True, False):
        for shape, rhs in [((4, 2), (4, 3)), ((2, 4), (2, 1)), ((3, 3), (3, 2)), ((2, 3, 2), (2, 3, 1))]:
            name = "x".join(map(str, shape)) + ("" if fast else "_slow")
            inputs = [arr(*shape, seed=3), arr(*rhs, seed=1)]
            c.op("MatrixSolveLs", inputs + [zero], name, types=TYPES, fast=fast)
    c.op("MatrixSolveLs", [arr(4, 2), arr(4, 1), np.float64(0.5)], "regular", types=TYPES)
    c.op("MatrixSolveLs", [arr(2, 4), arr(2, 1), np.float64(0.5)], "regular_wide", types=TYPES)
    deficient = lit([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]])
    c.op("MatrixSolveLs", [deficient, arr(3, 1), zero], "deficient_slow", T="double", fast=False)
    c.op(
        "MatrixSolveLs", [lit([[0.0, 0.0], [0.0, 0.0]]), arr(2, 1), zero], "zeros", T="double", message="rank deficient"
    )
    c.op("MatrixSolveLs", [arr(4, 2), arr(4, 1), np.float64(-1)], "negative", T="float")
    c.op("MatrixSolveLs", [arr(4, 2), arr(3, 1), zero], "other_rows", T="float")
    c.op("MatrixSolveLs", [arr(4, 2), empty(4, 0), zero], "no_columns", T="float")
    c.op("BatchMatrixSolveLs", [arr(2, 3, 2), arr(2, 3, 1), zero], "batch")
