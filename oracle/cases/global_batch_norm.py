"""Batch normalization of the first graphs."""

from values import *


def cases(c):
    c.accuracy("rounding")
    for scale in (True, False):
        attrs = {"variance_epsilon": 0.01, "scale_after_normalization": scale}
        vectors = [arr(3, seed=1), pos(3), arr(3, seed=2), arr(3, seed=3)]
        c.op("BatchNormWithGlobalNormalization", [arr(2, 2, 1, 3), *vectors], f"scale_{scale}", **attrs)
        c.op(
            "BatchNormWithGlobalNormalizationGrad",
            [arr(2, 2, 1, 3), *vectors[:3], arr(2, 2, 1, 3, seed=4)],
            f"scale_{scale}",
            types=["float", "double"],
            **attrs,
        )
    c.op("BatchNormWithGlobalNormalization", [arr(2, 3), *vectors], "rank", T="float", **attrs)
    c.op("BatchNormWithGlobalNormalization", [arr(1, 1, 2, 3), arr(1, 3), *vectors[1:]], "matrix", T="float", **attrs)
    c.op("BatchNormWithGlobalNormalization", [empty(0, 2, 2, 3), *vectors], "empty", T="float", **attrs)
