"""Serialized examples, lines of values, raw bytes: what programs read their data with."""

import gzip
import zlib

from values import *

import numpy as np
import tensorflow as tf


def text(values):
    return convert(values, "string")


def blob(value):
    """One string of any bytes."""
    return np.array(value, dtype=object)


def blobs(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def feature(value):
    """A feature of integers, floats or strings, by its first value; `None` is one without a list."""
    if value is None:
        return tf.train.Feature()
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    if value and isinstance(value[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def example(**features):
    """A serialized example whose entries stand in this order."""
    out = b""
    for name, value in features.items():
        entry = tf.train.Features(feature={name: feature(value)}).SerializeToString(deterministic=True)
        out += entry
    return field(1, out)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, content):
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def entry(name, content):
    """An example of one entry whose feature is these bytes."""
    return field(1, field(1, field(1, name.encode()) + field(2, content)))


NO_FLOAT, NO_INT, NO_TEXT = np.zeros(0, np.float32), np.zeros(0, np.int64), text([])

FULL = [
    example(f=[1.5, 2.5], i=[3], s=[b"a", b"b"], v=[1, 2], w=[b"x"], unwanted=[1]),
    example(i=[-4], f=[0.25, -1.0], s=[b"", b"long" * 3], v=[], w=None),
    example(s=[b"c", b"d"], v=[7, 8, 9], f=[9.0, 8.0]),
]
WANTED = dict(
    dense=[("f", "float", [2], NO_FLOAT), ("i", "int64", [], np.int64(-1)), ("s", "string", [2], NO_TEXT)],
    sparse=[("v", "int64"), ("w", "string")],
    ragged=[("r", "int64", "int64"), ("q", "float", "int32")],
)


def version_1(c, name, records, dense=(), sparse=(), ragged=(), names=(), message=""):
    c.op(
        "ParseExample",
        [
            blobs(records) if isinstance(records, list) else records,
            text(list(names)),
            [text(key) for key, _ in sparse],
            [text(key) for key, *_ in dense],
            [np.asarray(default) for *_, default in dense],
        ],
        name,
        sparse_types=[dtype for _, dtype in sparse],
        dense_shapes=[shape for _, _, shape, _ in dense],
        message=message,
    )


def version_2(c, name, records, dense=(), sparse=(), ragged=(), names=(), message=""):
    c.op(
        "ParseExampleV2",
        [
            blobs(records) if isinstance(records, list) else records,
            text(list(names)),
            text([key for key, _ in sparse]),
            text([key for key, *_ in dense]),
            text([key for key, *_ in ragged]),
            [np.asarray(default) for *_, default in dense],
        ],
        name,
        num_sparse=len(sparse),
        sparse_types=[dtype for _, dtype in sparse],
        dense_shapes=[shape for _, _, shape, _ in dense],
        ragged_value_types=[dtype for _, dtype, _ in ragged],
        ragged_split_types=[splits for _, _, splits in ragged],
        message=message,
    )


def single(c, name, record, dense=(), sparse=(), message=""):
    c.op(
        "ParseSingleExample",
        [blob(record) if isinstance(record, bytes) else record, [np.asarray(default) for *_, default in dense]],
        name,
        num_sparse=len(sparse),
        sparse_keys=[key for key, _ in sparse],
        dense_keys=[key for key, *_ in dense],
        sparse_types=[dtype for _, dtype in sparse],
        dense_shapes=[shape for _, _, shape, _ in dense],
        message=message,
    )


def examples(c):
    ragged_records = [example(r=[1, 2, 3], q=[0.5]), example(), example(r=[4], q=[1.0, 2.0])]
    version_1(c, "all_kinds", FULL, **{k: v for k, v in WANTED.items() if k != "ragged"})
    version_2(c, "all_kinds", FULL, **WANTED)
    version_2(c, "ragged", ragged_records, ragged=WANTED["ragged"])
    version_2(c, "scalar", blob(FULL[0]), **WANTED)
    version_2(c, "scalar_ragged", blob(ragged_records[0]), ragged=WANTED["ragged"])
    version_2(c, "scalar_missing", blob(b""), sparse=WANTED["sparse"], ragged=WANTED["ragged"])
    single(c, "all_kinds", FULL[0], WANTED["dense"], WANTED["sparse"])
    single(c, "defaults", FULL[2], WANTED["dense"], WANTED["sparse"])
    for parse in (version_1, version_2):
        parse(c, "no_records", [], dense=WANTED["dense"], sparse=WANTED["sparse"])
        parse(c, "no_features", FULL)
    version_2(c, "no_records_ragged", [], ragged=WANTED["ragged"])
    many = [example(i=[n], v=list(range(n % 7)), w=[b"w" * (n % 3)]) for n in range(40)]
    version_2(c, "many", many, dense=[WANTED["dense"][1]], sparse=WANTED["sparse"], ragged=[("v2", "int64", "int64")])
    open_shapes = [("i", "int64", [None], np.int64(-1)), ("f", "float", [None, 2], np.float32(0.5))]
    rows = [example(i=[1, 2, 3], f=[1.0, 2.0]), example(i=[4]), example(f=[1.0, 2.0, 3.0, 4.0]), example(i=None)]
    version_1(c, "open_shapes", rows, dense=open_shapes)
    version_2(c, "open_shapes", rows, dense=open_shapes)
    version_2(c, "open_shapes_of_strings", [example(s=[b"a"]), example()], dense=[("s", "string", [None], text("-"))])
    single(c, "open_shapes", rows[0], open_shapes)
    single(c, "open_shapes_missing", rows[3], open_shapes)
    defaults = [("f", "float", [2], np.float32([7, 8])), ("s", "string", [1], text(["d"]))]
    version_2(c, "defaults", [example(), example(f=[1.0, 2.0])], dense=defaults)
    unusual = {
        # Values one by one, not packed.
        "unpacked": [
            entry("i", field(3, b"\x08\x05")),
            entry("i", field(3, b"\x08\x85\x01")),
            entry("i", field(3, b"\x0a\x01\x07")),
        ],
        "value_before_key": [field(1, field(1, field(2, field(3, b"\x0a\x01\x07")) + field(1, b"i")))],
        "concatenated": [example(i=[1]) + example(i=[2])],
        "twice": [example(i=[1]) + example(i=None)],
        "unknown_fields": [b"\x10\x05" + example(i=[6]) + b"\x1d\x00\x00\x00\x00" + field(4, b"abc")],
        "too_long": [field(1, field(1, field(1, b"i") + field(2, field(3, b"\x0a\x05\x07"))))],
        "negative": [example(i=[-(2**63)]), example(i=[2**63 - 1])],
    }
    for name, records in unusual.items():
        version_2(c, f"wire/{name}", records, dense=[WANTED["dense"][1]], message=SENTENCE)
        version_2(c, f"wire/{name}_sparse", records, sparse=[("i", "int64")], message=SENTENCE)
        single(c, f"wire/{name}", records[0], dense=[WANTED["dense"][1]], message=SENTENCE)
    version_2(
        c,
        "wire/unpacked_floats",
        [entry("f", field(2, b"\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40"))],
        dense=[("f", "float", [2], NO_FLOAT)],
        sparse=[("g", "float")],
    )
    broken = {
        "nonsense": [b"nonsense"],
        "cut": [example(w=[b"text"])[:-1]],
        "unknown_list": [entry("i", b"\x22\x00")],
        "no_list": [entry("i", field(3, b"\x12\x01\x00"))],
        "cut_varint": [entry("i", field(3, b"\x0a\x01\x80"))],
        "second": [example(i=[1]), b"\x0b"],
        "key_only": [field(1, field(1, field(1, b"i")))],
    }
    for name, records in broken.items():
        message = SENTENCE if name != "cut" else "Could not parse example input"
        version_2(c, f"broken/{name}", records, dense=[WANTED["dense"][1]], message=message)
        version_2(c, f"broken/{name}_sparse", records, sparse=[("i", "int64")], message=message)
        single(c, f"broken/{name}", records[-1], sparse=[("i", "int64")], message=message)
    wrong = {
        "missing": ([example()], [("f", "float", [2], NO_FLOAT)]),
        "type": ([example(f=[1])], [("f", "float", [1], NO_FLOAT)]),
        "few": ([example(f=[1.0])], [("f", "float", [2], NO_FLOAT)]),
        "many": ([example(f=[1.0] * 3)], [("f", "float", [2], NO_FLOAT)]),
        "few_ints": ([example(i=[1])], [("i", "int64", [2], NO_INT)]),
        "many_ints": ([example(i=[1] * 3)], [("i", "int64", [2], NO_INT)]),
        "few_strings": ([example(s=[b"a"])], [("s", "string", [2], NO_TEXT)]),
        "many_strings": ([example(s=[b"a"] * 3)], [("s", "string", [2], NO_TEXT)]),
        "uneven": ([example(f=[1.0] * 3)], [("f", "float", [None, 2], np.float32(0))]),
        "type_of_open": ([example(f=[1])], [("f", "float", [None], np.float32(0))]),
        "default_shape": ([example()], [("f", "float", [2], np.float32([1, 2, 3]))]),
        "padding": ([example()], [("f", "float", [None], np.float32([1, 2]))]),
        "inner_shape": ([example()], [("f", "float", [2, None], NO_FLOAT)]),
        "rank": ([example()], [("f", "float", None, NO_FLOAT)]),
    }
    for name, (records, dense) in wrong.items():
        version_1(c, f"wrong/{name}", records, dense=dense, message=SENTENCE)
        version_2(c, f"wrong/{name}", records, dense=dense, message=SENTENCE)
        single(c, f"wrong/{name}", records[0], dense, message=SENTENCE)
    named = [example(f=[1.0]), example(f=[1])]
    version_2(c, "wrong/named", named, sparse=[("f", "float")], names=["one", "two"], message=SENTENCE)
    version_2(c, "wrong/names", named, sparse=[("f", "float")], names=["one"], message=SENTENCE)
    version_2(c, "wrong/rank_2", blobs(named).reshape(1, 2), sparse=[("f", "float")])
    version_1(c, "wrong/rank_0", blob(named[0]), sparse=[("f", "float")])
    single(c, "wrong/rank_1", blobs(named), (), [("f", "float")])
    single(c, "wrong/sparse_type", named[1], (), [("f", "float")], message=SENTENCE)
    version_2(c, "wrong/same_key", named, sparse=[("f", "float"), ("f", "int64")], message=SENTENCE)


def sequence(context=(), **lists):
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={name: feature(value) for name, value in dict(context).items()}),
        feature_lists=tf.train.FeatureLists(
            feature_list={
                name: tf.train.FeatureList(feature=[feature(step) for step in steps]) for name, steps in lists.items()
            }
        ),
    ).SerializeToString(deterministic=True)


