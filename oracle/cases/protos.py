"""Fields of serialized messages as tensors, and back."""

import environment
from values import *

import numpy as np
from google.protobuf import descriptor_pb2

Type = descriptor_pb2.FieldDescriptorProto

# Every type of field, alone and repeated.
KINDS = {
    "double": "double",
    "float": "float",
    "int64": "int64",
    "uint64": "uint64",
    "int32": "int32",
    "fixed64": "uint64",
    "fixed32": "uint32",
    "bool": "bool",
    "string": "string",
    "bytes": "string",
    "uint32": "uint32",
    "sfixed32": "int32",
    "sfixed64": "int64",
    "sint32": "int32",
    "sint64": "int64",
}
WIDER = {
    "float": "double",
    "int32": "int64",
    "fixed32": "uint64",
    "uint32": "uint64",
    "sfixed32": "int64",
    "sint32": "int64",
}


def descriptors():
    """A message of the second version, which has groups and defaults, and one of the third, which packs."""
    files = descriptor_pb2.FileDescriptorSet()
    for syntax in ("proto2", "proto3"):
        file = files.file.add(name=f"{syntax}.proto", package=syntax, syntax=syntax)
        message = file.message_type.add(name="All")
        number = 0
        for kind in KINDS:
            for repeated in (False, True):
                number += 1
                field = message.field.add(name=f"{kind}{'s' if repeated else ''}", number=number)
                field.type = Type.Type.Value(f"TYPE_{kind.upper()}")
                field.label = Type.LABEL_REPEATED if repeated else Type.LABEL_OPTIONAL
        choice = file.enum_type.add(name="Choice")
        choice.value.add(name=f"{syntax.upper()}_ZERO", number=0)
        choice.value.add(name=f"{syntax.upper()}_TWO", number=2)
        for name, label in (("choice", Type.LABEL_OPTIONAL), ("choices", Type.LABEL_REPEATED)):
            number += 1
            field = message.field.add(name=name, number=number, label=label, type=Type.TYPE_ENUM)
            field.type_name = f".{syntax}.Choice"
        message.field.add(
            name="inner",
            number=number + 1,
            label=Type.LABEL_OPTIONAL,
            type=Type.TYPE_MESSAGE,
            type_name=f".{syntax}.All",
        )
        if syntax == "proto2":
            message.field.add(
                name="defaulted", number=100, label=Type.LABEL_OPTIONAL, type=Type.TYPE_INT32, default_value="-7"
            )
            message.field.add(
                name="worded", number=101, label=Type.LABEL_OPTIONAL, type=Type.TYPE_STRING, default_value="none"
            )
            message.field.add(
                name="scaled", number=102, label=Type.LABEL_OPTIONAL, type=Type.TYPE_FLOAT, default_value="1.5"
            )
            group = message.nested_type.add(name="Part")
            group.field.add(name="x", number=1, label=Type.LABEL_OPTIONAL, type=Type.TYPE_INT32)
            message.field.add(
                name="part",
                number=103,
                label=Type.LABEL_REPEATED,
                type=Type.TYPE_GROUP,
                type_name=".proto2.All.Part",
            )
    return b"bytes://" + files.SerializeToString()


SOURCE = descriptors()
VALUES = {"bool": [True, False, True], "string": ["ab", "", "c\u00e9"]}


def sample(dtype, count=3):
    if dtype in VALUES:
        return convert(VALUES[dtype][:count], dtype)
    numbers = [1, 0, 200] if dtype.startswith("u") else [-3, 0, 1 << 20]
    return convert(numbers[:count], dtype)


def encode(c, label, fields, sizes, values, message="", kind="proto2.All", source=SOURCE, run=True):
    p = c.program(f"EncodeProto/{label}")
    types = [dtype for dtype, _ in values]
    inputs = [p.const(np.int32(sizes)), *(p.const(value, dtype) for dtype, value in values)]
    p.node(
        "EncodeProto",
        inputs,
        name="e",
        field_names=fields,
        message_type=kind,
        descriptor_source=source,
        Tinput_types=types,
    )
    p.step(fetch=["e"], message=message)


