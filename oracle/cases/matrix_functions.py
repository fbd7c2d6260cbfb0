"""The exponential, logarithm and square root of matrices."""

from values import *

import numpy as np


def definite(*shape):
    """Matrices whose eigenvalues are positive."""

    def draw(dtype):
        a = unit(*shape)(dtype)
        return (a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(shape[-1])).astype(NUMPY[dtype])

    return Template(draw)


def cases(c):
    c.accuracy("rounding")
    for shape in [(3, 3), (2, 2, 2), (1, 1), (7, 7)]:
        name = "x".join(map(str, shape))
        c.op("MatrixExponential", [unit(*shape)], name)
        c.op("MatrixLogarithm", [definite(*shape)], name)
        c.op("MatrixSquareRoot", [definite(*shape)], name)
    c.op("MatrixExponential", [lit([[12.0, -3.0], [1.0, 5.0]])], "large", types=["double", "complex128"])
    c.op("MatrixExponential", [lit([[0.0, 1.0], [0.0, 0.0]])], "nilpotent")
    c.op("MatrixLogarithm", [lit([[0.0, -1.0], [1.0, 0.0]])], "rotation")
    c.op("MatrixLogarithm", [lit([[100.0, 3.0], [0.0, 0.01]])], "far_from_one")
    c.op("MatrixSquareRoot", [lit([[0.0, -1.0], [1.0, 0.0]])], "rotation")
    c.op("MatrixSquareRoot", [lit([[4.0, 1.0], [0.0, 9.0]])], "triangular")
    for op in ("MatrixExponential", "MatrixLogarithm", "MatrixSquareRoot"):
        dtype = "complex64"
        c.op(op, [empty(2, 0, 0)], "no_rows", T=dtype)
        c.op(op, [empty(0, 2, 2)], "no_matrices", T=dtype)
        c.op(op, [arr(2, 3)], "not_square", T=dtype)
        c.op(op, [arr(3)], "vector", T=dtype)
