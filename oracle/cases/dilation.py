"""Grayscale dilation of images."""

from values import *


def cases(c):
    for padding in ("SAME", "VALID"):
        for strides, rates in [((1, 1), (1, 1)), ((2, 1), (1, 2)), ((3, 2), (2, 1))]:
            attrs = {"strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
            name = f"{padding}_{strides[0]}x{strides[1]}"
            full = padding == "SAME" and strides == (1, 1)
            types = None if full else ["float"]
            image, filter = (2, 5, 4, 2), (2, 2, 2)
            c.op("Dilation2D", [arr(*image), arr(*filter)], name, types=types, **attrs)
            sizes = []
            for size, stride, rate in zip(image[1:3], strides, rates):
                sizes.append(-(-size // stride) if padding == "SAME" else -(-(size - rate) // stride))
            grad = arr(2, *sizes, 2, seed=1)
            for op in ("Dilation2DBackpropInput", "Dilation2DBackpropFilter"):
                c.op(op, [arr(*image), arr(*filter), grad], name, types=types, accuracy="rounding", **attrs)
    plain = {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "VALID"}
    c.op("Dilation2D", [empty(0, 3, 3, 1), arr(2, 2, 1)], "empty", T="float", **plain)
    c.op("Dilation2D", [arr(1, 3, 3, 2), arr(2, 2, 1)], "depths", T="float", **plain)
    c.op("Dilation2D", [arr(3, 3, 2), arr(2, 2, 2)], "rank", T="float", **plain)
    c.op("Dilation2D", [arr(1, 3, 3, 1), arr(2, 2, 1)], "batches", T="float", **{**plain, "strides": [2, 1, 1, 1]})
    c.op("Dilation2DBackpropInput", [arr(1, 3, 3, 1), arr(2, 2, 1), arr(1, 3, 3, 1)], "sizes", T="float", **plain)
    nan = float("nan")
    c.op("Dilation2D", [lit([[[[nan], [1.0]], [[2.0], [3.0]]]]), lit([[[0.0]]])], "nan", T="float", **plain)
