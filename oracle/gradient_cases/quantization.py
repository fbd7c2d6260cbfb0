"""Quantization that training sees, windows of images, and isotonic regression."""

from gradients import any_, fixed

import tensorflow as tf

raw = tf.raw_ops


def cases(c):
    single = {"dtypes": ("float",), "unknown": False, "unsmooth": True}
    c.case(
        "FakeQuantWithMinMaxArgs",
        lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1.0, 1.0),
        any_(9),
        **single,
    )
    ends = fixed(-1.0), fixed(1.2)
    c.case("FakeQuantWithMinMaxVars", tf.quantization.fake_quant_with_min_max_vars, any_(9), *ends, **single)
    channels = fixed([-1.0, -0.5, 0.0]), fixed([1.0, 0.5, 0.0])
    c.case(
        "FakeQuantWithMinMaxVarsPerChannel",
        tf.quantization.fake_quant_with_min_max_vars_per_channel,
        any_(4, 3),
        *channels,
        **single,
    )
    both = {"unknown": False, "unsmooth": True}
    for op in (raw.QuantizeAndDequantizeV2, raw.QuantizeAndDequantizeV4):
        c.case(
            op.__name__.strip("_"),
            lambda x, low, high, op=op: op(input=x, input_min=low, input_max=high, range_given=True),
            any_(9),
            *ends,
            **both,
        )
    c.case(
        "QuantizeAndDequantizeV3",
        lambda x, low, high: raw.QuantizeAndDequantizeV3(input=x, input_min=low, input_max=high, num_bits=8),
        any_(9),
        *ends,
        **both,
    )
    for padding in ("SAME", "VALID"):
        c.case(
            f"ExtractImagePatches/{padding}",
            lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 1, 1], [1, 1, 2, 1], padding),
            any_(2, 4, 5, 2),
            unknown=False,
        )
        c.case(
            f"ExtractVolumePatches/{padding}",
            lambda x: tf.extract_volume_patches(x, [1, 2, 1, 2, 1], [1, 1, 1, 2, 1], padding),
            any_(1, 3, 2, 4, 2),
            unknown=False,
        )
        c.case(
            f"Dilation2D/{padding}",
            lambda x, f: tf.nn.dilation2d(x, f, [1, 1, 2, 1], padding, "NHWC", [1, 2, 1, 1]),
            any_(2, 5, 4, 2),
            any_(2, 2, 2),
        )
    c.case(
        "IsotonicRegression",
        lambda x: raw.IsotonicRegression(input=x, output_dtype=x.dtype).output,
        any_(3, 6),
        unknown=False,
    )
