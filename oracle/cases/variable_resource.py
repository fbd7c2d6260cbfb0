"""Resource variables: handles, reads, assignments and scatter updates."""

from values import *

import numpy as np


def variable(c, name, dtype, init, initialize=True):
    """A program with handle `v`, assigned by the first step."""
    p = c.program(name)
    value = init(dtype) if isinstance(init, Template) else convert(init, dtype)
    p.node("VarHandleOp", name="v", dtype=dtype, shape=list(value.shape), shared_name="v")
    p.const(value, name="init")
    p.node("AssignVariableOp", ["v", "init"], name="assign", dtype=dtype)
    p.node("ReadVariableOp", ["v"], name="read", dtype=dtype)
    if initialize:
        p.step(target=["assign"])
    return p


def assigning(c):
    for dtype in DTYPES:
        p = variable(c, f"AssignVariableOp/{dtype}", dtype, arr(2, 2))
        p.step(fetch=["read"])
    for op in ("AssignAddVariableOp", "AssignSubVariableOp"):
        for dtype in c.dtypes(op, "dtype"):
            p = variable(c, f"{op}/{dtype}", dtype, arr(2, 2))
            p.placeholder(dtype, name="x")
            p.node(op, ["v", "x"], name="update", dtype=dtype)
            p.step(target=["update"], feed={"x": arr(2, 2, seed=1)(dtype)})
            p.step(fetch=["read"])
        p = variable(c, f"{op}/mismatch", "float", arr(2))
        p.const(arr(3)("float"), name="x")
        p.node(op, ["v", "x"], name="update", dtype="float")
        p.step(target=["update"])
        p.step(fetch=["read"])
        p = variable(c, f"{op}/uninitialized", "float", arr(2), initialize=False)
        p.node(op, ["v", "init"], name="update", dtype="float")
        p.step(target=["update"])
    p = variable(c, "AssignVariableOp/other_shape", "float", arr(2))
    p.const(arr(3)("float"), name="x")
    p.node("AssignVariableOp", ["v", "x"], name="update", dtype="float")
    p.step(target=["update"])
    p.step(fetch=["read"])
    p = variable(c, "AssignVariableOp/validate_shape", "float", arr(2))
    p.const(arr(3)("float"), name="x")
    p.node("AssignVariableOp", ["v", "x"], name="update", dtype="float", validate_shape=True)
    p.step(target=["update"])
    p.step(fetch=["read"])
    p = variable(c, "AssignVariableOp/wrong_dtype", "float", arr(2))
    p.const(np.int32([1, 2]), name="x")
    p.node("AssignVariableOp", ["v", "x"], name="update", dtype="int32")
    p.step(target=["update"])
    # A read keeps its value although the variable is assigned afterwards in the same step.
    p = variable(c, "ReadVariableOp/before_write", "float", [1.0, 2.0])
    p.node("AssignAddVariableOp", ["v", "init", "^read"], name="add", dtype="float")
    p.node("ReadVariableOp", ["v", "^add"], name="after", dtype="float")
    p.node("Sub", ["after", "read"], name="difference", T="float")
    p.step(fetch=["read", "after", "difference"])
    p.step(fetch=["read", "after", "difference"])


