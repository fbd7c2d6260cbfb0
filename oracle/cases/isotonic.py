"""The nearest sequence that never rises."""

from values import *


def cases(c):
    c.accuracy("rounding")
    for dtype, out in [
        ("float", "float"),
        ("double", "double"),
        ("half", "half"),
        ("bfloat16", "bfloat16"),
        ("int8", "float"),
        ("int16", "float"),
        ("int32", "double"),
        ("int64", "double"),
    ]:
        c.op("IsotonicRegression", [arr(3, 7)], "rows", T=dtype, output_dtype=out)
    both = {"T": "float", "output_dtype": "float"}
    c.op("IsotonicRegression", [iota(1, 5)], "rising", **both)
    c.op("IsotonicRegression", [lit([[5.0, 4.0, 3.0, 3.0, 1.0]])], "falling", **both)
    c.op("IsotonicRegression", [arr(2, 2, 3)], "batches", **both)
    c.op("IsotonicRegression", [arr(4)], "vector", **both)
    c.op("IsotonicRegression", [empty(2, 0)], "no_columns", **both)
    c.op("IsotonicRegression", [arr(2, 2)], "types", T="float", output_dtype="double")
