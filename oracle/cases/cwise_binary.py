"""Element-wise arithmetic of two tensors with broadcasting."""

from values import *

ARITHMETIC = ["Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"]
DIVISION = ["Div", "RealDiv", "TruncateDiv", "FloorDiv", "FloorMod", "Mod", "TruncateMod", "DivNoNan"]
COMPLEX_DIVISION = {"Div", "RealDiv", "DivNoNan"}


def shapes(c, op, left, right, **kwargs):
    c.op(op, [left(2, 3), right(2, 3)], "same_shape", **kwargs)
    c.op(op, [left(2, 3), right(3)], "row", few=True, **kwargs)
    c.op(op, [left(2, 1), right(1, 3)], "outer", few=True, **kwargs)
    c.op(op, [left(), right(4)], "scalar_left", few=True, **kwargs)
    c.op(op, [left(4), right()], "scalar_right", few=True, **kwargs)
    c.op(op, [left(), right()], "scalars", few=True, **kwargs)
    c.op(op, [left(1), right()], "one_and_scalar", few=True, **kwargs)
    c.op(op, [left(2, 1, 2, 1), right(3, 1, 2)], "rank_4", few=True, **kwargs)
    c.op(op, [left(1, 2, 1, 2, 1), right(2, 1, 2, 1, 2)], "rank_5", few=True, **kwargs)
    c.op(op, [empty(0, 3), right(3)], "empty", few=True, **kwargs)
    c.op(op, [empty(0, 1), right(1, 2)], "empty_outer", few=True, **kwargs)
    c.op(op, [left(2, 3), right(2, 4)], "mismatch", few=True, **kwargs)
    c.op(op, [left(2, 3), right(2)], "mismatch_rank", few=True, **kwargs)


def cases(c):
    for op in ARITHMETIC + ["MulNoNan"]:
        shapes(c, op, arr, lambda *s: arr(*s, seed=1))
        c.op(op, special_pairs(), "specials")
    for op in DIVISION:
        # Stock divides complex numbers in one way or another, depending on where they lie in a vector register.
        accuracy = "rounding" if op in COMPLEX_DIVISION else None
        shapes(c, op, arr, lambda *s: pos(*s, seed=1), accuracy=accuracy)
        # Stock flushes the tiniest quotients to zero before it takes their floor; we keep them.
        types = [t for t in REAL if t not in ("float", "double", "bfloat16")] if op == "FloorDiv" else REAL
        c.op(op, special_pairs(nonzero=True), "specials", types=types)
        c.op(op, [[7, -7, 7, -7], [2, 2, -2, -2]], "signs")
        c.op(op, [[7, -7], 0], "by_zero", types=REAL)
    for op in ("Xdivy", "Xlogy", "Xlog1py"):
        shapes(c, op, arr, lambda *s: pos(*s, seed=1), accuracy="rounding")
        c.op(op, special_pairs(), "specials", accuracy="rounding", types=REAL)
    c.op("Atan2", special_pairs(), "specials", accuracy="rounding")
    shapes(c, "Atan2", arr, lambda *s: arr(*s, seed=1), accuracy="rounding")
    c.op("Pow", special_pairs(), "specials", accuracy="rounding", types=FLOATS)
    shapes(c, "Pow", pos, lambda *s: pos(*s, seed=1), accuracy="rounding")
    c.op("Pow", [[2, -2, 0, 7, -1], [3, 3, 0, 9, 8]], "whole", accuracy="rounding")
    c.op("Pow", [[2, 3], [-1, 2]], "negative_exponent", accuracy="rounding")
    c.op("NextAfter", special_pairs(), "specials")
    shapes(c, "NextAfter", arr, lambda *s: arr(*s, seed=1))
    c.op("ApproximateEqual", [[1.0, 2.0, 3.0], [1.000001, 2.1, float("nan")]], "close")
    c.op("ApproximateEqual", [[1.0, 2.0], [1.05, 2.2]], "tolerance", tolerance=0.1)
    c.op("ApproximateEqual", [arr(2), arr(3)], "mismatch", few=True)
    for count in (1, 2, 3, 9):
        c.op("AddN", [[arr(2, 2, seed=i) for i in range(count)]], f"of_{count}", few=count > 2)
    c.op("AddN", [[arr(2, 2), arr(2, 3)]], "mismatch", few=True)
    c.op("AddN", [[empty(0), empty(0)]], "empty", few=True)
    c.op("AccumulateNV2", [[arr(2), arr(2, seed=1)]], "of_2", T="float", shape=[2])