def reading(c):
    p = variable(c, "ReadVariableOp/uninitialized", "float", arr(2), initialize=False)
    p.step(fetch=["read"], message="Could not find variable v")
    p.step(target=["assign"])
    p.step(fetch=["read"])
    p = variable(c, "ReadVariableOp/wrong_dtype", "float", arr(2))
    p.node("ReadVariableOp", ["v"], name="bad", dtype="int32")
    p.step(fetch=["bad"])
    p = variable(c, "VarIsInitializedOp", "float", arr(2), initialize=False)
    p.node("VarIsInitializedOp", ["v"], name="ready")
    p.step(fetch=["ready"])
    p.step(target=["assign"])
    p.step(fetch=["ready"])
    p = variable(c, "VariableShape", "float", arr(2, 3))
    p.node("VariableShape", ["v"], name="shape", out_type="int32")
    p.node("VariableShape", ["v"], name="shape64", out_type="int64")
    p.step(fetch=["shape", "shape64"])
    p = variable(c, "VariableShape/uninitialized", "float", arr(2, 3), initialize=False)
    p.node("VariableShape", ["v"], name="shape", out_type="int32")
    p.step(fetch=["shape"])
    for ignore in (False, True):
        p = variable(c, f"DestroyResourceOp/ignore_{str(ignore).lower()}", "float", arr(2))
        p.node("DestroyResourceOp", ["v"], name="destroy", ignore_lookup_error=ignore)
        p.step(target=["destroy"])
        p.step(fetch=["read"])
        p.step(target=["destroy"])
    p = variable(c, "shared_handles", "float", arr(2))
    p.node("VarHandleOp", name="w", dtype="float", shape=[2], shared_name="v")
    p.node("AssignAddVariableOp", ["w", "init"], name="add", dtype="float")
    p.step(target=["add"])
    p.step(fetch=["read"])
    p = variable(c, "handle_named_by_node", "float", arr(2))
    p.node("VarHandleOp", name="u", dtype="float", shape=[2])
    p.node("AssignVariableOp", ["u", "init"], name="au", dtype="float")
    p.node("ReadVariableOp", ["u"], name="ru", dtype="float")
    p.step(target=["au"])
    p.step(fetch=["ru"])
    p = variable(c, "containers_are_apart", "float", arr(2))
    p.node("VarHandleOp", name="w", dtype="float", shape=[2], shared_name="v", container="other")
    p.node("VarIsInitializedOp", ["w"], name="ready")
    p.step(fetch=["ready"])
    p = variable(c, "fetch_handle_of_identity", "float", arr(2))
    p.node("Identity", ["v"], name="same", T=20)
    p.node("ReadVariableOp", ["same"], name="r2", dtype="float")
    p.step(fetch=["r2"])
    p = variable(c, "DisableCopyOnRead", "float", arr(2))
    p.node("DisableCopyOnRead", ["v"], name="d")
    p.step(target=["d"])
    p.step(fetch=["read"])


def gathering(c):
    for dtype in c.dtypes("ResourceGather", "dtype"):
        p = variable(c, f"ResourceGather/{dtype}", dtype, arr(3, 2))
        p.const(np.int32([2, 0, 2]), name="i")
        p.node("ResourceGather", ["v", "i"], name="y", dtype=dtype, Tindices="int32")
        p.step(fetch=["y"])
    for name, index, batch in (
        ("int64_index", np.int64([[1], [0]]), 0),
        ("scalar", np.int32(1), 0),
        ("out_of_range", np.int32([3]), 0),
        ("negative", np.int32([-1]), 0),
        ("batch", np.int32([[1, 0], [0, 0], [1, 1]]), 1),
    ):
        p = variable(c, f"ResourceGather/{name}", "float", arr(3, 2))
        p.const(index, name="i")
        p.node(
            "ResourceGather",
            ["v", "i"],
            name="y",
            dtype="float",
            Tindices="int64" if index.dtype == np.int64 else "int32",
            batch_dims=batch,
        )
        p.step(fetch=["y"])
    for dtype in c.dtypes("ResourceGatherNd", "dtype"):
        p = variable(c, f"ResourceGatherNd/{dtype}", dtype, arr(3, 2))
        p.const(np.int32([[2, 1], [0, 0]]), name="i")
        p.node("ResourceGatherNd", ["v", "i"], name="y", dtype=dtype, Tindices="int32")
        p.step(fetch=["y"])
    p = variable(c, "ResourceGather/uninitialized", "float", arr(3, 2), initialize=False)
    p.const(np.int32([0]), name="i")
    p.node("ResourceGather", ["v", "i"], name="y", dtype="float", Tindices="int32")
    p.step(fetch=["y"])


