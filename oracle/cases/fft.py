"""Fourier transforms."""

from values import *

import numpy as np


def lengths(*values):
    return np.array(values, np.int32)


def cases(c):
    c.accuracy("rounding")
    sizes = {1: [(8,), (5,), (2, 6), (3, 1)], 2: [(4, 3), (2, 5, 4)], 3: [(2, 3, 4), (2, 2, 3, 2)]}
    for rank, shapes in sizes.items():
        suffix = "" if rank == 1 else f"{rank}D"
        for shape in shapes:
            name = "x".join(map(str, shape))
            for op in ("FFT", "IFFT"):
                c.op(op + suffix, [arr(*shape)], name)
            own = shape[-rank:]
            for real, complex_ in [("float", "complex64"), ("double", "complex128")]:
                kinds = {"Treal": real, "Tcomplex": complex_}
                c.op("RFFT" + suffix, [arr(*shape), lengths(*own)], name, **kinds)
                half = (*shape[:-1], shape[-1] // 2 + 1)
                c.op("IRFFT" + suffix, [arr(*half), lengths(*own)], name, **kinds)
        kinds = {"Treal": "float", "Tcomplex": "complex64"}
        c.op("FFT" + suffix, [empty(*([2] * (rank - 1)), 0)], "empty", Tcomplex="complex64")
        c.op("RFFT" + suffix, [arr(*([6] * rank)), lengths(*([4] * rank))], "shorter", **kinds)
        c.op("IRFFT" + suffix, [arr(*([6] * rank)), lengths(*([5] * rank))], "shorter", **kinds)
        c.op("RFFT" + suffix, [arr(*([3] * rank)), lengths(*([4] * rank))], "longer", **kinds)
        c.op("RFFT" + suffix, [arr(*([3] * rank)), lengths(*([-1] * rank))], "negative", **kinds)
        c.op("RFFT" + suffix, [arr(*([3] * rank)), lengths(*([3] * (rank + 1)))], "lengths", **kinds)
        c.op("RFFT" + suffix, [empty(*([2] * (rank - 1)), 0), lengths(*([2] * (rank - 1)), 0)], "empty", **kinds)
    c.op("FFT", [np.complex64(1)], "scalar", Tcomplex="complex64")
    c.op("FFT2D", [arr(3)], "vector", Tcomplex="complex64")
    c.op("RFFT", [arr(4), lengths(4)], "other_types", Treal="float", Tcomplex="complex128")
    c.op("FFT", [arr(2, 97)], "prime", Tcomplex="complex128")
    c.op("RFFT", [arr(130), lengths(130)], "long", Treal="double", Tcomplex="complex128")
