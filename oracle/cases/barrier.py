"""Barriers: programs that never wait."""

from values import *

import numpy as np


def text(values):
    return convert(values, "string")


def barrier(c, name, types=("float", "string"), shapes=((2,), ()), **attrs):
    p = c.program(f"Barrier/{name}")
    p.node(
        "Barrier",
        name="b",
        component_types=list(types),
        shapes=[None if s is None else list(s) for s in shapes],
        **attrs,
    )
    p.placeholder("string", name="k")
    for i, dtype in enumerate(types):
        p.placeholder(dtype, name=f"x{i}")
        p.node("BarrierInsertMany", ["b", "k", f"x{i}"], name=f"put{i}", T=dtype, component_index=i)
    p.placeholder("int32", name="n")
    p.node("BarrierTakeMany", ["b", "n"], name="take", component_types=list(types))
    p.node("BarrierTakeMany", ["b", "n"], name="take_some", component_types=list(types), allow_small_batch=True)
    p.node("BarrierReadySize", ["b"], name="ready")
    p.node("BarrierIncompleteSize", ["b"], name="incomplete")
    p.node("BarrierClose", ["b"], name="close")
    p.node("BarrierClose", ["b"], name="cancel", cancel_pending_enqueues=True)
    return p


def cases(c):
    p = barrier(c, "life")
    p.step(fetch=["ready", "incomplete"])
    p.step(target=["put0"], feed={"k": text(["a", "b", "c"]), "x0": arr(3, 2)("float")})
    p.step(fetch=["ready", "incomplete"])
    p.step(target=["put1"], feed={"k": text(["b", "d"]), "x1": text(["B", "D"])})
    p.step(fetch=["ready", "incomplete"])
    p.step(target=["put1"], feed={"k": text(["a"]), "x1": text(["A"])})
    p.step(target=["put0"], feed={"k": text(["d"]), "x0": arr(1, 2)("float")})
    p.step(fetch=["take:0", "take:1", "take:2", "take:3"], feed={"n": np.int32(3)})
    # The name of the barrier, which follows, has a number of the process.
    again = "Key c already has a value for component 0 in barrier"
    p.step(target=["put0"], feed={"k": text(["c"]), "x0": arr(1, 2)("float")}, message=again)
    p.step(target=["close"])
    p.step(target=["close"], message="is already closed")
    p.step(target=["put1"], feed={"k": text(["z"]), "x1": text(["Z"])}, message="brand new key: z")
    p.step(target=["put1"], feed={"k": text(["c"]), "x1": text(["C"])})
    p.step(fetch=["take_some:0", "take_some:1", "take_some:3"], feed={"n": np.int32(5)})
    p.step(fetch=["take:1"], feed={"n": np.int32(1)}, message="is closed and has insufficient elements")
    p.step(fetch=["take_some:1"], feed={"n": np.int32(1)}, message="is closed and has insufficient elements")
    p = barrier(c, "cancelled")
    p.step(target=["put0"], feed={"k": text(["a"]), "x0": arr(1, 2)("float")})
    p.step(target=["close"])
    p.step(target=["cancel"])
    p.step(fetch=["ready", "incomplete"])
    p.step(target=["put1"], feed={"k": text(["a"]), "x1": text(["A"])}, message="Pending enqueues cancelled: 1")
    p.step(target=["cancel"], message="is already closed")
    p = barrier(c, "wrong_shapes")
    p.step(target=["put0"], feed={"k": text(["a"]), "x0": arr(1, 3)("float")})
    p.step(target=["put1"], feed={"k": text(["a"]), "x1": text(["A"])}, message="Shape mismatch in tuple component")
    p.step(target=["put0"], feed={"k": text(["a", "b"]), "x0": arr(2, 0)("float")}, message="Tensors with no elements")
    p.node("BarrierInsertMany", ["b", "k", "x0"], name="other", T="float", component_index=2)
    p.step(target=["other"], feed={"k": text(["a"]), "x0": arr(1, 2)("float")}, message=SENTENCE)
    p.node("BarrierInsertMany", ["b", "k", "x0"], name="type", T="float", component_index=1)
    p.step(target=["type"], feed={"k": text(["a"]), "x0": arr(1, 2)("float")})
    for name, attrs in {"capacity": {"capacity": 3}}.items():
        p = barrier(c, f"made_with_{name}", **attrs)
        p.step(target=["b"], message=SENTENCE)
    # Python's class gives unknown shapes if the program gives none: elements are scalars.
    p = barrier(c, "unknown_shapes", types=("float",), shapes=(None,))
    p.step(target=["put0"], feed={"k": text(["a", "b"]), "x0": arr(2)("float")})
    p.step(fetch=["take:1", "take:2"], feed={"n": np.int32(2)})
    p.step(
        target=["put0"], feed={"k": text(["c"]), "x0": arr(1, 2)("float")}, message="Shape mismatch in tuple component"
    )
    p = barrier(c, "made_without_shapes", shapes=())
    p.step(target=["b"], message=SENTENCE)
