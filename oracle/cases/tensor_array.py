"""TensorArray, Stack: values written and read by index inside one step."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def array(c, name, dtype="float", size=3, **attrs):
    p = c.program(f"TensorArrayV3/{name}")
    p.const(np.int32(size), name="size")
    p.node("TensorArrayV3", ["size"], name="ta", dtype=dtype, **attrs)
    for i in range(4):
        p.const(np.int32(i), name=f"i{i}")
        p.const(arr(2, seed=i)(dtype), name=f"x{i}")
    return p


def write(p, index, flow, dtype="float", value=None):
    return p.node("TensorArrayWriteV3", ["ta:0", f"i{index}", value or f"x{index}", flow], name=f"w{index}", T=dtype)


def raw(c):
    for dtype in c.dtypes("TensorArrayWriteV3", "T"):
        p = array(c, f"write_read/{dtype}", dtype)
        flow = write(p, 1, write(p, 0, "ta:1", dtype), dtype)
        for i in (0, 1):
            p.node("TensorArrayReadV3", ["ta:0", f"i{i}", flow], name=f"r{i}", dtype=dtype)
        p.step(fetch=["r0", "r1"])
        p.step(fetch=["r1"])
    for dtype in ("float", "int64", "string", "bool"):
        p = array(c, f"gather/{dtype}", dtype)
        flow = write(p, 2, write(p, 1, write(p, 0, "ta:1", dtype), dtype), dtype)
        p.const(np.int32([2, 0]), name="indices")
        p.node("TensorArrayGatherV3", ["ta:0", "indices", flow], name="g", dtype=dtype)
        p.node("TensorArrayConcatV3", ["ta:0", flow], name="c", dtype=dtype)
        p.node("TensorArraySizeV3", ["ta:0", flow], name="n")
        p.step(fetch=["g", "n"])
        p.step(fetch=["c:0", "c:1"])
        p = array(c, f"scatter/{dtype}", dtype)
        p.const(np.int32([2, 0]), name="indices")
        p.const(arr(2, 3)(dtype), name="x")
        p.node("TensorArrayScatterV3", ["ta:0", "indices", "x", "ta:1"], name="s", T=dtype)
        p.node("TensorArrayReadV3", ["ta:0", "i2", "s"], name="r", dtype=dtype)
        p.step(fetch=["r"])
        p = array(c, f"split/{dtype}", dtype)
        p.const(np.int64([2, 0, 1]), name="lengths")
        p.const(arr(3, 2)(dtype), name="x")
        p.node("TensorArraySplitV3", ["ta:0", "x", "lengths", "ta:1"], name="s", T=dtype)
        for i in range(3):
            p.node("TensorArrayReadV3", ["ta:0", f"i{i}", "s"], name=f"r{i}", dtype=dtype)
        p.step(fetch=["r0", "r1", "r2"])
    p = array(c, "read_unwritten")
    p.node("TensorArrayReadV3", ["ta:0", "i1", "ta:1"], name="r", dtype="float")
    p.step(fetch=["r"])
    p = array(c, "read_unwritten_with_shape", element_shape=[2])
    p.node("TensorArrayReadV3", ["ta:0", "i1", "ta:1"], name="r", dtype="float")
    p.step(fetch=["r"])
    p = array(c, "write_twice")
    first = write(p, 0, "ta:1")
    p.node("TensorArrayWriteV3", ["ta:0", "i0", "x1", first], name="again", T="float")
    p.step(fetch=["again"])
    p = array(c, "write_past_end", size=1)
    write(p, 1, "ta:1")
    p.step(fetch=["w1"])
    p = array(c, "grows", size=1, dynamic_size=True)
    flow = write(p, 3, "ta:1")
    p.node("TensorArraySizeV3", ["ta:0", flow], name="n")
    p.step(fetch=["n"])
    p = array(c, "negative_size", size=-1)
    p.node("TensorArraySizeV3", ["ta:0", "ta:1"], name="n")
    p.step(fetch=["n"])
    p = array(c, "wrong_dtype")
    p.const(np.int32([1]), name="bad")
    p.node("TensorArrayWriteV3", ["ta:0", "i0", "bad", "ta:1"], name="w", T="int32")
    p.step(fetch=["w"])
    p = array(c, "wrong_element_shape", element_shape=[3])
    write(p, 0, "ta:1")
    p.step(fetch=["w0"])
    p = array(c, "shapes_differ", identical_element_shapes=True)
    p.const(arr(3)("float"), name="longer")
    flow = p.node("TensorArrayWriteV3", ["ta:0", "i1", "longer", write(p, 0, "ta:1")], name="w1", T="float")
    p.step(fetch=["w1"])
    p = array(c, "clear_after_read", clear_after_read=True)
    flow = write(p, 0, "ta:1")
    p.node("TensorArrayReadV3", ["ta:0", "i0", flow], name="r", dtype="float")
    p.node("TensorArrayReadV3", ["ta:0", "i0", flow, "^r"], name="again", dtype="float")
    p.step(fetch=["again"])
    p = array(c, "keep_after_read", clear_after_read=False)
    flow = write(p, 0, "ta:1")
    p.node("TensorArrayReadV3", ["ta:0", "i0", flow], name="r", dtype="float")
    p.node("TensorArrayReadV3", ["ta:0", "i0", flow, "^r"], name="again", dtype="float")
    p.step(fetch=["again", "r"])
    p = array(c, "closed")
    flow = write(p, 0, "ta:1")
    p.node("TensorArrayCloseV3", ["ta:0", f"^{flow}"], name="close")
    p.node("TensorArrayReadV3", ["ta:0", "i0", flow, "^close"], name="r", dtype="float")
    p.step(target=["close"])
    p.step(fetch=["r"])
    p = array(c, "gradient")
    flow = write(p, 1, write(p, 0, "ta:1"))
    p.node("TensorArrayGradV3", ["ta:0", flow], name="g", source="gradients")
    w = p.node("TensorArrayWriteV3", ["g:0", "i0", "x2", "g:1"], name="gw", T="float")
    # Gradients written twice are added.
    again = p.node("TensorArrayWriteV3", ["g:0", "i0", "x3", w], name="gw2", T="float")
    p.node("TensorArrayReadV3", ["g:0", "i0", again], name="r", dtype="float")
    p.node("TensorArrayReadV3", ["g:0", "i1", again], name="zero", dtype="float")
    p.step(fetch=["r"])
    p.step(fetch=["r", "zero"])
    p = array(c, "gradient_with_shape")
    flow = write(p, 0, "ta:1")
    p.const(np.int32([3]), name="outer")
    p.node("TensorArrayGradWithShape", ["ta:0", flow, "outer"], name="g", source="gradients")
    p.const(arr(3, 2)("float"), name="x")
    w = p.node("TensorArrayWriteV3", ["g:0", "i0", "x", "g:1"], name="gw", T="float")
    p.node("TensorArrayReadV3", ["g:0", "i0", w], name="r", dtype="float")
    p.step(fetch=["r"])


def traced(c):
    def loop():
        x = v1.placeholder(tf.float32, [None])
        ta = tf.TensorArray(tf.float32, size=tf.size(x))
        ta = ta.unstack(x)
        out = tf.TensorArray(tf.float32, size=tf.size(x))
        _, out = v1.while_loop(
            lambda i, o: i < tf.size(x), lambda i, o: (i + 1, o.write(i, ta.read(i) * 2.0)), [0, out]
        )
        y = out.stack()
        return [({x: np.float32([1, 2, 3])}, [y, v1.gradients(y, x)[0]])]

    c.traced("loop", loop)

    def grow():
        n = v1.placeholder(tf.int32, [])
        out = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[])
        _, out = v1.while_loop(lambda i, o: i < n, lambda i, o: (i + 1, o.write(i, i * i)), [0, out])
        return [({n: np.int32(k)}, [out.stack()]) for k in (0, 4)]

    c.traced("grow", grow)


def stack(c):
    for dtype in c.dtypes("StackPushV2", "T"):
        p = c.program(f"StackV2/{dtype}")
        p.const(np.int32(-1), name="size")
        p.node("StackV2", ["size"], name="s", elem_type=dtype)
        for i in range(2):
            p.const(arr(2, seed=i)(dtype), name=f"x{i}")
        p.node("StackPushV2", ["s", "x0"], name="p0", T=dtype)
        p.node("StackPushV2", ["s", "x1", "^p0"], name="p1", T=dtype)
        p.node("StackPopV2", ["s", "^p1"], name="y1", elem_type=dtype)
        p.node("StackPopV2", ["s", "^y1"], name="y0", elem_type=dtype)
        p.step(fetch=["p0", "y1", "y0"])
        p.step(fetch=["y0"])
    for op, size, generation in (("StackV2", ["size"], "V2"), ("Stack", [], "")):
        p = c.program(f"{op}/one_name_twice")
        p.const(np.int32(-1), name="size")
        for name, value in (("s", 1), ("t", 2)):
            p.node(op, size, name=name, elem_type="float", stack_name="shared")
            p.const(np.float32(value), name=f"x_{name}")
        p.node(f"StackPush{generation}", ["s", "x_s"], name="push_s", T="float")
        p.node(f"StackPush{generation}", ["t", "x_t", "^push_s"], name="push_t", T="float")
        p.node(f"StackPop{generation}", ["s", "^push_t"], name="pop_s", elem_type="float")
        p.node(f"StackPop{generation}", ["t", "^pop_s"], name="pop_t", elem_type="float")
        p.node(f"StackPop{generation}", ["s", "^pop_s"], name="pop_more", elem_type="float")
        p.step(fetch=["pop_s", "pop_t"])
        p.step(fetch=["pop_more"], message="is empty when calling Pop()")
    p = c.program("StackV2/other_types")
    p.const(np.int32(-1), name="size")
    p.node("StackV2", ["size"], name="s", elem_type="float")
    p.const(np.float32(1), name="x")
    p.const(np.int32(1), name="i")
    p.node("StackPushV2", ["s", "x"], name="push", T="float")
    p.node("StackPushV2", ["s", "i"], name="push_int", T="int32")
    p.node("StackPopV2", ["s", "^push"], name="pop_int", elem_type="int32")
    p.step(fetch=["push_int"], message=SENTENCE)
    p.step(fetch=["pop_int"], message=SENTENCE)
    p = c.program("Stack/handle_by_reference")
    p.node("Stack", name="s", elem_type="float")
    p.const(np.float32([1, 2]), name="x")
    p.node("StackPush", ["s", "x"], name="a", T="float")
    p.node("StackPop", ["s", "^a"], name="y", elem_type="float")
    p.node("StackClose", ["s", "^y"], name="close")
    p.step(fetch=["y"])
    p.step(target=["close"])
    p = c.program("StackV2/pop_empty")
    p.const(np.int32(-1), name="size")
    p.node("StackV2", ["size"], name="s", elem_type="float")
    p.node("StackPopV2", ["s"], name="y", elem_type="float")
    p.step(fetch=["y"])
    p = c.program("StackV2/overflow")
    p.const(np.int32(1), name="size")
    p.node("StackV2", ["size"], name="s", elem_type="float")
    p.const(np.float32(1), name="x")
    p.node("StackPushV2", ["s", "x"], name="a", T="float")
    p.node("StackPushV2", ["s", "x", "^a"], name="b", T="float")
    p.step(fetch=["b"])
    p = c.program("StackV2/close")
    p.const(np.int32(-1), name="size")
    p.node("StackV2", ["size"], name="s", elem_type="float")
    p.const(np.float32(1), name="x")
    p.node("StackPushV2", ["s", "x"], name="a", T="float")
    p.node("StackCloseV2", ["s", "^a"], name="close")
    p.node("StackPopV2", ["s", "^close"], name="y", elem_type="float")
    p.step(target=["close"])
    p.step(fetch=["y"])


def named(c):
    """Arrays of the first two generations, known by their names."""
    for version, producer in (("", 15), ("V2", 25)):

        def op(p, kind, inputs, name, version=version, **attrs):
            # Names do not tell where an array is, so the device does.
            return p.node(f"TensorArray{kind}{version}", inputs, name=name, device="/device:CPU:0", **attrs)

        def start(name, size=3, version=version, producer=producer, **attrs):
            p = c.program(f"TensorArray{version}/{name}", producer=producer)
            p.const(np.int32(size), name="size")
            op(p, "", ["size"], "ta", dtype="float", **attrs)
            p.const(np.float32(0), name="flow")
            p.const(np.int32([2, 0]), name="indices")
            p.const(arr(3, 2)("float"), name="x")
            for i in range(3):
                p.const(np.int32(i), name=f"i{i}")
                p.const(arr(2, seed=i)("float"), name=f"x{i}")
            return p

        p = start("write_read", clear_after_read=False)
        flow = "flow"
        for i in range(3):
            flow = op(p, "Write", ["ta", f"i{i}", f"x{i}", flow], f"w{i}", T="float")
        op(p, "Read", ["ta", "i1", flow], "r", dtype="float")
        op(p, "Gather", ["ta", "indices", flow], "g", dtype="float")
        op(p, "Concat", ["ta", flow], "c", dtype="float")
        op(p, "Size", ["ta", flow], "n")
        if not version:
            op(p, "Pack", ["ta", flow], "pack", dtype="float")
        op(p, "Close", ["ta", "^r", "^g", "^n"], "close")
        p.step(fetch=["r", "g", "c:0", "c:1", "n", *([] if version else ["pack"])])
        p.step(fetch=["r"], target=["close"])
        p = start("scatter")
        flow = op(p, "Scatter", ["ta", "indices", "two", "flow"], "s", T="float")
        p.const(arr(2, 2)("float"), name="two")
        op(p, "Read", ["ta", "i2", flow], "r", dtype="float")
        p.step(fetch=["r"])
        p = start("split", size=2)
        p.const(np.int64([1, 2]), name="lengths")
        flow = op(p, "Split", ["ta", "x", "lengths", "flow"], "s", T="float")
        op(p, "Read", ["ta", "i1", flow], "r", dtype="float")
        p.step(fetch=["r"])
        p = start("gradient")
        flow = op(p, "Write", ["ta", "i0", "x0", "flow"], "w", T="float")
        p.node("Identity", ["ta"], name="names", T="string")
        op(p, "Grad", ["names", flow], "grad", source="gradients")
        after = p.node("Identity", ["flow", "^grad"], name="after", T="float")
        first = op(p, "Write", ["grad", "i0", "x1", after], "g0", T="float")
        second = op(p, "Write", ["grad", "i0", "x2", first], "g1", T="float")
        op(p, "Read", ["grad", "i0", second], "r", dtype="float")
        p.step(fetch=["r"])
        p = start("unwritten")
        op(p, "Read", ["ta", "i0", "flow"], "r", dtype="float")
        p.step(fetch=["r"], message="Could not read from TensorArray index 0")
    p = c.program("TensorArrayUnpack/rows", producer=15)
    p.const(np.int32(3), name="size")
    p.node("TensorArray", ["size"], name="ta", dtype="float")
    p.const(np.float32(0), name="flow")
    for name, rows in (("x", 3), ("short", 2)):
        p.const(arr(rows, 2)("float"), name=name)
        p.node("TensorArrayUnpack", ["ta", name, "flow"], name=f"u_{name}", T="float")
    p.node("TensorArrayPack", ["ta", "u_x"], name="packed", dtype="float")
    p.step(fetch=["packed"])
    p.step(fetch=["u_short"], message="Input value must have first dimension equal to the array size (2 vs. 3)")
    p = c.program("TensorArrayV2/removed")
    p.const(np.int32(3), name="size")
    p.node("TensorArrayV2", ["size"], name="ta", dtype="float")
    p.step(fetch=["ta"], message="is not available in GraphDef version")


def cases(c):
    named(c)
    raw(c)
    stack(c)
    v1.disable_control_flow_v2()
    try:
        traced(c)
    finally:
        v1.enable_control_flow_v2()
