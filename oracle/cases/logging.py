"""Assertions, printing and checks of numbers."""

from values import *

import numpy as np


def cases(c):
    c.op("Assert", [True, [np.float32([1])]], "holds")
    c.op(
        "Assert",
        [False, [np.float32([1, 2, 3, 4]), convert("text", "string"), np.int32(7)]],
        "fails",
        message="assertion failed: [1 2 3...] [text] [7]",
    )
    c.op("Assert", [False, [np.float32([1, 2, 3, 4])]], "summarize", summarize=2, message="assertion failed: [1 2...]")
    c.op(
        "Assert",
        [False, [np.float32([[1, 2], [3, 4]])]],
        "summarize_all",
        summarize=-1,
        message="assertion failed: [[1 2][3 4]]",
    )
    c.op(
        "Assert",
        [False, [np.array([True, False]), np.float32([0.5, -1e-7, np.inf, np.nan]), np.int64([])]],
        "formats",
        summarize=9,
    )
    c.op(
        "Assert",
        [False, [np.float64([1.0, 1 / 3, 1e20]), np.float16([0.1]), np.complex64([1 + 2j])]],
        "float_formats",
        summarize=9,
    )
    c.op("Assert", [[True], [np.float32([1])]], "vector_condition")
    for dtype in c.dtypes("CheckNumerics", "T"):
        for name, values in (
            ("finite", [1.0, 2.0]),
            ("nan", [1.0, np.nan]),
            ("inf", [np.inf]),
            ("both", [np.nan, np.inf]),
            ("empty", []),
        ):
            for op in ("CheckNumerics", "CheckNumericsV2"):
                p = c.program(f"{op}/{name}/{dtype}")
                p.placeholder(dtype, name="x")
                p.node(op, ["x"], name="y", T=dtype, message="checked")
                expected = {"nan": "had NaN values", "inf": "Inf values", "both": "values"}.get(name, "")
                p.step(fetch=["y"], feed={"x": np.array(values).astype(NUMPY[dtype])}, message=expected)
    p = c.program("CheckNumericsV2/minus_inf")
    p.const(np.float32([-np.inf, 1]), name="x")
    p.node("CheckNumericsV2", ["x"], name="y", T="float", message="checked")
    p.step(fetch=["y"])
    p = c.program("Print")
    p.const(np.float32([1, 2]), name="x")
    p.node("Print", ["x", "x"], name="y", T="float", U=["float"], message="printed: ", first_n=1)
    p.step(fetch=["y"])
    p.step(fetch=["y"])
    p = c.program("PrintV2")
    p.const("printed", name="x")
    p.node("PrintV2", ["x"], name="y", output_stream="stderr")
    p.step(target=["y"])
    p = c.program("PrintV2/not_scalar")
    p.const(["a", "b"], name="x")
    p.node("PrintV2", ["x"], name="y", output_stream="stderr")
    p.step(target=["y"])
    p = c.program("PrintV2/unknown_stream")
    p.const("a", name="x")
    p.node("PrintV2", ["x"], name="y", output_stream="nowhere")
    p.step(target=["y"])
    p = c.program("Timestamp", accuracy="random")
    p.node("Timestamp", name="t")
    p.step(fetch=["t"])
    # A failed assertion stops what depends on it, and is what the client is told.
    p = c.program("Assert/guards")
    p.placeholder("bool", name="ok")
    p.const(np.float32([1]), name="x")
    p.node("Assert", ["ok", "x"], name="check", T=["float"])
    p.node("Neg", ["x", "^check"], name="y", T="float")
    p.step(fetch=["y"], feed={"ok": np.array(True)})
    p.step(fetch=["y"], feed={"ok": np.array(False)}, message="assertion failed: [1]")
    c.op("StringFormat", [[np.float32([1, 2, 3, 4]), np.int32(5)]], template="a %s b %s", summarize=2)
    c.op("StringFormat", [[np.float32([[1, 2], [3, 4]])]], "matrix", template="a % b", placeholder="%", summarize=3)
    c.op("StringFormat", [[np.float32([1, 2])]], "empty_placeholder", template="ab", placeholder="", summarize=3)
    c.op("StringFormat", [[np.float32([1, 2])]], "empty_template", template="", placeholder="", summarize=3)
    nothing = [
        np.float32([[1, 2]]),
        np.float32([]),
        np.bool_([[True, False]]),
        np.bool_([]),
        np.bool_(True),
        np.int32(1),
    ]
    c.op("StringFormat", [nothing], "nothing_shown", template="%|" * len(nothing), placeholder="%", summarize=0)
