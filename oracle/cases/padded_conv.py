"""Convolutions with more around them."""

from values import *

import numpy as np


def pads(*values):
    return np.array(values, np.int32).reshape(-1, 2)


def cases(c):
    c.accuracy("rounding")
    for padding in ("SAME", "VALID"):
        image = {"strides": [1, 2, 1, 1], "padding": padding}
        c.op("Conv", [arr(2, 5, 4, 3), arr(2, 3, 3, 2)], f"image_{padding}", **image)
        volume = {"strides": [1, 1, 2, 1, 1], "padding": padding}
        c.op("Conv", [arr(1, 3, 4, 3, 2), arr(2, 2, 1, 2, 2)], f"volume_{padding}", T="float", **volume)
        batches = {"strides": [1, 1, 1, 1], "padding": padding, "batch_dims": 2}
        c.op("Conv", [arr(2, 2, 4, 3, 2), arr(2, 2, 2, 1)], f"batches_{padding}", T="float", **batches)
    plain = {"strides": [1, 1, 1, 1], "padding": "VALID"}
    inputs = [arr(1, 4, 4, 2), arr(2, 2, 2, 1)]
    c.op("Conv", inputs, "dilated", T="float", dilations=[1, 2, 1, 1], **plain)
    explicit = {"strides": [1, 1, 1, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 2, 1, 0, 0]}
    c.op("Conv", inputs, "explicit", T="float", **explicit)
    c.op("Conv", inputs, "groups", T="float", groups=2, **plain)
    c.op("Conv", [arr(1, 4, 4, 3), arr(2, 2, 2, 1)], "depths", T="float", **plain)
    c.op("Conv", [arr(4, 4, 2), arr(2, 2, 2, 1)], "rank", T="float", **plain)
    c.op("Conv", [empty(0, 4, 4, 2), arr(2, 2, 2, 1)], "empty", T="float", **plain)
    for mode in ("REFLECT", "SYMMETRIC"):
        for padding in ("SAME", "VALID"):
            attrs = {"mode": mode, "strides": [1, 1, 2, 1], "padding": padding}
            around = pads(0, 0, 1, 2, 2, 0, 0, 0)
            name = f"{mode}_{padding}"
            # Of several images, stock takes each for the first one.
            inputs = [arr(1, 4, 3, 2), arr(2, 2, 2, 3)]
            c.op("FusedPadConv2D", [inputs[0], around, inputs[1]], name, types=["float", "double"], **attrs)
            for align in (True, False):
                size = np.array([6, 5], np.int32)
                c.op(
                    "FusedResizeAndPadConv2D",
                    [inputs[0], size, around, inputs[1]],
                    f"{name}_{align}",
                    types=["float", "double"],
                    resize_align_corners=align,
                    **attrs,
                )
    attrs = {"mode": "REFLECT", "strides": [1, 1, 1, 1], "padding": "VALID"}
    image, filter = arr(1, 3, 3, 1), arr(2, 2, 1, 1)
    c.op("FusedPadConv2D", [image, pads(0, 0, 3, 0, 0, 0, 0, 0), filter], "too_much", T="float", **attrs)
    c.op("FusedPadConv2D", [image, pads(0, 0, -1, 0, 0, 0, 0, 0), filter], "negative", T="float", **attrs)
    c.op("FusedPadConv2D", [image, pads(0, 0, 1, 0, 0, 0, 0, 1), filter], "channels", T="float", **attrs)
    c.op("FusedPadConv2D", [image, pads(0, 0, 1, 0), filter], "rows", T="float", **attrs)
    c.op("FusedPadConv2D", [empty(0, 3, 3, 1), pads(0, 0, 1, 0, 0, 0, 0, 0), filter], "empty", T="float", **attrs)
    c.op("FusedPadConv2D", [image, pads(0, 0, 1, 0, 0, 0, 0, 0), arr(2, 2, 2, 1)], "depths", T="float", **attrs)
