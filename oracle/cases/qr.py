"""Matrices as products of an orthogonal and a triangular one."""

from values import *


# Stock computes halves in halves, we in floats, which is closer to the truth.
TYPES = ["float", "double", "complex64", "complex128"]


def cases(c):
    for shape in [(3, 2), (2, 3), (4, 4), (2, 3, 2), (1, 1)]:
        name = "x".join(map(str, shape))
        c.op("Qr", [arr(*shape)], name, types=TYPES, accuracy="rounding")
        c.op("Qr", [arr(*shape)], name + "_full", types=TYPES, accuracy="rounding", full_matrices=True)
    c.op("Qr", [arr(1, 1)], "1x1", T="half")
    c.op("Qr", [lit([[0.0, 0.0], [0.0, 0.0]])], "zeros", T="float")
    c.op("Qr", [lit([[-2.0]])], "negative", T="float")
    partly = lit([[1.0, 2.0, float("nan"), 1.0], [0.5, -1.0, 2.0, 3.0], [2.0, 0.0, 1.0, 1.0], [1.0, 1.5, -3.0, 2.0]])
    for full in (False, True):
        c.op("Qr", [partly], f"nan_{full}", T="float", accuracy="rounding", full_matrices=full)
    c.op("Qr", [empty(2, 0, 3)], "no_rows", T="float")
    c.op("Qr", [empty(0, 3, 2)], "no_matrices", T="float")
    c.op("Qr", [empty(3, 0)], "no_columns_full", T="float", full_matrices=True)
    c.op("Qr", [arr(3)], "vector", T="float")
