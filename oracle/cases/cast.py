"""Conversions between dtypes, and reinterpretation of bits."""

from values import *

KINDS = [t for t in DTYPES if t != "string"]


def cases(c):
    for source in KINDS:
        for target in KINDS:
            # A negative float has no defined unsigned counterpart.
            fraction = 1.5 if target in UNSIGNED else -1.5
            values = lit([[0, 1, 2.5], [fraction, 100, 3.75]]) if source in FLOATS + COMPLEX else specials()
            c.op("Cast", [values], SrcT=source, DstT=target)
    for target in FLOATS + COMPLEX:
        for source in FLOATS:
            c.op("Cast", [specials()], "specials", SrcT=source, DstT=target)
    for source in FLOATS:
        # Out of range and NaN give the smallest integer, which is what the x86 instruction answers.
        c.op("Cast", [specials()], "out_of_range", SrcT=source, DstT="int32")
        c.op("Cast", [specials()], "out_of_range", SrcT=source, DstT="int64")
    for target in SIGNED:
        c.op("Cast", [lit([1.999, -1.999, 0.5, -0.5])], "toward_zero", SrcT="float", DstT=target)
    for source, target in (("double", "float"), ("double", "half"), ("double", "bfloat16"), ("float", "half"), ("float", "bfloat16")):
        ties = lit([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-24, 1 / 3, 65519.0, 65520.0, 1e-8, 1e39])
        c.op("Cast", [ties], "ties", SrcT=source, DstT=target)
        c.op("Cast", [ties], "truncate", SrcT=source, DstT=target, Truncate=True)
    c.op("Cast", [lit(["a"])], "from_string", SrcT="string", DstT="float")
    c.op("Cast", [lit([1.0])], "to_string", SrcT="float", DstT="string")
    c.op("Cast", [lit(["a"])], "string_to_string", SrcT="string", DstT="string")
    c.op("Cast", [empty(0, 3)], "empty", SrcT="float", DstT="int32")
    c.op("Cast", [lit(3.7)], "scalar", SrcT="float", DstT="int32")
    c.op("Cast", [arr(1, 2, 1, 2, 1)], "rank_5", SrcT="float", DstT="int64")

    c.op("Bitcast", [lit([1.0, -2.0])], "same_size", T="float", type="int32")
    c.op("Bitcast", [lit([1, 2])], "same_size", T="int64", type="double")
    c.op("Bitcast", [lit([1, 258])], "to_smaller", T="int32", type="uint8")
    c.op("Bitcast", [lit([[1, 2], [3, 4]])], "to_larger", T="int32", type="int64")
    c.op("Bitcast", [lit([1 + 2j])], "from_complex", T="complex64", type="float")
    c.op("Bitcast", [lit([[1, 2, 3]])], "wrong_last_dim", T="int32", type="int64")
    c.op("Bitcast", [lit(1)], "scalar_to_larger", T="int32", type="int64")
    c.op("Bitcast", [lit(1)], "scalar_to_smaller", T="int32", type="int16")
    c.op("Bitcast", [empty(0, 2)], "empty", T="int32", type="int64")
    c.op("Bitcast", [lit([1.5])], "same_type", T="float", type="float")