def decode(c, label, texts, fields, message="", kind="proto2.All", source=SOURCE, **attrs):
    p = c.program(f"DecodeProtoV2/{label}")
    p.node(
        "DecodeProtoV2",
        [p.const(texts, "string")],
        name="d",
        field_names=[name for name, _ in fields],
        output_types=[dtype for _, dtype in fields],
        message_type=kind,
        descriptor_source=source,
        **attrs,
    )
    p.step(fetch=[f"d:{i}" for i in range(1 + len(fields))], message=message)


def round_trip(c, syntax):
    """Encodes and decodes again, in all types."""
    for wide in (False, True):
        p = c.program(f"round_trip/{syntax}/{'wide' if wide else 'plain'}")
        kinds = WIDER if wide else KINDS
        fields, types, inputs = [], [], []
        for kind, dtype in kinds.items():
            fields += [kind, f"{kind}s"]
            types += [dtype, dtype]
            inputs += [p.const(sample(dtype, 1)[None], dtype), p.const(sample(dtype)[None], dtype)]
        if not wide:
            fields, types = [*fields, "choices"], [*types, "int32"]
            inputs.append(p.const(np.int32([[2, 0, 5]])))
        sizes = p.const(np.int32([[1 if i % 2 == 0 else 3 for i in range(len(fields))]]))
        common = {"message_type": f"{syntax}.All", "descriptor_source": SOURCE, "field_names": fields}
        p.node("EncodeProto", [sizes, *inputs], name="e", Tinput_types=types, **common)
        p.node("DecodeProtoV2", ["e"], name="d", output_types=types, **common)
        p.node("DecodeProtoV2", ["e"], name="s", output_types=types, sanitize=True, **common)
        p.step(fetch=["e", *(f"d:{i}" for i in range(1 + len(types)))])
        p.step(fetch=[f"s:{i}" for i in range(1 + len(types))])


