"""Sparse tensors as strings and variants, and back."""

from values import *

import numpy as np

INDICES = [[0, 1], [2, 0], [2, 3]]


def cases(c):
    sparse = [INDICES, lit([1, 2, 3]), [4, 4]]
    c.op("SerializeSparse", sparse, "string", out_type="string")
    c.op("SerializeManySparse", sparse, "string", out_type="string")
    none = [np.zeros((0, 2)), empty(0), [2, 4]]
    for op in ("SerializeSparse", "SerializeManySparse"):
        f = {"T": "float", "out_type": "string"}
        c.op(op, none, "empty", **f)
        c.op(op, [[[0, 1, 2]], lit([5]), [1, 2, 3]], "rank_3", **f)
        c.op(op, [[[1, 0], [0, 1]], lit([1, 2]), [2, 2]], "unsorted", **f)
        c.op(op, [[[0]], lit([1]), [2]], "rank_1", **f)
    c.op("SerializeManySparse", [[[5, 0]], lit([1]), [2, 2]], "out_of_bounds", T="float", out_type="string")

    for dtype in c.dtypes("SerializeSparse", "T"):
        for via in ("string", "variant"):
            for many in (False, True):
                p = c.program(f"{'rows' if many else 'whole'}_by_{via}/{dtype}")
                parts = [p.const(INDICES, "int64"), p.const(lit([1, 2, 3]), dtype), p.const([4, 4], "int64")]
                kind = "SerializeManySparse" if many else "SerializeSparse"
                texts = p.node(kind, parts, T=dtype, out_type=via)
                back = p.node("DeserializeSparse", [texts], dtype=dtype, Tserialized=via)
                p.step(fetch=[f"{back}:{i}" for i in range(3)])
                if dtype not in ("float", "string"):
                    break
    for via in ("string", "variant"):
        p = c.program(f"stacked/{via}")
        parts = []
        for indices, shape in (([[1]], [2]), ([[0], [4]], [5]), ([], [1]), ([[0]], [1])):
            indices = np.array(indices, np.int64).reshape(-1, 1)
            inputs = [p.const(indices), p.const(np.arange(len(indices), dtype=np.float32)), p.const(shape, "int64")]
            parts.append(p.node("SerializeSparse", inputs, T="float", out_type=via))
        packed = p.node("Pack", parts, T=via, N=4)
        matrix = p.node("Reshape", [packed, p.const([2, 2, 3])], T=via, Tshape="int32")
        for source in (packed, matrix):
            back = p.node("DeserializeSparse", [source], dtype="float", Tserialized=via)
            p.step(fetch=[f"{back}:{i}" for i in range(3)])
        if via == "string":
            back = p.node("DeserializeManySparse", [packed], dtype="float")
            p.step(fetch=[f"{back}:{i}" for i in range(3)])
        wrong = p.node("DeserializeSparse", [packed], dtype="int32", Tserialized=via)
        p.step(
            fetch=[wrong], message="Requested SparseTensor of type int32 but SparseTensor[0].values.dtype() == float"
        )
    c.op("DeserializeSparse", [convert(["x", "y", "z"], "string")], "garbage", dtype="float", Tserialized="string")
    c.op("DeserializeSparse", [convert(["", "", ""], "string")], "empty_texts", dtype="float", Tserialized="string")
    c.op("DeserializeSparse", [convert(["x", "y"], "string")], "two_parts", dtype="float", Tserialized="string")
    c.op("DeserializeSparse", [empty(0, 3)("string")], "none", dtype="float", Tserialized="string")
    c.op("DeserializeManySparse", [convert(["x", "y", "z"], "string")], "vector", dtype="float")
