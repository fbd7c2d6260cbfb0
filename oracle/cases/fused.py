"""Ops that stock's optimizer puts together out of several: a product, a bias, an activation."""

from values import *

import numpy as np

ACTIVATIONS = ("Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid")


def cases(c):
    # Not bfloat16: stock's fused product rounds every partial sum to it.
    for dtype in ("float", "half"):
        for fused in ([], *([activation] for activation in ACTIVATIONS)):
            name = "_".join(["bias", *(op.lower() for op in fused)])
            inputs = [arr(3, 4), arr(4, 5), [arr(5)]]
            c.op("_FusedMatMul", inputs, name, T=dtype, num_args=1, fused_ops=["BiasAdd", *fused], accuracy="rounding")
    for ta in (False, True):
        for tb in (False, True):
            a, b = arr(*((7, 3) if ta else (3, 7))), arr(*((2, 7) if tb else (7, 2)))
            name = f"transpose_{ta}_{tb}".lower()
            attrs = {"transpose_a": ta, "transpose_b": tb}
            c.op(
                "_FusedMatMul",
                [a, b, [arr(2)]],
                name,
                T="float",
                num_args=1,
                fused_ops=["BiasAdd", "Relu"],
                accuracy="rounding",
                **attrs,
            )
    bias = {"T": "float", "num_args": 1, "fused_ops": ["BiasAdd"], "accuracy": "rounding"}
    c.op(
        "_FusedMatMul",
        [arr(3, 4), arr(4, 2), [arr(2)]],
        "slope",
        **(bias | {"fused_ops": ["BiasAdd", "LeakyRelu"]}),
        leakyrelu_alpha=0.3,
    )
    c.op("_FusedMatMul", [empty(0, 4), arr(4, 2), [arr(2)]], "no_rows", **bias)
    c.op("_FusedMatMul", [empty(3, 0), empty(0, 2), [arr(2)]], "nothing_between", **bias)
    c.op("_FusedMatMul", [arr(3, 4), arr(5, 2), [arr(2)]], "mismatch", **bias)
    c.op("_FusedMatMul", [arr(4), arr(4, 2), [arr(2)]], "vector", **bias)
    c.op("_FusedMatMul", [arr(3, 4), arr(4, 2), []], "no_arguments", T="float", num_args=0, fused_ops=["BiasAdd"])
    c.op(
        "_FusedMatMul",
        [arr(3, 4), arr(4, 2), [arr(2)]],
        "unknown",
        T="float",
        num_args=1,
        fused_ops=["BiasAdd", "Softmax"],
    )
    c.op("_FusedMatMul", [arr(3, 4), arr(4, 2), [arr(2)]], "not_fused", T="float", num_args=1, fused_ops=[])
    bytes_convolved(c)
    compositions(c)
    for dtype in ("int8", "int16", "int32", "int64"):
        c.op("_TensorToHashBucketFast", [arr(2, 3)], "", T=dtype, num_buckets=1000)


def bytes_convolved(c):
    """Convolutions of bytes, whose sums are scaled and rounded to bytes."""

    def conv(
        label, fused=("BiasAdd",), scale=(0.05,), side=None, side_scale=0.0, strides=1, padding="SAME", bias=3, **attrs
    ):
        p = c.program(f"_FusedConv2D/bytes/{label}")
        image = p.const(arr(2, 5, 4, 2), "int8")
        weights = p.const(arr(3, 2, 2, 3), "int8")
        added = p.const(np.linspace(-3, 4, bias), "float")
        side_input = p.const(np.zeros([0], np.int8) if side is None else side, "int8")
        scales = [p.const(np.float32(scale[0] if len(scale) == 1 else scale)), p.const(np.float32(side_scale))]
        p.node(
            "_FusedConv2D",
            [image, weights, added, side_input, *scales],
            name="c",
            T="int8",
            TArgs=["float", "int8"],
            num_args=2,
            num_host_args=2,
            strides=[1, strides, strides, 1],
            padding=padding,
            fused_ops=list(fused),
            **attrs,
        )
        p.step(fetch=["c"])

    conv("plain")
    conv("saturated", scale=(5.0,))
    conv("positive", fused=("BiasAdd", "Relu"))
    conv("scales", scale=(0.01, 0.1, 0.2))
    conv("strides", strides=2, padding="VALID")
    conv("side", side=np.arange(120, dtype=np.int8).reshape(2, 5, 4, 3), side_scale=0.25)
    conv("dilated", dilations=[1, 2, 2, 1])
    conv("fusion", fused=("BiasAdd", "Relu6"))


def compositions(c):
    """Chains of element-wise functions; inputs lie where all of them are defined."""
    anywhere = [
        "Abs",
        "Atan",
        "Asinh",
        "Ceil",
        "Cos",
        "Elu",
        "Exp",
        "Expm1",
        "Floor",
        "Neg",
        "Relu",
        "Relu6",
        "Rint",
        "Round",
        "Selu",
        "Sigmoid",
        "Sin",
        "Square",
        "Tanh",
    ]
    positive = ["Inv", "Log", "Log1p", "Reciprocal", "Rsqrt", "Sqrt"]
    small = ["Acos", "Asin", "Atanh", "Cosh", "Sinh", "Tan"]
    # Stock's chains of 16-bit floats leave these out.
    wide = {"Acos", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Rint", "Sinh", "Tan"}
    for dtype in ("float", "half", "double"):
        for inputs, names in ((arr, anywhere), (pos, positive), (unit, small)):
            for name in names:
                if dtype == "half" and name in wide:
                    continue
                c.op(
                    "_UnaryOpsComposition",
                    [inputs(2, 3)],
                    f"{name.lower()}_square",
                    T=dtype,
                    op_names=[name, "Square"],
                    accuracy="rounding",
                )
    c.op(
        "_UnaryOpsComposition",
        [pos(2, 3)],
        "long",
        T="float",
        op_names=["Sqrt", "Log", "Relu", "Tanh", "Neg", "Exp"],
        accuracy="rounding",
    )
    c.op("_UnaryOpsComposition", [arr(2, 3)], "acosh", T="float", op_names=["Cosh", "Acosh"], accuracy="rounding")
    c.op("_UnaryOpsComposition", [arr(2, 3)], "unknown", T="float", op_names=["Relu", "Erf"])
    c.op("_UnaryOpsComposition", [empty(0, 3)], "empty", T="float", op_names=["Relu", "Tanh"])
    c.op("_UnaryOpsComposition", [arr()], "scalar", T="float", op_names=["Relu", "Tanh"], accuracy="rounding")
