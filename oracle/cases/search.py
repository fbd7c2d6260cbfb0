"""Searching sorted rows, and counting values by range."""

from values import *

import numpy as np


def cases(c):
    for op in ("UpperBound", "LowerBound"):
        c.op(op, [lit([[0, 3, 3, 9, 10], [1, 2, 3, 4, 5]]), lit([[2, 3, 99], [0, 2, 6]])])
        c.op(op, [lit([[0.0, 1.0]]), lit([[float("nan"), float("inf"), -0.0]])], "specials", types=FLOATS)
        c.op(op, [empty(2, 0), lit([[1], [2]])], "no_elements", T="float")
        c.op(op, [lit([[1], [2]]), empty(2, 0)], "no_values", T="float")
        c.op(op, [lit([1, 2]), lit([1])], "vectors", T="float")
        c.op(op, [lit([[1, 2]]), lit([[1], [2]])], "rows_differ", T="float")
    c.op("HistogramFixedWidth", [lit([-1, 0, 1, 2, 3, 7, 9, 10]), lit([0, 9]), 3])
    c.op("HistogramFixedWidth", [lit([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0]), lit([0.0, 5.0]), 5], "doc", T="float")
    c.op("HistogramFixedWidth", [empty(0), lit([0.0, 5.0]), 2], "empty", T="float")
    c.op("HistogramFixedWidth", [lit([1.0]), lit([0.0]), 2], "range_of_one", T="float")
    for bins in (1, 2):
        c.op(
            "HistogramFixedWidth",
            [lit([1.0, float("nan"), float("inf")]), lit([0.0, 5.0]), bins],
            f"nan_{bins}",
            T="float",
        )
    c.op(
        "HistogramFixedWidth",
        [lit([np.iinfo(np.int64).max, np.iinfo(np.int64).min, 0, 5]), lit([-1, 3]), 4],
        "far",
        T="int64",
    )
    c.op("HistogramFixedWidth", [lit([1.0]), lit([1.0, 0.0]), 2], "range_reversed", T="float")
    c.op("HistogramFixedWidth", [lit([1.0]), lit([0.0, 1.0]), 0], "no_bins", T="float")
    c.op("HistogramFixedWidth", [lit([1.0]), lit([0.0, 1.0]), [2]], "bins_not_scalar", T="float")
    c.op("HistogramFixedWidth", [lit([float("nan")]), lit([0.0, 1.0]), 2], "nan", T="float")
    for op in ("LowerBound", "UpperBound"):
        c.op(
            op,
            [[[126, -127, -1, 2, 1], [2, 126, -127, -1, 7]], [[0, -1, 1, 2, 8], [1, 1, 1, -1, 1]]],
            "unsorted",
            T="int8",
            out_type="int32",
        )
