"""Floats to and from integers of few bits, and both steps at once."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
NUMBERS = np.concatenate([np.linspace(-3.1, 5.2, 17), [0.0, -0.5, 0.5, 1.5]]).astype(np.float32)
TYPES = [tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32]


def quantize(dtype, low, high, numbers=NUMBERS, **attrs):
    def build():
        x = v1.placeholder(tf.float32, numbers.shape)
        output, low_out, high_out = tf.raw_ops.QuantizeV2(input=x, min_range=low, max_range=high, T=dtype, **attrs)
        return [({x: numbers}, [tf.bitcast(output, WIDTHS[dtype]), low_out, high_out])]

    return build


def dequantize(dtype, low, high, out, **attrs):
    def build():
        info = np.iinfo(WIDTHS[dtype].as_numpy_dtype)
        values = np.linspace(info.min, info.max, 12).reshape(3, 4).astype(WIDTHS[dtype].as_numpy_dtype)
        x = v1.placeholder(WIDTHS[dtype], values.shape)
        q = tf.bitcast(x, dtype)
        return [({x: values}, [tf.raw_ops.Dequantize(input=q, min_range=low, max_range=high, dtype=out, **attrs)])]

    return build


WIDTHS = dict(zip(TYPES, [tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32]))


def cases(c):
    c.accuracy("rounding")
    both = ["float", "double"]
    low, high = lit(-1.3), lit(2.2)
    for signed in (True, False):
        for bits in (8, 3):
            attrs = {"signed_input": signed, "num_bits": bits}
            name = f"{signed}_{bits}"
            c.op("QuantizeAndDequantize", [lit(NUMBERS)], name, types=both, **attrs)
            given = {"input_min": -1.3, "input_max": 2.2, "range_given": True}
            c.op("QuantizeAndDequantize", [lit(NUMBERS)], name + "_range", types=both, **attrs, **given)
            for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
                for mode in ("HALF_TO_EVEN", "HALF_UP"):
                    for narrow in (True, False):
                        more = {**attrs, "round_mode": mode, "narrow_range": narrow}
                        inputs = [lit(NUMBERS), low, high]
                        own = f"{name}_{mode}_{narrow}"
                        few = both if op.endswith("V2") else ["float"]
                        c.op(op, inputs, own + "_range", types=few, range_given=True, **more)
                        if op.endswith("V2"):
                            c.op(op, inputs, own, types=few, **more)
            v3 = {"signed_input": signed}
            c.op("QuantizeAndDequantizeV3", [lit(NUMBERS), low, high, np.int32(bits)], name, types=both, **v3)
            c.op(
                "QuantizeAndDequantizeV3",
                [lit(NUMBERS), low, high, np.int32(bits)],
                name + "_own",
                range_given=False,
                **v3,
            )
    for axis, count in [(0, 2), (1, 3), (2, 2)]:
        ends = [lit([-0.5 - 0.3 * i for i in range(count)]), lit([0.7 + 0.4 * i for i in range(count)])]
        inputs = [arr(2, 3, 2), *ends]
        for given in (True, False):
            name = f"axis_{axis}_{given}"
            c.op("QuantizeAndDequantizeV2", inputs, name, types=both, axis=axis, range_given=given)
            c.op("QuantizeAndDequantizeV3", inputs + [np.int32(8)], name, types=both, axis=axis, range_given=given)
        c.op("QuantizeAndDequantizeV4Grad", [arr(2, 3, 2, seed=1), *inputs], f"axis_{axis}", types=both, axis=axis)
    c.op("QuantizeAndDequantizeV4Grad", [arr(2, 3), arr(2, 3, seed=1), low, high], types=both)
    c.op("QuantizeAndDequantizeV2", [lit(NUMBERS), high, low], "ends", T="float", range_given=True)
    c.op("QuantizeAndDequantizeV2", [lit(NUMBERS), low, high], "bits", T="float", num_bits=0)
    c.op("QuantizeAndDequantizeV2", [empty(0, 2), low, high], "empty", T="float", range_given=True)
    c.op("QuantizeAndDequantizeV3", [lit(NUMBERS), low, high, np.int32(64)], "bits", T="float")
    c.op("QuantizeAndDequantizeV2", [arr(2, 3), lit([1.0]), lit([1.0])], "sizes", T="float", axis=1, range_given=True)
    c.op("QuantizeAndDequantizeV4Grad", [arr(2), arr(3), low, high], "shapes", T="float")
    for dtype in TYPES:
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            for ends in [(-1.0, 4.0), (0.0, 3.0), (1.0, 1.0)]:
                name = f"{dtype.name}/{mode}_{ends[0]}"
                if dtype != tf.qint32:
                    c.traced(f"QuantizeV2/{name}", quantize(dtype, *ends, mode=mode))
                if ends[0] < 1.0:
                    c.traced(f"Dequantize/{name}", dequantize(dtype, *ends, tf.float32, mode=mode))
        c.traced(f"Dequantize/{dtype.name}/bfloat16", dequantize(dtype, -1.0, 2.0, tf.bfloat16))
    even = {"mode": "SCALED", "round_mode": "HALF_TO_EVEN", "narrow_range": True}
    c.traced("QuantizeV2/even", quantize(tf.qint8, -2.0, 2.0, **even))
    numbers = NUMBERS[:6].reshape(2, 3)
    for mode in ("MIN_COMBINED", "SCALED", "MIN_FIRST"):
        attrs = {"axis": 1, "mode": mode}
        c.traced(f"QuantizeV2/axis_{mode}", quantize(tf.qint8, [-1.0, -2.0, 0.0], [1.0, 3.0, 5.0], numbers, **attrs))
        ends = ([-1.0, -2.0, 0.0, -1.0], [1.0, 3.0, 5.0, 2.0])
        c.traced(f"Dequantize/axis_{mode}", dequantize(tf.qint8, *ends, tf.float32, **attrs))
    c.traced("QuantizeV2/ends", quantize(tf.quint8, 2.0, 1.0))
    c.traced("QuantizeV2/even_combined", quantize(tf.quint8, 0.0, 1.0, round_mode="HALF_TO_EVEN"))
    c.traced("Dequantize/bfloat16_scaled", dequantize(tf.quint8, 0.0, 1.0, tf.bfloat16, mode="SCALED"))
