"""Convolutions and pools of volumes, and their gradients."""

import itertools

from values import *

import numpy as np

BATCH, CHANNELS = 2, 3


def outputs(volume, window, strides, padding):
    return [
        -(-size // stride) if padding == "SAME" else (size - reach) // stride + 1
        for size, reach, stride in zip(volume, window, strides)
    ]


def convolutions(
    c,
    name,
    padding="SAME",
    strides=(1, 1, 1),
    volume=(4, 5, 3),
    window=(2, 3, 2),
    types=("float",),
    channels=CHANNELS,
    filter_channels=CHANNELS,
    result=None,
    **attrs,
):
    attrs = {"strides": [1, *strides, 1], "padding": padding} | attrs
    result = result or (BATCH, *outputs(volume, window, strides, padding), 4)
    image, kernel = (BATCH, *volume, channels), (*window, filter_channels, 4)
    gradient = pos(*result, seed=4)
    c.op("Conv3D", [pos(*image), pos(*kernel, seed=3)], name, types=types, **attrs)
    c.op(
        "Conv3DBackpropInputV2",
        [list(image), pos(*kernel, seed=3), gradient],
        name,
        types=types,
        Tshape="int32",
        **attrs,
    )
    # Sums over a whole volume lose too many digits in 16 bits.
    c.op(
        "Conv3DBackpropFilterV2",
        [pos(*image), list(kernel), gradient],
        name,
        types=[t for t in types if t != "bfloat16"],
        **attrs,
    )
    if "data_format" not in attrs:
        c.op("Conv3DBackpropInput", [pos(*image), pos(*kernel, seed=3), gradient], name, types=types, **attrs)
        c.op("Conv3DBackpropFilter", [pos(*image), pos(*kernel), gradient], name, types=types, **attrs)


def pooled(volume, window, strides, padding):
    """The largest elements, computed here for `orig_output`."""

    def draw(values):
        shape = outputs(values.shape[1:4], window, strides, padding)
        result = np.zeros((values.shape[0], *shape, values.shape[4]), values.dtype)
        for place in itertools.product(*map(range, shape)):
            ranges = []
            for at, size, out, reach, stride in zip(place, values.shape[1:4], shape, window, strides):
                before = max((out - 1) * stride + reach - size, 0) // 2 if padding == "SAME" else 0
                ranges.append(slice(max(at * stride - before, 0), at * stride - before + reach))
            result[:, *place, :] = values[:, *ranges, :].max(axis=(1, 2, 3))
        return result

    return Template(lambda dtype: draw(volume(dtype)))


def pools(c, name, padding, window, strides, volume=(4, 5, 3), types=("float",), result=None, **attrs):
    image = (BATCH, *volume, CHANNELS)
    attrs = {"ksize": [1, *window, 1], "strides": [1, *strides, 1], "padding": padding} | attrs
    result = result or (BATCH, *outputs(volume, window, strides, padding), CHANNELS)
    whole = window == tuple(attrs["ksize"][1:4]) and list(result[1:4]) == outputs(volume, window, strides, padding)
    rounded = Template(lambda dtype: np.round(arr(*image)("float")).astype(NUMPY[dtype]))
    largest = pooled(rounded, window, strides, padding) if whole and min(result) else pos(*result, seed=1)
    c.op("MaxPool3D", [arr(*image)], name, types=types, accuracy="exact", **attrs)
    c.op("AvgPool3D", [pos(*image)], name, types=types, **attrs)
    c.op("AvgPool3DGrad", [list(image), pos(*result)], name, types=types, **attrs)
    for dtype in types:
        c.op("MaxPool3DGrad", [rounded, largest, pos(*result)], name, T=dtype, TInput=dtype, **attrs)
    c.op("MaxPool3DGradGrad", [rounded, largest, pos(*image)], name, types=types, **attrs)


def cases(c):
    c.accuracy("rounding")
    convolutions(c, "types", types=FLOATS)
    for padding in ("SAME", "VALID"):
        for strides in ((1, 1, 1), (2, 2, 2), (1, 2, 3)):
            convolutions(c, f"{padding.lower()}/{'x'.join(map(str, strides))}", padding, strides)
    convolutions(c, "one_by_one", window=(1, 1, 1))
    convolutions(c, "dilated", dilations=[1, 2, 1, 1, 1])
    convolutions(c, "groups", channels=6)
    convolutions(c, "depth_mismatch", channels=4)
    convolutions(c, "too_large", "VALID", window=(5, 3, 2), result=(BATCH, 1, 3, 2, 4))
    convolutions(c, "result_mismatch", result=(BATCH, 4, 5, 2, 4))
    convolutions(c, "channels_first", data_format="NCDHW", volume=(3, 4, 5), result=(BATCH, 4, 4, 5, 3))
    convolutions(c, "strides_of_batch", strides=(1, 1, 1), **{"dilations": [2, 1, 1, 1, 1]})
    c.op(
        "Conv3DBackpropInputV2",
        [[2, 4, 5, 3, 3], pos(2, 3, 2, 3, 4), pos(2, 4, 5, 3, 4)],
        "wide_sizes",
        T="float",
        Tshape="int64",
        strides=[1] * 5,
        padding="SAME",
    )
    c.op("Conv3D", [empty(0, 4, 5, 3, 3), pos(2, 3, 2, 3, 4)], "no_volumes", T="float", strides=[1] * 5, padding="SAME")
    c.op(
        "Conv3D",
        [pos(2, 4, 2, 3, 4), pos(2, 3, 3, 4, 2)],
        "dilated_nothing",
        T="float",
        strides=[1, 3, 3, 3, 1],
        padding="VALID",
        dilations=[1, 2, 1, 1, 1],
    )
    c.op(
        "Conv3D",
        [pos(2, 3, 1, 3, 2), pos(4, 1, 1, 1, 6)],
        "other_depth_of_nothing",
        T="float",
        strides=[1] * 5,
        padding="VALID",
    )
    # Where windows do not reach all of an image, stock takes its middle, in volumes alone and not in their gradients.
    for size, window, step in [(3, 1, 3), (7, 1, 4), (7, 2, 5), (8, 1, 4)]:
        c.op(
            "Conv3D",
            [arr(1, size, 3, size, 2), arr(window, 1, window, 2, 3)],
            f"middle_{size}_{window}_{step}",
            types=("float", "double"),
            strides=[1, step, 3, step, 1],
            padding="SAME",
        )
        pool = {"ksize": [1, window, 1, window, 1], "strides": [1, step, 3, step, 1], "padding": "SAME"}
        for op in ("MaxPool3D", "AvgPool3D"):
            c.op(op, [arr(1, size, 3, size, 2)], f"middle_{size}_{window}_{step}", types=("float", "bfloat16"), **pool)
    least = np.full((1, 3, 3, 1, 2), 1.0)
    least[0, 0, 0, 0, 0] = least[0, 2, :, 0, 1] = -np.finfo(np.float32).max
    c.op("AvgPool3D", [lit(least)], "least", T="float", ksize=[1, 2, 2, 1, 1], strides=[1] * 5, padding="SAME")
    c.op("Conv3D", [pos(4, 5, 3, 3), pos(2, 3, 2, 3, 4)], "rank", T="float", strides=[1] * 5, padding="SAME")
    for padding in ("SAME", "VALID"):
        pools(c, f"{padding.lower()}/plain", padding, (2, 2, 2), (2, 2, 2), types=("bfloat16", "float"))
        pools(c, f"{padding.lower()}/overlapping", padding, (3, 2, 2), (1, 2, 1))
    pools(c, "depth", "VALID", (2, 2, 2), (2, 2, 2), ksize=[1, 1, 1, 1, 3])
    pools(c, "too_large", "VALID", (5, 2, 2), (1, 1, 1), result=(BATCH, 0, 4, 2, 3))
    pools(c, "result_mismatch", "VALID", (2, 2, 2), (2, 2, 2), result=(BATCH, 2, 2, 2, 3))
    first = {
        "data_format": "NCDHW",
        "ksize": [1, 1, 2, 2, 2],
        "strides": [1, 1, 2, 2, 2],
        "padding": "VALID",
        "T": "float",
    }
    c.op("MaxPool3D", [pos(2, 3, 4, 4, 4)], "channels_first", **first)
    c.op("AvgPool3D", [pos(2, 3, 4, 4, 4)], "channels_first", **first)
    c.op("AvgPool3DGrad", [[2, 3, 4, 4, 4], pos(2, 3, 2, 2, 2)], "channels_first", **first)
    c.op("MaxPool3DGradGrad", [pos(2, 3, 4, 4, 4), pos(2, 3, 2, 2, 2), pos(2, 3, 4, 4, 4)], "channels_first", **first)
    c.op("MaxPool3D", [pos(4, 5, 3, 3)], "rank", T="float", ksize=[1, 2, 2, 2, 1], strides=[1] * 5, padding="SAME")
    # The gradient goes to what is near the largest element, and infinities are not near themselves.
    near = np.array([1.0, 1.000001, 1.00002, np.inf, 1.0, 1e-6, 0.0, -2e-5, -np.inf, np.nan, 3e38, 1.0]).reshape(
        1, 3, 2, 2, 1
    )
    largest = np.array([1.0, np.inf, 1.0, np.inf, np.inf, 1.0, 0.0, 0.0, 0.0, 3e38, 3e38, 1.0]).reshape(1, 3, 2, 2, 1)
    for dtype in ("float", "bfloat16"):
        attrs = {"ksize": [1, 2, 2, 2, 1], "strides": [1] * 5, "padding": "SAME", "T": dtype}
        c.op("MaxPool3DGrad", [lit(near), lit(largest), pos(1, 3, 2, 2, 1)], "near", TInput=dtype, **attrs)
        c.op("MaxPool3DGradGrad", [lit(near), lit(largest), pos(1, 3, 2, 2, 1)], "near", **attrs)
    # Windows that are larger than the image reach its end, wherever they begin.
    for window, step in ((6, 1), (7, 2), (9, 1), (5, 1)):
        attrs = {"ksize": [1, window, window, 2, 1], "strides": [1, step, step, 1, 1], "padding": "SAME", "T": "float"}
        result = pos(1, -(-5 // step), -(-4 // step), 3, 2)
        c.op("AvgPool3DGrad", [[1, 5, 4, 3, 2], result], f"large_{window}_{step}", **attrs)
        ones = lit(np.ones((1, 5, 4, 3, 2)))
        c.op(
            "MaxPool3DGrad",
            [ones, lit(np.ones(result("float").shape)), result],
            f"large_{window}_{step}",
            TInput="float",
            **attrs,
        )
