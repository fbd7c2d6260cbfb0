"""Numbers by the bucket that they fall into."""

from values import *

import numpy as np


def cases(c):
    bounds = [-2.5, 0.0, 3.0, 3.0, 100.0]
    c.op("Bucketize", [lit([-3, -2.5, -1, 0, 2.9, 3, 99, 100, 1000])], "values", boundaries=bounds)
    c.op("Bucketize", [arr(2, 3)], "matrix", boundaries=bounds, T="float")
    c.op("Bucketize", [empty(0, 2)], "empty", boundaries=bounds, T="float")
    c.op("Bucketize", [arr(3)], "no_boundaries", boundaries=[], T="float")
    c.op("Bucketize", [np.array([np.nan, np.inf, -np.inf], np.float32)], "specials", boundaries=bounds, T="float")
    large = np.array([2**24, 2**24 + 1, 2**24 + 2])
    c.op("Bucketize", [large], "beyond_singles", boundaries=[2.0**24 + 2], types=["int32", "int64", "double"])
    c.op("Bucketize", [arr(3)], "unsorted", boundaries=[1.0, 0.0], T="float", message="Expected sorted boundaries")
