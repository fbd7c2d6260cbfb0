"""Choosing between tensors by condition, and clipping."""

from values import *

import numpy as np


def cases(c):
    yes_no = [[True, False, True], [False, False, True]]
    c.op("Select", [yes_no, arr(2, 3), arr(2, 3, seed=1)])
    c.op("Select", [[True, False], arr(2, 3), arr(2, 3, seed=1)], "rows", few=True)
    c.op("Select", [True, arr(2, 3), arr(2, 3, seed=1)], "scalar_condition", few=True)
    c.op("Select", [False, arr(), arr(seed=1)], "scalars", few=True)
    c.op("Select", [np.zeros((0,), np.bool_), empty(0, 2), empty(0, 2)], "empty", few=True)
    c.op("Select", [yes_no, arr(2, 3), arr(2, 2)], "mismatch", few=True)
    c.op("Select", [[True, False, True], arr(2, 3), arr(2, 3)], "rows_mismatch", few=True)
    c.op("Select", [yes_no, arr(3), arr(3)], "condition_larger", few=True)
    c.op("SelectV2", [yes_no, arr(2, 3), arr(2, 3, seed=1)])
    c.op("SelectV2", [[[True], [False]], arr(3), arr(2, 1, seed=1)], "broadcast", few=True)
    c.op("SelectV2", [True, arr(2, 3), arr(3, seed=1)], "scalar_condition", few=True)
    c.op("SelectV2", [[True, False], arr(), arr(seed=1)], "scalar_values", few=True)
    c.op("SelectV2", [False, arr(), arr(seed=1)], "scalars", few=True)
    c.op("SelectV2", [np.zeros((0,), np.bool_), arr(1), arr()], "empty", few=True)
    c.op("SelectV2", [[True, False], arr(2, 1, 2), arr(2, 2, 1)], "rank_3", few=True)
    c.op("SelectV2", [[True, False], arr(3), arr(3)], "mismatch", few=True)
    c.op("ClipByValue", [arr(2, 3), lit(1), lit(2)])
    c.op("ClipByValue", [arr(2, 3), lit([[0, 1, 2], [0, 1, 2]]), lit(2)], "tensor_min", few=True)
    c.op("ClipByValue", [arr(2, 3), lit([[0, 1, 2], [0, 1, 2]]), lit([[3, 2, 2], [1, 1, 3]])], "tensors", few=True)
    c.op("ClipByValue", [arr(2, 3), lit(0), lit([[3, 2, 2], [1, 1, 3]])], "tensor_max", few=True)
    c.op("ClipByValue", [specials(), lit(0), lit(1)], "specials", types=FLOATS)
    c.op("ClipByValue", [arr(2, 3), lit(2), lit(1)], "reversed", few=True)
    c.op("ClipByValue", [empty(0), lit(0), lit(1)], "empty", few=True)
    c.op("ClipByValue", [arr(2, 3), lit([0, 1]), lit(2)], "mismatch", few=True)
    c.op(
        "ClipByValue",
        [lit([1 + 2j, 3 - 4j, -1 + 1j, 5, 1e3]), lit(2j), lit(3 + 3j)],
        "parts",
        types=("complex64", "complex128"),
    )
