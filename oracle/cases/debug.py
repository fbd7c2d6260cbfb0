"""Ops of debuggers, without a debugger."""

from values import SENTENCE, arr, special, specials

import numpy as np

NAMED = {"device_name": "/job:localhost/task:0/device:CPU:0", "tensor_name": "a:0"}


def cases(c):
    for op in ("DebugIdentity", "DebugIdentityV2", "DebugIdentityV3", "DebugGradientIdentity"):
        attrs = {} if op in ("DebugIdentityV2", "DebugGradientIdentity") else NAMED
        c.op(op, [arr(2, 3)], "", types=["float", "int64", "string", "bool"], **attrs)
    for name in ("", "a:b", "a:0:1"):
        c.op("DebugIdentity", [arr(2)], f"name/{name}", T="float", tensor_name=name, message=SENTENCE)
    c.op("DebugNanCount", [specials()], "", **NAMED)
    c.op("DebugNanCount", [np.zeros([0], np.float32)], "empty", T="float", **NAMED)
    c.op("DebugNumericSummary", [arr(2, 3)], "", **NAMED)
    c.op("DebugNumericSummary", [special(3, 4)], "special", types=["float"], **NAMED)
    c.op("DebugNumericSummary", [arr(20)], "bounds", types=["float"], lower_bound=-1.5, upper_bound=2.0, **NAMED)
    c.op("DebugNumericSummary", [np.zeros([0, 2], np.float32)], "empty", T="float", **NAMED)
    for mode in (2, 3, 4, 5, 8):
        for output in ("float", "double"):
            attrs = {"tensor_debug_mode": mode, "tensor_id": 7, "output_dtype": output}
            c.op("DebugNumericSummaryV2", [special(3, 4)], f"{mode}", types=["float", "half", "int32", "bool"], **attrs)
    c.op(
        "DebugNumericSummaryV2",
        [arr(1, 2, 1, 2, 1, 2, 1, 2)],
        "dims",
        T="float",
        output_dtype="float",
        tensor_debug_mode=5,
    )
    c.op("DebugNumericSummaryV2", [arr(2)], "mode", T="float", output_dtype="float", tensor_debug_mode=1)
    c.op(
        "DebugNumericSummaryV2", [arr(2)], "id", T="float", output_dtype="float", tensor_debug_mode=2, tensor_id=1 << 30
    )
    p = c.program("DebugGradientRefIdentity")
    v = p.node("VariableV2", dtype="float", shape=[2])
    init = p.node("Assign", [v, p.const(np.float32([1, 2]))], T="float")
    p.step(target=[init])
    p.step(fetch=[p.node("DebugGradientRefIdentity", [v], T="float")])
