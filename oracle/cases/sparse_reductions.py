"""Sums and maxima of sparse tensors, and softmax."""

from values import *

import numpy as np

INDICES = [[0, 1], [0, 2], [2, 0], [2, 2]]


def cases(c):
    c.accuracy("rounding")
    sparse = [INDICES, lit([1.5, -2, -3, -4.25]), [3, 3]]
    none = [np.zeros((0, 2)), empty(0), [3, 3]]
    cube = [[[0, 1, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0]], lit([1, 2, 3, 4]), [2, 2, 2]]
    for op in ("SparseReduceSum", "SparseReduceMax", "SparseReduceSumSparse", "SparseReduceMaxSparse"):
        c.op(op, [*sparse, 1], "rows", few=op.endswith("Sparse"))
        f = {"T": "float"}
        c.op(op, [*sparse, [-2]], "columns", **f)
        c.op(op, [*sparse, [0, 1]], "all", **f)
        c.op(op, [*sparse, [1]], "kept", keep_dims=True, **f)
        c.op(op, [*sparse, np.zeros(0)], "no_axes", **f)
        c.op(op, [*cube, [0, 2]], "two_of_three", **f)
        c.op(op, [*cube, [1, 1]], "repeated_axis", keep_dims=True, **f)
        c.op(op, [*none, [1]], "empty", **f)
        c.op(op, [*none, [0, 1]], "all_of_none", **f)
        c.op(op, [*sparse, [2]], "no_such_axis", **f)
        c.op(op, [*sparse, [[0]]], "axes_not_vector", **f)
        c.op(op, [INDICES, lit([1, 2]), [3, 3], [0]], "counts_differ", **f)
    c.op("SparseReduceSum", [[[0, 0], [5, 0]], lit([1, 2]), [3, 3], [1]], "out_of_bounds", T="float")
    c.op("SparseReduceSum", [[[1, 0], [1, 0]], lit([1, 2]), [3, 3], [1]], "repeated_entry", T="float")

    c.op("SparseSoftmax", sparse, "rows")
    c.op("SparseSoftmax", cube, "rank_3", T="float")
    c.op("SparseSoftmax", [[[2, 0], [0, 1], [2, 2]], lit([1, 2, 3]), [3, 3]], "unsorted", T="float")
    c.op("SparseSoftmax", none, "empty", T="float")
    c.op("SparseSoftmax", [[[0]], lit([1]), [3]], "rank_1", T="float")
    c.op("SparseSoftmax", [INDICES, lit([1000, 1001, -1000, -999]), [3, 3]], "large", T="float")