def cases(c):
    for syntax in ("proto2", "proto3"):
        round_trip(c, syntax)
    three = convert([[1, 2, 3], [4, 5, 6]], "int32")
    encode(c, "sizes", ["int32s", "defaulted"], [[2, 1], [0, 0]], [("int32", three), ("int32", three[:, :1])])
    encode(c, "order", ["part", "int32"], [[1, 1]], [("string", [["\x08\x05"]]), ("int32", three[:1, :1])])
    encode(c, "no_messages", ["int32"], np.zeros([0, 1]), [("int32", three[:0, :1])])
    encode(
        c, "too_many", ["int32s"], [[4], [0]], [("int32", three)], "Size to write must not be larger than value tensor"
    )
    encode(c, "sizes_shape", ["int32s"], [[1, 1], [1, 1]], [("int32", three)], "sizes should be batch_size")
    encode(c, "prefix", ["int32s", "int32"], [[1, 1]], [("int32", three), ("int32", three[:1])])
    encode(c, "vector", ["int32"], [1], [("int32", three[0])])
    encode(c, "type", ["int32"], [[1], [1]], [("float", [[1.0], [2.0]])], "Incompatible type for field int32")
    encode(c, "field", ["nothing"], [[1], [1]], [("int32", three)], "Unknown field: nothing in message type proto2.All")
    encode(
        c, "message", ["int32"], [[1], [1]], [("int32", three)], "No descriptor found for message type No", kind="No"
    )
    encode(c, "source", ["int32"], [[1], [1]], [("int32", three)], source=b"/nowhere/at.pb")
    encode(c, "damaged_source", ["int32"], [[1], [1]], [("int32", three)], source=b"bytes://zzzz")
    encode(c, "counts", ["int32", "int32s"], [[1, 1], [1, 1]], [("int32", three)])

    ints = [("int32", "int32"), ("int32s", "int32")]
    decode(
        c, "defaults", [""], [("defaulted", "int32"), ("worded", "string"), ("scaled", "double"), ("choice", "int32")]
    )
    decode(c, "batch", [["", "\x48\x05"], ["\x48\x01\x48\x02", "\x50\x03\x50\x04"]], ints)
    decode(c, "scalar", "\x48\x7f", ints)
    decode(c, "packed", ["\x52\x03\x01\x02\x03\x50\x04", "\x52\x00"], ints)
    decode(c, "packed_alone", ["\x4a\x02\x07\x08"], ints)
    decode(
        c, "unknown_skipped", ["\xc8\x3e\x01\xcd\x3e1234\xca\x3e\x02ab\xc9\x3e12345678\x48\x09".encode("latin-1")], ints
    )
    decode(c, "group", ["\xbb\x06\x08\x05\xbc\x06\xbb\x06\xbc\x06".encode("latin-1")], [("part", "string")])
    decode(c, "group_unwanted", ["\xbb\x06\x08\x05\xbc\x06\x48\x01".encode("latin-1")], ints)
    decode(c, "other_wire_type", ["\x4d1234"], ints)
    decode(c, "inner", ["\x82\x02\x02\x48\x07".encode("latin-1")], [("inner", "string")])
    decode(c, "no_fields", ["\x48\x01"], [])
    for label, text in {
        "truncated": "\x48",
        "truncated_length": "\x52\x09\x01",
        "truncated_packed": "\x52\x01\x80",
        "end_group": "\x4c",
        "zero_tag": "\x00\x48\x01",
        "open_group": "\xbb\x06\x08\x05",
        "skipped_truncated": "\xca\x3e\x09ab",
        "number_zero": "\x02\x01a",
    }.items():
        decode(c, f"damaged/{label}", [text.encode("latin-1")], ints)
        decode(c, f"damaged_sanitized/{label}", [text.encode("latin-1")], ints, sanitize=True)
    decode(
        c, "fixed_length", ["\x22\x05abcde"], [("floats", "float")], "Illegal data length for packed fixed-size type: 5"
    )
    decode(c, "empty", np.array([], object), ints, "Bufs argument must contain at least one value")
    decode(c, "type", [""], [("int32", "float")], "Unexpected output type for proto2.All.int32: int32 to DT_FLOAT")
    decode(
        c, "string_type", [""], [("inner", "int32")], "Unexpected output type for proto2.All.inner: message to DT_INT32"
    )
    decode(c, "field", [""], [("nothing", "int32")], "Unknown field: nothing in message type proto2.All")
    decode(c, "message", [""], ints, "No descriptor found for message type No", kind="No")
    decode(c, "format", [""], ints, "format must be one of binary or text", message_format="json")
    texts = [
        "int32: 5 int32s: 1 int32s: 2",
        "int32s: [3, 4, 5] worded: 'a\\n\"b' scaled: inf",
        "Part { x: 3 } choice: PROTO2_TWO",
    ]
    texts += ["# words\n inner < int32: 4 > strings: 'a' 'b'"]
    fields = [
        *ints,
        ("worded", "string"),
        ("scaled", "float"),
        ("part", "string"),
        ("choice", "int32"),
        ("strings", "string"),
    ]
    decode(c, "text", texts, fields, message_format="text")
    for label, text in {
        "word": "int32",
        "value": "int32: a",
        "unknown": "nothing: 1",
        "open": "inner { int32: 1",
    }.items():
        decode(c, f"bad_text/{label}", [text], ints, "Unable to parse text protobuf", message_format="text")
    example = [("context", "string")]
    decode(c, "local", ["\x0a\x03\x0a\x01a"], example, kind="tensorflow.SequenceExample", source="local://")
    decode(c, "local_unknown", [""], example, kind="tensorflow.Nothing", source="local://")
