"""Slices, plain and strided, and their gradients."""

from values import *

import numpy as np


def strided(c, name, inputs, begin, end, strides, few=True, **masks):
    c.op("StridedSlice", [inputs, begin, end, strides], name, few=few, **masks)


def cases(c):
    c.op("Slice", [arr(3, 4), [1, 0], [2, 2]])
    c.op("Slice", [arr(3, 4), [1, 2], [-1, -1]], "rest", few=True)
    c.op("Slice", [arr(3, 4), [0, 0], [3, 4]], "all", few=True)
    c.op("Slice", [arr(3, 4), [3, 0], [0, 4]], "nothing", few=True)
    c.op("Slice", [arr(), np.zeros(0), np.zeros(0)], "scalar", few=True)
    c.op("Slice", [empty(0, 2), [0, 1], [0, 1]], "empty", few=True)
    c.op("Slice", [arr(2, 2, 2, 1, 2), [0, 1, 0, 0, 1], [2, 1, 1, 1, 1]], "rank_5", few=True)
    c.op("Slice", [arr(3, 4), [2, 0], [2, 4]], "too_large", few=True)
    c.op("Slice", [arr(3, 4), [-1, 0], [1, 4]], "negative_begin", few=True)
    c.op("Slice", [arr(3, 4), [4, 0], [-1, 4]], "begin_past_end", few=True)
    c.op("Slice", [arr(3, 4), [0, 0], [-2, 4]], "negative_size", few=True)
    c.op("Slice", [arr(3, 4), [0], [1]], "wrong_rank", few=True)
    c.op("Slice", [arr(3, 4), [0, 0], [1]], "sizes_differ", few=True)

    strided(c, "basic", arr(3, 4), [0, 1], [2, 3], [1, 1], few=False)
    strided(c, "steps", arr(5, 4), [0, 3], [5, 0], [2, -1])
    strided(c, "negative_indices", arr(5), [-3], [-1], [1])
    strided(c, "reverse_all", arr(4), [0], [0], [-1], begin_mask=1, end_mask=1)
    strided(c, "clamped", arr(4), [-10], [10], [1])
    strided(c, "clamped_reverse", arr(4), [10], [-10], [-1])
    strided(c, "shrink", arr(3, 4), [1, 0], [2, 4], [1, 1], shrink_axis_mask=1)
    strided(c, "shrink_negative", arr(3, 4), [-1, 0], [0, 4], [1, 1], shrink_axis_mask=1)
    strided(c, "shrink_all", arr(3, 4), [1, 2], [2, 3], [1, 1], shrink_axis_mask=3)
    strided(c, "new_axis", arr(3), [0, 0], [0, 3], [1, 1], new_axis_mask=1)
    strided(c, "ellipsis", arr(2, 3, 2), [0, 1], [0, 2], [1, 1], ellipsis_mask=1)
    strided(c, "ellipsis_middle", arr(2, 2, 2, 2), [1, 0, 0], [2, 0, 1], [1, 1, 1], ellipsis_mask=2, shrink_axis_mask=5)
    strided(
        c,
        "everything",
        arr(2, 3, 2),
        [0, 0, 0, 1],
        [0, 0, 2, 2],
        [1, 1, 1, 1],
        ellipsis_mask=1,
        new_axis_mask=2,
        shrink_axis_mask=8,
        begin_mask=4,
    )
    strided(c, "fewer_indices", arr(3, 2), [1], [3], [1])
    strided(c, "no_indices", arr(2, 2), np.zeros(0), np.zeros(0), np.zeros(0))
    strided(c, "scalar", arr(), np.zeros(0), np.zeros(0), np.zeros(0))
    strided(c, "empty_result", arr(4), [3], [1], [1])
    strided(c, "empty_input", empty(0, 2), [0, 0], [0, 1], [1, 1])
    strided(c, "rank_5", arr(2, 2, 2, 1, 2), [0, 1, 0, 0, 1], [2, 2, 1, 1, 0], [1, 1, 1, 1, -1])
    strided(c, "rank_7", arr(1, 2, 1, 2, 1, 2, 1), [0] * 7, [1, 2, 1, 1, 1, 2, 1], [1] * 7)
    strided(c, "zero_stride", arr(4), [0], [4], [0])
    strided(c, "too_many_indices", arr(4), [0, 0], [1, 1], [1, 1])
    strided(c, "shrink_out_of_range", arr(4), [4], [5], [1], shrink_axis_mask=1)
    strided(c, "shrink_negative_stride", arr(4), [1], [2], [-1], shrink_axis_mask=1)
    strided(c, "two_ellipses", arr(4), [0, 0], [0, 0], [1, 1], ellipsis_mask=3)
    strided(c, "lengths_differ", arr(4), [0], [1, 2], [1])
    strided(c, "not_vectors", arr(4), 0, 1, 1)

    c.op("StridedSliceGrad", [[3, 4], [0, 1], [2, 3], [1, 1], arr(2, 2)])
    c.op("StridedSliceGrad", [[5], [4], [0], [-2], arr(2)], "reverse", few=True, T="float")
    c.op("StridedSliceGrad", [[3, 4], [1, 0], [2, 4], [1, 1], arr(4)], "shrink", T="float", shrink_axis_mask=1)
    c.op("StridedSliceGrad", [[3, 4], [0, 0], [0, 2], [1, 1], arr(3, 2)], "masks", T="float", begin_mask=3, end_mask=1)
    c.op("StridedSliceGrad", [[3], [0, 0], [0, 2], [1, 1], arr(1, 2)], "new_axis", T="float", new_axis_mask=1)
    c.op("StridedSliceGrad", [[2, 3, 2], [0, 1], [0, 2], [1, 1], arr(2, 3, 1)], "ellipsis", T="float", ellipsis_mask=1)
    c.op("StridedSliceGrad", [[0], [0], [0], [1], empty(0)], "empty", T="float")
    c.op("StridedSliceGrad", [[4], [0], [2], [1], arr(3)], "wrong_dy", T="float")

    c.op("TensorStridedSliceUpdate", [arr(3, 4), [0, 1], [2, 3], [1, 1], arr(2, 2, seed=1)], few=True)
    c.op("TensorStridedSliceUpdate", [arr(5), [4], [0], [-2], arr(2, seed=1)], "reverse", T="float", Index="int32")
    c.op(
        "TensorStridedSliceUpdate",
        [arr(3, 4), [1, 0], [2, 4], [1, 1], arr(4, seed=1)],
        "shrink",
        T="float",
        Index="int32",
        shrink_axis_mask=1,
    )
    c.op("TensorStridedSliceUpdate", [arr(3), [0], [2], [1], lit(7)], "broadcast", T="float", Index="int32")
    c.op("TensorStridedSliceUpdate", [arr(3), [0], [2], [1], arr(3)], "mismatch", T="float", Index="int32")
    c.op(
        "TensorStridedSliceUpdate", [arr(3), [0], [2], [1], arr(1, 2, seed=1)], "leading_ones", T="float", Index="int32"
    )
    c.op(
        "TensorStridedSliceUpdate", [arr(3), [0], [2], [1], arr(2, 1, seed=1)], "leading_twos", T="float", Index="int32"
    )
    c.op("TensorStridedSliceUpdate", [arr(3), [0], [0], [1], arr(1, 3)], "nothing_to_write", T="float", Index="int32")
