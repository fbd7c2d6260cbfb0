"""Triangular factors, solutions, inverses and determinants of matrices."""

from values import *

import numpy as np
import tensorflow as tf

TYPES = ["float", "double", "complex64", "complex128"]


def positive(*shape, seed=0):
    """Self-adjoint positive matrices."""

    def draw(dtype):
        a = arr(*shape, seed=seed)(dtype).astype(np.complex128 if dtype in COMPLEX else np.float64)
        product = a @ np.conj(np.swapaxes(a, -1, -2)) + shape[-1] * np.eye(shape[-1])
        return np.round(product, 3).astype(NUMPY[dtype])

    return Template(draw)


def regular(*shape, seed=0):
    """Matrices far from singular."""
    return Template(lambda dtype: (arr(*shape, seed=seed)(dtype) + 4 * np.eye(shape[-1])).astype(NUMPY[dtype]))


def cases(c):
    c.accuracy("rounding")
    nan = float("nan")
    for op, types in [("Cholesky", TYPES), ("BatchCholesky", ["float", "double"])]:
        for shape in [(3, 3), (2, 2, 2), (1, 1), (34, 34)]:
            if op == "Cholesky" or shape == (2, 2, 2):
                few = types if shape != (34, 34) else ["double"]
                c.op(op, [positive(*shape)], "x".join(map(str, shape)), types=few)
        c.op(op, [empty(0, 2, 2)], "no_matrices", T="float")
        c.op(op, [empty(2, 0, 0)], "no_rows", T="float")
        c.op(op, [arr(2, 3)], "not_square", T="float")
    c.op("Cholesky", [lit([[4.0, 9.0], [2.0, 3.0]])], "upper_half_is_not_read", T="double")
    c.op("Cholesky", [arr(3)], "vector", T="float")

    def negative(dtype):
        def build():
            value = convert([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype)
            x = tf.compat.v1.placeholder(value.dtype, value.shape)
            # Nothing is written above the diagonal.
            return [({x: value}, [tf.linalg.band_part(tf.raw_ops.Cholesky(input=x), -1, 0)])]

        return build

    for dtype in TYPES:
        c.traced(f"Cholesky/negative/{dtype}", negative(dtype))
    for shape in [(3, 3), (2, 2, 2), (35, 35)]:
        grads = [positive(*shape), arr(*shape, seed=1)]
        c.op("CholeskyGrad", grads, "x".join(map(str, shape)), types=["double"] if shape[0] > 3 else None)
    c.op("BatchCholeskyGrad", [positive(2, 2), arr(2, 2, seed=1)])
    c.op("CholeskyGrad", [positive(2, 2), arr(3, 3)], "other_shape", T="float")
    c.op("CholeskyGrad", [arr(2, 3), arr(2, 3)], "not_square", T="float")
    for shape in [(3, 3), (2, 3, 3), (1, 1), (34, 34)]:
        types = TYPES if shape != (34, 34) else ["double"]
        c.op("Lu", [regular(*shape)], "x".join(map(str, shape)), types=types, output_idx_type="int32")
    c.op("Lu", [lit([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [-6.0, 7.0, 9.0]])], "exchanges", T="double")
    c.op("Lu", [lit([[1.0, 2.0], [2.0, 4.0]])], "singular", T="float", message="Input is not invertible.")
    c.op("Lu", [empty(2, 0, 0)], "no_rows", T="float", output_idx_type="int64")
    c.op("Lu", [arr(2, 3)], "not_square", T="float")
    for adjoint in (False, True):
        for shape, rhs in [((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)), ((1, 1), (1, 1)), ((34, 34), (34, 3))]:
            types = TYPES if shape != (34, 34) else ["double"]
            name = "x".join(map(str, shape)) + ("_adjoint" if adjoint else "")
            c.op("MatrixSolve", [regular(*shape), arr(*rhs, seed=1)], name, types=types, adjoint=adjoint)
            c.op(
                "MatrixInverse",
                [regular(*shape)],
                name,
                types=TYPES + ["half"] if types == TYPES else types,
                adjoint=adjoint,
            )
        c.op("BatchMatrixSolve", [regular(2, 2, 2), arr(2, 2, 1)], f"adjoint_{adjoint}", adjoint=adjoint)
        c.op("BatchMatrixInverse", [regular(2, 2, 2)], f"adjoint_{adjoint}", adjoint=adjoint)
    c.op("MatrixSolve", [lit([[1.0, 2.0], [2.0, 4.0]]), arr(2, 1)], "singular", T="float", message="not invertible")
    c.op("MatrixInverse", [lit([[1.0, 2.0], [2.0, 4.0]])], "singular", T="float", message="Input is not invertible.")
    c.op("MatrixSolve", [regular(3, 3), empty(3, 0)], "no_columns", T="float")
    c.op("MatrixSolve", [empty(0, 0), empty(0, 2)], "no_rows", T="float")
    c.op("MatrixSolve", [regular(3, 3), arr(2, 1)], "other_rows", T="float")
    c.op("MatrixSolve", [regular(2, 3, 3), arr(3, 1)], "other_rank", T="float")
    c.op("MatrixSolve", [regular(2, 3, 3), arr(1, 3, 1)], "other_batch", T="float")
    c.op("MatrixSolve", [arr(2, 3), arr(2, 1)], "not_square", T="float")
    c.op("MatrixInverse", [empty(2, 0, 0)], "no_rows", T="float")
    c.op("MatrixInverse", [arr(2, 3)], "not_square", T="float")
    for op in ("MatrixDeterminant", "LogMatrixDeterminant", "BatchMatrixDeterminant"):
        for shape in [(3, 3), (2, 3, 3), (1, 1), (12, 12)]:
            c.op(op, [arr(*shape)], "x".join(map(str, shape)))
        c.op(op, [lit([[1.0, 2.0], [2.0, 4.0]])], "singular", T="float")
        c.op(op, [empty(2, 0, 0)], "no_rows", T="double")
        c.op(op, [empty(0, 2, 2)], "no_matrices", T="double")
        c.op(op, [arr(2, 3)], "not_square", T="float")
    c.op("MatrixDeterminant", [lit([[nan, 1.0], [1.0, 1.0]])], "nan", T="float")
    for op in ("MatrixDeterminant", "LogMatrixDeterminant"):
        for name, matrix in {
            "infinite": [[np.inf, 1.0], [1.0, 1.0]],
            "infinite_row": [[np.inf, -np.inf], [1.0, 1.0]],
            "minus_infinite": [[1.0, 1.0], [1.0, -np.inf]],
            "huge": [[3e38, 0.0], [0.0, -3e38]],
        }.items():
            c.op(op, [lit(matrix)], name, T="float")
    c.op("MatrixDeterminant", [lit([[1.7e308, 0.0], [0.0, 1.7e308]])], "huge_double", T="double")
