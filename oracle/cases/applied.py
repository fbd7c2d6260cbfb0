"""Functions applied elsewhere, to rows, and as their gradients; ops of the first generation of functions."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import function
from tensorflow.python.ops import functional_ops

v1 = tf.compat.v1


def gradients(c):
    def symbolic():
        @function.Defun(tf.float32, tf.float32)
        def f(x, y):
            return tf.tanh(x) * y + x

        x, y = v1.placeholder(tf.float32, [2]), v1.placeholder(tf.float32, [2])
        dx, dy = functional_ops.symbolic_gradient(input=[x, y, tf.ones([2])], Tout=[tf.float32] * 2, f=f)
        f.add_to_graph(v1.get_default_graph())
        return [({x: np.float32([1, 2]), y: np.float32([5, 7])}, [dx, dy])]

    def given_gradient():
        @function.Defun(tf.float32, tf.float32)
        def grad(x, dy):
            return dy * x * 100.0

        @function.Defun(tf.float32, grad_func=grad)
        def f(x):
            return x * x

        x = v1.placeholder(tf.float32, [2])
        return [({x: np.float32([1, 2])}, [v1.gradients(f(x), [x])[0]])]

    def matmul():
        @function.Defun(tf.float32, tf.float32)
        def f(x, w):
            return tf.matmul(x, w), tf.reduce_sum(w)

        x, w = v1.placeholder(tf.float32, [2, 2]), v1.placeholder(tf.float32, [2, 2])
        y, total = f(x, w)
        data = np.float32([[1, 2], [3, 4]])
        return [({x: data, w: data + 1}, list(v1.gradients([y, total * 2.0], [x, w])))]

    def of_calls():
        """A function that calls others: one twice, one with a gradient of its own, one of whose results goes unused."""

        @function.Defun(tf.float32, tf.float32)
        def grad(x, dy):
            return dy * x * 100.0

        @function.Defun(tf.float32, grad_func=grad)
        def square(x):
            return x * x

        @function.Defun(tf.float32, tf.int32)
        def cell(x, n):
            return tf.tanh(x) * tf.cast(n, tf.float32), tf.exp(x)

        @function.Defun(tf.float32, tf.int32)
        def f(x, n):
            once, _ = cell(x, n)
            twice, other = cell(once, n + 1)
            return square(twice) + other

        x = v1.placeholder(tf.float32, [2])
        n = v1.placeholder(tf.int32, [])
        y = f(x, n)
        return [({x: np.float32([1, 2]), n: 2}, [y, v1.gradients(y, [x])[0]])]

    for build in (symbolic, given_gradient, matmul, of_calls):
        c.traced(f"SymbolicGradient/{build.__name__}", build, accuracy="rounding")


def rows(c):
    def each(name, body, inputs, out, captured=()):
        def build():
            placeholders = [v1.placeholder(x.dtype, [None, *x.shape[1:]]) for x in inputs]
            types = [p.dtype for p in placeholders] + [tf.as_dtype(x.dtype) for x in captured]
            f = function.Defun(*types)(body)
            f.add_to_graph(v1.get_default_graph())
            result = tf.raw_ops.MapDefun(
                arguments=placeholders,
                captured_inputs=[tf.constant(x) for x in captured],
                output_types=[t for t, _ in out],
                output_shapes=[s for _, s in out],
                f=f,
            )
            return [(dict(zip(placeholders, inputs, strict=True)), list(result))]

        c.traced(f"MapDefun/{name}", build)

    x = np.float32([[1, 2], [3, 4], [5, 6]])
    each("sum", lambda a: tf.reduce_sum(a, 0), [x], [(tf.float32, [])])
    each("two", lambda a, b: (a * b, tf.cast(b, tf.int32)), [x, x], [(tf.float32, [2]), (tf.int32, [2])])
    each("captured", lambda a, b: a * b, [x], [(tf.float32, [2])], captured=[np.float32(3)])
    each("empty", lambda a: a + 1.0, [x[:0]], [(tf.float32, [2])])
    each("lengths", lambda a, b: a, [x, x[:2]], [(tf.float32, [2])])
    each("shape", lambda a: a, [x], [(tf.float32, [3])])


def elsewhere(c):
    def remote():
        @function.Defun(tf.float32)
        def f(x):
            return x * 2.0

        x = v1.placeholder(tf.float32, [2])
        f.add_to_graph(v1.get_default_graph())
        target = v1.placeholder(tf.string, [])
        y = functional_ops.remote_call(target=target, args=[x], Tout=[tf.float32], f=f)
        return [({x: np.float32([1, 2]), target: b"/device:CPU:0"}, list(y))]

    c.traced("RemoteCall/own", remote)


def first_generation(c):
    """Conditionals and loops that name functions, as the first graphs with functions had them."""

    def node(op, inputs, types, **functions):
        graph = v1.get_default_graph()
        attrs = {"T" if op == "_While" else "Tin": attr(list(types[0])), **functions}
        if op == "_If":
            attrs |= {"Tcond": attr(tf.bool), "Tout": attr(list(types[1]))}
        for name, f in functions.items():
            f.add_to_graph(graph)
            attrs[name] = attr(f)
        return graph._create_op_internal(op, inputs, types[1], name=op.strip("_"), attrs=attrs).outputs

    def attr(value):
        kind = attr_value_pb2.AttrValue()
        if isinstance(value, list):
            kind.list.type.extend(each.as_datatype_enum for each in value)
        elif isinstance(value, tf.DType):
            kind.type = value.as_datatype_enum
        else:
            kind.func.name = value.name
        return kind

    def conditional():
        double = function.Defun(tf.float32)(lambda x: x * 2.0)
        negative = function.Defun(tf.float32)(lambda x: -x)
        which, x = v1.placeholder(tf.bool, []), v1.placeholder(tf.float32, [2])
        types = ([tf.float32], [tf.float32])
        y = node("_If", [which, x], types, then_branch=double, else_branch=negative)
        return [({which: verdict, x: np.float32([1, 2])}, y) for verdict in (True, False)]

    def loop():
        small = function.Defun(tf.int32, tf.float32)(lambda i, x: i < 5)
        twice = function.Defun(tf.int32, tf.float32)(lambda i, x: (i + 1, x * 2.0))
        i, x = v1.placeholder(tf.int32, []), v1.placeholder(tf.float32, [])
        types = [tf.int32, tf.float32]
        y = node("_While", [i, x], (types, types), cond=small, body=twice)
        return [({i: np.int32(start), x: np.float32(1)}, list(y)) for start in (0, 7)]

    c.traced("_If", conditional)
    c.traced("_While", loop)


def small(c):
    for names in (["CPU", "GPU"], ["GPU", "CPU"], ["GPU"]):
        p = c.program(f"DeviceIndex/{'_'.join(names)}")
        p.node("DeviceIndex", name="index", device_names=names)
        p.step(fetch=["index"])
    p = c.program("HostConst")
    p.node("HostConst", name="c", dtype="int32", value=np.int32([1, 2]))
    p.step(fetch=["c"])
    p = c.program("_HostCast")
    p.const(np.float32([1.5, -2.5]), name="x")
    p.node("_HostCast", ["x"], name="y", SrcT="float", DstT="int32")
    p.step(fetch=["y"])
    p = c.program("ImmutableConst/no_file")
    p.node("ImmutableConst", name="c", dtype="float", shape=[2], memory_region_name="/nowhere/data")
    p.step(fetch=["c"], message="/nowhere/data")
    p = c.program("IsResourceHandleRefCounting")
    p.node("VarHandleOp", name="v", dtype="float", shape=[], shared_name="v")
    p.node("IsResourceHandleRefCounting", ["v"], name="is")
    p.step(fetch=["is"])
    p = c.program("MakeWeakResourceHandle")
    p.node("VarHandleOp", name="v", dtype="float", shape=[], shared_name="v")
    p.node("MakeWeakResourceHandle", ["v"], name="weak")
    p.const(np.float32(3), name="x")
    p.node("AssignVariableOp", ["weak", "x"], name="assign", dtype="float")
    p.node("ReadVariableOp", ["v", "^assign"], name="read", dtype="float")
    p.node("IsResourceHandleRefCounting", ["weak"], name="is")
    p.step(fetch=["read", "is"])
    p = c.program("FakeQueue")
    p.node("FIFOQueueV2", name="q", component_types=["float"], shared_name="q")
    p.node("FakeQueue", ["q"], name="fake")
    p.node("QueueSize", ["fake"], name="size")
    p.step(fetch=["size"])


def cases(c):
    gradients(c)
    rows(c)
    elsewhere(c)
    first_generation(c)
    small(c)
