"""Padding and mirror padding."""

from values import *

import numpy as np


def cases(c):
    c.op("Pad", [arr(2, 3), [[1, 0], [0, 2]]])
    c.op("PadV2", [arr(2, 3), [[1, 0], [0, 2]], arr(seed=1)])
    for op, extra in (("Pad", []), ("PadV2", [lit(7)])):
        c.op(op, [arr(2), [[0, 0]], *extra], "nothing", few=True)
        c.op(op, [arr(), np.zeros((0, 2)), *extra], "scalar", few=True)
        c.op(op, [empty(0), [[1, 2]], *extra], "empty", few=True)
        c.op(op, [empty(0, 2), [[0, 0], [1, 1]], *extra], "stays_empty", few=True)
        c.op(op, [arr(1, 2, 1, 1, 2), [[0, 1], [0, 0], [1, 0], [0, 0], [1, 1]], *extra], "rank_5", few=True)
        c.op(op, [arr(1, 1, 1, 1, 1, 2), [[0, 1], [0, 0], [1, 0], [0, 0], [0, 0], [1, 1]], *extra], "rank_6", few=True)
        ones = (1, 2, 1, 1, 1, 1, 2)
        c.op(
            op,
            [arr(*ones), [[0, 1], [0, 0], [0, 0], [1, 0], [0, 0], [0, 1], [1, 1]], *extra],
            "rank_7_neighbors",
            few=True,
        )
        c.op(op, [arr(*ones), [[0, 1], [0, 0], [1, 0], [0, 0], [0, 1], [0, 0], [1, 1]], *extra], "rank_7", few=True)
        c.op(op, [arr(*ones), [[0, 0]] * 7, *extra], "rank_7_nothing", few=True)
        c.op(
            op,
            [empty(1, 0, 1, 1, 1, 1, 2), [[0, 1], [0, 0], [1, 0], [0, 0], [0, 1], [0, 0], [1, 1]], *extra],
            "rank_7_stays_empty",
            few=True,
        )
        c.op(
            op,
            [arr(1, *ones), [[0, 0], [0, 0], [0, 0], [1, 0], [0, 0], [0, 1], [0, 0], [1, 1]], *extra],
            "rank_8",
            few=True,
        )
        c.op(op, [arr(1, *ones), [[1, 0]] * 8, *extra], "rank_8_all", few=True)
        c.op(op, [arr(2), [[-1, 0]], *extra], "negative", few=True)
        c.op(op, [arr(2), [[1, 0], [0, 0]], *extra], "wrong_rank", few=True)
        c.op(op, [arr(2), [[1, 0, 0]], *extra], "wrong_columns", few=True)
        c.op(op, [arr(2), [1, 0], *extra], "not_matrix", few=True)
    c.op("PadV2", [arr(2), [[1, 0]], lit([7])], "value_not_scalar", few=True)
    for mode in ("REFLECT", "SYMMETRIC"):
        c.op("MirrorPad", [arr(2, 3), [[1, 1], [2, 2]]], mode.lower(), mode=mode)
        c.op("MirrorPad", [arr(3), [[2, 0]]], mode.lower() + "_left", few=True, mode=mode)
        c.op("MirrorPad", [arr(3), [[0, 0]]], mode.lower() + "_nothing", few=True, mode=mode)
        c.op("MirrorPad", [arr(2), [[3, 0]]], mode.lower() + "_too_much", few=True, mode=mode)
        c.op("MirrorPad", [arr(2), [[2, 0]]], mode.lower() + "_edge", few=True, mode=mode)
        c.op("MirrorPad", [arr(2), [[-1, 0]]], mode.lower() + "_negative", few=True, mode=mode)
        c.op("MirrorPadGrad", [arr(4, 5), [[1, 1], [1, 1]]], mode.lower(), mode=mode, accuracy="rounding")
        c.op("MirrorPadGrad", [arr(5), [[2, 0]]], mode.lower() + "_left", few=True, mode=mode, accuracy="rounding")
        c.op("MirrorPadGrad", [arr(2), [[2, 2]]], mode.lower() + "_too_much", few=True, mode=mode)
