"""Color spaces, contrast, hue and saturation."""

from values import SENTENCE, unit

import numpy as np

CORNERS = np.array(
    [
        [0, 0, 0],
        [1, 1, 1],
        [0.5, 0.5, 0.5],
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [1, 1, 0],
        [0, 1, 1],
        [1, 0, 1],
        [0.2, 0.7, 0.7],
    ]
)


def colors(dtype):
    return CORNERS.astype(dtype)


def cases(c):
    c.accuracy("rounding")
    for op in ("RGBToHSV", "HSVToRGB"):
        c.op(op, [unit(4, 5, 3)], "types")
        c.op(op, [colors(np.float32)], "corners", types=["float"])
        c.op(op, [colors(np.float64)], "corners", types=["double"])
        c.op(op, [unit(0, 3)], "empty", types=["float"])
        c.op(op, [unit(3)], "one", types=["float"])
        c.op(op, [unit(2, 4)], "channels", types=["float"], message=SENTENCE)
        c.op(op, [np.float32(1)], "scalar", types=["float"], message=SENTENCE)
    c.op("RGBToHSV", [np.float32([[-1, -2, -3], [3, 300, -7], [1e-30, 0, 0]])], "wide", types=["float"])
    contrast(c)
    c.accuracy("exact")
    for op, factors in {
        "AdjustHue": (-1.4, -0.3, 0, 0.2, 0.5, 2.75),
        "AdjustSaturation": (0, 0.5, 1, 1.5, 30, -1),
    }.items():
        for factor in factors:
            c.op(op, [unit(2, 3, 4, 3), np.float32(factor)], f"{factor}", types=["float"])
        c.op(op, [colors(np.float32)[None], np.float32(0.3)], "corners", types=["float"])
        c.op(op, [unit(1, 0, 3), np.float32(0.3)], "empty", types=["float"])
        c.op(op, [unit(2, 2, 4), np.float32(0.3)], "channels", types=["float"], message=SENTENCE)
        c.op(op, [unit(2, 3), np.float32(0.3)], "rank", types=["float"], message=SENTENCE)
        c.op(op, [unit(2, 2, 3), np.float32([0.3])], "factor", types=["float"], message=SENTENCE)


def contrast(c):
    for factor in (0.0, 0.5, 2.5):
        bounds = [np.float32(factor), np.float32(-1), np.float32(2)]
        c.op("AdjustContrast", [unit(2, 3, 2, 3), *bounds], f"{factor}")
        for shape in ((1, 1, 1), (3, 5, 2), (2, 4, 4, 3), (2, 1, 7, 2, 1)):
            name = f"{factor}/{'x'.join(map(str, shape))}"
            c.op("AdjustContrastv2", [unit(*shape), np.float32(factor)], name, types=["float"], accuracy="exact")
    c.op("AdjustContrastv2", [unit(2, 0, 3), np.float32(1)], "empty", types=["float"])
    c.op("AdjustContrastv2", [unit(2, 3), np.float32(1)], "rank", types=["float"], message=SENTENCE)
    c.op("AdjustContrastv2", [unit(2, 3, 1), np.float32([1])], "factor", types=["float"], message=SENTENCE)
    c.op("AdjustContrast", [unit(2, 3, 1), *[np.float32([1])] * 3], "factor", types=["float"], message=SENTENCE)
