"""Ref variables and the ops that update them in place."""

from values import *

import numpy as np


def variable(c, name, dtype, init, shape=None, initialize=True):
    """A program with variable `v`, assigned by the first step."""
    p = c.program(name)
    value = init(dtype) if isinstance(init, Template) else convert(init, dtype)
    p.node("VariableV2", name="v", dtype=dtype, shape=list(value.shape) if shape is None else shape)
    p.const(value, name="init")
    p.node("Assign", ["v", "init"], name="assign", T=dtype)
    p.node("Identity", ["v"], name="read", T=dtype)
    if initialize:
        p.step(target=["assign"])
    return p


def updates(c):
    for op in ("Assign", "AssignAdd", "AssignSub"):
        for dtype in c.dtypes(op, "T"):
            p = variable(c, f"{op}/{dtype}", dtype, arr(2, 2))
            p.placeholder(dtype, name="x")
            p.node(op, ["v", "x"], name="update", T=dtype)
            for seed in (1, 2):
                p.step(fetch=["update"], feed={"x": arr(2, 2, seed=seed)(dtype)})
            p.step(fetch=["v", "read"])
    for op in ("AssignAdd", "AssignSub"):
        p = variable(c, f"{op}/mismatch", "float", arr(2))
        p.const(arr(3)("float"), name="x")
        p.node(op, ["v", "x"], name="update", T="float")
        p.step(fetch=["update"])
        p.step(fetch=["v"])
        p = variable(c, f"{op}/uninitialized", "float", arr(2), initialize=False)
        p.node(op, ["v", "init"], name="update", T="float")
        p.step(fetch=["update"], message="Attempting to use uninitialized value v")
        p = variable(c, f"{op}/use_locking", "float", arr(2))
        p.node(op, ["v", "init"], name="update", T="float", use_locking=True)
        p.step(fetch=["update"])


def assign(c):
    p = variable(c, "Assign/mismatch", "float", arr(2))
    p.const(arr(3)("float"), name="x")
    p.node("Assign", ["v", "x"], name="update", T="float")
    p.step(fetch=["update"])
    p = variable(c, "Assign/validate_shape_false", "float", arr(2))
    p.const(arr(3)("float"), name="x")
    p.node("Assign", ["v", "x"], name="update", T="float", validate_shape=False)
    p.step(fetch=["update"])
    p.step(fetch=["read"])
    p = variable(c, "Assign/unknown_shape", "float", arr(2), shape=None)
    p.step(fetch=["read"])
    p = c.program("Assign/variable_of_unknown_rank")
    p.node("VariableV2", name="v", dtype="float", shape=None)
    p.const(arr(2)("float"), name="init")
    p.node("Assign", ["v", "init"], name="assign", T="float", validate_shape=False)
    p.step(fetch=["assign"])
    p = variable(c, "Assign/from_another_variable", "float", arr(2))
    p.node("VariableV2", name="w", dtype="float", shape=[2])
    p.node("Assign", ["w", "v"], name="copy", T="float")
    p.node("AssignAdd", ["v", "init"], name="add", T="float")
    p.step(target=["copy"])
    p.step(target=["add"])
    p.step(fetch=["v", "w"])
    p = variable(c, "Assign/wrong_dtype", "float", arr(2), initialize=False)
    p.const(np.int32([1, 2]), name="x")
    p.node("Assign", ["v", "x"], name="update", T="int32")
    p.step(fetch=["update"])
    p = variable(c, "Assign/to_value", "float", arr(2))
    p.node("Assign", ["read", "init"], name="update", T="float")
    p.step(fetch=["update"])


