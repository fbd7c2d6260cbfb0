"""Strings: joining, formatting, matching, hashing and conversion."""

import protos
from values import *

import numpy as np

WORDS = ["", "a", "Hello World", " padded\t", "ÄÖ ü", "12", "a,b,,c"]


def text(values):
    return convert(values, "string")


def cases(c):
    c.op("StringJoin", [[text(["a", "b"]), text(["c", "d"])]], N=2)
    c.op("StringJoin", [[text(["a", "b"]), text("-"), text(["c", "d"])]], "scalar", separator="/")
    c.op("StringJoin", [[text("a")]], "one")
    c.op("StringJoin", [[text([]), text("a")]], "empty")
    c.op("StringJoin", [[text(["a", "b"]), text(["c"])]], "mismatch")
    c.op("AsString", [lit([[0, 1, -2.5], [100.125, 3, 7]])], types=[t for t in DTYPES if t not in ("string",)])
    c.op("AsString", [specials()], "specials", types=("float", "double", "int8", "int64", "uint64"))
    for name, attrs in (
        ("precision", {"precision": 2}),
        ("scientific", {"scientific": True}),
        ("scientific_precision", {"scientific": True, "precision": 3}),
        ("shortest", {"shortest": True}),
        ("width", {"width": 10}),
        ("zero_fill", {"width": 10, "fill": "0"}),
        ("left", {"width": 10, "fill": "-"}),
        ("plus", {"width": 10, "fill": "+"}),
        ("both_notations", {"scientific": True, "shortest": True}),
        ("long_fill", {"width": 3, "fill": "ab"}),
    ):
        c.op("AsString", [lit([1.5, -2.25, 1e10, 1 / 3])], name, T="float", **attrs)
        c.op("AsString", [lit([1, -2])], name, T="int32", **attrs)
    c.op("AsString", [lit([True, False])], "width", T="bool", width=7)
    for fill in " +-0":
        c.op("AsString", [lit([0, 7])], f"unsigned_{ord(fill)}", types=UNSIGNED, fill=fill)
        c.op("AsString", [lit([0, 7])], f"unsigned_wide_{ord(fill)}", T="uint8", fill=fill, width=4)
    c.op("AsString", [lit([1 + 2j])], "complex", T="complex64", precision=2)
    c.op("AsString", [lit(["a"])], "string", T="string")
    c.op("AsString", [empty(0)], "empty", T="float")
    for dtype in ("float", "double", "int32", "int64"):
        c.op("StringToNumber", [text(["1", "-2", " 7 ", "0"])], out_type=dtype)
        for bad in ("", "abc", "1x", "99999999999999999999"):
            c.op("StringToNumber", [text([bad])], f"bad_{bad[:3]}", out_type=dtype)
    c.op("StringToNumber", [text(["1.5", "-2e3", "inf", "nan", "1e400", ".5"])], "floats", out_type="float")
    c.op("StringToNumber", [text(["1.5", "-2e3", "inf", "nan", "1e400", "0x10"])], "floats", out_type="double")
    hexadecimal = [
        "0x1p3",
        "0x1.8P+3",
        "-0x.8p1",
        "+0x1.8",
        "0X1.p-2",
        "0x10000000000000001p0",
        "0x1.00000100000000001p0",
        "0x1p-150",
        "0x1p1024",
        "0x1p-99999",
        "0x1FFFFFFFFFFFFFFFFF",
        "nan(1)",
    ]
    for dtype in ("float", "double"):
        c.op("StringToNumber", [text(hexadecimal)], "hexadecimal", out_type=dtype)
        for bad in ("0x", "0x.", "0xp3", "0x1p", "0x1p+", "0x1p3x", "nan(.)"):
            c.op("StringToNumber", [text([bad])], f"bad_{bad}", out_type=dtype)
    for op in ("StringLower", "StringUpper"):
        c.op(op, [text(WORDS)])
        c.op(op, [text(WORDS)], "utf8", encoding="utf-8")
    c.op("StringStrip", [text(WORDS)])
    c.op("StringStrip", [text(["\v a\t\v", "\f\r\n", "a\vb"])], "white_space")
    c.op("StringLength", [text(WORDS)])
    c.op("StringLength", [text(WORDS)], "characters", unit="UTF8_CHAR")
    c.op("StringToHashBucketFast", [text(["a", "b", "hello world", ""])], num_buckets=1000)
    c.op(
        "StringToHashBucketFast",
        [text(["x" * n for n in (3, 8, 16, 17, 32, 33, 64, 65, 130)])],
        "lengths",
        num_buckets=2**62,
    )
    c.op("StringToHashBucketStrong", [text(["a", "b", "hello world", "x" * 20])], num_buckets=1000, key=[1, 2])
    c.op("StringToHashBucketStrong", [text(["a"])], "short_key", num_buckets=1000, key=[1])
    c.op("StringToHashBucket", [text(["a", "b", "hello world", ""])], num_buckets=1000)
    for position, length in ((0, 2), (1, 1), (-2, 2), (0, 0), (0, 100)):
        c.op("Substr", [text(["hello", "world"]), position, length], f"{position}_{length}", T="int32")
    c.op("Substr", [text(["hello", "wörld"]), 1, 3], "characters", T="int64", unit="UTF8_CHAR")
    c.op("Substr", [text(["hello", "hi"]), [1, 0], [3, 1]], "per_element", T="int32")
    c.op("Substr", [text(["hello", "hi"]), 3, 1], "past_end", T="int32")
    c.op("Substr", [text("hello"), [0, 1], [1, 2]], "broadcast", T="int32")
    c.op("StringSplit", [text(["a b  c", "", "d"]), text(" ")], skip_empty=True)
    c.op("StringSplit", [text(["a b  c", "", "d"]), text(" ")], "keep_empty", skip_empty=False)
    c.op("StringSplit", [text(["abc"]), text("")], "bytes")
    c.op("StringSplitV2", [text(["a b  c", "", " d "]), text("")], "whitespace")
    c.op("StringSplitV2", [text(["a,b,,c", ""]), text(",")], "comma", maxsplit=2)
    for most in (0, 1, 2, 3):
        c.op(
            "StringSplitV2",
            [text(["", "a", " a b ", "a  b c", "\va\vb"]), text("")],
            f"whitespace_{most}",
            maxsplit=most,
        )
    c.op("ReduceJoin", [text([["a", "b"], ["c", "d"]]), 0], "axis_0")
    c.op("ReduceJoin", [text([["a", "b"], ["c", "d"]]), [0, 1]], "all", separator="-")
    c.op("ReduceJoin", [text([["a", "b"], ["c", "d"]]), [1, 0]], "reversed", keep_dims=True)
    c.op("ReduceJoin", [text([["a", "b"], ["c", "d"]]), 2], "out_of_range")
    c.op(
        "UnsortedSegmentJoin",
        [text(["a", "b", "c"]), [1, 0, 1], 3],
        Tindices="int32",
        Tnumsegments="int32",
        separator=":",
    )
    c.op("EncodeBase64", [text(["hello", "", "a\xff"])], "plain")
    c.op("EncodeBase64", [text(["hello", "", "ab"])], "padded", pad=True)
    c.op("DecodeBase64", [text(["aGVsbG8", "", "YWI="])], "plain")
    c.op("DecodeBase64", [text(["!!"])], "bad")
    for dtype in DTYPES:
        c.op("SerializeTensor", [arr(2)], T=dtype)
    for dtype in ("float", "int64", "string", "bool"):
        proto = protos.tensor(arr(2)(dtype)).SerializeToString()
        c.op("ParseTensor", [np.array(proto, dtype=object)], out_type=dtype)
    c.op("ParseTensor", [text("nonsense")], "bad", out_type="float")
    c.op(
        "ParseTensor",
        [np.array(protos.tensor(arr(2)("int32")).SerializeToString(), dtype=object)],
        "other_dtype",
        out_type="float",
    )
    c.op("ParseTensor", [text(["a", "b"])], "vector", out_type="float")
    c.op("ShardedFilename", [text("model"), 3, 12])
    c.op("ShardedFilespec", [text("model"), 12])
    c.op("ShardedFilename", [text(b"a\0b"), 3, 12], "zero_byte")
    for name, width in {
        "scientific": dict(scientific=True),
        "precise": dict(precision=2),
        "wide": dict(width=6),
        "left": dict(width=6, fill="-"),
    }.items():
        c.op("AsString", [text(["a", "bcd"])], name, T="string", **width)
    for position, length in ((0, -1), (1, -2), (-1, -1)):
        for unit in ("BYTE", "UTF8_CHAR"):
            c.op("Substr", [text("aébc"), position, length], f"{unit}_{position}_{length}", T="int32", unit=unit)
    for name, ids in {"scalar_id": 0, "deep_ids": [[0]], "negative_id": [0, -1]}.items():
        c.op("UnsortedSegmentJoin", [text(["a", "b"]), ids, 2], name, Tindices="int32", Tnumsegments="int32")
