"""Matrices with few diagonals."""

from values import *

TYPES = ["float", "double", "complex64", "complex128"]


def cases(c):
    c.accuracy("rounding")
    for shape in [(4, 3), (2, 3, 2), (1, 2), (2, 1)]:
        diagonal = (*shape[:-2], 1, shape[-2])
        inputs = [arr(*diagonal, seed=seed) for seed in range(3)] + [arr(*shape)]
        c.op("TridiagonalMatMul", inputs, "x".join(map(str, shape)))
    c.op("TridiagonalMatMul", [arr(1, 3), arr(1, 3), arr(1, 2), arr(3, 2)], "other_length", T="float")
    c.op("TridiagonalMatMul", [arr(2, 3), arr(2, 3), arr(2, 3), arr(3, 2)], "two_rows", T="float")
    c.op("TridiagonalMatMul", [empty(1, 0), empty(1, 0), empty(1, 0), empty(0, 2)], "no_rows", T="float")
    for shape in [(4, 3), (2, 5, 1), (1, 2), (2, 2)]:
        diagonals = (*shape[:-2], 3, shape[-2])
        inputs = [arr(*diagonals), arr(*shape, seed=1)]
        name = "x".join(map(str, shape))
        c.op("TridiagonalSolve", inputs, name)
        c.op("TridiagonalSolve", inputs, name + "_plain", partial_pivoting=False)
        c.op("TridiagonalSolve", inputs, name + "_perturbed", perturb_singular=True)
    singular = lit([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    for name, attrs in [("", {}), ("_plain", {"partial_pivoting": False})]:
        c.op("TridiagonalSolve", [singular, arr(3, 2)], "singular" + name, types=["float", "complex64"], **attrs)
        c.op("TridiagonalSolve", [lit([[0.0], [0.0], [0.0]]), arr(1, 2)], "zero" + name, T="float", **attrs)
    near = lit([[1.0, 1.0, 0.0], [1.0, 1.0, 1e-30], [0.0, 1.0, 0.0]])
    c.op("TridiagonalSolve", [near, arr(3, 2)], "near_singular", T="float", perturb_singular=True)
    c.op("TridiagonalSolve", [singular, arr(3, 2)], "both", T="float", perturb_singular=True, partial_pivoting=False)
    c.op("TridiagonalSolve", [arr(2, 3), arr(3, 2)], "two_diagonals", T="float")
    c.op("TridiagonalSolve", [arr(3, 3), arr(4, 2)], "other_rows", T="float")
    c.op("TridiagonalSolve", [empty(3, 0), empty(0, 2)], "no_rows", T="float")
    for lower in (True, False):
        for adjoint in (True, False):
            for matrix, rhs in [((2, 4), (4, 3)), ((3, 3), (3, 1)), ((2, 1, 1, 2), (3, 2, 2)), ((1, 3), (2, 3, 2))]:
                name = f"{'x'.join(map(str, matrix))}_{lower}_{adjoint}"
                types = TYPES if matrix == (2, 4) else ["double", "complex64"]
                inputs = [pos(*matrix), arr(*rhs)]
                c.op("BandedTriangularSolve", inputs, name, types=types, lower=lower, adjoint=adjoint)
    c.op("BandedTriangularSolve", [lit([[1.0, 0.0], [3.0, 4.0]]), arr(2, 1)], "singular", T="float")
    c.op("BandedTriangularSolve", [arr(3, 2), arr(2, 1)], "too_many_bands", T="float")
    c.op("BandedTriangularSolve", [arr(2, 3), arr(2, 1)], "other_rows", T="float")
    c.op("BandedTriangularSolve", [empty(2, 0), empty(0, 1)], "empty", T="float")
