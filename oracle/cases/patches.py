"""Windows of images and volumes as channels."""

from values import *


def cases(c):
    for padding in ("SAME", "VALID"):
        for sizes, strides, rates in [((2, 2), (1, 1), (1, 1)), ((3, 2), (2, 1), (1, 2)), ((1, 3), (3, 2), (1, 1))]:
            attrs = {
                "ksizes": [1, *sizes, 1],
                "strides": [1, *strides, 1],
                "rates": [1, *rates, 1],
                "padding": padding,
            }
            name = f"{padding}_{sizes[0]}x{sizes[1]}"
            full = padding == "SAME" and sizes == (2, 2)
            c.op("ExtractImagePatches", [arr(2, 4, 3, 2)], name, types=None if full else ["float"], **attrs)
        for sizes, strides in [((2, 2, 1), (1, 1, 1)), ((1, 2, 2), (2, 1, 2))]:
            attrs = {"ksizes": [1, *sizes, 1], "strides": [1, *strides, 1], "padding": padding}
            full = padding == "SAME" and sizes == (2, 2, 1)
            name = f"{padding}_{'x'.join(map(str, sizes))}"
            c.op("ExtractVolumePatches", [arr(1, 3, 2, 3, 2)], name, types=None if full else ["float"], **attrs)
    plain = {"ksizes": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "VALID"}
    c.op("ExtractImagePatches", [empty(0, 3, 3, 1)], "empty", T="float", **plain)
    c.op("ExtractImagePatches", [arr(3, 3, 1)], "rank", T="float", **plain)
    c.op("ExtractImagePatches", [arr(1, 1, 1, 1)], "small", T="float", **plain)
    c.op("ExtractImagePatches", [arr(1, 3, 3, 1)], "batches", T="float", **{**plain, "ksizes": [2, 2, 2, 1]})
    c.op("ExtractImagePatches", [arr(1, 3, 3, 1)], "zero", T="float", **{**plain, "strides": [1, 0, 1, 1]})
    c.op("ExtractVolumePatches", [arr(3, 3, 1)], "rank", T="float", ksizes=[1] * 5, strides=[1] * 5, padding="SAME")
