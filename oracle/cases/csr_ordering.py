"""Orders in which sparse matrices have sparse Cholesky factors."""

from values import *

import numpy as np


def cases(c):
    def order(name, dense, message=""):
        p = c.program(f"SparseMatrixOrderingAMD/{name}")
        dense = np.asarray(dense, np.float32)
        indices = np.argwhere(dense != 0).reshape(-1, dense.ndim)
        inputs = [p.const(indices, "int64"), p.const(dense[dense != 0]), p.const(list(dense.shape), "int64")]
        csr = p.node("SparseTensorToCSRSparseMatrix", inputs, T="float")
        p.node("SparseMatrixOrderingAMD", [csr], name="order")
        p.step(fetch=["order"], message=message)

    def symmetric(size, density, seed):
        random = np.random.RandomState(seed)
        entries = random.rand(size, size) < density
        return (np.tril(entries, -1) | np.tril(entries, -1).T | np.eye(size, dtype=bool)).astype(np.float32)

    def grid(side):
        """The neighbors of the points of a square."""
        places = [(i, j) for i in range(side) for j in range(side)]
        near = lambda a, b: abs(a[0] - b[0]) + abs(a[1] - b[1]) <= 1
        return [[float(near(a, b)) for b in places] for a in places]

    arrow = np.eye(6)
    arrow[0] = arrow[:, 0] = 1
    order("arrow", arrow)
    order("arrow_turned", arrow[::-1, ::-1])
    order("diagonal", np.eye(4))
    order("full", np.ones([5, 5]))
    order("lower_alone", np.tril(symmetric(12, 0.3, 1)))
    order("upper_alone", np.triu(symmetric(12, 0.3, 1)))
    order("no_diagonal", arrow - np.eye(6))
    order("hole", arrow - np.diag([0, 0, 1, 0, 0, 0]))
    order("one", [[2.0]])
    order("nothing_in_it", np.zeros([3, 3]))
    order("empty", np.zeros([0, 0]))
    order("grid", grid(5))
    order("large_grid", grid(9))
    for seed in range(6):
        order(f"random/{seed}", symmetric(20 + 9 * seed, 0.08 + 0.03 * (seed % 3), seed))
    dense_rows = symmetric(60, 0.05, 9)
    dense_rows[7] = dense_rows[:, 7] = dense_rows[20] = dense_rows[:, 20] = 1
    order("dense_rows", dense_rows)
    blocks = np.kron(symmetric(8, 0.3, 4), np.ones([3, 3]))
    order("blocks", blocks)
    order("batch", [symmetric(9, 0.2, 5), np.eye(9), np.tril(symmetric(9, 0.5, 6))])
    order("not_square", np.ones([2, 3]))
