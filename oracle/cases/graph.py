"""Graphs that a server must refuse, and with which status."""

import protos
from values import *

import numpy as np
from tensorflow.core.framework import attr_value_pb2, tensor_pb2


def base(c, name, producer=None):
    p = c.program(name, producer=producer)
    p.const(np.float32([1, 2]), name="x")
    return p


def cases(c):
    def broken(name, op, inputs, fetch=True, **attrs):
        p = base(c, name)
        p.node(op, inputs, name="y", **attrs)
        p.step(**({"fetch": ["y"]} if fetch else {"target": ["y"]}))
        return p

    broken("dangling_input", "Neg", ["nowhere"], T="float")
    broken("dangling_control", "Neg", ["x", "^nowhere"], T="float")
    broken("output_index_too_large", "Neg", ["x:1"], T="float")
    broken("negative_output_index", "Neg", ["x:-1"], T="float")
    broken("too_few_inputs", "AddV2", ["x"], T="float")
    broken("too_many_inputs", "Neg", ["x", "x"], T="float")
    broken("control_before_data", "Neg", ["^x", "x"], T="float")
    broken("missing_attr", "Neg", ["x"])
    broken("attr_not_allowed", "Neg", ["x"], T="string")
    broken("input_type_mismatch", "Neg", ["x"], T="int32")
    broken("no_kernel_for_type", "Neg", ["x"], T="uint8")
    broken("unknown_op", "NoSuchOp", ["x"])
    broken("unknown_attr", "Neg", ["x"], T="float", nonsense=attr_value_pb2.AttrValue(i=1))
    broken("underscore_attr", "Neg", ["x"], T="float", _hint=attr_value_pb2.AttrValue(i=1))
    broken("attr_of_wrong_kind", "Cast", ["x"], SrcT="float", DstT="int32", Truncate=True)
    broken("zero_length_list", "AddN", [], T="float", N=0)
    broken("list_shorter_than_inputs", "AddN", ["x", "x"], T="float", N=1)
    broken("self_loop", "Neg", ["y"], T="float")
    broken("duplicate_control", "Neg", ["x", "^x", "^x"], T="float")
    p = base(c, "attr_kind_mismatch")
    p.node("Neg", ["x"], name="y", T="float")
    p.graph.node[-1].attr["T"].CopyFrom(attr_value_pb2.AttrValue(i=1))
    p.step(fetch=["y"])
    for bad in ("", "_y", "y y", "-y", "y:0", "^y", "y/z", "Y.9", "y>z", "y\\z"):
        p = base(c, "name/" + "".join(ch if ch.isalnum() else f"_{ord(ch)}" for ch in bad))
        p.node("Neg", ["x"], name="placeholder", T="float")
        p.graph.node[-1].name = bad
        p.step(fetch=["x"])
    p = base(c, "duplicate_node")
    p.const(np.float32([1, 2]), name="x")
    p.step(fetch=["x"])
    p = base(c, "empty_op")
    p.node("Neg", ["x"], name="y", T="float")
    p.graph.node[-1].op = ""
    p.step(fetch=["y"])
    for device in (
        "/job:nowhere",
        "/device:GPU:7",
        "/device:CPU:0",
        "/job:localhost/replica:0/task:0/device:CPU:0",
        "/cpu:0",
        "nonsense",
        "/device:CPU:1",
    ):
        p = base(c, "device/" + "".join(ch if ch.isalnum() else "_" for ch in device))
        p.node("Neg", ["x"], name="y", device=device, T="float")
        p.step(fetch=["y"])
    # Too old, too new, and an op removed since.
    base(c, "producer/0", producer=None).graph.versions.producer = 0
    c.cases[-1].step(fetch=["x"])
    p = base(c, "consumer_too_old")
    p.graph.versions.min_consumer = 100000
    p.step(fetch=["x"])
    p = base(c, "bad_consumer")
    p.graph.versions.bad_consumers.append(p.graph.versions.producer)
    p.step(fetch=["x"])
    p = base(c, "future_producer")
    p.graph.versions.producer = 1000000
    p.step(fetch=["x"])
    p = base(c, "deprecated_op")
    p.node("BatchMatrixDiag", ["x"], name="y", T="float")
    p.step(fetch=["y"])
    p = base(c, "empty_graph")
    del p.graph.node[:]
    p.step()
    # Unused parts of the graph may lack kernels, but their declarations are checked.
    p = base(c, "unused_node_without_kernel")
    p.placeholder("uint8", name="u")
    p.node("Neg", ["u"], name="unused", T="float")
    p.step(fetch=["x"])
    p = base(c, "colocation/unknown_group")
    p.node(
        "Neg",
        ["x"],
        name="y",
        T="float",
        _class=attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(s=[b"loc:@nowhere"])),
    )
    p.step(fetch=["y"])
    p = base(c, "colocation/with_input")
    p.node(
        "Neg",
        ["x"],
        name="y",
        T="float",
        _class=attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(s=[b"loc:@x"])),
    )
    p.step(fetch=["y"])
    # An error names its node, and the error of the node that failed wins over those it caused.
    p = base(c, "error_names_node")
    p.const(np.int32([3]), name="shape")
    p.node("Reshape", ["x", "shape"], name="scope/inner", T="float", Tshape="int32")
    p.node("Neg", ["scope/inner"], name="y", T="float")
    p.step(fetch=["y"], message="[[{{node scope/inner}}]]")
    p = base(c, "huge_shape")
    p.const(np.int32([2**31 - 1, 2**31 - 1]), name="dims")
    p.const(np.float32(0), name="zero")
    p.node("Fill", ["dims", "zero"], name="y", T="float", index_type="int32")
    p.step(fetch=["y"])
    huge = tensor_pb2.TensorProto(dtype=1, tensor_shape=protos.shape([2**40, 2**40]))
    p = base(c, "overflowing_const_shape")
    p.node("Const", name="k", dtype="float", value=huge)
    p.step(fetch=["k"])
    p = base(c, "feed/fed_twice")
    p.placeholder("float", name="a")
    p.node("Neg", ["a"], name="y", T="float")
    p.step(fetch=["y"], feed={"a": np.float32(1)})
    p.steps[-1].feeds.append(p.steps[-1].feeds[0])
    p = base(c, "feed/and_target_its_node")
    p.placeholder("float", name="a")
    p.step(target=["a"], feed={"a": np.float32(1)})
    p = base(c, "feed/wrong_count_of_values")
    p.placeholder("float", name="a")
    p.node("Neg", ["a"], name="y", T="float")
    p.step(fetch=["y"], feed={"a": np.float32([1, 2])})
    p.steps[-1].feeds[0].tensor.tensor_shape.CopyFrom(protos.shape([3]))
    p.step(fetch=["y"], feed={"a": np.float32([1, 2])})
    p.steps[-1].feeds[0].tensor.ClearField("float_val")
    p.steps[-1].feeds[0].tensor.tensor_content = b"\0\0\0"
