"""A tensor with some of its rows replaced or changed."""

from values import *

import numpy as np


def cases(c):
    for op in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
        types = ["float", "int32", "int64", "complex64"]
        c.op(op, [arr(3, 2), [2, 0], arr(2, 2, seed=1)], types=types)
        c.op(op, [arr(3), [1], arr(1, seed=1)], "vector", types=["float"])
        c.op(op, [arr(3), [-1, 4], arr(2, seed=1)], "wraps", types=["float"])
        c.op(op, [arr(3), np.zeros(0), empty(0)], "nothing", types=["float"])
        c.op(op, [arr(3), [1], arr(2)], "counts_differ", types=["float"])
        c.op(op, [arr(3), [[1]], arr(1)], "not_vector", types=["float"])
        c.op(op, [arr(3, 2), [1], arr(1)], "ranks_differ", types=["float"])
        c.op(op, [arr(3, 2), [1], arr(1, 3)], "widths_differ", types=["float"])
