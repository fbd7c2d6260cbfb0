"""Matrix products: plain, batched, fused and by Einstein summation."""

from values import *

import numpy as np


def cases(c):
    c.accuracy("rounding")
    for ta in (False, True):
        for tb in (False, True):
            a, b = (3, 2) if ta else (2, 3), (2, 3) if tb else (3, 2)
            label = "".join("t" if t else "n" for t in (ta, tb))
            c.op("MatMul", [arr(*a), arr(*b, seed=1)], label, transpose_a=ta, transpose_b=tb)
            for op in ("BatchMatMul", "BatchMatMulV2"):
                c.op(op, [arr(2, *a), arr(2, *b, seed=1)], label, few=ta, adj_x=ta, adj_y=tb)
    c.op("MatMul", [arr(1, 3), arr(3, 1)], "dot", few=True)
    c.op("MatMul", [arr(3, 1), arr(1, 3)], "outer", few=True)
    c.op("MatMul", [arr(1, 1), arr(1, 1)], "one", few=True)
    c.op("MatMul", [arr(5, 7), arr(7, 3)], "odd", few=True)
    c.op("MatMul", [arr(1, 17), arr(17, 5)], "vector_matrix", types=FLOATS)
    c.op("MatMul", [arr(5, 17), arr(17, 1)], "matrix_vector", types=FLOATS)
    c.op("MatMul", [empty(0, 3), arr(3, 2)], "no_rows", few=True)
    c.op("MatMul", [empty(2, 0), empty(0, 3)], "no_inner", few=True)
    c.op("MatMul", [lit([[1.0, float("inf")]]), lit([[0.0], [0.0]])], "inf_times_zero", types=FLOATS)
    c.op("MatMul", [arr(2, 3), arr(2, 3)], "mismatch", few=True)
    c.op("MatMul", [arr(3), arr(3, 2)], "vector", few=True)
    c.op("MatMul", [arr(2, 2, 2), arr(2, 2, 2)], "rank_3", few=True)

    c.op("BatchMatMulV2", [arr(2, 1, 2, 3), arr(3, 3, 2)], "broadcast", few=True)
    c.op("BatchMatMulV2", [arr(2, 3), arr(2, 3, 2)], "matrix_and_batch", few=True)
    c.op("BatchMatMulV2", [arr(2, 3), arr(3, 2)], "matrices", few=True)
    c.op("BatchMatMulV2", [empty(0, 2, 3), empty(0, 3, 2)], "no_batch", few=True)
    c.op("BatchMatMulV2", [empty(2, 2, 0), empty(2, 0, 3)], "no_inner", few=True)
    c.op("BatchMatMulV2", [arr(2, 2, 3), arr(2, 2, 3)], "mismatch", few=True)
    c.op("BatchMatMulV2", [arr(2, 2, 3), arr(3, 3, 2)], "batch_mismatch", few=True)
    c.op("BatchMatMulV2", [arr(3), arr(3, 2)], "vector", few=True)
    c.op("BatchMatMul", [arr(2, 2, 3), arr(1, 3, 2)], "no_broadcast", few=True)
    for tout in ("float", "int32"):
        c.op(
            "BatchMatMulV3",
            [arr(2, 2, 3), arr(3, 2)],
            f"to_{tout}",
            Ta="int8" if tout == "int32" else tout,
            Tb="int8" if tout == "int32" else tout,
            Tout=tout,
        )

    for equation, shapes in (
        ("ij,jk->ik", [(2, 3), (3, 2)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("ij->ji", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij->j", [(2, 3)]),
        ("bij,bjk->bik", [(2, 2, 3), (2, 3, 2)]),
        ("...ij,...jk->...ik", [(2, 2, 3), (3, 2)]),
        ("i,j->ij", [(2,), (3,)]),
        ("abc,cd->abd", [(2, 1, 3), (3, 2)]),
        ("ab,cb->ca", [(2, 3), (4, 3)]),
        ("iij->j", [(2, 2, 3)]),
        ("i->ii", [(3,)]),
        ("i,i->ii", [(3,), (3,)]),
        ("ij->jj", [(2, 3)]),
        ("ij,->ij", [(2, 3), ()]),
        ("ab...->b...a", [(2, 3, 2)]),
        ("...i,...i->...", [(2, 3), (3,)]),
        ("bija,bjka->abik", [(2, 2, 3, 2), (2, 3, 2, 2)]),
    ):
        few = equation != "ij,jk->ik"
        inputs = [arr(*shape, seed=i) for i, shape in enumerate(shapes)]
        label = equation.replace("...", "_").replace("->", "_to_").replace(",", "_")
        # Stock's kernel takes the explicit form only; clients add the arrow.
        c.op("Einsum", [inputs], label, few=few, equation=equation)
    c.op("Einsum", [[arr(2, 3), arr(2, 3)]], "mismatch", few=True, equation="ij,jk->ik")
    c.op("Einsum", [[arr(2, 3)]], "rank_mismatch", few=True, equation="ijk->i")
    c.op("Einsum", [[arr(2, 3)]], "wrong_count", few=True, equation="ij,jk->ik")
    c.op("Einsum", [[arr(2, 3)]], "unknown_output_label", few=True, equation="ij->k")
    for ta, tb in (("float", "float"), ("bfloat16", "float"), ("float", "bfloat16"), ("bfloat16", "bfloat16")):
        c.op("SparseMatMul", [arr(2, 3), arr(3, 2, seed=1)], Ta=ta, Tb=tb)
    c.op(
        "SparseMatMul", [arr(3, 2), arr(2, 3, seed=1)], "tt", Ta="float", Tb="float", transpose_a=True, transpose_b=True
    )
    a, b = (
        np.float32([[1, 0, -2], [np.inf, np.nan, 0], [0, 3, np.inf]]),
        np.float32([[0, 2, np.nan], [3, 0, -np.inf], [0, 0, 4]]),
    )
    for hints in ({}, {"a_is_sparse": True}, {"b_is_sparse": True}, {"a_is_sparse": True, "b_is_sparse": True}):
        name = "zeros_" + "_".join(hints)
        c.op("SparseMatMul", [a, b], name, Ta="float", Tb="float", **hints)
        c.op(
            "SparseMatMul",
            [a, b],
            name + "_turned",
            Ta="float",
            Tb="float",
            transpose_a=True,
            transpose_b=True,
            **hints,
        )
        c.op("SparseMatMul", [a, b], name + "_short", Ta="bfloat16", Tb="float", **hints)
    c.op("SparseMatMul", [arr(2, 3), arr(2, 3)], "mismatch", Ta="float", Tb="float")
    for fused in (["BiasAdd"], ["BiasAdd", "Relu"], ["BiasAdd", "Tanh"], ["BiasAdd", "Sigmoid"]):
        c.op("_FusedMatMul", [arr(2, 3), arr(3, 4), [arr(4)]], "_".join(fused).lower(), T="float", fused_ops=fused)
