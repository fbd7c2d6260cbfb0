"""Reordering dims and elements: Transpose, Reverse, Roll, InvertPermutation."""

from values import *

import numpy as np


def cases(c):
    c.op("Transpose", [arr(2, 3), [1, 0]])
    c.op("ConjugateTranspose", [arr(2, 3), [1, 0]])
    for op in ("Transpose", "ConjugateTranspose"):
        # Stock dies on a scalar string here.
        some = {"few": True} if op == "Transpose" else {"types": ["float", "complex64"]}
        c.op(op, [arr(2, 3), [0, 1]], "identity", **some)
        c.op(op, [arr(2, 3, 2), [2, 0, 1]], "rank_3", **some)
        c.op(op, [arr(2, 1, 3), [1, 2, 0]], "one_dim", **some)
        c.op(op, [arr(2, 2, 1, 2), [0, 3, 2, 1]], "rank_4", **some)
        c.op(op, [arr(1, 2, 2, 1, 3), [4, 2, 0, 1, 3]], "rank_5", **some)
        c.op(op, [arr(2, 1, 2, 1, 2, 1), [5, 4, 3, 2, 1, 0]], "rank_6", **some)
        c.op(op, [arr(), np.zeros(0)], "scalar", **some)
        c.op(op, [arr(3), [0]], "vector", **some)
        c.op(op, [empty(0, 3), [1, 0]], "empty", **some)
        c.op(op, [arr(2, 3), [1]], "wrong_rank", **some)
        c.op(op, [arr(2, 3), [1, 1]], "repeated", **some)
        c.op(op, [arr(2, 3), [2, 0]], "out_of_range", **some)
        c.op(op, [arr(2, 3), [-1, 0]], "negative", **some)
        c.op(op, [arr(2, 3), [[1, 0]]], "not_vector", **some)
    c.op("InvertPermutation", [lit([3, 4, 0, 2, 1])])
    c.op("InvertPermutation", [empty(0)], "empty")
    c.op("InvertPermutation", [lit([0, 0])], "repeated")
    c.op("InvertPermutation", [lit([0, 2])], "out_of_range")
    c.op("InvertPermutation", [lit([[0]])], "not_vector")

    c.op("ReverseV2", [arr(2, 3), [1]])
    c.op("ReverseV2", [arr(2, 3), [0, -1]], "both", few=True)
    c.op("ReverseV2", [arr(2, 3), np.zeros(0)], "none", few=True)
    c.op("ReverseV2", [arr(), np.zeros(0)], "scalar", few=True)
    c.op("ReverseV2", [empty(0, 3), [0]], "empty", few=True)
    c.op("ReverseV2", [arr(2, 1, 2, 1, 2), [0, 2, 4]], "rank_5", few=True)
    c.op("ReverseV2", [arr(2, 3), [1, 1]], "repeated", few=True)
    c.op("ReverseV2", [arr(2, 3), [2]], "out_of_range", few=True)
    c.op("ReverseV2", [arr(2, 3), [-3]], "out_of_range_below", few=True)
    c.op("ReverseV2", [arr(2, 3), [[0]]], "not_vector", few=True)
    c.op("Reverse", [arr(2, 3), [False, True]])
    c.op("Reverse", [arr(2, 3), [True]], "wrong_rank", few=True)
    c.op("ReverseSequence", [arr(2, 4), [2, 4]], seq_dim=1)
    c.op("ReverseSequence", [arr(3, 2, 2), [0, 3]], "batch_dim_1", few=True, seq_dim=0, batch_dim=1)
    c.op("ReverseSequence", [arr(2, 4), [5, 1]], "too_long", few=True, seq_dim=1)
    c.op("ReverseSequence", [arr(2, 4), [-1, 1]], "negative", few=True, seq_dim=1)
    c.op("ReverseSequence", [arr(2, 4), [1]], "wrong_count", few=True, seq_dim=1)
    c.op("ReverseSequence", [arr(2, 4), [1, 1]], "same_dims", few=True, seq_dim=0)
    c.op("Roll", [arr(2, 3), 1, 1])
    c.op("Roll", [arr(2, 3), [1, -2], [0, 1]], "both", few=True)
    c.op("Roll", [arr(4), [3, 3], [0, 0]], "same_axis_twice", few=True)
    c.op("Roll", [arr(4), -9, -1], "wraps", few=True)
    c.op("Roll", [empty(0, 2), 1, 0], "empty", few=True)
    c.op("Roll", [arr(), 1, 0], "scalar", few=True)
    c.op("Roll", [arr(4), 1, 1], "out_of_range", few=True)
    c.op("Roll", [arr(4), [1, 2], [0]], "mismatch", few=True)
    c.op("ReverseV2", [arr(), 0], "scalar_axis_of_scalar", T="float", Tidx="int32")
    c.op("ReverseV2", [empty(0, 2), [[7]]], "axes_of_nothing", T="float", Tidx="int32")
    c.op("Reverse", [arr(), [True, False]], "dims_of_scalar", T="float")
    for shape in ((0,), (0, 2), (2, 0)):
        c.op("Reverse", [empty(*shape), [True] * len(shape)], "empty_" + "x".join(map(str, shape)), T="float")
