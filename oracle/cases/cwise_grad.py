"""Gradients of element-wise functions, computed from the function's result."""

from values import *


def cases(c):
    for op in ("SigmoidGrad", "TanhGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad"):
        c.op(op, [unit(2, 3), arr(2, 3, seed=1)], accuracy="rounding")
        c.op(op, [pos(), arr(seed=1)], "scalar", few=True, accuracy="rounding")
        c.op(op, [empty(0, 2), empty(0, 2)], "empty", few=True)
        c.op(op, [pos(19), arr(19, seed=1)], "wide", types=FLOATS, accuracy="rounding")
        # Inside a vector register stock's SqrtGrad multiplies by a reciprocal, which vanishes for the largest numbers.
        if op != "SqrtGrad":
            c.op(op, special_pairs(), "specials", types=FLOATS, accuracy="rounding")
        c.op(op, [pos(2, 3), arr(3, seed=1)], "mismatch", few=True)
        c.op(op, [pos(2), arr()], "scalar_dy", few=True, accuracy="rounding")
