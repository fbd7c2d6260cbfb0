"""Ragged tensors made dense."""

from values import *

import numpy as np


def cases(c):
    def dense(name, shape, values, default, partitions, types, **attrs):
        attrs = {"T": "float", "Tindex": "int64", "Tshape": "int64"} | attrs
        c.op("RaggedTensorToTensor", [shape, values, default, partitions], name, row_partition_types=types, **attrs)

    splits, rows = [0, 2, 2, 5], ["ROW_SPLITS"]
    for dtype in c.dtypes("RaggedTensorToTensor", "T"):
        dense("rows", -1, iota(5), lit(9), [splits], rows, T=dtype)
    dense("int32", [-1, -1], iota(5), lit(9), [splits], rows, Tindex="int32", Tshape="int32")
    for name, shape in {"longer": [4, 5], "shorter": [2, 2], "partly": [-1, 2], "nothing": [0, 3]}.items():
        dense(name, shape, iota(5), lit(9), [splits], rows)
    dense("wide_values", -1, iota(5, 2), lit([8, 9]), [splits], rows)
    dense("scalar_default", -1, iota(5, 2), lit(9), [splits], rows)
    dense("broadcast_default", -1, iota(5, 2, 3), lit([7, 8, 9]), [splits], rows)
    dense("broadcast_column", -1, iota(5, 2, 3), lit([[8], [9]]), [splits], rows)
    deep = [[0, 1, 1, 3], [0, 2, 2, 5]]
    dense("two_levels", -1, iota(5), lit(9), deep, rows * 2)
    dense("two_levels_cut", [2, -1, 1], iota(5), lit(9), deep, rows * 2)
    rowids = ["FIRST_DIM_SIZE", "VALUE_ROWIDS"]
    dense("rowids", -1, iota(5), lit(9), [4, [0, 0, 2, 2, 2]], rowids)
    dense("rowids_cut", [2, 1], iota(5), lit(9), [4, [0, 0, 2, 2, 2]], rowids)
    dense("mixed", -1, iota(5), lit(9), [3, [0, 2, 2], splits], [*rowids, "ROW_SPLITS"])
    dense("empty", -1, empty(0), lit(9), [[0, 0, 0]], rows)
    dense("no_rows", -1, empty(0), lit(9), [[0]], rows)
    dense("fewer_values_used", -1, iota(6), lit(9), [splits], rows)
    dense("no_splits", -1, iota(5), lit(9), [np.zeros(0)], rows)
    dense("wrong_rank", [2, 2, 2], iota(5), lit(9), [splits], rows)
    dense("wrong_inner", [-1, -1, 3], iota(5, 2), lit(9), [splits], rows)
    dense("wrong_default", -1, iota(5, 2), lit([7, 8, 9]), [splits], rows)
    dense("deep_default", -1, iota(5), lit([9]), [splits], rows)
    dense("bad_rowid", -1, iota(2), lit(9), [2, [0, 2]], rowids)
    dense("decreasing_splits", -1, iota(5), lit(9), [[0, 3, 2, 5]], rows)
    dense("rowids_first", -1, iota(2), lit(9), [[1, 0]], ["VALUE_ROWIDS"])
    dense("no_such_type", -1, iota(5), lit(9), [splits], ["ROWS"])
    dense("row_lengths", -1, iota(5), lit(9), [[2, 3]], ["ROW_LENGTHS"])
