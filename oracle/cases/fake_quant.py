"""Quantization as training sees it."""

from values import *

import numpy as np


def f(*values):
    return np.array(values, np.float32)


NUMBERS = np.concatenate([np.linspace(-7.3, 7.9, 23), [0.0, -6.0, 6.0, 0.5, -0.5]]).astype(np.float32)


def cases(c):
    c.accuracy("rounding")
    for bits, narrow in [(8, False), (8, True), (2, False), (16, False), (4, True)]:
        attrs = {"num_bits": bits, "narrow_range": narrow}
        name = f"{bits}_{narrow}"
        for low, high in [(-6.0, 6.0), (-1.3, 2.7), (0.5, 3.0), (-4.0, -1.0)]:
            own = f"{name}_{low}_{high}"
            c.op("FakeQuantWithMinMaxArgs", [NUMBERS], own, min=low, max=high, **attrs)
            c.op("FakeQuantWithMinMaxVars", [NUMBERS, np.float32(low), np.float32(high)], own, **attrs)
        c.op("FakeQuantWithMinMaxArgsGradient", [NUMBERS[::-1].copy(), NUMBERS], name, min=-1.3, max=2.7, **attrs)
        ends = [np.float32(-1.3), np.float32(2.7)]
        c.op("FakeQuantWithMinMaxVarsGradient", [NUMBERS[::-1].copy(), NUMBERS, *ends], name, **attrs)
        channels = [arr(5, 3), f(-1.0, 0.0, -2.5), f(1.5, 0.0, 0.5)]
        c.op("FakeQuantWithMinMaxVarsPerChannel", channels, name, **attrs)
        c.op("FakeQuantWithMinMaxVarsPerChannelGradient", [arr(5, 3, seed=1), *channels], name, **attrs)
    zero = np.float32(0)
    c.op("FakeQuantWithMinMaxVars", [NUMBERS, zero, zero], "zeros")
    c.op("FakeQuantWithMinMaxVarsGradient", [NUMBERS, NUMBERS, zero, zero], "zeros")
    c.op("FakeQuantWithMinMaxArgs", [empty(0, 2)], "empty")
    c.op("FakeQuantWithMinMaxVarsPerChannel", [arr(2, 2, 3), f(-1, -1, -1), f(1, 2, 3)], "images")
    c.op("FakeQuantWithMinMaxArgs", [NUMBERS], "ends", min=2.0, max=1.0)
    c.op(
        "FakeQuantWithMinMaxArgs",
        [NUMBERS],
        "bits",
        num_bits=17,
        message="num_bits must be between 2 and 16, inclusive",
    )
    c.op("FakeQuantWithMinMaxVars", [NUMBERS, f(1.0), zero], "vector")
    c.op("FakeQuantWithMinMaxVarsPerChannel", [arr(2, 3), f(1.0), f(1.0)], "sizes")
    c.op("FakeQuantWithMinMaxArgsGradient", [NUMBERS, f(1.0)], "shapes")
