"""Sparse tensors joined, cut, sorted and given another shape."""

from values import *

import numpy as np

A = [[0, 1], [1, 0], [1, 2]]


def cases(c):
    values = lit([1, 2, 3])
    for dim in (0, 1, -2):
        shapes = [[2, 3], [2, 3]]
        c.op(
            "SparseConcat",
            [[A, [[0, 0], [1, 1]]], [values, lit([4, 5])], shapes],
            f"dim_{dim}",
            few=True,
            concat_dim=dim,
        )
    c.op("SparseConcat", [[A, A], [values, values], [[2, 3], [2, 4]]], "along_other_dim", concat_dim=1, T="string")
    unsorted = [[1, 2], [0, 1], [1, 0]]
    c.op("SparseConcat", [[unsorted, A], [values, values], [[2, 3], [2, 3]]], "unsorted", concat_dim=0, T="float")
    none = np.zeros((0, 2))
    c.op("SparseConcat", [[none, none], [empty(0), empty(0)], [[2, 3], [0, 3]]], "empty", concat_dim=0, T="float")
    bad = {"concat_dim": 0, "T": "float"}
    c.op("SparseConcat", [[A, A], [values, values], [[2, 3], [2, 4]]], "shapes_differ", **bad)
    c.op("SparseConcat", [[A, [[0]]], [values, lit([1])], [[2, 3], [2]]], "ranks_differ", **bad)
    c.op("SparseConcat", [[A, A], [values, values], [[2, 3], [0, 3]]], "no_volume", **bad)
    c.op("SparseConcat", [[A, A], [values, values], [[2, 3], [2, 3]]], "no_such_dim", concat_dim=2, T="float")
    c.op("SparseConcat", [[A, A], [values, values], [[2, 3], [2, -3]]], "negative_shape", **bad)

    c.op("SparseReorder", [unsorted, values, [2, 3]], "unsorted")
    c.op("SparseReorder", [A, values, [2, 3]], "sorted", few=True)
    c.op("SparseReorder", [unsorted, values, [1, 1]], "out_of_bounds", T="float")
    cube = [[1, 0, 1], [0, 1, 1], [1, 0, 0], [0, 1, 0]]
    c.op("SparseReorder", [cube, lit([1, 2, 3, 4]), [2, 2, 2]], "rank_3", T="string")
    c.op("SparseReorder", [none, empty(0), [2, 3]], "empty", T="float")
    c.op("SparseReorder", [A, lit([1, 2]), [2, 3]], "counts_differ", T="float")
    c.op("SparseReorder", [A, values, [2]], "rank_differs", T="float")

    for name, shape in {
        "flat": [6],
        "one_unknown": [3, -1],
        "deeper": [1, 3, 2],
        "same": [2, 3],
        "unknown": [-1],
    }.items():
        c.op("SparseReshape", [A, [2, 3], shape], name)
    c.op("SparseReshape", [none, [0, 3], [3, 0]], "empty")
    c.op("SparseReshape", [none, [2, 3], [6]], "no_entries")
    for name, shape in {
        "sizes_differ": [5],
        "two_unknown": [-1, -1],
        "not_a_multiple": [4, -1],
        "negative": [-2],
    }.items():
        c.op("SparseReshape", [A, [2, 3], shape], name)
    c.op("SparseReshape", [A, [0, 3], [3, -1, 0]], "unknown_of_none")
    c.op("SparseReshape", [A, [2, 3, 1], [6]], "rank_differs")

    c.op("SparseSlice", [A, values, [2, 3], [1, 0], [1, 2]], "inside", few=True)
    c.op("SparseSlice", [A, values, [2, 3], [0, 1], [5, 5]], "beyond", T="float")
    c.op("SparseSlice", [A, values, [2, 3], [4, 4], [1, 1]], "outside", T="float")
    c.op("SparseSlice", [A, values, [2, 3], [-1, -1], [2, 2]], "from_before", T="float")
    c.op("SparseSlice", [A, values, [2, 3], [0, 0], [-1, 3]], "negative_size", T="float")
    c.op("SparseSlice", [A, values, [2, 3], [0], [1, 1]], "short_start", T="float")
    c.op("SparseSlice", [A, values, [2, 3], [0, 0], [1]], "short_size", T="float")
    c.op("SparseSliceGrad", [lit([7, 8]), A, [1, 0], [[0, 0], [0, 2]]], "rows")
    c.op("SparseSliceGrad", [empty(0), np.zeros((0, 2)), [1, 0], np.zeros((0, 2))], "empty", T="float")
    c.op("SparseSliceGrad", [lit([7, 8]), A, [1, 0], [[0, 2], [0, 0]]], "not_found", T="float")
    c.op("SparseSliceGrad", [lit([7]), A, [1, 0], [[0, 0], [0, 2]]], "counts_differ", T="float")

    row = [[0, 0], [0, 3], [1, 4], [2, 1]]
    for count in (1, 2, 3, 5):
        c.op("SparseSplit", [1, row, lit([1, 2, 3, 4]), [3, 5]], f"into_{count}", few=True, num_split=count)
    c.op("SparseSplit", [-2, row, lit([1, 2, 3, 4]), [3, 5]], "rows", num_split=2, T="string")
    c.op("SparseSplit", [1, row, lit([1, 2, 3, 4]), [3, 5]], "too_many", num_split=6, T="float")
    c.op("SparseSplit", [2, row, lit([1, 2, 3, 4]), [3, 5]], "no_such_dim", num_split=2, T="float")
    c.op("SparseSplit", [1, row, lit([1, 2, 3, 4]), [3, 4]], "out_of_bounds", num_split=2, T="float")
