"""Products of sparse and dense matrices."""

from values import *

import numpy as np

INDICES = [[0, 1], [2, 0], [2, 3]]


def cases(c):
    c.accuracy("rounding")
    c.op("SparseTensorDenseMatMul", [INDICES, lit([1.5, -2, 3]), [3, 4], arr(4, 2)], "plain")
    for dtype in ("float", "complex64", "half"):
        t = {"T": dtype, "Tindices": "int64"}
        c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4], arr(3, 2)], "adjoint_a", adjoint_a=True, **t)
        c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4], arr(2, 4)], "adjoint_b", adjoint_b=True, **t)
        both = {"adjoint_a": True, "adjoint_b": True}
        c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4], arr(2, 3)], "both_adjoint", **both, **t)
    t = {"T": "float", "Tindices": "int64"}
    c.op("SparseTensorDenseMatMul", [[[2, 0], [0, 1], [2, 3], [0, 1]], arr(4), [3, 4], arr(4, 2)], "unsorted", **t)
    c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4], arr(4, 33)], "wide", **t)
    c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4], arr(40, 4)], "wide_adjoint_b", adjoint_b=True, **t)
    c.op("SparseTensorDenseMatMul", [np.zeros((0, 2)), empty(0), [3, 4], arr(4, 2)], "no_entries", **t)
    c.op("SparseTensorDenseMatMul", [np.zeros((0, 2)), empty(0), [0, 4], arr(4, 2)], "no_rows", **t)
    c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4], empty(4, 0)], "no_columns", **t)
    c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4], arr(3, 2)], "sizes_differ", **t)
    c.op(
        "SparseTensorDenseMatMul",
        [INDICES, arr(3), [2, 4], arr(4, 2)],
        "row_out_of_bounds",
        message="m (2) from index[1,0] out of bounds (>=2)",
        **t,
    )
    c.op(
        "SparseTensorDenseMatMul",
        [INDICES, arr(3), [3, 3], arr(3, 2)],
        "column_out_of_bounds",
        message="k (3) from index[2,1] out of bounds (>=3)",
        **t,
    )
    c.op("SparseTensorDenseMatMul", [[[-1, 0]], arr(1), [3, 4], arr(4, 2)], "negative", **t)
    c.op("SparseTensorDenseMatMul", [INDICES, arr(2), [3, 4], arr(4, 2)], "counts_differ", **t)
    c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4, 1], arr(4, 2)], "rank_3", **t)
    c.op("SparseTensorDenseMatMul", [INDICES, arr(3), [3, 4], arr(4)], "not_a_matrix", **t)
