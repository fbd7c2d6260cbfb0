"""Convolutions of each channel by itself, and their gradients."""

from values import *

import numpy as np

OPS = ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter")


def depthwise(
    c,
    name,
    image,
    kernel,
    padding="SAME",
    strides=(1, 1),
    dilations=(1, 1),
    result=None,
    shapes=(),
    types=("float",),
    ops=OPS,
    **attrs,
):
    """The convolution and both gradients; `result` and `shapes` replace what follows from the rest."""
    attrs = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding} | attrs
    explicit = attrs.get("explicit_paddings") or [0] * 8
    if not result:
        result = [image[0]]
        for i in range(2):
            padded, reach = image[1 + i] + explicit[2 + 2 * i] + explicit[3 + 2 * i], (kernel[i] - 1) * dilations[i] + 1
            result.append(-(-image[1 + i] // strides[i]) if padding == "SAME" else (padded - reach) // strides[i] + 1)
        result.append(kernel[2] * kernel[3])
    image_shape, kernel_shape = shapes or (list(image), list(kernel))
    gradient = pos(*result, seed=4)
    inputs = [
        [pos(*image), pos(*kernel, seed=3)],
        [image_shape, pos(*kernel, seed=3), gradient],
        [pos(*image), kernel_shape, gradient],
    ]
    for op, values in zip(OPS, inputs):
        if op in ops:
            c.op(op, values, name, types=types, **attrs)


def cases(c):
    c.accuracy("rounding")
    depthwise(c, "types", (2, 5, 4, 3), (3, 2, 3, 2), types=FLOATS)
    for padding in ("SAME", "VALID"):
        for stride in (1, 2, 3):
            for multiplier in (1, 2):
                depthwise(
                    c,
                    f"{padding.lower()}/{stride}/{multiplier}",
                    (2, 7, 8, 3),
                    (3, 2, 3, multiplier),
                    padding,
                    (stride, stride),
                )
        for dilations in ((2, 1), (2, 2)):
            depthwise(
                c,
                f"{padding.lower()}/dilated{dilations[0]}{dilations[1]}",
                (2, 7, 8, 3),
                (3, 2, 3, 2),
                padding,
                dilations=dilations,
            )
    depthwise(c, "many_channels", (1, 6, 5, 19), (3, 3, 19, 1))
    depthwise(c, "one_channel", (2, 5, 6, 1), (3, 3, 1, 4))
    depthwise(c, "larger_than_image", (2, 3, 3, 2), (5, 5, 2, 2))
    depthwise(c, "too_large", (2, 3, 3, 2), (5, 5, 2, 2), "VALID", result=(2, 1, 1, 4))
    depthwise(c, "explicit", (2, 5, 4, 3), (3, 2, 3, 2), "EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])
    depthwise(
        c,
        "explicit_strided",
        (2, 5, 4, 3),
        (3, 2, 3, 2),
        "EXPLICIT",
        (2, 2),
        explicit_paddings=[0, 0, 2, 0, 1, 1, 0, 0],
    )
    depthwise(c, "explicit_missing", (2, 5, 4, 3), (3, 2, 3, 2), "EXPLICIT")
    # Padding times what is no finite number is no number.
    for dtype in ("half", "float", "double"):
        for padding in ("SAME", "VALID"):
            for stride, multiplier in ((1, 1), (1, 2), (2, 1), (3, 2)):
                kernel = pos(3, 2, 3, multiplier, seed=3)("float")
                kernel[0, 0, 0, 0], kernel[2, 1, 2, 0], kernel[1, 0, 1, -1] = np.inf, np.nan, -np.inf
                size = [
                    -(-size // stride) if padding == "SAME" else (size - reach) // stride + 1
                    for size, reach in zip((5, 4), (3, 2))
                ]
                gradient = pos(2, *size, 3 * multiplier, seed=4)("float")
                gradient[0, 0, 0, 0], gradient[1, -1, -1, -1], gradient[1, 0, -1, 1] = np.inf, np.nan, -np.inf
                attrs = {"T": dtype, "strides": [1, stride, stride, 1], "padding": padding}
                name = f"no_numbers/{padding.lower()}/{stride}/{multiplier}/{dtype}"
                c.op(OPS[0], [pos(2, 5, 4, 3), lit(kernel)], name, **attrs)
                c.op(OPS[1], [[2, 5, 4, 3], lit(kernel), pos(*gradient.shape, seed=4)], name, **attrs)
                c.op(OPS[2], [pos(2, 5, 4, 3), [3, 2, 3, multiplier], lit(gradient)], name, **attrs)
    # Of no images, stock leaves the filter's gradient as it finds it.
    depthwise(c, "no_images", (0, 5, 4, 3), (3, 2, 3, 2), ops=OPS[:2])
    depthwise(c, "unequal_strides", (2, 7, 8, 3), (3, 2, 3, 2), strides=(1, 2))
    depthwise(c, "zero_strides", (2, 5, 4, 3), (3, 2, 3, 2), strides=(0, 0), result=(2, 5, 4, 6))
    depthwise(c, "strided_and_dilated", (2, 7, 8, 3), (3, 2, 3, 2), strides=(2, 2), dilations=(2, 2))
    depthwise(c, "channels_mismatch", (2, 5, 4, 3), (3, 2, 2, 2))
    depthwise(c, "result_mismatch", (2, 5, 4, 3), (3, 2, 3, 2), result=(2, 4, 4, 6), ops=OPS[1:])
    depthwise(c, "outputs_mismatch", (2, 5, 4, 3), (3, 2, 3, 2), result=(2, 5, 4, 5), ops=OPS[1:])
    depthwise(c, "batch_mismatch", (2, 5, 4, 3), (3, 2, 3, 2), result=(3, 5, 4, 6), ops=OPS[1:])
    depthwise(c, "sizes_of_wrong_rank", (2, 5, 4, 3), (3, 2, 3, 2), shapes=([2, 5, 4], [3, 2, 3]), ops=OPS[1:])
    depthwise(c, "sizes_matrix", (2, 5, 4, 3), (3, 2, 3, 2), shapes=([[2, 5, 4, 3]], [[3, 2, 3, 2]]), ops=OPS[1:])
    depthwise(c, "negative_sizes", (2, 5, 4, 3), (3, 2, 3, 2), shapes=([2, -5, 4, 3], [3, -2, 3, 2]), ops=OPS[1:])
    depthwise(c, "rank", (5, 4, 3), (3, 2, 3, 2), result=(5, 4, 6))
    depthwise(c, "filter_rank", (2, 5, 4, 3), (3, 2, 3), result=(2, 5, 4, 6))
    depthwise(c, "channels_first", (2, 3, 5, 4), (3, 2, 3, 2), result=(2, 6, 5, 4), data_format="NCHW")
