"""Batch normalization of the first generation."""

from values import *

TYPES = ("half", "float", "double")


def cases(c):
    c.accuracy("rounding")
    vector = lambda seed: arr(3, seed=seed)
    variance = lit([0.5, 2.0, 1.25])
    for scales in (False, True):
        attrs = {"variance_epsilon": 0.01, "scale_after_normalization": scales}
        name = "scaled" if scales else ""
        forward = [arr(2, 2, 2, 3), vector(1), variance, vector(2), vector(3)]
        c.op("BatchNormWithGlobalNormalization", forward, name, types=TYPES, **attrs)
        back = [arr(2, 2, 2, 3), vector(1), variance, vector(3), arr(2, 2, 2, 3, seed=4)]
        c.op("BatchNormWithGlobalNormalizationGrad", back, name, types=TYPES, **attrs)
        nothing = [empty(0, 2, 2, 3), vector(1), variance, vector(2), vector(3)]
        c.op("BatchNormWithGlobalNormalization", nothing, f"empty_{scales}", types=["float"], **attrs)