def group(features):
    return ([key for key, *_ in features], [dtype for _, dtype, *_ in features])


def sequences_1(c, name, records, context=(), dense=(), sparse=(), context_sparse=(), may_miss=(), message=""):
    c.op(
        "ParseSequenceExample",
        [blobs(records), text([]), [np.asarray(default) for *_, default in context]],
        name,
        feature_list_dense_missing_assumed_empty=list(may_miss),
        context_sparse_keys=group(context_sparse)[0],
        context_dense_keys=group(context)[0],
        feature_list_sparse_keys=group(sparse)[0],
        feature_list_dense_keys=group(dense)[0],
        Ncontext_sparse=len(context_sparse),
        Ncontext_dense=len(context),
        Nfeature_list_sparse=len(sparse),
        Nfeature_list_dense=len(dense),
        context_sparse_types=group(context_sparse)[1],
        feature_list_dense_types=group(dense)[1],
        context_dense_shapes=[shape for _, _, shape, _ in context],
        feature_list_sparse_types=group(sparse)[1],
        feature_list_dense_shapes=[shape for _, _, shape in dense],
        message=message,
    )


def sequences_2(
    c,
    name,
    records,
    context=(),
    dense=(),
    sparse=(),
    context_sparse=(),
    ragged=(),
    context_ragged=(),
    may_miss=(),
    message="",
    fetch=None,
):
    c.op(
        "ParseSequenceExampleV2",
        [
            blobs(records) if isinstance(records, list) else records,
            text([]),
            text(group(context_sparse)[0]),
            text(group(context)[0]),
            text(group(context_ragged)[0]),
            text(group(sparse)[0]),
            text(group(dense)[0]),
            text(group(ragged)[0]),
            np.array([key in may_miss for key in group(dense)[0]], np.bool_),
            [np.asarray(default) for *_, default in context],
        ],
        name,
        Ncontext_sparse=len(context_sparse),
        context_sparse_types=group(context_sparse)[1],
        context_ragged_value_types=group(context_ragged)[1],
        context_ragged_split_types=[splits for _, _, splits in context_ragged],
        context_dense_shapes=[shape for _, _, shape, _ in context],
        Nfeature_list_sparse=len(sparse),
        Nfeature_list_dense=len(dense),
        feature_list_dense_types=group(dense)[1],
        feature_list_sparse_types=group(sparse)[1],
        feature_list_ragged_value_types=group(ragged)[1],
        feature_list_ragged_split_types=[splits for _, _, splits in ragged],
        feature_list_dense_shapes=[shape for _, _, shape in dense],
        message=message,
        fetch=fetch,
    )