def scattering(c):
    for kind in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max"):
        op = "ResourceScatter" + kind
        for dtype in c.dtypes(op, "dtype"):
            p = variable(c, f"{op}/{dtype}", dtype, pos(3, 2))
            if op.endswith("Div") and dtype.startswith("complex"):
                # Complex quotients differ in the last bits between CPUs.
                p.accuracy = "rounding"
            p.const(np.int32([2, 0, 2]), name="i")
            p.const(pos(3, 2, seed=1)(dtype), name="u")
            p.node(op, ["v", "i", "u"], name="update", dtype=dtype, Tindices="int32")
            p.step(target=["update"])
            p.step(fetch=["read"])
        for name, index, update in (
            ("int64_index", np.int64([1]), pos(1, 2)),
            ("scalar_index", np.int32(1), pos(2)),
            ("scalar_update", np.int32([0, 1]), pos()),
            ("nothing", np.zeros(0, np.int32), empty(0, 2)),
            ("out_of_range", np.int32([0, 3]), pos(2, 2)),
            ("zero", np.int32([1]), lit([[0.0, 2.0]])),
            ("negative", np.int32([-1]), pos(1, 2)),
            ("mismatch", np.int32([0, 1]), pos(1, 2)),
        ):
            p = variable(c, f"{op}/{name}", "float", pos(3, 2))
            p.const(index, name="i")
            p.const(update("float"), name="u")
            p.node(
                op,
                ["v", "i", "u"],
                name="update",
                dtype="float",
                Tindices="int64" if index.dtype == np.int64 else "int32",
            )
            p.step(target=["update"])
            p.step(fetch=["read"])
    for kind in ("Min", "Max"):
        for dtype in FLOATS:
            there, coming = (half(dtype) for half in special_pairs())
            for op, indices in (("ResourceScatter", np.arange(9)), ("ResourceScatterNd", np.arange(9)[:, None])):
                p = variable(c, f"{op}{kind}/special/{dtype}", dtype, lit(there.reshape(9, 9)))
                p.const(indices.astype(np.int32), name="i")
                p.const(coming.reshape(9, 9), name="u")
                typed = {"T": dtype} if op.endswith("Nd") else {"dtype": dtype}
                p.node(op + kind, ["v", "i", "u"], name="update", Tindices="int32", **typed)
                p.step(target=["update"])
                p.step(fetch=["read"])
    for kind in ("Update", "Add", "Sub", "Min", "Max"):
        op = "ResourceScatterNd" + kind
        for dtype in c.dtypes(op, "T"):
            p = variable(c, f"{op}/{dtype}", dtype, pos(3, 2))
            p.const(np.int32([[2, 1], [0, 0]]), name="i")
            p.const(pos(2, seed=1)(dtype), name="u")
            p.node(op, ["v", "i", "u"], name="update", T=dtype, Tindices="int32")
            p.step(target=["update"])
            p.step(fetch=["read"])
        p = variable(c, f"{op}/out_of_range", "float", pos(3, 2))
        p.const(np.int32([[3]]), name="i")
        p.const(pos(1, 2)("float"), name="u")
        p.node(op, ["v", "i", "u"], name="update", T="float", Tindices="int32")
        p.step(target=["update"])
    for dtype in ("float", "int64", "string"):
        p = variable(c, f"ResourceStridedSliceAssign/{dtype}", dtype, arr(3, 4))
        for name, value in (("b", [0, 1]), ("e", [2, 3]), ("s", [1, 1])):
            p.const(np.int32(value), name=name)
        p.const(arr(2, 2, seed=1)(dtype), name="u")
        p.node("ResourceStridedSliceAssign", ["v", "b", "e", "s", "u"], name="update", T=dtype, Index="int32")
        p.step(target=["update"])
        p.step(fetch=["read"])


def counting_and_lists(c):
    for dtype in ("int32", "int64"):
        p = variable(c, f"ResourceCountUpTo/{dtype}", dtype, 0)
        p.node("ResourceCountUpTo", ["v"], name="count", T=dtype, limit=2)
        for _ in range(3):
            p.step(fetch=["count"])
        p.step(fetch=["read"])
    p = variable(c, "_ReadVariablesOp", "float", arr(2))
    p.node("VarHandleOp", name="w", dtype="int32", shape=[], shared_name="w")
    p.const(np.int32(5), name="five")
    p.node("AssignVariableOp", ["w", "five"], name="assign_w", dtype="int32")
    p.node("_ReadVariablesOp", ["v", "w"], name="both", N=2, dtypes=["float", "int32"])
    p.step(fetch=["both:0", "both:1"], message="In ReadVariablesOp the following variables were found uninitialized: w")
    p.step(target=["assign_w"])
    p.step(fetch=["both:0", "both:1"])
    p.node(
        "_VarHandlesOp",
        name="handles",
        containers=["", ""],
        shared_names=["v", "w"],
        N=2,
        dtypes=["float", "int32"],
        shapes=[[2], []],
    )
    p.node("ReadVariableOp", ["handles:1"], name="second", dtype="int32")
    p.step(fetch=["second"])


def cases(c):
    assigning(c)
    reading(c)
    gathering(c)
    scattering(c)
    counting_and_lists(c)
