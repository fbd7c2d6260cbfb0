"""Counts of integers as sparse tensors."""

from values import *

import numpy as np


def cases(c):
    rows = [[5, 1, 5], [0, 0, 9]]
    for name, attrs in {
        "counts": {},
        "min_length": {"minlength": 12},
        "max_length": {"maxlength": 5},
        "binary": {"binary_output": True},
    }.items():
        attrs = {"binary_output": False} | attrs
        few = name != "counts"
        c.op("DenseCountSparseOutput", [rows, empty(0)], name, few=few, **attrs)
        sparse = [[[0, 1], [0, 2], [2, 0], [2, 1]], [3, 3, 7, 0], [3, 3]]
        c.op("SparseCountSparseOutput", [*sparse, empty(0)], name, few=few, **attrs)
        c.op("RaggedCountSparseOutput", [[0, 2, 2, 4], [3, 3, 7, 0], empty(0)], name, few=few, **attrs)
    plain = {"binary_output": False, "T": "int32", "output_type": "float"}
    weights = lit([0.5, 1.5, 2, 3])
    c.op("DenseCountSparseOutput", [rows[0], lit([0.5, 1, 2])], "weights", **plain)
    c.op("DenseCountSparseOutput", [rows[0], empty(0)], "vector", **plain)
    c.op("DenseCountSparseOutput", [empty(0)("int32"), empty(0)], "empty", **plain)
    c.op("DenseCountSparseOutput", [empty(2, 0)("int32"), empty(0)], "empty_rows", **plain)
    c.op("DenseCountSparseOutput", [empty(0, 2)("int32"), empty(0)], "no_rows", **plain)
    c.op("DenseCountSparseOutput", [[[[1]]], empty(0)], "rank_3", **plain)
    c.op("DenseCountSparseOutput", [[1, -1], empty(0)], "negative", **plain)
    c.op("DenseCountSparseOutput", [[1, 2], lit([1.0])], "weights_differ", **plain)
    c.op("SparseCountSparseOutput", [*sparse, weights], "weights", **plain)
    c.op("SparseCountSparseOutput", [[[0], [2]], [3, 3], [4], empty(0)], "vector", **plain)
    c.op("SparseCountSparseOutput", [[[0, 5]], [3], [3, 3], empty(0)], "out_of_bounds", **plain)
    c.op("SparseCountSparseOutput", [np.zeros((0, 2)), np.zeros(0), [0, 3], empty(0)], "no_rows", **plain)
    c.op("SparseCountSparseOutput", [np.zeros((0, 2)), np.zeros(0), [2, 3], empty(0)], "empty", **plain)
    c.op("RaggedCountSparseOutput", [[0, 2, 2, 4], [3, 3, 7, 0], weights], "weights", **plain)
    c.op("RaggedCountSparseOutput", [[0, 2], [3], empty(0)], "bad_end", **plain)
    c.op("RaggedCountSparseOutput", [[1, 2], [3, 3], empty(0)], "bad_begin", **plain)
    c.op("RaggedCountSparseOutput", [[0], np.zeros(0), empty(0)], "no_rows", **plain)
