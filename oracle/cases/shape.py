"""Shapes as tensors, and changes of shape that move no data."""

from values import *

import numpy as np


def cases(c):
    for op in ("Shape", "Size", "Rank"):
        c.op(op, [arr(2, 3)])
        c.op(op, [arr()], "scalar", few=True)
        c.op(op, [empty(3, 0, 2)], "empty", few=True)
        c.op(op, [arr(1, 2, 1, 2, 1)], "rank_5", few=True)
    c.op("ShapeN", [[arr(2, 3), arr(), empty(0)]], few=True, out_type=("int32", "int64"))

    c.op("Reshape", [arr(2, 3), [3, 2]])
    c.op("Reshape", [arr(2, 3), [-1]], "infer", few=True)
    c.op("Reshape", [arr(2, 3), [3, -1, 1]], "infer_middle", few=True)
    c.op("Reshape", [arr(1, 1), np.zeros(0)], "to_scalar", few=True)
    c.op("Reshape", [arr(), [1, 1]], "from_scalar", few=True)
    c.op("Reshape", [empty(0, 3), [3, 0]], "empty", few=True)
    c.op("Reshape", [empty(0, 3), [-1]], "empty_infer", few=True)
    c.op("Reshape", [empty(0, 3), [-1, 0]], "empty_infer_ambiguous", few=True)
    c.op("Reshape", [arr(2, 3), [4]], "wrong_count", few=True)
    c.op("Reshape", [arr(1), [1] * 254], "too_many", few=True)
    c.op("Reshape", [arr(2, 3), [-1, 4]], "not_divisible", few=True)
    c.op("Reshape", [arr(2, 3), [-1, -1]], "two_unknown", few=True)
    c.op("Reshape", [arr(2, 3), [-2, 3]], "negative", few=True)
    c.op("Reshape", [arr(2, 3), [[6]]], "shape_is_matrix", few=True)
    c.op("Reshape", [arr(1), 1], "shape_is_scalar", few=True)

    c.op("ExpandDims", [arr(2, 3), 1])
    for axis in (0, 2, -1, -3):
        c.op("ExpandDims", [arr(2, 3), axis], f"axis_{axis}", types=["float"])
    c.op("ExpandDims", [arr(), 0], "scalar", few=True)
    c.op("ExpandDims", [empty(0), 0], "empty", few=True)
    c.op("ExpandDims", [arr(2, 3), [1]], "axis_vector_of_one", few=True)
    c.op("ExpandDims", [arr(2, 3), [0, 1]], "axis_vector_of_two", few=True)
    c.op("ExpandDims", [arr(2, 3), 3], "out_of_range", few=True)
    c.op("ExpandDims", [arr(2, 3), -4], "out_of_range_below", few=True)

    c.op("Squeeze", [arr(1, 2, 1)])
    c.op("Squeeze", [arr(1, 2, 1)], "one_dim", few=True, squeeze_dims=[0])
    c.op("Squeeze", [arr(1, 2, 1)], "negative", few=True, squeeze_dims=[-1])
    c.op("Squeeze", [arr(1, 2, 1)], "both", few=True, squeeze_dims=[0, 2])
    c.op("Squeeze", [arr(2, 3)], "nothing", few=True)
    c.op("Squeeze", [arr(1, 1)], "to_scalar", few=True)
    c.op("Squeeze", [arr()], "scalar", few=True)
    c.op("Squeeze", [empty(1, 0)], "empty", few=True)
    c.op("Squeeze", [arr(1, 2)], "not_one", few=True, squeeze_dims=[1])
    c.op("Squeeze", [arr(1, 2)], "out_of_range", few=True, squeeze_dims=[2])
    c.op("Squeeze", [arr(1, 2)], "out_of_range_below", few=True, squeeze_dims=[-3])

    c.op("Bitcast", [arr(2, 3)], "same_width", T="float", type="int32")
    c.op("Bitcast", [arr(2, 3)], "narrower", T="float", type="uint16")
    c.op("Bitcast", [iota(2, 4)], "wider", T="uint8", type="int32")
    c.op("Bitcast", [iota(2, 3)], "wrong_width", T="uint8", type="int32")
    c.op("Bitcast", [arr()], "scalar", T="uint8", type="int32")
