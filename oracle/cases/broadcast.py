"""Repeating data: Tile, BroadcastTo, and the shape arithmetic around broadcasting."""

from values import *

import numpy as np


def cases(c):
    c.op("Tile", [arr(2, 2), [1, 3]])
    c.op("Tile", [arr(2, 2), [2, 2]], "both", few=True)
    c.op("Tile", [arr(2), [0]], "zero", few=True)
    c.op("Tile", [arr(1, 4), [2, 0]], "no_elements", T="uint16")
    c.op("Tile", [arr(), np.zeros(0)], "scalar", few=True)
    c.op("Tile", [empty(0, 2), [3, 2]], "empty", few=True)
    c.op("Tile", [arr(2, 2), [1, 1]], "ones", few=True)
    c.op("Tile", [arr(1, 2, 1, 1, 2), [2, 1, 1, 2, 1]], "rank_5", few=True)
    c.op("Tile", [arr(2, 2), [2]], "wrong_rank", few=True)
    c.op("Tile", [arr(2), [-1]], "negative", few=True)
    c.op("Tile", [arr(2), [[1]]], "not_vector", few=True)
    c.op("TileGrad", [arr(4, 2), [2, 1]], few=True)
    c.op("BroadcastTo", [arr(3), [2, 3]])
    c.op("BroadcastTo", [arr(2, 1), [2, 3]], "column", few=True)
    c.op("BroadcastTo", [arr(), [2, 2]], "scalar", few=True)
    c.op("BroadcastTo", [arr(), np.zeros(0)], "scalar_to_scalar", few=True)
    c.op("BroadcastTo", [arr(1), [0]], "to_empty", few=True)
    c.op("BroadcastTo", [arr(2, 3), [2, 3]], "same", few=True)
    c.op("BroadcastTo", [arr(1, 2, 1), [2, 2, 2]], "rank_3", few=True)
    c.op("BroadcastTo", [arr(3), [2, 2]], "mismatch", few=True)
    c.op("BroadcastTo", [arr(2, 3), [3]], "lower_rank", few=True)
    c.op("BroadcastTo", [arr(1), [-1]], "negative", few=True)
    for op in ("BroadcastArgs", "BroadcastGradientArgs"):
        c.op(op, [[2, 3], [3]])
        c.op(op, [[2, 1, 4], [3, 1]], "both", T="int32")
        c.op(op, [[2, 3], [2, 3]], "equal", T="int32")
        c.op(op, [np.zeros(0), [2, 3]], "scalar", T="int32")
        c.op(op, [np.zeros(0), np.zeros(0)], "scalars", T="int32")
        c.op(op, [[1, 1], [1]], "ones", T="int32")
        c.op(op, [[1, 0], [5, 1]], "zero", T="int32")
        c.op(op, [[2, 3], [2, 4]], "mismatch", T="int32")
        c.op(op, [[[2]], [2]], "not_vector", T="int32")
    for op in ("BroadcastArgs", "BroadcastGradientArgs"):
        c.op(op, [[1, 1], [-1]], "unknown", T="int32")
        c.op(op, [[-1, 2], [-1, 1]], "unknown_in_both", T="int32")
        c.op(op, [[-1], [2]], "unknown_mismatch", T="int32")
