"""Diagonals and bands of matrices."""

from values import *


def cases(c):
    c.op("Diag", [arr(3)])
    c.op("Diag", [arr(2, 2)], "matrix", T="float")
    c.op("Diag", [empty(0)], "empty", T="float")
    c.op("Diag", [arr()], "scalar", T="float")
    c.op("DiagPart", [arr(3, 3)])
    c.op("DiagPart", [arr(2, 2, 2, 2)], "rank_4", T="float")
    c.op("DiagPart", [arr(2, 3)], "not_square", T="float")
    c.op("DiagPart", [arr(2)], "odd_rank", T="float")

    c.op("MatrixDiag", [arr(2, 3)])
    c.op("MatrixDiag", [arr()], "scalar", T="float")
    c.op("MatrixDiagPart", [arr(2, 3, 4)])
    c.op("MatrixDiagPart", [arr(4, 3)], "tall", few=True)
    c.op("MatrixDiagPart", [arr(3)], "vector", T="float")
    c.op("MatrixSetDiag", [arr(2, 3, 4), arr(2, 3, seed=1)])
    c.op("MatrixSetDiag", [arr(3, 4), arr(4)], "mismatch", T="float")
    c.op("MatrixSetDiag", [arr(3), arr(3)], "vector", T="float")

    c.op("MatrixDiagV2", [arr(2, 3), 1, -1, -1, lit(7)], few=True)
    c.op("MatrixDiagPartV2", [arr(3, 4), [-1, 1], lit(7)], few=True)
    c.op("MatrixSetDiagV2", [arr(3, 4), arr(3, 3, seed=1), [-1, 1]], few=True)
    for align in ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"):
        name = align.lower()
        c.op("MatrixDiagV3", [arr(3, 3), [-1, 1], -1, -1, lit(7)], name, few=True, align=align)
        c.op("MatrixDiagV3", [arr(2, 3), [1, 2], 3, 4, lit(7)], f"{name}_above", T="float", align=align)
        c.op("MatrixDiagV3", [arr(2, 2, 3), [-3, -2], 5, 3, lit(7)], f"{name}_below", T="float", align=align)
        c.op("MatrixDiagPartV3", [arr(3, 4), [-2, 3], lit(7)], name, few=True, align=align)
        c.op("MatrixDiagPartV3", [arr(2, 4, 3), [-2, 0], lit(7)], f"{name}_batch", T="float", align=align)
        c.op("MatrixSetDiagV3", [arr(3, 4), arr(4, 3, seed=1), [-1, 2]], name, few=True, align=align)
    c.op("MatrixDiagV3", [arr(2), 0, -1, -1, lit(7)], "main", T="float")
    c.op("MatrixDiagV3", [arr(2), [2], -1, -1, lit(7)], "vector_of_one", T="float")
    c.op("MatrixDiagV3", [arr(2), 0, 1, -1, lit(7)], "too_few_rows", T="float")
    c.op("MatrixDiagV3", [arr(2), 0, -1, 1, lit(7)], "too_few_columns", T="float")
    c.op("MatrixDiagV3", [arr(2), 0, 5, 5, lit(7)], "inconsistent", T="float")
    c.op("MatrixDiagV3", [arr(2), [1, 0], -1, -1, lit(7)], "reversed", T="float")
    c.op("MatrixDiagV3", [arr(2), [0, 0, 0], -1, -1, lit(7)], "three_indices", T="float")
    c.op("MatrixDiagPartV3", [arr(2, 3), 2, lit(7)], "corner", T="float")
    c.op("MatrixDiagPartV3", [arr(2, 3), 3, lit(7)], "out_of_range", T="float")
    c.op("MatrixDiagPartV3", [arr(2, 3), [1, 0], lit(7)], "reversed", T="float")
    c.op("MatrixSetDiagV3", [arr(2, 3), arr(2), -1], "wrong_length", T="float")
    c.op("MatrixSetDiagV3", [arr(2, 3), arr(3, 2), [0, 1]], "wrong_count", T="float")
    c.op("MatrixSetDiagV3", [arr(2, 3, 4), arr(10), [-1, 1]], "diagonals_missing", T="float")

    c.op("MatrixBandPart", [arr(2, 3, 4), 1, 1])
    for lower, upper in ((0, 0), (-1, 0), (0, -1), (-1, -1), (2, 0), (0, 3)):
        c.op("MatrixBandPart", [arr(3, 4), lower, upper], f"{lower}_{upper}", T="float", Tindex="int64")
    c.op("MatrixBandPart", [empty(2, 0, 3), 0, 0], "empty", T="float", Tindex="int64")
    c.op("MatrixBandPart", [arr(3, 4), 4, 0], "too_low", T="float", Tindex="int64")
    c.op("MatrixBandPart", [arr(3, 4), 0, 5], "too_high", T="float", Tindex="int64")
    c.op("MatrixBandPart", [arr(3), 0, 0], "vector", T="float", Tindex="int64")
    c.op("MatrixBandPart", [arr(3, 4), [1], 0], "not_scalar", T="float", Tindex="int64")

    # The first names, refused since graph version 14.
    for producer in (13, None):
        name = "old_graph" if producer else "refused"
        c.op("BatchMatrixDiag", [arr(2, 3)], name, T="float", producer=producer)
        c.op("BatchMatrixDiagPart", [arr(2, 3, 4)], name, T="float", producer=producer)
        c.op("BatchMatrixSetDiag", [arr(2, 3, 4), arr(2, 3, seed=1)], name, T="float", producer=producer)
        c.op("BatchMatrixBandPart", [arr(2, 3, 4), 1, 0], name, T="float", producer=producer)
    for op in ("MatrixDiagV2", "MatrixDiagV3"):
        c.op(op, [arr(2), 0, -1, -1, arr(1)], "padding_vector", T="float")
        c.op(op, [arr(2), 0, [2], -1, arr()], "rows_vector", T="float")
        c.op(op, [arr(2), 0, -1, [2], arr()], "columns_vector", T="float")
    c.op("MatrixDiagPartV3", [arr(2, 2), 0, arr(1)], "padding_vector", T="float")
    c.op("DiagPart", [arr()], "scalar", T="float")
