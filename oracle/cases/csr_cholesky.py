"""Cholesky factors of sparse matrices."""

from values import *

import numpy as np


def cases(c):
    c.accuracy("rounding")

    def factor(name, dense, permutation, dtype="double"):
        p = c.program(f"{name}/{dtype}")
        dense = np.asarray(dense)
        indices = np.argwhere(dense != 0)
        inputs = [
            p.const(indices, "int64"),
            p.const(lit(dense[dense != 0]), dtype),
            p.const(list(dense.shape), "int64"),
        ]
        csr = p.node("SparseTensorToCSRSparseMatrix", inputs, T=dtype)
        node = p.node("SparseMatrixSparseCholesky", [csr, p.const(permutation, "int32")], type=dtype)
        for index in range(1 if dense.ndim == 2 else dense.shape[0]):
            parts = p.node("CSRSparseMatrixComponents", [node, p.const(index)], type=dtype)
            p.step(fetch=[f"{parts}:{i}" for i in range(3)])

    arrow = np.diag([9.0, 4.0, 5.0, 6.0, 7.0])
    arrow[0, 1:] = arrow[1:, 0] = [1.0, 0.5, -1.0, 2.0]
    for dtype in ("float", "double"):
        factor("arrow", arrow, [0, 1, 2, 3, 4], dtype)
    factor("arrow_permuted", arrow, [1, 2, 3, 4, 0])
    factor("arrow_cycled", arrow, [3, 0, 4, 1, 2])
    for dtype in ("complex64", "complex128"):
        hermitian = arrow.astype(np.complex128)
        hermitian[0, 1:] += 0.5j * np.arange(1, 5)
        hermitian[1:, 0] -= 0.5j * np.arange(1, 5)
        factor("hermitian", hermitian, [2, 0, 1, 4, 3], dtype)
    factor("lower_alone", np.tril(arrow), [3, 0, 4, 1, 2])
    factor("batch", [arrow, arrow + np.eye(5)], [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
    factor("not_definite", -arrow, [0, 1, 2, 3, 4])
    factor("no_diagonal", arrow - np.diag(np.diag(arrow)), [0, 1, 2, 3, 4])
    factor("short_permutation", arrow, [0, 1, 2, 3])
    factor("not_square", arrow[:3], [0, 1, 2])
