"""Ops whose result's size depends on the data: Unique, ListDiff, Where."""

from values import *

import numpy as np


def cases(c):
    repeated = lit([3, 1, 3, 2, 1, 1])
    for op in ("Unique", "UniqueWithCounts"):
        c.op(op, [repeated])
        c.op(op, [empty(0)], "empty", few=True)
        c.op(op, [lit([5])], "one", few=True)
        c.op(op, [lit([[1, 2]])], "matrix", few=True)
        c.op(op, [lit(1)], "scalar", few=True)
        c.op(op, [lit([float("nan"), 0.0, -0.0, float("nan")])], "nan", types=FLOATS)
    for op in ("UniqueV2", "UniqueWithCountsV2"):
        c.op(op, [repeated, np.zeros(0)])
        c.op(op, [lit([[1, 0], [2, 0], [1, 0]]), [0]], "rows", few=True)
        c.op(op, [lit([[1, 0, 1], [2, 0, 2]]), [1]], "columns", few=True)
        c.op(op, [lit([[1, 0, 1], [2, 0, 2]]), [-1]], "negative_axis", few=True)
        c.op(op, [empty(0, 2), [0]], "empty", few=True)
        c.op(op, [lit([[1, 0]]), [2]], "out_of_range", few=True)
    c.op("ListDiff", [lit([1, 2, 3, 4, 3, 5]), lit([2, 4])])
    c.op("ListDiff", [empty(0), lit([1])], "empty", few=True)
    c.op("ListDiff", [lit([1, 1]), empty(0)], "nothing_removed", few=True)
    c.op("ListDiff", [lit([[1]]), lit([1])], "matrix", few=True)
    c.op("Where", [lit([[1, 0, 2], [0, 0, 3]])])
    c.op("Where", [lit([0, 0])], "none", few=True)
    c.op("Where", [empty(0, 2)], "empty", few=True)
    c.op("Where", [lit(1)], "scalar", few=True)
    c.op("Where", [lit(0)], "scalar_false", few=True)
    c.op("Where", [arr(1, 2, 1, 2, 2)], "rank_5", few=True, T="bool")
    c.op("Where", [lit([float("nan"), 0.0, -0.0, 1.0])], "nan", types=FLOATS)
