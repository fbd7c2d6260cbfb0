"""Complex numbers and their parts."""

from values import *


def cases(c):
    c.op("Complex", [lit([1.5, 2.0]), lit([3.0, -1.0])], T="float", Tout="complex64")
    c.op("Complex", [lit([1.5, 2.0]), lit([3.0, -1.0])], T="double", Tout="complex128")
    c.op("Complex", [lit([[1.5], [2.0]]), lit([3.0, -1.0])], "broadcast", T="float", Tout="complex64")
    c.op("Complex", [lit([1.5, 2.0]), lit([1.0, 2.0, 3.0])], "mismatch", T="float", Tout="complex64")
    c.op("Complex", [empty(0), empty(0)], "empty", T="float", Tout="complex64")
    for op in ("Real", "Imag", "Angle", "ComplexAbs"):
        accuracy = "rounding" if op in ("Angle", "ComplexAbs") else "exact"
        for dtype, part in (("complex64", "float"), ("complex128", "double")):
            c.op(op, [arr(2, 3)], "matrix", T=dtype, Tout=part, accuracy=accuracy)
            c.op(op, [lit([0, 1j, -1j, -1, 1, 3 + 4j])], "points", T=dtype, Tout=part, accuracy=accuracy)
        c.op(op, [arr()], "scalar", T="complex64", Tout="float", accuracy=accuracy)
        c.op(op, [empty(0, 2)], "empty", T="complex64", Tout="float", accuracy=accuracy)
    c.op("Conj", [arr(2, 3)], "matrix")
    c.op("Conj", [arr()], "scalar")
    c.op("Conj", [empty(0)], "empty")
    c.op("ComplexAbs", [arr(2)], "precisions_mismatch", T="complex64", Tout="double")
    c.op("Complex", [arr(2), arr(2)], "precisions_mismatch", T="float", Tout="complex128")
    for op in ("Real", "Imag", "Angle"):
        c.op(op, [arr(2)], "precisions_mismatch", T="complex64", Tout="double")
