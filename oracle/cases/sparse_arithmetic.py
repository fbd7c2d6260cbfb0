"""Arithmetic on sparse tensors: two of them, or one and a dense tensor."""

from values import *

import numpy as np

A = [[0, 1], [1, 0], [1, 2]]
B = [[0, 0], [0, 1], [1, 2]]


def cases(c):
    real = {"complex64": "float", "complex128": "double"}
    left, right = [A, lit([1, -2, 3]), [2, 3]], [B, lit([4, 5, -3]), [2, 3]]
    for dtype in c.dtypes("SparseAdd", "T"):
        c.op("SparseAdd", [*left, *right, lit(0)], "sum", T=dtype, Treal=real.get(dtype, dtype))
    c.op("SparseAdd", [*left, *right, lit(1)], "threshold", T="float", Treal="float")
    c.op("SparseAdd", [*left, *right, lit(7)], "threshold", T="complex64", Treal="float")
    none = [np.zeros((0, 2)), empty(0), [2, 3]]
    c.op("SparseAdd", [*none, *right, lit(0)], "empty", T="int64", Treal="int64")
    c.op("SparseAdd", [*none, *none, lit(0)], "both_empty", T="float", Treal="float")
    f = {"T": "float", "Treal": "float"}
    c.op(
        "SparseAdd", [*left, *right[:2], [2, 4], lit(0)], "shapes_differ", message="Operands' shapes do not match", **f
    )
    c.op("SparseAdd", [*left, [[0]], lit([1]), [2], lit(0)], "ranks_differ", **f)
    c.op("SparseAdd", [*left, B, lit([1]), [2, 3], lit(0)], "counts_differ", **f)
    c.op("SparseAdd", [*left, *right, lit([0])], "threshold_not_scalar", **f)
    c.op("SparseAdd", [[0, 1], lit([1, 2]), [2], *right, lit(0)], "indices_not_matrix", **f)

    sums = [[0, 0], [0, 1], [1, 0], [1, 2]]
    c.op("SparseAddGrad", [lit([1, 2, 3, 4]), A, B, sums], "rows")
    c.op("SparseAddGrad", [lit([2, 3, 4]), A, B, sums[1:]], "missing", T="float")
    c.op("SparseAddGrad", [lit([1, 2]), A, B, sums], "counts_differ", T="float")
    c.op("SparseAddGrad", [lit([1, 2, 3, 4]), A, [[0]], sums], "ranks_differ", T="float")

    for op in ("SparseSparseMaximum", "SparseSparseMinimum"):
        c.op(op, [*left, *right], "places")
        c.op(op, [*none, *right], "empty", T="float")
        c.op(op, [*left, *right[:2], [2, 4]], "shapes_differ", T="float")
        c.op(op, [*left[:2], [2, 2], *right[:2], [2, 2]], "out_of_bounds", T="float", message="is out of bounds")
    for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"):
        c.op(op, [A, lit([1, -20, 3]), [2, 3], pos(2, 3)], "same_shape")
        c.op(op, [A, lit([1, -20, 3]), [2, 3], pos(3)], "row", T="float")
        c.op(op, [A, lit([1, -20, 3]), [2, 3], pos(2, 1)], "column", T="float")
        c.op(op, [A, lit([1, -20, 3]), [2, 3], pos()], "scalar", T="int64")
        c.op(op, [np.zeros((0, 2)), empty(0), [2, 3], pos(3)], "empty", T="float")
    c.op("SparseDenseCwiseDiv", [A, lit([1, 2, 3]), [2, 3], lit([1, 0, 2])], "by_zero", few=True)
    c.op("SparseDenseCwiseMul", [A, lit([1, 2, 3]), [2, 3], pos(2, 2)], "too_narrow", T="float")
    c.op("SparseDenseCwiseMul", [A, lit([1, 2, 3]), [2, 3], pos(1, 2, 3)], "too_deep", T="float")
    c.op("SparseDenseCwiseMul", [A, lit([1, 2, 3]), [1, 3], pos(3)], "out_of_bounds", T="float")
    c.op("SparseDenseCwiseMul", [A, lit([1, 2]), [2, 3], pos(3)], "counts_differ", T="float")
    six = [[[0] * 6], lit([1]), [1] * 6, pos(1)]
    c.op("SparseDenseCwiseMul", six, "rank_6", T="float", message="ranks between 1 and 5")

    for indices in ("int32", "int64"):
        c.op("SparseTensorDenseAdd", [A, lit([1, 2, 3]), [2, 3], arr(2, 3)], "sum", Tindices=indices)
    t = {"T": "float", "Tindices": "int64"}
    c.op("SparseTensorDenseAdd", [[[1], [1]], lit([1, 2]), [2], arr(2)], "repeated", **t)
    c.op("SparseTensorDenseAdd", [A, lit([1, 2, 3]), [2, 3], arr(2, 4)], "shapes_differ", **t)
    c.op("SparseTensorDenseAdd", [A, lit([1, 2, 3]), [2, 2], arr(2, 2)], "out_of_bounds", **t)
    c.op("SparseTensorDenseAdd", [A, lit([1, 2, 3]), [2, 3], arr(2)], "ranks_differ", **t)
    c.op("SparseTensorDenseAdd", [np.zeros((1, 0)), lit([1]), np.zeros(0), arr()], "scalar", **t)
