"""Rows without entries filled with a default, of sparse and of ragged tensors."""

from values import *

import numpy as np


def cases(c):
    indices = [[1, 0], [1, 3], [3, 2]]
    c.op("SparseFillEmptyRows", [indices, lit([1, 2, 3]), [5, 4], lit(9)], "some")
    c.op("SparseFillEmptyRows", [[[0, 1], [1, 0]], lit([1, 2]), [2, 2], lit(9)], "none", few=True)
    c.op("SparseFillEmptyRows", [[[3, 1], [0, 2], [3, 0]], lit([1, 2, 3]), [4, 3], lit(9)], "unsorted", T="string")
    c.op("SparseFillEmptyRows", [[[1, 1], [0, 2]], lit([1, 2]), [2, 3], lit(9)], "full_unsorted", T="float")
    c.op("SparseFillEmptyRows", [np.zeros((0, 2)), empty(0), [3, 4], lit(9)], "all", T="float")
    c.op("SparseFillEmptyRows", [np.zeros((0, 2)), empty(0), [0, 4], lit(9)], "no_rows", T="float")
    c.op("SparseFillEmptyRows", [[[1, 2, 3]], lit([1]), [3, 4, 5], lit(9)], "rank_3", T="int64")
    c.op(
        "SparseFillEmptyRows",
        [indices, lit([1, 2, 3]), [3, 4], lit(9)],
        "out_of_bounds",
        T="float",
        message="is invalid: 3 >= 3",
    )
    c.op("SparseFillEmptyRows", [indices, lit([1, 2, 3]), [0, 4], lit(9)], "entries_without_rows", T="float")
    c.op("SparseFillEmptyRows", [indices, lit([1, 2]), [5, 4], lit(9)], "counts_differ", T="float")
    c.op("SparseFillEmptyRows", [indices, lit([1, 2, 3]), [5], lit(9)], "rank_differs", T="float")
    c.op("SparseFillEmptyRows", [indices, lit([1, 2, 3]), [5, 4], lit([9])], "default_not_scalar", T="float")
    c.op("SparseFillEmptyRows", [np.zeros((0, 2)), empty(0), [-3, 4], lit(9)], "negative_rows", T="float")

    c.op("RaggedFillEmptyRows", [[1, 1, 3], lit([1, 2, 3]), 5, lit(9)], "some", few=True)
    c.op("RaggedFillEmptyRows", [[0, 1], lit([1, 2]), 2, lit(9)], "none", T="float")
    c.op("RaggedFillEmptyRows", [[2, 0], lit([1, 2]), 3, lit(9)], "unsorted", T="float")
    c.op("RaggedFillEmptyRows", [np.zeros(0), empty(0), 0, lit(9)], "no_rows", T="float")
    c.op("RaggedFillEmptyRows", [[1, 3], lit([1, 2]), 3, lit(9)], "out_of_bounds", T="float")
    c.op("RaggedFillEmptyRows", [[1], lit([1, 2]), 3, lit(9)], "counts_differ", T="float")

    for op in ("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad"):
        c.op(op, [[1, 2, 4], lit([1, 2, 3, 4, 5])], "rows", few=op.startswith("R"))
        c.op(op, [np.zeros(0), empty(0)], "empty", T="float")
        c.op(op, [[1, 5], lit([1, 2, 3])], "out_of_bounds", T="float")
        c.op(op, [[-1], lit([1, 2, 3])], "negative", T="float")
