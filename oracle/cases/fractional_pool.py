"""Pools with regions of different sizes."""

import itertools

from values import *

import numpy as np

RATIOS = [1.0, 1.44, 1.73, 1.0]
SEEDED = {"deterministic": True, "seed": 3, "seed2": 5}


def pools(c):
    for op in ("FractionalMaxPool", "FractionalAvgPool"):
        c.op(op, [arr(2, 7, 9, 2)], pooling_ratio=RATIOS, **SEEDED)
        c.op(op, [arr(1, 7, 9, 2)], "overlapping", few=True, pooling_ratio=RATIOS, overlapping=True, **SEEDED)
        c.op(op, [arr(1, 23, 8, 1)], "pseudo", few=True, pooling_ratio=RATIOS, pseudo_random=True, **SEEDED)
        both = {"pseudo_random": True, "overlapping": True}
        c.op(op, [arr(1, 7, 9, 1)], "both", few=True, pooling_ratio=[1.0, 2.3, 1.1, 1.0], **both, **SEEDED)
        c.op(op, [arr(1, 4, 6, 1)], "whole", few=True, pooling_ratio=[1.0, 2.0, 3.0, 1.0], **SEEDED)
        c.op(op, [arr(1, 4, 4, 1)], "unseeded", types=["float"], accuracy="random", pooling_ratio=[1.0, 2.0, 2.0, 1.0])
        c.op(op, [arr(1, 2, 3, 1)], "too_small", types=["float"], pooling_ratio=[1.0, 2.5, 1.0, 1.0])
        c.op(op, [empty(0, 4, 4, 1)], "empty", types=["float"], pooling_ratio=[1.0, 2.0, 2.0, 1.0])
        c.op(op, [arr(1, 4, 4, 2)], "channels", types=["float"], pooling_ratio=[1.0, 2.0, 2.0, 2.0])
        c.op(op, [arr(1, 4, 4, 2)], "ratio", types=["float"], pooling_ratio=[1.0, 0.5, 2.0, 1.0])
        c.op(op, [arr(4, 4, 2)], "rank", types=["float"], pooling_ratio=RATIOS)
        c.op(op, [arr(1, 4, 4, 2)], "seeds", types=["float"], pooling_ratio=[1.0, 2.0, 2.0, 1.0], seed=1)


def gradients(c):
    rows, columns = np.int64([0, 2, 3, 5]), np.int64([0, 1, 3, 4])
    value = np.arange(40).reshape(1, 5, 4, 2) * 7 % 40
    for overlapping in (False, True):
        extra = int(overlapping)
        spans = itertools.product(itertools.pairwise(rows), itertools.pairwise(columns))
        picked = [value[:, a : b + extra, x : y + extra].max((1, 2)) for (a, b), (x, y) in spans]
        largest = np.stack(picked, 1).reshape(1, 3, 3, 2)
        name = "overlapping" if overlapping else ""
        given = [lit(value), lit(largest), arr(1, 3, 3, 2)]
        c.op("FractionalMaxPoolGrad", [*given, rows, columns], name, overlapping=overlapping)
        shape = np.int64([1, 5, 4, 2])
        c.op("FractionalAvgPoolGrad", [shape, arr(1, 3, 3, 2), rows, columns], name, overlapping=overlapping)
    different = [lit(value), lit(largest + 1), arr(1, 3, 3, 2), rows, columns]
    c.op("FractionalMaxPoolGrad", different, "different", types=["float"], message="is not the same as tensor_out")
    op = "FractionalAvgPoolGrad"
    c.op(op, [np.int64([1, 5, 4]), arr(1, 3, 3, 2), rows, columns], "shape", types=["float"])
    c.op(op, [shape, arr(1, 3, 3, 2), rows[:3], columns], "rows", types=["float"], message="must have at least 4")
    c.op(op, [shape, arr(1, 3, 3, 2), -rows, columns], "negative", types=["float"], message="must not be negative")
    c.op(op, [shape, empty(1, 0, 3, 2), rows, columns], "empty", types=["float"])


def cases(c):
    c.accuracy("rounding")
    pools(c)
    gradients(c)
