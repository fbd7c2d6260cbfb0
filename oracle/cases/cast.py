"""Conversions between dtypes, and reinterpretation of bits."""

from values import *

KINDS = [t for t in DTYPES if t != "string"]


def narrow(c):
    """Types of eight and four bits, which no client reads: a conversion there and one back."""
    floats = [
        0,
        -0.0,
        1,
        -1.5,
        2.5,
        7,
        9,
        17,
        0.1,
        100,
        300,
        448,
        464,
        480,
        57344,
        61440,
        1e-3,
        2.0**-9,
        2.0**-10,
        1.5 * 2.0**-16,
        1e-8,
        np.inf,
        np.nan,
    ]
    ints = [0, 1, 7, 8, 9, 15, 16, -1, -8, -9, 100]
    for eight in ("float8_e5m2", "float8_e4m3fn"):
        for source in ("half", "bfloat16", "float", "double", "int32", "bool", "complex64"):
            there_and_back(c, source, eight, "float", convert(floats[:10] if source == "int32" else floats, source))
        for target in ("half", "bfloat16", "double", "int8", "int64", "uint16", "bool", "complex128"):
            there_and_back(c, "float", eight, target, convert(floats[:6], "float"))
    for four in ("int4", "uint4"):
        for source in ("int8", "int32", "uint64", "bool", "float"):
            there_and_back(c, source, four, "int32", convert(ints, source))
        for target in ("int8", "int64", "uint8", "uint32", "bool", "float"):
            there_and_back(c, "int32", four, target, convert(ints, "int32"))
    for other in ("float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "int2", "uint2"):
        there_and_back(c, "float", other, "float", convert([0, 1], "float"))


def there_and_back(c, source, narrow, target, values):
    p = c.program(f"Cast/{source}-{narrow}-{target}")
    p.placeholder(source, name="x")
    p.node("Cast", ["x"], name="there", SrcT=source, DstT=narrow)
    p.node("Cast", ["there"], name="back", SrcT=narrow, DstT=target)
    p.step(fetch=["back"], feed={"x": values})


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
    for source, target in (
        ("double", "float"),
        ("double", "half"),
        ("double", "bfloat16"),
        ("float", "half"),
        ("float", "bfloat16"),
    ):
        ties = lit(
            [
                1 + 2.0**-11,
                1 + 3 * 2.0**-11,
                1 + 2.0**-8,
                1 + 3 * 2.0**-8,
                1 + 2.0**-24,
                1 / 3,
                65519.0,
                65520.0,
                1e-8,
                1e39,
            ]
        )
        c.op("Cast", [ties], "ties", SrcT=source, DstT=target)
        c.op("Cast", [ties], "truncate", SrcT=source, DstT=target, Truncate=True)
    c.op("Cast", [lit(["a"])], "from_string", SrcT="string", DstT="float")
    c.op("Cast", [lit([1.0])], "to_string", SrcT="float", DstT="string")
    c.op("Cast", [lit(["a"])], "string_to_string", SrcT="string", DstT="string")
    c.op("Cast", [empty(0, 3)], "empty", SrcT="float", DstT="int32")
    c.op("Cast", [lit(3.7)], "scalar", SrcT="float", DstT="int32")
    c.op("Cast", [arr(1, 2, 1, 2, 1)], "rank_5", SrcT="float", DstT="int64")

    narrow(c)

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
