"""Comparisons, logic and bit operations with broadcasting."""

from values import *

ORDER = ["Less", "LessEqual", "Greater", "GreaterEqual"]
EQUALITY = ["Equal", "NotEqual"]
BITS = ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]


def cases(c):
    for op in ORDER + EQUALITY + BITS:
        c.op(op, special_pairs(), "specials")
        c.op(op, [arr(2, 3), arr(2, 3, seed=1)], "same_shape", few=True)
        c.op(op, [lit([[1], [2], [3]]), lit([1, 2, 3, 4])], "outer", few=True)
        c.op(op, [lit(2), lit([1, 2, 3])], "scalar_left", few=True)
        c.op(op, [lit([1, 2, 3]), lit(2)], "scalar_right", few=True)
        c.op(op, [lit(2), lit(2)], "scalars", few=True)
        c.op(op, [empty(0, 2), arr(2)], "empty", few=True)
        c.op(op, [arr(2, 1, 2, 1, 1), arr(1, 2, 1, 2, 1)], "rank_5", few=True)
        c.op(op, [arr(2, 3), arr(2)], "mismatch", few=True)
    for op in EQUALITY:
        c.op(op, [arr(2, 3), arr(2)], "incompatible_is_false", few=True, incompatible_shape_error=False)
        c.op(op, [arr(2), arr(2)], "compatible", few=True, incompatible_shape_error=False)
    for op in ("LogicalAnd", "LogicalOr"):
        c.op(op, [[True, True, False, False], [True, False, True, False]], "table")
        c.op(op, [[[True], [False]], [True, False]], "outer")
        c.op(op, [True, [True, False]], "scalar_left")
        c.op(op, [np.zeros((0,), np.bool_), True], "empty")
        c.op(op, [[True, True], [True, True, True]], "mismatch")
    for op in ("LeftShift", "RightShift"):
        # Shifts by a negative amount or past the width are clamped.
        c.op(op, [lit([1, 5, 127, 100, 1, 1]), lit([0, 1, 2, 3, 7, 100])], "amounts")
        c.op(op, [lit([-1, -128, 64]), lit([1, 2, -1])], "negative", types=SIGNED)
        c.op(op, [lit([[1], [2]]), lit([1, 2, 3])], "outer", few=True)
        c.op(op, [lit([1, 2]), lit([1, 2, 3])], "mismatch", few=True)
    c.op("PopulationCount", [specials()], "specials")
    c.op("PopulationCount", [empty(0)], "empty", few=True)
    c.op("PopulationCount", [lit(7)], "scalar", few=True)
