"""Points of Sobol's sequence."""

import numpy as np


def cases(c):
    one = lambda *values: [np.int32(value) for value in values]
    for dim, count, skip in [(1, 5, 0), (3, 9, 0), (5, 4, 7), (2, 3, 1000000), (1111, 1, 5), (40, 2, 123)]:
        for dtype in ("float", "double") if dim < 100 else ("double",):
            c.op("SobolSample", one(dim, count, skip), f"{dim}_{count}_{skip}", dtype=dtype)
    c.op("SobolSample", one(0, 1, 0), "no_dimension", dtype="float")
    c.op("SobolSample", one(1, 0, 0), "no_result", dtype="float")
    c.op("SobolSample", one(1, 1, -1), "negative", dtype="float")
    c.op("SobolSample", one(30000, 1, 0), "too_many", dtype="float", message="dim must be at most 21200")
    c.op("SobolSample", [np.array([1], np.int32), np.int32(1), np.int32(0)], "vector", dtype="float")