def reading(c):
    p = variable(c, "read/uninitialized", "float", arr(2), initialize=False)
    p.step(fetch=["read"], message="Attempting to use uninitialized value v")
    p.step(fetch=["v"])
    p.step(target=["v"])
    p.step(target=["assign"])
    p.step(fetch=["read"])
    p = variable(c, "IsVariableInitialized", "float", arr(2), initialize=False)
    p.node("IsVariableInitialized", ["v"], name="ready", dtype="float")
    p.step(fetch=["ready"])
    p.step(target=["assign"])
    p.step(fetch=["ready"])
    p = variable(c, "read/before_and_after", "float", arr(2))
    p.node("Identity", ["v"], name="before", T="float")
    p.node("AssignAdd", ["v", "init", "^before"], name="add", T="float")
    p.node("Identity", ["v", "^add"], name="after", T="float")
    p.step(fetch=["after"])
    p = variable(c, "read/chain_of_updates", "float", [1.0, 2.0])
    p.node("AssignAdd", ["v", "init"], name="a", T="float")
    p.node("AssignAdd", ["a", "init"], name="b", T="float")
    p.node("AssignSub", ["b", "init"], name="d", T="float")
    p.step(fetch=["d"])
    p = variable(c, "variable/feeds_math", "float", arr(2))
    p.node("Mul", ["v", "v"], name="square", T="float")
    p.step(fetch=["square"])
    p = variable(c, "variable/string", "string", lit(["a", "b"]))
    p.step(fetch=["read"])
    p = variable(c, "variable/shared_name_clash", "float", arr(2))
    p.node("VariableV2", name="w", dtype="float", shape=[2], shared_name="v")
    p.step(fetch=["w"])
    p = variable(c, "variable/shared_name_other_dtype", "float", arr(2))
    p.node("VariableV2", name="w", dtype="int32", shape=[2], shared_name="v")
    p.node("IsVariableInitialized", ["w"], name="ready", dtype="int32")
    p.step(fetch=["ready"])
    p = variable(c, "variable/shared_name_other_shape", "float", arr(2))
    p.node("VariableV2", name="w", dtype="float", shape=[3], shared_name="v")
    p.step(fetch=["w"])
    p = c.program("Variable/deprecated_op")
    p.node("Variable", name="v", dtype="float", shape=[])
    p.const(np.float32(3), name="init")
    p.node("Assign", ["v", "init"], name="assign", T="float", validate_shape=False)
    p.step(fetch=["assign"])
    p.step(fetch=["v"])
    for dtype in c.dtypes("CountUpTo", "T"):
        p = variable(c, f"CountUpTo/{dtype}", dtype, 0)
        p.node("CountUpTo", ["v"], name="count", T=dtype, limit=2)
        for _ in range(3):
            p.step(fetch=["count"])
        p.step(fetch=["read"])
    p = c.program("TemporaryVariable")
    p.const(arr(2)("float"), name="k")
    p.node("TemporaryVariable", name="t", dtype="float", shape=[2], var_name="t")
    p.node("Assign", ["t", "k"], name="a", T="float")
    p.node("AssignAdd", ["a", "k"], name="b", T="float")
    p.node("DestroyTemporaryVariable", ["b"], name="d", T="float", var_name="t")
    p.step(fetch=["d"])
    p.step(fetch=["d"])


