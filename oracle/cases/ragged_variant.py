"""Ragged tensors as variants, and back."""

from values import *

import numpy as np

SPLITS = [[0, 1, 1, 3], [0, 2, 2, 5]]


def cases(c):
    def both(name, levels, values, batched, out_rank, in_rank=-1, dtype="float", kind="int64", message=""):
        p = c.program(name)
        inputs = [p.const(splits, kind) for splits in levels] + [p.const(values, dtype)]
        common = {"Tvalues": dtype, "Tsplits": kind}
        to = p.node("RaggedTensorToVariant", inputs, RAGGED_RANK=len(levels), batched_input=batched, **common)
        back = p.node("RaggedTensorFromVariant", [to], input_ragged_rank=in_rank, output_ragged_rank=out_rank, **common)
        if batched:
            p.step(fetch=[p.node("Shape", [to], T="variant")])
        p.step(fetch=[f"{back}:{i}" for i in range(out_rank + 1)], message=message)
        return p, to

    for dtype in ("float", "string", "bool", "complex128"):
        both(f"rows/{dtype}", SPLITS[1:], iota(5), True, 1, dtype=dtype)
    both("int32", SPLITS[1:], iota(5), True, 1, kind="int32")
    both("whole", SPLITS, iota(5), False, 2)
    both("two_levels", SPLITS, iota(5), True, 2)
    both("wide_values", SPLITS, iota(5, 2), True, 2, in_rank=1)
    both("dense_rows", [], iota(3, 2), True, 0)
    both("dense_rows_as_ragged", [], iota(3, 2), True, 1)
    both("dense", [], iota(3, 2), False, 0)
    both("empty", [[0]], empty(0), True, 1)
    both("wrong_rank", SPLITS, iota(5), True, 1, in_rank=0)
    both("bad_splits", [[0, 3, 2, 5]], iota(5), True, 1, message="ragged splits must be monotonically increasing")
    both("bad_end", [[0, 3]], iota(5), True, 1)
    p = c.program("rows_of_other_shapes")
    parts = []
    for width in (2, 3):
        values = p.const(np.zeros((2, width), np.float32))
        parts.append(
            p.node(
                "RaggedTensorToVariant", [values], RAGGED_RANK=0, batched_input=False, Tvalues="float", Tsplits="int64"
            )
        )
    packed = p.node("Pack", parts, T="variant", N=2)
    common = {"Tvalues": "float", "Tsplits": "int64", "input_ragged_rank": -1}
    p.step(fetch=[p.node("RaggedTensorFromVariant", [packed], output_ragged_rank=1, **common)])
    p.step(fetch=[p.node("RaggedTensorFromVariant", [packed], output_ragged_rank=0, **common)])
    p.step(fetch=[p.node("RaggedTensorFromVariant", [parts[0]], output_ragged_rank=0, **common | {"Tvalues": "int32"})])
    p, to = both("matrix_of_rows", [], iota(6, 2), True, 1)
    matrix = p.node("Reshape", [to, p.const([2, 3])], T="variant", Tshape="int32")
    back = p.node("RaggedTensorFromVariant", [matrix], output_ragged_rank=2, **common)
    p.step(fetch=[f"{back}:{i}" for i in range(3)])
    p, to = both("arithmetic", SPLITS, iota(5), False, 2)
    for total in (p.node("ZerosLike", [to], T="variant"), p.node("AddN", [to, to], T="variant", N=2)):
        back = p.node("RaggedTensorFromVariant", [total], output_ragged_rank=2, **common)
        p.step(fetch=[f"{back}:{i}" for i in range(3)])

    for name, shape in {"gradient": [5], "gradient_of_another_size": [6]}.items():
        p = c.program(name)
        splits, values = p.const(SPLITS[1], "int64"), p.const(iota(5), "float")
        common = {"Tvalues": "float", "Tsplits": "int64"}
        to = p.node("RaggedTensorToVariant", [splits, values], RAGGED_RANK=1, batched_input=True, **common)
        if name == "gradient":
            p.step(fetch=[p.node("RaggedTensorToVariantGradient", [to, splits, p.const(shape)], **common)])
        whole = p.node("RaggedTensorToVariant", [splits, values], RAGGED_RANK=1, batched_input=False, **common)
        p.step(fetch=[p.node("RaggedTensorToVariantGradient", [whole, splits, p.const(shape)], **common)])
