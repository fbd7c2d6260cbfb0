"""Tensors of every type, shape and encoding, in and out."""

from report import session, show, show_failure, v1
from wire import Caller, message

import numpy as np
import tensorflow as tf

NUMBERS = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


def run(target):
    fed = {name: v1.placeholder(name, name=name) for name in [*NUMBERS, "bool", "complex64", "complex128", "string"]}
    out = {name: tf.identity(tensor) for name, tensor in fed.items()}
    values = {name: np.array([[0, 1, 2], [3, 100, 127]]).astype(tf.as_dtype(name).as_numpy_dtype) for name in NUMBERS}
    values["bool"] = np.array([[True, False]])
    values["complex64"] = np.array([1 + 2j, -0.5j], np.complex64)
    values["complex128"] = np.array([1e300 + 2j, -0.5j])
    values["string"] = np.array([["", "a"], ["naïve".encode(), b"\x00\xff" * 100]], object)
    with session(target) as sess:
        for name, value in values.items():
            show(name, sess.run(out[name], {fed[name]: value}))
            show(f"{name} scalar", sess.run(out[name], {fed[name]: value.ravel()[-1]}))
            show(f"{name} empty", sess.run(out[name], {fed[name]: value[:0]}))
        for special in [np.nan, np.inf, -np.inf, -0.0, 5e-324]:
            show(f"special {special}", sess.run(out["float64"], {fed["float64"]: special}))
        show("many dimensions", sess.run(out["int32"], {fed["int32"]: np.arange(2).reshape([1] * 20 + [2])}).shape)
        medium = np.arange(300_000, dtype=np.float32)
        show("several frames", bool((sess.run(out["float32"], {fed["float32"]: medium}) == medium).all()))
        words = np.array([b"x" * n for n in range(2000)], object)
        show("many strings", bool((sess.run(out["string"], {fed["string"]: words}) == words).all()))
        show("several at once", sess.run([out["int8"], out["string"]], {fed["int8"]: 5, fed["string"]: "five"}))
    encodings(target)


def encodings(target):
    """One graph of constants, each in another encoding of `TensorProto`, sent as it is."""
    tensor = message("TensorProto")

    def shape(*dims):
        proto = message("TensorShapeProto")()
        for size in dims:
            proto.dim.add(size=size)
        return proto

    cases = {
        "float_all": tensor(dtype=1, tensor_shape=shape(3), float_val=[1, 2, 3]),
        "float_last_repeats": tensor(dtype=1, tensor_shape=shape(2, 2), float_val=[1, 2]),
        "float_none": tensor(dtype=1, tensor_shape=shape(2)),
        "float_raw": tensor(dtype=1, tensor_shape=shape(2), tensor_content=np.array([5, 6], np.float32).tobytes()),
        "double": tensor(dtype=2, tensor_shape=shape(2), double_val=[1e300]),
        "int32": tensor(dtype=3, tensor_shape=shape(3), int_val=[-1, 7]),
        "uint8": tensor(dtype=4, tensor_shape=shape(2), int_val=[200]),
        "int16": tensor(dtype=5, tensor_shape=shape(1), int_val=[-300]),
        "int8": tensor(dtype=6, tensor_shape=shape(1), int_val=[-100]),
        "strings": tensor(dtype=7, tensor_shape=shape(3), string_val=[b"a", b"bc"]),
        "strings_raw": tensor(dtype=7, tensor_shape=shape(2), tensor_content=b"\x02\x01bcx"),
        "complex64": tensor(dtype=8, tensor_shape=shape(2), scomplex_val=[1, 2]),
        "int64": tensor(dtype=9, tensor_shape=shape(), int64_val=[1 << 60]),
        "bool": tensor(dtype=10, tensor_shape=shape(2), bool_val=[True, False]),
        "bfloat16": tensor(dtype=14, tensor_shape=shape(2), half_val=[0x3F80]),
        "uint16": tensor(dtype=17, tensor_shape=shape(1), int_val=[60000]),
        "complex128": tensor(dtype=18, tensor_shape=shape(1), dcomplex_val=[1, 2]),
        "half": tensor(dtype=19, tensor_shape=shape(1), half_val=[0x3C00]),
        "uint32": tensor(dtype=22, tensor_shape=shape(1), uint32_val=[1 << 31]),
        "uint64": tensor(dtype=23, tensor_shape=shape(1), uint64_val=[1 << 63]),
        "no_elements": tensor(dtype=1, tensor_shape=shape(0, 3)),
    }
    caller = Caller(target)
    graph = message("GraphDef")()
    graph.versions.producer = 1482
    for name, value in cases.items():
        node = graph.node.add(name=name, op="Const")
        node.attr["dtype"].type = value.dtype
        node.attr["value"].tensor.CopyFrom(value)
        placeholder = graph.node.add(name=f"p_{name}", op="Placeholder")
        placeholder.attr["dtype"].type = value.dtype
        copy = graph.node.add(name=f"c_{name}", op="Identity", input=[f"p_{name}"])
        copy.attr["T"].type = value.dtype
    handle = caller("CreateSession", graph_def=graph).session_handle

    def run_step(feeds, fetch):
        named = message("NamedTensorProto")
        feeds = [named(name=name, tensor=value) for name, value in feeds.items()]
        request = dict(session_handle=handle, feed=feeds, fetch=[fetch], store_errors_in_response_body=True)
        answer = caller("RunStep", **request)
        if answer.status_code:
            raise RuntimeError(answer.status_error_message)
        from tensorflow.core.framework import tensor_pb2

        return tf.make_ndarray(tensor_pb2.TensorProto.FromString(answer.tensor[0].tensor.SerializeToString()))

    for name, value in cases.items():
        if value.dtype == 7:
            continue
        show(f"constant {name}", run_step({}, f"{name}:0"))
        show(f"fed {name}", run_step({f"p_{name}:0": value}, f"c_{name}:0"))
    with v1.Session(target, graph=tf.Graph()) as sess, sess.graph.as_default():
        definition = v1.GraphDef.FromString(graph.SerializeToString())
        strings = tf.import_graph_def(definition, return_elements=["strings:0", "strings_raw:0"])
        show("constant strings", sess.run(strings))
    wrong = {
        "too few bytes": tensor(dtype=1, tensor_shape=shape(3), tensor_content=b"abc"),
        "no such type": tensor(dtype=99),
        "no type": tensor(),
        "negative dimension": tensor(dtype=1, tensor_shape=shape(-2)),
        "lying strings": tensor(dtype=7, tensor_shape=shape(2), tensor_content=b"\x09\x01a"),
    }
    for name, value in wrong.items():
        show_failure(f"refused: {name}", lambda value=value: run_step({"p_float_all:0": value}, "c_float_all:0"))
