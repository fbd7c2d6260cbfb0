"""Counting integers."""

from values import *


def cases(c):
    c.op("Bincount", [[1, 0, 1, 5], 4, empty(0)], "counts")
    c.op("Bincount", [[1, 0, 1, 5], 4, lit([2, 3, 4, 5])], "weights")
    c.op("Bincount", [[1, -1], 4, empty(0)], "negative", few=True)
    c.op("Bincount", [[1], -1, empty(0)], "negative_size", few=True)
    c.op("Bincount", [[1], 2, lit([1, 2])], "mismatch", few=True)
    for indices in ("int32", "int64"):
        c.op("DenseBincount", [[1, 0, 1, 5], 4, empty(0)], "counts", Tidx=indices)
    c.op("DenseBincount", [[[1, 0], [1, 5]], 4, empty(0)], "rows", few=True, Tidx="int32")
    c.op("DenseBincount", [[[1, 0], [1, 1]], 4, lit([[1, 2], [3, 4]])], "row_weights", few=True, Tidx="int32")
    c.op("DenseBincount", [[1, 0, 1, 5], 4, empty(0)], "binary", few=True, Tidx="int32", binary_output=True)
    c.op("DenseBincount", [[1, -1], 4, empty(0)], "negative", few=True, Tidx="int32")
    c.op("DenseBincount", [[[[1]]], 4, empty(0)], "rank_3", few=True, Tidx="int32")
    c.op("RaggedBincount", [[0, 2, 3], [1, 0, 1], 3, empty(0)], "counts", few=True, Tidx="int32")
    c.op("RaggedBincount", [[0, 2, 3], [1, 0, 1], 3, lit([1, 2, 3])], "weights", few=True, Tidx="int32")
    c.op("RaggedBincount", [[0, 2, 4], [1, 0, 1], 3, empty(0)], "wrong_splits", few=True, Tidx="int32")
    sparse = [[[0, 1], [0, 2], [2, 0], [2, 1]], [1, 1, 0, 5], [3, 3]]
    for indices in ("int32", "int64"):
        c.op("SparseBincount", [*sparse, 4, empty(0)], "counts", few=indices == "int64", Tidx=indices)
    one = {"few": True, "Tidx": "int32"}
    c.op("SparseBincount", [*sparse, 4, lit([1, 2, 3, 4])], "weights", **one)
    c.op("SparseBincount", [*sparse, 4, empty(0)], "binary", binary_output=True, **one)
    c.op("SparseBincount", [[[0], [2]], [1, 1], [3], 4, empty(0)], "vector", **one)
    c.op("SparseBincount", [[[0, 3]], [1], [3, 3], 4, empty(0)], "out_of_bounds", **one)
    c.op("SparseBincount", [[[0, 0]], [-1], [3, 3], 4, empty(0)], "negative", **one)
    c.op("SparseBincount", [[[0]], [-1], [3], 4, empty(0)], "negative_in_vector", **one)
    c.op("SparseBincount", [*sparse, -4, empty(0)], "negative_size", **one)
