"""Flat positions as coordinates."""

from values import *

import numpy as np


def cases(c):
    c.op("UnravelIndex", [[22, 0, 59, 7], [3, 4, 5]], "vector")
    c.op("UnravelIndex", [37, [3, 4, 5]], "scalar")
    one = {"Tidx": "int32"}
    c.op("UnravelIndex", [[-1, -7], [3, 4]], "negative", **one)
    c.op("UnravelIndex", [[60], [3, 4, 5]], "out_of_bounds", message="index is out of bound as with dims", **one)
    c.op("UnravelIndex", [[1], [3, 0]], "no_size", **one)
    c.op("UnravelIndex", [[1], [3, -4]], "negative_size", **one)
    c.op("UnravelIndex", [[1], [2**20, 2**20]], "overflow", **one)
    c.op("UnravelIndex", [np.zeros(0), [3]], "empty", **one)
    c.op("UnravelIndex", [[[1]], [3]], "matrix", **one)
    c.op("UnravelIndex", [[1], 3], "size_not_vector", **one)
    c.op("UnravelIndex", [[0], np.zeros(0)], "no_dims", **one)
