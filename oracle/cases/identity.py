"""Ops that pass their input on, and NoOp."""

from values import *

import numpy as np


def cases(c):
    for op in ("Identity", "Snapshot", "StopGradient", "PreventGradient", "GuaranteeConst"):
        c.op(op, [arr(2, 3)])
        c.op(op, [arr()], "scalar", types=["float"])
        c.op(op, [empty(2, 0)], "empty", types=["float"])
    for op in ("DeepCopy", "Copy", "CopyHost"):
        c.op(op, [arr(2, 3)], few=True)
    c.op("IdentityN", [[np.float32([1, 2]), np.int64(3), convert(["a"], "string")]], "mixed")
    c.op("IdentityN", [[np.float32([1])]], "one")
    c.op("EnsureShape", [arr(2, 3)], shape=[2, 3])
    c.op("EnsureShape", [arr(2, 3)], "partial", few=True, shape=[None, 3])
    c.op("EnsureShape", [arr(2, 3)], "unknown_rank", few=True, shape=None)
    c.op("EnsureShape", [arr(2, 3)], "mismatch", few=True, shape=[2, 4])
    c.op("EnsureShape", [arr(2, 3)], "rank_mismatch", few=True, shape=[6])
    p = c.program("NoOp/target")
    p.node("NoOp", name="n")
    p.step(target=["n"])
    p = c.program("control_edges")
    a = p.const(np.float32(1), name="a")
    p.node("NoOp", ["^a"], name="n")
    p.node("Neg", [a, "^n"], name="y", T="float")
    p.step(fetch=["y"], target=["n"])
    p = c.program("same_fetch_twice")
    p.const(np.float32(1), name="a")
    p.step(fetch=["a", "a"])
    odd = {"nan": [1, np.nan], "inf": [1, np.inf], "inf_and_nan": [-np.inf, np.nan], "all": [-np.inf, np.inf, np.nan]}
    for op in ("CheckNumerics", "CheckNumericsV2"):
        for dtype in FLOATS:
            for name, values in {"finite": [1, -2], **odd}.items():
                p = c.program(f"{op}/{name}/{dtype}")
                p.placeholder(dtype, name="x")
                p.node(op, ["x"], name="y", T=dtype, message="seen")
                p.step(fetch=["y"], feed={"x": lit(values)(dtype)})
