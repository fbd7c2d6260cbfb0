"""Recipes for images, boxes and signals."""

import values
from recipes import Like, recipe

import numpy as np


def _image(s, channels=None):
    return (s.small(1, 2), s.small(1, 6), s.small(1, 6), channels or s.small(1, 3))


@recipe("ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic", "ResizeArea")
def _resize(s, a):
    _one_alignment(s, a)
    return [Like(_image(s), values.unit), [s.small(1, 8), s.small(1, 8)]]


@recipe("ResizeNearestNeighborGrad")
def _nearest_grad(s, a):
    _one_alignment(s, a)
    return [Like(_image(s), values.unit), [s.small(1, 8), s.small(1, 8)]]


@recipe("ResizeBilinearGrad", "ResizeBicubicGrad")
def _resize_grad(s, a):
    _one_alignment(s, a)
    batch, height, width, channels = _image(s)
    return [
        Like((batch, height, width, channels), values.unit),
        Like((batch, s.small(1, 8), s.small(1, 8), channels), values.unit),
    ]


def _one_alignment(s, a):
    a["align_corners"] = s.chance(0.4)
    if s.op != "ResizeArea":
        a["half_pixel_centers"] = not a["align_corners"] and s.chance(0.5)


@recipe("RGBToHSV", "HSVToRGB")
def _colors(s, a):
    return [Like((*s.shape(), 3), values.unit)]


@recipe("AdjustContrastv2", "AdjustHue", "AdjustSaturation")
def _adjust(s, a):
    return [Like(_image(s, 3), values.unit), s.pick([0.0, 0.3, 1.0, 1.7])]


@recipe("CropAndResize")
def _crop(s, a):
    batch, height, width, channels = _image(s)
    boxes = s.small(1, 3)
    places = s.random.uniform(-0.2, 1.2, (boxes, 4)).round(2)
    return [
        Like((batch, height, width, channels), values.unit),
        places,
        s.integers(0, batch - 1, (boxes,)),
        [s.small(1, 5), s.small(1, 5)],
    ]


@recipe("DrawBoundingBoxes")
def _boxes(s, a):
    batch = s.small(1, 2)
    corners = np.sort(s.random.uniform(-0.1, 1.1, (batch, s.small(0, 3), 2, 2)), axis=2)
    return [
        Like((batch, s.small(2, 6), s.small(2, 6), s.pick([1, 3, 4])), values.unit),
        corners.reshape(batch, -1, 4).round(2),
    ]


@recipe("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4")
def _suppression(s, a):
    count = s.small(0, 6)
    corners = np.sort(s.random.uniform(0, 1, (count, 2, 2)), axis=1).reshape(count, 4).round(2)
    # Scores that differ, since the order of equal ones is open.
    scores = s.random.permutation(count) / 8.0
    tail = {"NonMaxSuppression": [], "NonMaxSuppressionV2": [0.4]}.get(s.op, [0.4, 0.1])
    return [corners, scores, s.small(0, 5), *tail]


@recipe("ExtractImagePatches")
def _patches(s, a):
    for name in ("ksizes", "strides", "rates"):
        a[name] = [1, s.small(1, 3), s.small(1, 3), 1]
    a["padding"] = s.pick([b"SAME", b"VALID"])
    return [Like(_image(s))]


@recipe("ImageProjectiveTransformV2")
def _transform(s, a):
    a["interpolation"] = s.pick([b"NEAREST", b"BILINEAR"])
    matrix = [1, 0, s.small(-2, 2), 0, 1, s.small(-2, 2), 0, 0]
    return [Like(_image(s), values.unit), [matrix], [s.small(1, 6), s.small(1, 6)]]


@recipe("Dilation2D")
def _dilation(s, a):
    a["strides"] = a["rates"] = [1, 1, 1, 1]
    a["padding"] = s.pick([b"SAME", b"VALID"])
    batch, height, width, channels = _image(s)
    return [Like((batch, height + 2, width + 2, channels)), Like((s.small(1, 3), s.small(1, 3), channels))]


@recipe("FFT", "IFFT")
def _fft(s, a):
    return [Like((*s.shape(), s.small(1, 9)), values.arr)]


@recipe("FFT2D", "IFFT2D")
def _fft_2d(s, a):
    return [Like((s.small(1, 2), s.small(1, 6), s.small(1, 6)), values.arr)]


@recipe("RFFT")
def _rfft(s, a):
    length = s.small(1, 9)
    return [Like((s.small(1, 3), length), values.arr), [s.pick([length, length, 4, 7])]]


@recipe("IRFFT")
def _irfft(s, a):
    length = s.small(2, 9)
    return [Like((s.small(1, 3), length // 2 + 1), values.arr), [length]]


@recipe("FakeQuantWithMinMaxVars")
def _fake_quant(s, a):
    a["num_bits"] = s.small(2, 16)
    return [Like(s.shape(), values.arr), s.pick([-1.0, -0.1, 0.0]), s.pick([1.0, 2.5, 0.1])]


@recipe("FakeQuantWithMinMaxArgs")
def _fake_quant_args(s, a):
    a["num_bits"], a["min"], a["max"] = s.small(2, 16), s.pick([-6.0, -0.5, 0.0]), s.pick([6.0, 0.7])
    return [Like(s.shape(), values.arr)]


@recipe("FakeQuantWithMinMaxVarsPerChannel")
def _fake_quant_channels(s, a):
    a["num_bits"] = s.small(2, 16)
    shape = s.shape(1)
    channels = shape[-1]
    return [Like(shape, values.arr), [-1.0] * channels, [2.0] * channels]