def single_sequence(c, name, record, context=(), dense=(), sparse=(), context_sparse=(), may_miss=(), message=""):
    c.op(
        "ParseSingleSequenceExample",
        [
            blob(record),
            text(list(may_miss)),
            [text(key) for key, _ in context_sparse],
            [text(key) for key, *_ in context],
            [text(key) for key, _ in sparse],
            [text(key) for key, *_ in dense],
            [np.asarray(default) for *_, default in context],
            text(""),
        ],
        name,
        context_sparse_types=group(context_sparse)[1],
        feature_list_dense_types=group(dense)[1],
        context_dense_shapes=[shape for _, _, shape, _ in context],
        feature_list_sparse_types=group(sparse)[1],
        feature_list_dense_shapes=[shape for _, _, shape in dense],
        message=message,
    )


def sequences(c):
    records = [
        sequence(dict(a=[1, 2], b=[b"x"]), d=[[1.0, 2.0], [3.0, 4.0]], e=[[1], [], [2, 3]], t=[[b"p"], [b"q", b"r"]]),
        sequence(dict(a=[3, 4]), d=[[5.0, 6.0]], e=[], t=[None, [b"s"]]),
        sequence(dict(a=[5, 6], b=[b"y", b"z"]), d=[]),
    ]
    wanted = dict(
        context=[("a", "int64", [2], NO_INT)],
        context_sparse=[("b", "string")],
        dense=[("d", "float", [2])],
        sparse=[("e", "int64"), ("t", "string")],
    )
    sequences_1(c, "all_kinds", records, **wanted)
    sequences_2(c, "all_kinds", records, **wanted)
    sequences_2(
        c,
        "ragged",
        records,
        context_ragged=[("b", "string", "int32"), ("a", "int64", "int64")],
        ragged=[("e", "int64", "int64"), ("t", "string", "int32")],
    )
    sequences_2(c, "scalar", blob(records[0]), **wanted)
    sequences_2(c, "no_records", [], context_sparse=wanted["context_sparse"], sparse=wanted["sparse"])
    single_sequence(c, "all_kinds", records[0], **wanted)
    single_sequence(c, "empty_steps", records[1], sparse=wanted["sparse"])
    missing = sequence()
    with_defaults = dict(context=[("a", "int64", [2], np.int64([7, 8]))], dense=[("d", "float", [2])], may_miss=["d"])
    sequences_1(c, "missing", [missing, records[0]], **with_defaults)
    sequences_2(c, "missing", [missing, records[0]], **with_defaults)
    single_sequence(c, "missing", missing, **with_defaults)
    wrong = {
        "context": (missing, dict(context=wanted["context"])),
        "list": (missing, dict(dense=wanted["dense"])),
        "context_type": (records[0], dict(context=[("a", "float", [2], NO_FLOAT)])),
        "list_type": (records[0], dict(dense=[("d", "int64", [2])])),
        "sparse_type": (records[0], dict(sparse=[("d", "int64")])),
        "count": (records[0], dict(context=[("a", "int64", [3], NO_INT)])),
        "row_count": (records[0], dict(dense=[("d", "float", [3])])),
        "uneven_rows": (sequence(e=[[1], [2, 3, 4]]), dict(dense=[("e", "int64", [2])])),
        "nonsense": (b"nonsense", dict(dense=wanted["dense"])),
    }
    for name, (record, features) in wrong.items():
        sequences_2(c, f"wrong/{name}", [record], **features, message=SENTENCE)
        single_sequence(c, f"wrong/{name}", record, **features)
    sequences_2(c, "wrong/two_kinds", [missing], sparse=[("d", "float")], dense=[("d", "float", [2])], message=SENTENCE)


