"""The edit distance between sequences that are rows of sparse tensors."""

from values import *

import numpy as np


def cases(c):
    # Rows: equal, changed, only a hypothesis, only a truth, neither.
    guess = [[[0, 0], [0, 1], [1, 0], [1, 1], [1, 2], [2, 0]], lit([1, 2, 3, 4, 5, 6]), [5, 3]]
    real = [[[0, 0], [0, 1], [1, 0], [1, 1], [3, 0], [3, 1]], lit([1, 2, 4, 5, 7, 8]), [4, 2]]
    for normalize in (True, False):
        name = "normalized" if normalize else "counted"
        c.op("EditDistance", [*guess, *real], name, types=["int64", "float", "string"], normalize=normalize)
    cube = [[[0, 0, 0], [1, 1, 0]], lit([1, 2]), [2, 2, 1]]
    c.op("EditDistance", [*cube, *cube], "rank_3", T="int64")
    none = [np.zeros((0, 2)), empty(0), [2, 1]]
    c.op("EditDistance", [*none, *none], "empty", T="int64")
    c.op("EditDistance", [[0], lit([1]), [2, 1], *none], "indices_not_matrix", T="int64")
    c.op("EditDistance", [[[0, 0]], lit([1, 2]), [2, 1], *none], "counts_differ", T="int64")
    c.op("EditDistance", [[[0, 0]], lit([1]), [2, 1, 1], *none], "shape_too_long", T="int64")
    c.op("EditDistance", [*cube, *none], "ranks_differ", T="int64")
    # Indices that are not sorted, or out of the shape's bounds: the last one of an index does not count.
    mixed = [[[1, 0], [0, 0], [1, 1]], lit([1, 2, 3]), [2, 2]]
    c.op("EditDistance", [*mixed, *guess[:2], [5, 3]], "not_sorted", T="int64")
    far = [[[0, 7], [1, 9]], lit([1, 2]), [2, 2]]
    c.op("EditDistance", [*far, *real], "far_column", T="int64")
    c.op("EditDistance", [[[7, 0]], lit([1]), [2, 2], *real], "far_row", T="int64")
    c.op("EditDistance", [[[-7, 0]], lit([1]), [2, 2], *real], "negative_row", T="int64")
    c.op("EditDistance", [[[0, 0]], lit([1]), [-2, 2], *real], "negative_shape", T="int64")
    c.op("EditDistance", [np.zeros((0, 2)), empty(0), [0, 1], np.zeros((0, 2)), empty(0), [0, 3]], "no_rows", T="int64")
