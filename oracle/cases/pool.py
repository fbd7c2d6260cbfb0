"""Pools of images and their gradients."""

from values import *

import numpy as np


def output(image, ksize, strides, padding, explicit=()):
    """The result's shape."""
    explicit = explicit or [0] * 8
    dims = []
    for i, (size, window, stride) in enumerate(zip(image, ksize, strides)):
        if i in (0, len(image) - 1):
            dims.append(-(-size // stride))
            continue
        padded = size + explicit[2 * i] + explicit[2 * i + 1]
        dims.append(-(-size // stride) if padding == "SAME" else (padded - window) // stride + 1)
    return dims


def pooled(image, ksize, strides, padding, explicit=()):
    """Stock's largest elements, computed here for `orig_output`."""

    def draw(values):
        shape = output(values.shape, ksize, strides, padding, explicit)
        result = np.zeros(shape, values.dtype)
        explicit_ = explicit or [0] * 8
        starts = []
        for i in (1, 2):
            before = explicit_[2 * i]
            if padding == "SAME":
                before = max((shape[i] - 1) * strides[i] + ksize[i] - values.shape[i], 0) // 2
            starts.append([max(o * strides[i] - before, 0) for o in range(shape[i])])
            starts.append([max(min(o * strides[i] - before + ksize[i], values.shape[i]), 0) for o in range(shape[i])])
        for y in range(shape[1]):
            for x in range(shape[2]):
                window = values[:, starts[0][y] : starts[1][y], starts[2][x] : starts[3][x], :]
                result[:, y, x, :] = (
                    window.reshape(window.shape[0], -1, window.shape[3]).max(axis=1)
                    if window.shape[1] * window.shape[2]
                    else 0
                )
        return result

    return Template(lambda dtype: draw(image(dtype)))


WINDOWS = {
    "plain": ((2, 2), (2, 2)),
    "overlapping": ((3, 2), (1, 2)),
    "gaps": ((1, 2), (2, 3)),
    "whole": ((5, 6), (1, 1)),
    "one": ((1, 1), (1, 1)),
}


def each(c, name, window, stride, padding, image=(2, 5, 6, 2), types=None, **attrs):
    """Every pool of images with one window."""
    ksize, strides = [1, *window, 1], [1, *stride, 1]
    explicit = attrs.get("explicit_paddings", ())
    result = output(image, ksize, strides, padding, explicit)
    common = {"ksize": ksize, "strides": strides, "padding": padding} | attrs
    distinct = iota(*image)
    c.op("MaxPool", [arr(*image)], name, types=types, accuracy="exact", **common)
    gradient = [distinct, pooled(distinct, ksize, strides, padding, explicit), pos(*result, seed=2)]
    c.op("MaxPoolGrad", gradient, name, types=types or FLOATS, **common)
    if explicit:
        return
    floats = [t for t in types or FLOATS if t in FLOATS]
    c.op("AvgPool", [pos(*image)], name, types=floats, **common)
    c.op("AvgPoolGrad", [list(image), pos(*result, seed=2)], name, types=floats, **common)
    c.op(
        "MaxPoolGradGrad",
        [distinct, pooled(distinct, ksize, strides, padding), arr(*image, seed=5)],
        name,
        types=types or FLOATS,
        **common,
    )
    by_input = {"padding": padding} | attrs
    c.op("MaxPoolV2", [arr(*image), ksize, strides], name, types=types, accuracy="exact", **by_input)
    c.op("MaxPoolGradV2", [*gradient, ksize, strides], name, types=types or FLOATS, **by_input)
    c.op(
        "MaxPoolGradGradV2",
        [distinct, pooled(distinct, ksize, strides, padding), arr(*image, seed=5), ksize, strides],
        name,
        types=types or FLOATS,
        **by_input,
    )
    for whole in (False, True):
        label = name + ("/batch" if whole else "")
        c.op(
            "MaxPoolWithArgmax",
            [arr(*image)],
            label,
            types=types,
            accuracy="exact",
            include_batch_in_index=whole,
            **common,
        )


def argmax_gradient(c):
    common = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID", "Targmax": "int64"}
    image, result = (2, 4, 4, 2), (2, 2, 2, 2)
    indices = np.array([[0, 3, 4, 7, 16, 19, 22, 31], [10, 11, 0, 1, 2, 3, 4, 5]], np.int64).reshape(result)
    c.op("MaxPoolGradWithArgmax", [arr(*image), pos(*result), indices], **common)
    whole = indices + np.array([0, 32]).reshape(2, 1, 1, 1)
    few = common | {"T": "float"}
    c.op("MaxPoolGradWithArgmax", [arr(*image), pos(*result), whole], "batch", include_batch_in_index=True, **few)
    c.op("MaxPoolGradWithArgmax", [arr(*image), pos(*result), indices * 0 + 3], "same_place", **few)
    c.op("MaxPoolGradWithArgmax", [arr(*image), pos(2, 2, 2, 1), indices], "gradient_shape", **few)
    c.op("MaxPoolGradWithArgmax", [arr(*image), pos(*result), indices[:1]], "argmax_shape", **few)
    c.op("MaxPoolGradWithArgmax", [arr(4, 4, 2), pos(*result), indices], "rank", **few)
    c.op(
        "MaxPoolGradWithArgmax",
        [empty(0, 4, 4, 2), empty(0, 2, 2, 2), np.zeros((0, 2, 2, 2), np.int64)],
        "empty",
        **few,
    )


def refusals(c):
    few = {"T": "float"}

    def pools(name, image, ksize, strides, padding="VALID", **attrs):
        shape = (
            output(image, ksize, strides, padding)
            if len(image) == len(ksize) == len(strides) == 4 and min(strides) > 0
            else image
        )
        shape = [max(size, 0) for size in shape]
        common = {"ksize": ksize, "strides": strides, "padding": padding, "T": "float"} | attrs
        c.op("MaxPool", [arr(*image)], name, **common)
        # Stock does not write the gradient of pools without windows.
        windows = min(shape) > 0 or min(image) == 0
        if windows:
            c.op("MaxPoolGrad", [arr(*image), arr(*shape), arr(*shape)], name, **common)
        c.op("AvgPool", [arr(*image)], name, **common)
        c.op("AvgPoolGrad", [list(image), arr(*shape)], name, **common)
        by_input = {"padding": padding, "T": "float"} | attrs
        c.op("MaxPoolV2", [arr(*image), ksize, strides], name, **by_input)
        if windows:
            c.op("MaxPoolGradV2", [arr(*image), arr(*shape), arr(*shape), ksize, strides], name, **by_input)
            c.op("MaxPoolGradGrad", [arr(*image), arr(*shape), arr(*image)], name, **common)
        if "data_format" not in attrs:
            c.op("MaxPoolWithArgmax", [arr(*image)], name, **common)

    pools("too_large", (2, 3, 3, 2), [1, 4, 4, 1], [1, 1, 1, 1])
    pools("larger_but_same", (2, 3, 3, 2), [1, 5, 5, 1], [1, 2, 2, 1], "SAME")
    pools("rank", (5, 6, 3), [1, 2, 2, 1], [1, 1, 1, 1])
    pools("five_sizes", (2, 5, 6, 3), [1, 2, 2, 1, 1], [1, 1, 1, 1])
    pools("five_strides", (2, 5, 6, 3), [1, 2, 2, 1], [1, 1, 1, 1, 1])
    pools("negative_stride", (2, 5, 6, 3), [1, 2, 2, 1], [1, 1, -1, 1])
    pools("across_images", (2, 5, 6, 3), [2, 2, 2, 1], [1, 1, 1, 1])
    pools("strided_images", (2, 5, 6, 3), [1, 2, 2, 1], [2, 1, 1, 1])
    pools("depth", (2, 4, 4, 6), [1, 1, 1, 2], [1, 1, 1, 2])
    pools("depth_and_space", (2, 4, 4, 6), [1, 2, 2, 2], [1, 2, 2, 2])
    pools("depth_indivisible", (2, 4, 4, 5), [1, 1, 1, 2], [1, 1, 1, 2])
    pools("depth_overlapping", (2, 4, 4, 6), [1, 1, 1, 3], [1, 1, 1, 2])
    pools("depth_same", (2, 4, 4, 6), [1, 1, 1, 2], [1, 1, 1, 2], "SAME")
    pools("no_images", (0, 5, 6, 3), [1, 2, 2, 1], [1, 2, 2, 1])
    pools("no_channels", (2, 5, 6, 0), [1, 2, 2, 1], [1, 2, 2, 1])
    pools("no_rows", (2, 0, 6, 3), [1, 1, 1, 1], [1, 1, 1, 1], "SAME")
    common = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"} | few
    c.op("MaxPoolGrad", [arr(2, 4, 4, 3), arr(2, 2, 2, 3), arr(2, 2, 3, 3)], "gradient_shape", **common)
    c.op("MaxPoolGrad", [arr(2, 4, 4, 3), arr(2, 2, 3, 3), arr(2, 2, 2, 3)], "output_shape", **common)
    c.op("MaxPoolGradGrad", [arr(2, 4, 4, 3), arr(2, 2, 2, 3), arr(2, 2, 3, 3)], "gradient_shape", **common)
    c.op("AvgPoolGrad", [[2, 4, 4, 3], arr(2, 2, 3, 3)], "gradient_shape", **common)
    c.op("AvgPoolGrad", [[2, 4, 4], arr(2, 2, 2, 3)], "shape_rank", **common)
    c.op("AvgPoolGrad", [[[2, 4, 4, 3]], arr(2, 2, 2, 3)], "shape_matrix", **common)
    c.op("AvgPoolGrad", [[2, -4, 4, 3], arr(2, 2, 2, 3)], "negative_shape", **common)
    c.op("AvgPoolGrad", [[2, 4, 4, 3], arr(2, 2, 3)], "gradient_rank", **common)
    c.op("MaxPoolV2", [arr(2, 4, 4, 3), [1, 2, 2], [1, 2, 2, 1]], "three_sizes", padding="VALID", **few)
    c.op("MaxPoolV2", [arr(2, 4, 4, 3), [1, 2, 2, 1], [1, 2, 2]], "three_strides", padding="VALID", **few)
    c.op("MaxPoolV2", [arr(2, 4, 4, 3), [[1, 2, 2, 1]], [1, 2, 2, 1]], "sizes_matrix", padding="VALID", **few)
    c.op("MaxPool", [arr(2, 4, 4, 3)], "explicit_missing", **(common | {"padding": "EXPLICIT"}))
    c.op(
        "MaxPool",
        [arr(2, 4, 4, 3)],
        "explicit_negative",
        explicit_paddings=[0, 0, 1, -1, 0, 0, 0, 0],
        **(common | {"padding": "EXPLICIT"}),
    )
    c.op(
        "MaxPool",
        [arr(2, 4, 4, 3)],
        "explicit_batch",
        explicit_paddings=[1, 0, 0, 0, 0, 0, 0, 0],
        **(common | {"padding": "EXPLICIT"}),
    )
    c.op(
        "MaxPool",
        [arr(2, 4, 4, 3)],
        "explicit_large",
        explicit_paddings=[0, 0, 2, 0, 0, 0, 0, 0],
        **(common | {"padding": "EXPLICIT"}),
    )
    c.op("MaxPool", [arr(2, 4, 4, 3)], "explicit_unwanted", explicit_paddings=[0, 0, 1, 0, 0, 0, 0, 0], **common)
    for op, inputs in (
        ("MaxPool", [arr(2, 3, 4, 4)]),
        ("AvgPool", [arr(2, 3, 4, 4)]),
        ("AvgPoolGrad", [[2, 3, 4, 4], arr(2, 3, 2, 2)]),
        ("MaxPoolGrad", [arr(2, 3, 4, 4), arr(2, 3, 2, 2), arr(2, 3, 2, 2)]),
        ("MaxPoolGradGrad", [arr(2, 3, 4, 4), arr(2, 3, 2, 2), arr(2, 3, 4, 4)]),
    ):
        c.op(
            op,
            inputs,
            "channels_first",
            data_format="NCHW",
            ksize=[1, 1, 2, 2],
            strides=[1, 1, 2, 2],
            padding="VALID",
            **few,
        )


def special(c):
    nan, inf = float("nan"), float("inf")
    image = lit(
        np.array([nan, 1, 2, 3, 4, nan, 5, 6, inf, -inf, -inf, -inf, -inf, -inf, 1, 1], np.float32).reshape(1, 4, 4, 1)
    )
    common = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    ties = lit(np.array([1, 1, 2, 2, 1, 1, 2, 2, 0, 3, 4, 4, 3, 0, 4, 4], np.float32).reshape(1, 4, 4, 1))
    largest = lit(np.array([1, 2, 3, 4], np.float32).reshape(1, 2, 2, 1))
    c.op("MaxPoolGrad", [ties, largest, pos(1, 2, 2, 1)], "ties", types=FLOATS, **common)
    c.op(
        "MaxPoolGrad",
        [ties, lit(np.zeros((1, 2, 2, 1), np.float32)), pos(1, 2, 2, 1)],
        "output_ignored",
        types=FLOATS,
        **common,
    )
    c.op("MaxPoolGradGrad", [ties, largest, arr(1, 4, 4, 1)], "ties", types=FLOATS, **common)
    c.op("MaxPoolWithArgmax", [ties], "ties", types=REAL, **common)
    c.op("AvgPool", [image], "not_finite", types=FLOATS, **common)
    c.op("MaxPool", [image], "not_finite", types=FLOATS, **common)
    low = lit(np.full((1, 2, 2, 1), -inf, np.float32))
    c.op("MaxPool", [low], "negative_infinity", types=FLOATS, **common)
    c.op("MaxPool", [lit(np.full((1, 2, 2, 1), nan, np.float32))], "nan", types=FLOATS, **common)


def cases(c):
    c.accuracy("rounding")
    for padding in ("SAME", "VALID"):
        for name, (window, stride) in WINDOWS.items():
            types = REAL if name == "overlapping" and padding == "SAME" else ["float"]
            each(c, f"{padding.lower()}/{name}", window, stride, padding, types=types)
    each(c, "explicit", (2, 3), (1, 2), "EXPLICIT", types=FLOATS, explicit_paddings=[0, 0, 1, 0, 1, 2, 0, 0])
    each(c, "explicit_plain", (2, 2), (2, 2), "EXPLICIT", types=["float"], explicit_paddings=[0, 0, 1, 1, 0, 0, 0, 0])
    each(c, "many_channels", (3, 3), (2, 2), "SAME", (2, 5, 4, 37), types=["float"])
    # In stock's gradients, windows that are larger than the image reach its end, wherever they begin.
    for window, step in ((6, 1), (7, 2), (9, 1), (5, 1)):
        attrs = {"ksize": [1, window, window, 1], "strides": [1, step, step, 1], "padding": "SAME", "T": "float"}
        c.op("AvgPoolGrad", [[1, 5, 4, 2], pos(1, -(-5 // step), -(-4 // step), 2)], f"large_{window}_{step}", **attrs)
    argmax_gradient(c)
    refusals(c)
    special(c)
