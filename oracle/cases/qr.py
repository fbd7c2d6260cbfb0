"""Matrices as products of an orthogonal and a triangular one."""

from values import *

TYPES = ["float", "double", "complex64", "complex128"]


def cases(c):
    for shape in [(3, 2), (2, 3), (4, 4), (2, 3, 2), (1, 1)]:
        name = "x".join(map(str, shape))
        # Beyond the square, halves differ in their last bits.
        types = TYPES + ["half"] if shape[-1] <= shape[-2] else TYPES
        c.op("Qr", [arr(*shape)], name, types=types, accuracy="rounding")
        c.op("Qr", [arr(*shape)], name + "_full", types=types, accuracy="rounding", full_matrices=True)
    for shape in [(7, 3), (9, 2), (12, 10), (17, 17)]:
        c.op("Qr", [arr(*shape)], "x".join(map(str, shape)), T="half")
    c.op("Qr", [lit([[300.0, 1.0], [200.0, 3.0], [-100.0, 2.0]])], "overflow", T="half")
    c.op("Qr", [lit([[0.0, 0.0], [0.0, 0.0]])], "zeros", T="float")
    c.op("Qr", [lit([[-2.0]])], "negative", T="float")
    partly = lit([[1.0, 2.0, float("nan"), 1.0], [0.5, -1.0, 2.0, 3.0], [2.0, 0.0, 1.0, 1.0], [1.0, 1.5, -3.0, 2.0]])
    for full in (False, True):
        c.op("Qr", [partly], f"nan_{full}", T="float", accuracy="rounding", full_matrices=full)
    still = lit([[-5.0, float("nan")], [0.0, float("nan")]])
    c.op("Qr", [still], "nan_behind_zeros", types=TYPES, accuracy="rounding")
    c.op("Qr", [empty(2, 0, 3)], "no_rows", T="float")
    c.op("Qr", [empty(0, 3, 2)], "no_matrices", T="float")
    c.op("Qr", [empty(3, 0)], "no_columns_full", T="float", full_matrices=True)
    c.op("Qr", [arr(3)], "vector", T="float")