def lines(c):
    types = [np.float32([]), np.zeros(0), np.int32([]), np.int64([]), text([])]
    defaults = [np.float32([0.5]), np.array([1.5]), np.int32([2]), np.int64([3]), text(["d"])]
    good = ["1.5,2.5,3,4,five", "-1,1e3,-2,9223372036854775807,", ' 1 ,2, 3 ,4,"a,""b"""', "inf,nan,0,0,x\n"]
    c.op("DecodeCSV", [text(good), types[:4] + [text([""])]], "types")
    c.op("DecodeCSV", [text([",,,,", "NA,1,,NA,NA"]), defaults], "defaults", na_value="NA")
    c.op("DecodeCSV", [text([["1,2"], ["3,4"]]), [np.int32([]), np.int32(7)]], "matrix")
    c.op("DecodeCSV", [text([]), [np.int32([])]], "empty")
    c.op("DecodeCSV", [text("a|b"), [text([]), text([])]], "delimiter", field_delim="|")
    c.op("DecodeCSV", [text('"a"|b"'), [text([]), text([])]], "no_quotes", field_delim="|", use_quote_delim=False)
    c.op("DecodeCSV", [text(["1,a,2,b", "3,c,4,d"]), [np.int32([]), text([])]], "columns", select_cols=[0, 3])
    c.op("DecodeCSV", [text(["\n1\r,2"]), [np.int32([]), np.int32([])]], "line_ends", message=SENTENCE)
    bad = {
        "missing": "1,,3",
        "few": "1,2",
        "many": "1,2,3,4",
        "number": "1,x,3",
        "too_large": "1,99999999999,3",
        "hexadecimal": "1,0x10,3",
        "fraction": "1,2.5,3",
        "quote": '1,2"2,3',
        "open_quote": '1,2,"3',
        "odd_quote": '1,"2"2,3',
        "nothing": "",
    }
    for name, line in bad.items():
        c.op("DecodeCSV", [text(["1,2,3", line]), [np.int32([])] * 3], f"bad/{name}", message=SENTENCE)
    for name, value in {
        "hexadecimal": "0x10",
        "large": "1e400",
        "marked": "nan(1)",
        "point": ".",
        "plus": "+1.5",
    }.items():
        c.op("DecodeCSV", [text([value]), [np.float32([])]], f"float/{name}", message=SENTENCE)
    c.op("DecodeCSV", [text("1"), [np.int32([1, 2])]], "two_defaults", message=SENTENCE)
    c.op("DecodeCSV", [text("1"), [np.int32([])]], "long_delimiter", field_delim="ab", message=SENTENCE)
    c.op("DecodeCSV", [text("1"), [np.int32([])]], "column_count", select_cols=[1, 2], message=SENTENCE)
    c.op("DecodeCSV", [text("1"), [np.int32([])] * 2], "column_order", select_cols=[2, 1], message=SENTENCE)
    c.op("DecodeCSV", [text("1,2"), [np.int32([])]], "column_beyond", select_cols=[4], message=SENTENCE)


