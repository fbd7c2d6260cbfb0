"""Convolutions of images, alone and with what stock's optimizer lets follow them, and their gradients."""

from values import *

ACTIVATIONS = ("Relu", "Relu6", "Elu", "LeakyRelu")


def conv(
    c,
    name,
    image,
    kernel,
    padding="SAME",
    strides=(1, 1),
    dilations=(1, 1),
    op="Conv2D",
    args=(),
    accuracy="rounding",
    **attrs,
):
    attrs = {"T": "float", "strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding} | attrs
    # Terms of one sign: sums that cancel would show only the order of their terms.
    inputs = [pos(*image), pos(*kernel, seed=3)]
    if op == "_FusedConv2D":
        inputs += [[value(attrs["T"]) for value in args], []]
        attrs |= {"num_args": len(args), "TArgs": [attrs["T"]] * len(args)}
    c.op(op, inputs, name, accuracy=accuracy, **attrs)


def sizes(image, kernel, padding, strides, dilations, explicit):
    """The result's height and width."""
    explicit = [(0, 0), (0, 0)] if not explicit else [(explicit[2], explicit[3]), (explicit[4], explicit[5])]
    for size, filter_size, stride, dilation, (before, after) in zip(
        image[1:3], kernel[:2], strides, dilations, explicit
    ):
        reach = (filter_size - 1) * dilation + 1
        yield -(-size // stride) if padding == "SAME" else (size + before + after - reach) // stride + 1


def backprops(
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
    **attrs,
):
    """Both gradients of one convolution; `result` and `shapes` replace what follows from the rest."""
    attrs = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding} | attrs
    result = result or (
        image[0],
        *sizes(image, kernel, padding, strides, dilations, attrs.get("explicit_paddings")),
        kernel[3],
    )
    image_shape, kernel_shape = shapes or (list(image), list(kernel))
    for dtype in types:
        gradient = pos(*result, seed=4)
        c.op("Conv2DBackpropInput", [image_shape, pos(*kernel, seed=3), gradient], f"{name}/{dtype}", T=dtype, **attrs)
        if dtype != "int32":
            c.op("Conv2DBackpropFilter", [pos(*image), kernel_shape, gradient], f"{name}/{dtype}", T=dtype, **attrs)


def gradients(c):
    c.accuracy("rounding")
    backprops(c, "types", (2, 5, 4, 3), (3, 2, 3, 4), types=("half", "bfloat16", "float", "double", "int32"))
    for padding in ("SAME", "VALID"):
        for strides in ((1, 1), (2, 1), (2, 3)):
            for dilations in ((1, 1), (2, 1), (1, 2)):
                name = f"{padding.lower()}/{strides[0]}{strides[1]}{dilations[0]}{dilations[1]}"
                backprops(c, name, (2, 7, 8, 3), (3, 2, 3, 4), padding, strides, dilations)
    backprops(c, "one_by_one", (2, 5, 4, 3), (1, 1, 3, 6))
    backprops(c, "one_by_one_strided", (2, 5, 4, 3), (1, 1, 3, 6), strides=(2, 2))
    backprops(c, "one_channel", (2, 5, 6, 1), (3, 3, 1, 6))
    backprops(c, "whole_image", (2, 5, 4, 3), (5, 4, 3, 6), "VALID")
    backprops(c, "larger_than_image", (2, 3, 3, 2), (5, 5, 2, 2))
    backprops(c, "groups", (2, 5, 4, 6), (3, 3, 2, 9))
    backprops(c, "explicit", (2, 5, 4, 3), (3, 2, 3, 4), "EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])
    backprops(
        c,
        "explicit_strided",
        (2, 5, 4, 3),
        (3, 2, 3, 4),
        "EXPLICIT",
        (2, 2),
        explicit_paddings=[0, 0, 2, 0, 1, 1, 0, 0],
    )
    backprops(
        c,
        "explicit_dilated",
        (2, 7, 8, 3),
        (3, 2, 3, 4),
        "EXPLICIT",
        (2, 1),
        (1, 2),
        explicit_paddings=[0, 0, 2, 0, 1, 1, 0, 0],
    )
    backprops(c, "many_rows", (3, 12, 10, 4), (3, 3, 4, 4))
    backprops(c, "no_images", (0, 5, 4, 3), (3, 2, 3, 4))
    backprops(c, "no_channels_out", (2, 5, 4, 3), (3, 2, 3, 0))
    backprops(c, "last_sizes", (2, 5, 4, 3), (3, 2, 3, 4), shapes=([5, 4], [3, 2]))
    backprops(c, "sizes_of_wrong_rank", (2, 5, 4, 3), (3, 2, 3, 4), shapes=([2, 5, 4], [3, 2, 3]))
    backprops(c, "sizes_matrix", (2, 5, 4, 3), (3, 2, 3, 4), shapes=([[2, 5, 4, 3]], [[3, 2, 3, 4]]))
    backprops(c, "negative_sizes", (2, 5, 4, 3), (3, 2, 3, 4), shapes=([2, -5, 4, 3], [3, -2, 3, 4]))
    backprops(c, "depth_mismatch", (2, 5, 4, 3), (3, 2, 2, 4))
    backprops(c, "result_mismatch", (2, 5, 4, 3), (3, 2, 3, 4), result=(2, 4, 4, 4))
    backprops(c, "batch_mismatch", (2, 5, 4, 3), (3, 2, 3, 4), result=(3, 5, 4, 4))
    backprops(c, "outputs_mismatch", (2, 5, 4, 3), (3, 2, 3, 4), result=(2, 5, 4, 5))
    backprops(c, "rank", (5, 4, 3), (3, 2, 3, 4), result=(5, 4, 4))
    backprops(c, "batch_strides", (2, 5, 4, 3), (3, 2, 3, 4), strides=(1, 1), result=(2, 5, 4, 4), dilations=(0, 1))
    backprops(c, "explicit_missing", (2, 5, 4, 3), (3, 2, 3, 4), "EXPLICIT", result=(2, 5, 4, 4))
    backprops(c, "explicit_unwanted", (2, 5, 4, 3), (3, 2, 3, 4), "SAME", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])
    for op in ("Conv2DBackpropInput", "Conv2DBackpropFilter"):
        attrs = {"T": "float", "padding": "SAME"}
        inputs = {
            "Conv2DBackpropInput": [[2, 3, 5, 4], pos(3, 2, 3, 4), pos(2, 4, 5, 4)],
            "Conv2DBackpropFilter": [pos(2, 3, 5, 4), [3, 2, 3, 4], pos(2, 4, 5, 4)],
        }[op]
        c.op(op, inputs, "channels_first", strides=[1, 1, 1, 1], data_format="NCHW", **attrs)
        c.op(op, inputs, "strides_of_batch", strides=[2, 1, 1, 1], **attrs)
        c.op(op, inputs, "three_strides", strides=[1, 1, 1], **attrs)


def cases(c):
    gradients(c)
    c.accuracy("exact")
    for dtype in ("half", "bfloat16", "float", "double", "int32"):
        conv(c, f"types/{dtype}", (2, 5, 4, 3), (3, 2, 3, 4), T=dtype)
    for padding in ("SAME", "VALID"):
        for strides in ((1, 1), (2, 1), (2, 3)):
            for dilations in ((1, 1), (2, 1), (1, 2)):
                name = f"{padding.lower()}/{strides[0]}{strides[1]}{dilations[0]}{dilations[1]}"
                conv(c, name, (2, 7, 8, 3), (3, 2, 3, 4), padding, strides, dilations)
    conv(c, "one_by_one", (2, 5, 4, 3), (1, 1, 3, 6))
    conv(c, "one_by_one_strided", (2, 5, 4, 3), (1, 1, 3, 6), strides=(2, 2))
    conv(c, "whole_image", (2, 5, 4, 3), (5, 4, 3, 6), "VALID")
    conv(c, "larger_than_image", (2, 3, 3, 2), (5, 5, 2, 2))
    conv(c, "too_large", (2, 3, 3, 2), (5, 5, 2, 2), "VALID")
    conv(c, "groups", (2, 5, 4, 6), (3, 3, 2, 9))
    conv(c, "explicit", (2, 5, 4, 3), (3, 2, 3, 4), "EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0])
    conv(
        c,
        "explicit_strided",
        (2, 5, 4, 3),
        (3, 2, 3, 4),
        "EXPLICIT",
        (2, 2),
        explicit_paddings=[0, 0, 2, 0, 1, 1, 0, 0],
    )
    conv(c, "many_rows", (1, 40, 30, 8), (3, 3, 8, 4))
    conv(c, "no_images", (0, 5, 4, 3), (3, 2, 3, 4))
    conv(c, "no_channels_out", (2, 5, 4, 3), (3, 2, 3, 0))
    conv(c, "no_filter", (2, 5, 4, 3), (0, 2, 3, 4))
    conv(c, "depth_mismatch", (2, 5, 4, 3), (3, 2, 2, 4))
    conv(c, "output_depth_mismatch", (2, 5, 4, 6), (3, 3, 2, 4))
    conv(c, "rank", (5, 4, 3), (3, 2, 3, 4))
    conv(c, "filter_rank", (2, 5, 4, 3), (3, 2, 3))
    for dtype in ("float", "double"):
        for activation in ([], *([activation] for activation in ACTIVATIONS)):
            name = "/".join(["_".join(["bias", *(op.lower() for op in activation)]), dtype])
            conv(
                c,
                name,
                (2, 5, 4, 3),
                (3, 2, 3, 4),
                op="_FusedConv2D",
                args=[arr(4, seed=5)],
                T=dtype,
                fused_ops=["BiasAdd", *activation],
            )
    statistics = [pos(4, seed=5), arr(4, seed=6), arr(4, seed=7), pos(4, seed=8)]
    for activation in ([], *([activation] for activation in ACTIVATIONS)):
        name = "_".join(["batch_norm", *(op.lower() for op in activation)])
        conv(
            c,
            name,
            (2, 5, 4, 3),
            (3, 2, 3, 4),
            op="_FusedConv2D",
            args=statistics,
            fused_ops=["FusedBatchNorm", *activation],
            epsilon=0.01,
        )
    conv(
        c,
        "fused/valid",
        (2, 5, 4, 3),
        (3, 2, 3, 4),
        "VALID",
        (2, 1),
        op="_FusedConv2D",
        args=[arr(4)],
        fused_ops=["BiasAdd", "Relu"],
    )
    conv(
        c,
        "fused/explicit",
        (2, 5, 4, 3),
        (3, 2, 3, 4),
        "EXPLICIT",
        op="_FusedConv2D",
        args=[arr(4)],
        fused_ops=["BiasAdd"],
        explicit_paddings=[0, 0, 1, 2, 0, 3, 0, 0],
    )
    conv(c, "fused/nothing", (2, 5, 4, 3), (3, 2, 3, 4), op="_FusedConv2D", args=[arr(4)])
    conv(
        c,
        "fused/unknown",
        (2, 5, 4, 3),
        (3, 2, 3, 4),
        op="_FusedConv2D",
        args=[arr(4)],
        fused_ops=["BiasAdd", "Softmax"],
    )
    conv(
        c,
        "fused/statistics_missing",
        (2, 5, 4, 3),
        (3, 2, 3, 4),
        op="_FusedConv2D",
        args=[arr(4)],
        fused_ops=["FusedBatchNorm"],
    )
