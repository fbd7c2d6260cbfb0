"""Tensors, attributes and graphs as protobuf messages, and their text form in golden files."""

import re

import environment
import values

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import attr_value_pb2, tensor_pb2, tensor_shape_pb2

_VALUE_FIELDS = {
    "float": "float_val",
    "double": "double_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "string": "string_val",
}


def dtype_of(array):
    """The dtype name of a numpy array."""
    if array.dtype.kind in "OSU":
        return "string"
    for name, numpy_type in values.NUMPY.items():
        if array.dtype == numpy_type:
            return name
    raise ValueError(f"no dtype for {array.dtype}")


def tensor(array):
    """A TensorProto with one typed value per element, so that goldens can be read and reviewed."""
    array = np.asarray(array)
    dtype = dtype_of(array)
    proto = tensor_pb2.TensorProto(dtype=values.enum_of(dtype), tensor_shape=shape(array.shape))
    flat = array.ravel()
    if dtype in ("half", "bfloat16"):
        proto.half_val.extend(flat.view(np.uint16).tolist())
    elif dtype in values.COMPLEX:
        parts = flat.view(np.float32 if dtype == "complex64" else np.float64).tolist()
        (proto.scomplex_val if dtype == "complex64" else proto.dcomplex_val).extend(parts)
    elif dtype == "string":
        proto.string_val.extend(v if isinstance(v, bytes) else str(v).encode() for v in flat.tolist())
    else:
        getattr(proto, _VALUE_FIELDS.get(dtype, "int_val")).extend(flat.tolist())
    return proto


def array(proto):
    """The numpy array in a TensorProto of any encoding."""
    if values.name_of(proto.dtype) == "string" and proto.tensor_content:
        flat = _strings(proto.tensor_content, int(np.prod([dim.size for dim in proto.tensor_shape.dim])))
        return values.convert(flat, "string").reshape([dim.size for dim in proto.tensor_shape.dim])
    return tf.make_ndarray(proto)


def _strings(content, count):
    """Decodes string `tensor_content`: all lengths as varints, then all bytes."""
    lengths, at = [], 0
    for _ in range(count):
        length = shift = 0
        while True:
            byte = content[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        lengths.append(length)
    flat = []
    for length in lengths:
        flat.append(content[at : at + length])
        at += length
    return flat


def shape(dims):
    """A TensorShapeProto; None is unknown rank, a None dim is unknown."""
    if dims is None:
        return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
    return tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=-1 if d is None else d) for d in dims]
    )


def attr(kind, value):
    """An AttrValue of the kind named in an OpDef: `int`, `list(type)`, ...; None is an empty tensor attr that is not set."""
    proto = attr_value_pb2.AttrValue()
    if kind.startswith("list("):
        proto.list.SetInParent()
        element = kind[5:-1]
        for item in value:
            single = attr(element, item)
            field = single.WhichOneof("value")
            getattr(proto.list, field).append(getattr(single, field))
    elif kind == "int":
        proto.i = value
    elif kind == "float":
        proto.f = value
    elif kind == "bool":
        proto.b = value
    elif kind == "string":
        proto.s = value.encode() if isinstance(value, str) else value
    elif kind == "type":
        proto.type = values.enum_of(value) if isinstance(value, str) else value
    elif kind == "shape":
        proto.shape.CopyFrom(shape(value))
    elif kind == "tensor":
        proto.tensor.CopyFrom(value if isinstance(value, tensor_pb2.TensorProto) else tensor(value))
    elif kind == "func":
        proto.func.name = value
    else:
        raise ValueError(f"attr kind {kind}")
    return proto


def line(message):
    """A message on one line."""
    return text_format.MessageToString(message, as_one_line=True, use_short_repeated_primitives=True)


def normalize_functions(graph):
    """The graph with library functions renamed to `fn0`, `fn1`, ...: the given names count what the process traced before.

    Arguments are named after functions too, so names are replaced wherever they occur in the text.
    """
    names = [f.signature.name for f in sorted(graph.library.function, key=_creation_order)]
    if not names:
        return graph
    new = {name: f"fn{i}" for i, name in enumerate(names)}
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    text = re.sub(
        rf"(?<![A-Za-z0-9])({pattern})(?![0-9])", lambda match: new[match[1]], text_format.MessageToString(graph)
    )
    renamed = text_format.Parse(text, type(graph)())
    functions = sorted(renamed.library.function, key=lambda f: int(f.signature.name[2:]))
    renamed.library.ClearField("function")
    renamed.library.function.extend(functions)
    return renamed


def _creation_order(function):
    """A sort key: the number that tracing puts into a name, between underscores, grows in order of creation.

    Functions of TensorFlow 1 have a hash in its place, whose digits are no order.
    """
    numbers = re.findall(r"(?<![^_])\d{1,7}(?![^_])", function.signature.name)
    return (int(numbers[-1]) if numbers else 0, function.signature.name)