def raw(c):
    data = bytes(range(1, 33))
    for dtype in c.dtypes("DecodeRaw", "out_type"):
        content = b"\0\1" * 8 if dtype == "bool" else data
        c.op("DecodeRaw", [blobs([content, content[::-1]])], out_type=dtype)
        c.op("DecodeRaw", [blob(content)], "big", out_type=dtype, little_endian=False)
    c.op("DecodeRaw", [text(["", ""])], "no_bytes", out_type="float")
    c.op("DecodeRaw", [text([])], "empty", out_type="float")
    c.op("DecodeRaw", [text(["abcd", "ab"])], "sizes", out_type="float", message=SENTENCE)
    c.op("DecodeRaw", [text(["abc"])], "multiple", out_type="float", message=SENTENCE)
    for dtype in ("float", "int16", "uint8"):
        for little in (True, False):
            name = f"little_{little}"
            c.op("DecodePaddedRaw", [blobs([data, b"abc", b""]), 8], name, out_type=dtype, little_endian=little)
    c.op("DecodePaddedRaw", [text(["a"]), 4], "half", out_type="half")
    c.op("DecodePaddedRaw", [text([]), 4], "empty", out_type="int32")
    c.op("DecodePaddedRaw", [text(["a"]), 3], "multiple", out_type="int32", message=SENTENCE)
    c.op("DecodePaddedRaw", [text(["a"]), 0], "zero", out_type="int32", message=SENTENCE)
    c.op("DecodePaddedRaw", [text(["a"]), -4], "negative", out_type="int32", message=SENTENCE)
    c.op("DecodePaddedRaw", [text(["a"]), [4]], "vector", out_type="int32", message=SENTENCE)
    packed, wrapped = zlib.compress(b"hello" * 30), gzip.compress(b"hello" * 30, mtime=0)
    c.op("DecodeCompressed", [text(["a", ""])], "none")
    c.op("DecodeCompressed", [blobs([packed, zlib.compress(b"")])], "zlib", compression_type="ZLIB")
    c.op("DecodeCompressed", [blob(wrapped)], "gzip", compression_type="GZIP")
    c.op("DecodeCompressed", [blob(wrapped + wrapped)], "gzip_twice", compression_type="GZIP")
    c.op("DecodeCompressed", [blob(packed[:-8])], "cut", compression_type="ZLIB")
    c.op("DecodeCompressed", [text(["nonsense"])], "nonsense", compression_type="ZLIB")
    c.op("DecodeCompressed", [text([""])], "nothing", compression_type="ZLIB")
    c.op("DecodeCompressed", [text(["a"])], "unknown", compression_type="LZ", message=SENTENCE)


def json(c):
    whole = (
        '{"features":{"feature":{"b":{"int64List":{"value":["1",2,3.0,-4]}},"a":{"bytesList":{"value":["aGk="]}},'
        '"f":{"float_list":{"value":[1.5,"NaN",1e-3]}},"e":{"int64List":{}},"g":{},"h":null,"i":{"int64List":null},"j":{"int64List":{"value":[null]}}}}}'
    )
    c.op("DecodeJSONExample", [text([whole, "{}"])])
    c.op("DecodeJSONExample", [text('{"features":{}}')], "scalar")
    for name, bad in {
        "nonsense": "x",
        "field": '{"foo":1}',
        "fraction": '{"features":{"feature":{"b":{"int64List":{"value":[1.5]}}}}}',
        "two_lists": '{"features":{"feature":{"b":{"int64List":{"value":[]},"bytesList":{"value":[]}}}}}',
        "nothing": "",
        "list": "[]",
        "large": '{"features":{"feature":{"b":{"floatList":{"value":[1e300]}}}}}',
    }.items():
        c.op("DecodeJSONExample", [text(bad)], f"bad/{name}", message="Error while parsing JSON")


def cases(c):
    examples(c)
    sequences(c)
    lines(c)
    raw(c)
    json(c)