def scatter(c):
    for op in ("ScatterUpdate", "ScatterAdd", "ScatterSub", "ScatterMul", "ScatterDiv", "ScatterMin", "ScatterMax"):
        for dtype in c.dtypes(op, "T"):
            p = variable(c, f"{op}/{dtype}", dtype, pos(3, 2))
            if op.endswith("Div") and dtype.startswith("complex"):
                # Complex quotients differ in the last bits between CPUs.
                p.accuracy = "rounding"
            p.const(np.int32([2, 0, 2]), name="i")
            p.const(pos(3, 2, seed=1)(dtype), name="u")
            p.node(op, ["v", "i", "u"], name="update", T=dtype, Tindices="int32")
            p.step(fetch=["update"])
        for name, index, update in (
            ("int64_index", np.int64([1]), pos(1, 2)),
            ("scalar_index", np.int32(1), pos(2)),
            ("scalar_update", np.int32([0, 1]), pos()),
            ("nothing", np.zeros(0, np.int32), empty(0, 2)),
            ("out_of_range", np.int32([0, 3]), pos(2, 2)),
            ("negative", np.int32([-1]), pos(1, 2)),
            ("mismatch", np.int32([0, 1]), pos(1, 2)),
        ):
            p = variable(c, f"{op}/{name}", "float", pos(3, 2))
            p.const(index, name="i")
            p.const(update("float"), name="u")
            p.node(
                op, ["v", "i", "u"], name="update", T="float", Tindices="int64" if index.dtype == np.int64 else "int32"
            )
            p.step(fetch=["update"])
            p.step(fetch=["v"])
    for op in ("ScatterMin", "ScatterMax"):
        for dtype in FLOATS:
            there, coming = (half(dtype) for half in special_pairs())
            for shape in ((81,), (9, 9)):
                p = variable(c, f"{op}/special/{len(shape)}/{dtype}", dtype, lit(there.reshape(shape)))
                p.const(np.arange(shape[0], dtype=np.int32), name="i")
                p.const(coming.reshape(shape), name="u")
                p.node(op, ["v", "i", "u"], name="update", T=dtype, Tindices="int32")
                p.step(fetch=["update"])
    for op in ("ScatterNdUpdate", "ScatterNdAdd", "ScatterNdSub", "ScatterNdMin", "ScatterNdMax"):
        for dtype in c.dtypes(op, "T"):
            p = variable(c, f"{op}/{dtype}", dtype, pos(3, 2))
            p.const(np.int32([[2, 1], [0, 0]]), name="i")
            p.const(pos(2, seed=1)(dtype), name="u")
            p.node(op, ["v", "i", "u"], name="update", T=dtype, Tindices="int32")
            p.step(fetch=["update"])
        p = variable(c, f"{op}/out_of_range", "float", pos(3, 2))
        p.const(np.int32([[3]]), name="i")
        p.const(pos(1, 2)("float"), name="u")
        p.node(op, ["v", "i", "u"], name="update", T="float", Tindices="int32")
        p.step(fetch=["update"])
    p = variable(c, "ScatterAdd/uninitialized", "float", pos(3), initialize=False)
    p.const(np.int32([0]), name="i")
    p.const(pos(1)("float"), name="u")
    p.node("ScatterAdd", ["v", "i", "u"], name="update", T="float", Tindices="int32")
    p.step(fetch=["update"])


def slices(c):
    for name, begin, end, strides, update, masks in (
        ("block", [0, 1], [2, 3], [1, 1], arr(2, 2), {}),
        ("scalar_update", [0, 1], [2, 3], [1, 1], arr(), {}),
        ("backward", [2, 3], [0, 0], [-1, -2], arr(2, 2), {}),
        ("row", [1], [2], [1], arr(4), {"shrink_axis_mask": 1}),
        ("mismatch", [0, 1], [2, 3], [1, 1], arr(3), {}),
        ("nothing", [2, 0], [1, 4], [1, 1], arr(0, 4), {}),
    ):
        p = variable(c, f"StridedSliceAssign/{name}", "float", arr(3, 4))
        for key, value in (("b", begin), ("e", end), ("s", strides)):
            p.const(np.int32(value), name=key)
        p.const(update("float"), name="u")
        p.node("StridedSliceAssign", ["v", "b", "e", "s", "u"], name="update", T="float", Index="int32", **masks)
        p.step(fetch=["update"])
        p.step(fetch=["v"])
    p = c.program("Assign/first_value_of_another_shape")
    p.node("VariableV2", name="v", dtype="float", shape=[2])
    p.const(arr(3)("float"), name="x")
    p.node("Assign", ["v", "x"], name="update", T="float")
    p.step(fetch=["update"])


def cases(c):
    updates(c)
    assign(c)
    reading(c)
    scatter(c)
    slices(c)
