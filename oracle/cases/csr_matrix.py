"""Sparse matrices by rows, as variants."""

import itertools

from values import *

import numpy as np

INDICES = [[0, 1], [2, 0], [2, 3]]
BATCH = [[0, 0, 1], [1, 0, 0], [1, 2, 3]]
TYPES = ("float", "double", "complex64", "complex128")


def cases(c):
    c.accuracy("rounding")

    def matrix(p, dtype, indices=INDICES, shape=(3, 4), values=None):
        values = p.const(values or arr(len(indices)), dtype)
        return p.node(
            "SparseTensorToCSRSparseMatrix", [p.const(indices, "int64"), values, p.const(list(shape), "int64")], T=dtype
        )

    def parts(p, csr, dtype, batches=1):
        for index in range(batches):
            node = p.node("CSRSparseMatrixComponents", [csr, p.const(index)], type=dtype)
            p.step(fetch=[f"{node}:{i}" for i in range(3)])

    for dtype in TYPES:
        p = c.program(f"conversions/{dtype}")
        csr = matrix(p, dtype)
        p.step(fetch=[p.node("CSRSparseMatrixToDense", [csr], type=dtype), p.node("SparseMatrixNNZ", [csr])])
        back = p.node("CSRSparseMatrixToSparseTensor", [csr], type=dtype)
        p.step(fetch=[f"{back}:{i}" for i in range(3)])
        parts(p, csr, dtype)
        dense = p.node("DenseToCSRSparseMatrix", [p.const(arr(3, 4), dtype), p.const(INDICES, "int64")], T=dtype)
        parts(p, dense, dtype)
        turned = p.node("SparseMatrixTranspose", [csr], type=dtype, conjugate=True)
        parts(p, turned, dtype)
        parts(p, p.node("Conj", [csr], T="variant"), dtype)
    p = c.program("batch")
    csr = matrix(p, "float", BATCH, (3, 3, 4))
    p.step(fetch=[p.node("CSRSparseMatrixToDense", [csr], type="float"), p.node("SparseMatrixNNZ", [csr])])
    parts(p, csr, "float", 3)
    parts(p, p.node("SparseMatrixTranspose", [csr], type="float"), "float", 3)
    back = p.node("CSRSparseMatrixToSparseTensor", [csr], type="float")
    p.step(fetch=[f"{back}:{i}" for i in range(3)])
    p.step(fetch=[p.node("CSRSparseMatrixComponents", [csr, p.const(3)], type="float")])
    p.step(fetch=[p.node("CSRSparseMatrixToDense", [csr], type="double")])
    p = c.program("empty")
    csr = matrix(p, "float", np.zeros((0, 2)), (3, 4), empty(0))
    p.step(fetch=[p.node("CSRSparseMatrixToDense", [csr], type="float"), p.node("SparseMatrixNNZ", [csr])])
    parts(p, csr, "float")
    for name, indices, shape in (("row", [[3, 0]], (3, 4)), ("column", [[0, 4]], (3, 4)), ("rank", [[0]], (3,))):
        p = c.program(f"wrong_{name}")
        p.step(fetch=[p.node("SparseMatrixNNZ", [matrix(p, "float", indices, shape)])])
    p = c.program("wrong_place")
    dense = p.node("DenseToCSRSparseMatrix", [p.const(arr(3, 4), "float"), p.const([[3, 0]], "int64")], T="float")
    p.step(fetch=[p.node("SparseMatrixNNZ", [dense])])

    kinds = ("", "transpose", "adjoint")
    for dtype in ("float", "complex64"):
        for a, b in itertools.product(kinds, kinds) if dtype == "complex64" else [("", "")]:
            attrs = {f"{kind}_{side}": True for kind, side in ((a, "a"), (b, "b")) if kind}
            label = f"{a or 'plain'}_{b or 'plain'}/{dtype}"
            p = c.program(f"dense_product/{label}")
            size = (3 if a else 4, 2)
            b_dense = p.const(arr(*(size[::-1] if b else size)), dtype)
            csr = matrix(p, dtype)
            for more in ({}, {"transpose_output": True}, {"conjugate_output": True}):
                p.step(fetch=[p.node("SparseMatrixMatMul", [csr, b_dense], T=dtype, **attrs, **more)])
            p = c.program(f"sparse_product/{label}")
            shape = (3 if a else 4, 3)
            other = [[0, 1], [0, 2], [1, 0], [2, 2]]
            right = matrix(p, dtype, [[j, i] for i, j in other] if b else other, shape[::-1] if b else shape)
            if b:
                # Entries are sorted by row.
                right = p.node("SparseMatrixTranspose", [matrix(p, dtype, other, shape)], type=dtype)
            node = p.node("SparseMatrixSparseMatMul", [matrix(p, dtype), right], type=dtype, **attrs)
            parts(p, node, dtype)
    p = c.program("batch_products")
    csr = matrix(p, "float", BATCH, (2, 3, 4))
    p.step(fetch=[p.node("SparseMatrixMatMul", [csr, p.const(arr(2, 4, 2), "float")], T="float")])
    turned = p.node("SparseMatrixTranspose", [csr], type="float")
    parts(p, p.node("SparseMatrixSparseMatMul", [csr, turned], type="float"), "float", 2)
    one = matrix(p, "float", [[0, 0, 1], [0, 3, 0]], (1, 4, 2))
    parts(p, p.node("SparseMatrixSparseMatMul", [csr, one], type="float"), "float", 2)
    p = c.program("sizes_differ")
    p.step(fetch=[p.node("SparseMatrixMatMul", [matrix(p, "float"), p.const(arr(3, 2), "float")], T="float")])
    p = c.program("both_flags")
    node = p.node(
        "SparseMatrixMatMul",
        [matrix(p, "float"), p.const(arr(3, 2), "float")],
        T="float",
        transpose_a=True,
        adjoint_a=True,
    )
    p.step(fetch=[node])
