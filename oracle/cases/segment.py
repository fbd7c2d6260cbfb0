"""Reductions of rows by segment id: sorted, unsorted and sparse."""

from values import *

import numpy as np

SORTED = ["SegmentSum", "SegmentMean", "SegmentProd", "SegmentMin", "SegmentMax"]
UNSORTED = ["UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMin", "UnsortedSegmentMax"]
SPARSE = ["SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"]


def cases(c):
    c.accuracy("rounding")
    for op in SORTED:
        c.op(op, [arr(4, 2), [0, 0, 1, 2]])
        c.op(op, [arr(4), [0, 0, 2, 2]], "gap", few=True)
        c.op(op, [empty(0, 2), np.zeros(0)], "empty", few=True)
        c.op(op, [arr(3), [0, 1, 0]], "not_sorted", few=True)
        c.op(op, [arr(4), [0, 1, 2, 0]], "not_sorted_later", few=True)
        c.op(op, [arr(3), [0, 1]], "mismatch", few=True)
        c.op(op, [arr(2), [-1, 0]], "negative", few=True)
        c.op(op, [arr(2, 2, 2), [1, 1]], "rank_3", few=True)
        c.op(op, [arr(), 0], "scalar", few=True)
        c.op(op, [arr(2, 2), [[0, 1], [1, 1]]], "ids_matrix", few=True)
    for op in UNSORTED:
        c.op(op, [arr(4, 2), [2, 0, 0, 2], 4])
        c.op(op, [arr(2, 2), [[0, 1], [1, 0]], 2], "elements", few=True)
        c.op(op, [arr(3), [0, -1, 1], 2], "negative_dropped", few=True)
        c.op(op, [empty(0, 2), np.zeros(0), 2], "empty", few=True)
        c.op(op, [arr(2), [0, 0], 0], "no_segments", few=True)
        c.op(op, [arr(2), [0, 5], 3], "out_of_range", few=True)
        c.op(op, [arr(2), [0, 1, 1], 3], "mismatch", few=True)
        c.op(op, [arr(2), [0, 1], -1], "negative_count", few=True)
        c.op(op, [arr(2), [0, 1], [2]], "count_vector", few=True)
        c.op(op, [arr(), 1, 2], "scalar", few=True)
    for op in SPARSE:
        c.op(op, [arr(4, 2), [0, 2, 3], [0, 0, 1]])
        c.op(op, [arr(4, 2), [1, 1], [1, 1]], "gap", few=True)
        c.op(op, [arr(4, 2), np.zeros(0), np.zeros(0)], "nothing", few=True)
        c.op(op, [arr(4, 2), [4], [0]], "out_of_range", few=True)
        c.op(op, [arr(4, 2), [0, 1], [1, 0]], "not_sorted", few=True)
        c.op(op, [arr(4, 2), [0, 1, 2], [0, 0, -1]], "last_negative", few=True)
        c.op(op, [arr(4, 2), [0, 1], [0]], "mismatch", few=True)
        c.op(op, [arr(4, 2), [0], [-1]], "negative", few=True)
        counted = op + "WithNumSegments"
        c.op(counted, [arr(4, 2), [0, 2, 3], [0, 0, 2], 4])
        c.op(counted, [arr(4, 2), np.zeros(0), np.zeros(0), 2], "nothing", few=True)
        c.op(counted, [arr(4, 2), [0], [3], 2], "too_few", few=True)
        c.op(counted, [arr(4, 2), [0], [0], -1], "negative_count", few=True)
        c.op(op + "Grad", [arr(2, 2), [0, 2, 3], [0, 0, 1], 5])
        c.op(op + "Grad", [arr(2, 2), [0, 2, 0], [0, 0, 1], 3], "duplicates", few=True)
        c.op(op + "Grad", [arr(2, 2), [0, 5], [0, 1], 3], "out_of_range", few=True)
        c.op(op + "Grad", [arr(2, 2), [0, 1], [0, 2], 3], "segment_out_of_range", few=True)
        c.op(op + "GradV2", [arr(2, 2), [0, 2, 3], [0, 0, 1], 5], types=["float", "double"])
    for op in UNSORTED:
        c.op(op, [empty(2, 0), [0, 7], 2], "ids_without_rows", T="float", Tindices="int32", Tnumsegments="int32")
    for op in SPARSE:
        for version in ("Grad", "GradV2"):
            c.op(
                op + version,
                [arr(2, 2), [0, 9], [0, 7], 0],
                "no_rows_to_add_to",
                T="float",
                Tidx="int32",
                Tsegmentids="int32",
            )
    # A not-a-number lasts until the next row; sums of integers wrap before they are divided.
    for rows in ([np.nan, 1, 2], [1, np.nan, 2], [1, 2, np.nan], [3, np.nan, 1]):
        name = "_".join(map(str, rows))
        for op in ("SegmentMin", "SegmentMax"):
            c.op(op, [lit(rows), [0, 0, 0]], f"not_a_number_{name}", T="float", Tindices="int32")
        for op in ("UnsortedSegmentMin", "UnsortedSegmentMax"):
            c.op(
                op, [lit(rows), [0, 0, 0], 1], f"not_a_number_{name}", T="float", Tindices="int32", Tnumsegments="int32"
            )
    c.op(
        "SegmentMean",
        [lit([127, 127, 1, -128, -128, 124]), [0, 0, 1, 2, 2, 2]],
        "sums_wrap",
        T="int8",
        Tindices="int32",
    )
