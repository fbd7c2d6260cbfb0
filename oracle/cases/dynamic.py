"""Partitioning rows by number and stitching them together again."""

from values import *

import numpy as np


def cases(c):
    c.op("DynamicPartition", [arr(4), [0, 1, 1, 0]], num_partitions=2)
    c.op("DynamicPartition", [arr(3, 2), [2, 0, 2]], "rows", few=True, num_partitions=3)
    c.op("DynamicPartition", [arr(2, 2), [[0, 1], [1, 1]]], "elements", few=True, num_partitions=2)
    c.op("DynamicPartition", [empty(0), np.zeros(0)], "empty", few=True, num_partitions=2)
    c.op("DynamicPartition", [arr(), 1], "scalar", few=True, num_partitions=2)
    c.op("DynamicPartition", [arr(2), [0, 2]], "out_of_range", few=True, num_partitions=2)
    c.op("DynamicPartition", [arr(2), [0, -1]], "negative", few=True, num_partitions=2)
    c.op("DynamicPartition", [arr(2), [0, 1, 1]], "mismatch", few=True, num_partitions=2)
    for op in ("DynamicStitch", "ParallelDynamicStitch"):
        c.op(op, [[[0, 2], [1, 3]], [arr(2), arr(2, seed=1)]])
        c.op(op, [[[1], [0, 2]], [arr(1, 2), arr(2, 2, seed=1)]], "rows", few=True)
        c.op(op, [[1, [[0, 2]]], [arr(2), arr(1, 2, 2, seed=1)]], "ranks", few=True)
        c.op(op, [[np.zeros(0)], [empty(0, 2)]], "empty", few=True)
        c.op(op, [[[-1]], [arr(1)]], "negative", few=True)
        c.op(op, [[[0, 1]], [arr(3)]], "mismatch", few=True)
        c.op(op, [[[0], [1]], [arr(1, 2), arr(1, 3)]], "rows_mismatch", few=True)
    c.op("DynamicStitch", [[[0, 1], [1, 2]], [arr(2), arr(2, seed=1)]], "last_wins", few=True)
    for op in ("DynamicStitch", "ParallelDynamicStitch"):
        c.op(op, [[[2147483647]], [arr(1)]], "more_rows_than_counted", T="float")
