"""Functions: calls, nesting, and control flow of the second generation built on them."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def calls(c):
    def partitioned():
        @tf.function
        def double(x):
            return x * 2.0

        x = v1.placeholder(tf.float32, [None])
        return [({x: np.float32([1, 2])}, [double(x)])]

    def nested_calls():
        @tf.function
        def inner(x):
            return x + 1.0

        @tf.function
        def outer(x):
            return inner(inner(x)) * inner(x)

        x = v1.placeholder(tf.float32, [])
        return [({x: np.float32(2)}, [outer(x)])]

    def several_results():
        @tf.function
        def both(x, y):
            return x + y, x - y, tf.shape(x)

        x, y = v1.placeholder(tf.float32, [2]), v1.placeholder(tf.float32, [2])
        return [({x: np.float32([1, 2]), y: np.float32([5, 7])}, list(both(x, y)))]

    def stateful_call():
        v = v1.get_variable("v", [], tf.float32, v1.zeros_initializer(), use_resource=True)

        @tf.function
        def count(by):
            v.assign_add(by)
            return v.read_value()

        y = count(2.0)
        return [({}, [], [v.initializer]), ({}, [y]), ({}, [y])]

    def assert_inside():
        @tf.function
        def checked(x):
            v1.assert_positive(x, message="must be positive")
            return v1.sqrt(x)

        x = v1.placeholder(tf.float32, [])
        y = checked(x)
        return [({x: np.float32(4)}, [y]), ({x: np.float32(-4)}, [y]), ({x: np.float32(9)}, [y])]

    def unused_result():
        @tf.function
        def two(x):
            return x + 1.0, tf.reshape(x, [7])

        x = v1.placeholder(tf.float32)
        return [({x: np.float32(1)}, [two(x)[0]])]

    def recursion_through_defun():
        @tf.function
        def gradient_of(x):
            return tf.gradients(x * x * x, x)[0]

        x = v1.placeholder(tf.float32, [])
        return [({x: np.float32(3)}, [gradient_of(x)])]

    def gradient_of_call():
        @tf.function
        def cube(x):
            return x * x * x

        x = v1.placeholder(tf.float32, [])
        y = cube(x)
        return [({x: np.float32(3)}, [y, tf.gradients(y, x)[0]])]

    for build in (
        partitioned,
        nested_calls,
        several_results,
        stateful_call,
        assert_inside,
        unused_result,
        recursion_through_defun,
        gradient_of_call,
    ):
        c.traced(build.__name__, build)


def functional(c):
    def cond():
        x = v1.placeholder(tf.float32, [])
        y = tf.cond(x > 0, lambda: x * 2, lambda: x - 1)
        return [({x: np.float32(v)}, [y]) for v in (3, -3)]

    def cond_with_effects():
        x = v1.placeholder(tf.bool, [])
        v = v1.get_variable("v", [], tf.float32, v1.zeros_initializer(), use_resource=True)
        y = tf.cond(x, lambda: v.assign_add(1.0), lambda: v.assign_sub(10.0))
        return [({}, [], [v.initializer]), ({x: np.array(True)}, [y]), ({x: np.array(False)}, [y])]

    def switch_case():
        i = v1.placeholder(tf.int32, [])
        y = tf.switch_case(i, [lambda: tf.constant(10), lambda: tf.constant(20), lambda: tf.constant(30)])
        return [({i: np.int32(k)}, [y]) for k in (0, 1, 2, 7, -1)]

    def counted():
        n = v1.placeholder(tf.int32, [])
        i, total = tf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), [0, 0])
        return [({n: np.int32(k)}, [i, total]) for k in (0, 1, 10, 100)]

    def nested():
        n = v1.placeholder(tf.int32, [])

        def row(i, s):
            _, s = tf.while_loop(lambda j, s: j < i, lambda j, s: (j + 1, s + i * j), [0, s])
            return i + 1, s

        _, total = tf.while_loop(lambda i, s: i < n, row, [0, 0])
        return [({n: np.int32(k)}, [total]) for k in (0, 1, 5)]

    def cond_in_loop():
        n = v1.placeholder(tf.int32, [])
        step = lambda i, s: (i + 1, tf.cond(tf.equal(i % 2, 0), lambda: s + i, lambda: s - 1))
        loop = list(tf.while_loop(lambda i, s: i < n, step, [0, 0]))
        return [({n: np.int32(k)}, loop) for k in (1, 9)]

    def effects_in_loop():
        v = v1.get_variable("v", [], tf.float32, v1.zeros_initializer(), use_resource=True)

        def body(i):
            v.assign_add(2.0)
            return i + 1

        loop = tf.while_loop(lambda i: i < 4, body, [0])
        return [({}, [], [v.initializer]), ({}, [loop]), ({}, [v.read_value()])]

    def loop_gradient():
        x = v1.placeholder(tf.float32, [])
        _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), [0, tf.constant(1.0)])
        return [({x: np.float32(2)}, [y, tf.gradients(y, x)[0]])]

    def cond_gradient():
        x = v1.placeholder(tf.float32, [])
        y = tf.cond(x > 0, lambda: x * x, lambda: 3 * x)
        return [({x: np.float32(v)}, [y, tf.gradients(y, x)[0]]) for v in (2, -2)]

    def shapes_change():
        n = v1.placeholder(tf.int32, [])
        grow = lambda i, x: (i + 1, tf.concat([x, x + 1.0], 0))
        loop = tf.while_loop(
            lambda i, x: i < n,
            grow,
            [0, tf.constant([1.0])],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
        )
        return [({n: np.int32(k)}, list(loop)) for k in (0, 1, 3)]

    def failure_in_loop():
        n = v1.placeholder(tf.int32, [])
        loop = tf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + 6 // (3 - i)), [0, 0])
        return [({n: np.int32(3)}, list(loop)), ({n: np.int32(5)}, list(loop))]

    def map_and_scan():
        x = v1.placeholder(tf.float32, [None])
        return [({x: np.float32([1, 2, 3])}, [tf.map_fn(lambda e: e * e, x), tf.scan(lambda a, e: a + e, x)])]

    for build in (
        cond,
        cond_with_effects,
        switch_case,
        counted,
        nested,
        cond_in_loop,
        effects_in_loop,
        shapes_change,
        failure_in_loop,
    ):
        c.traced("v2/" + build.__name__, build)
    for build in (loop_gradient, cond_gradient, map_and_scan):
        c.traced("v2/" + build.__name__, build, accuracy="rounding")


def autograph(c):
    def function_if():
        @tf.function
        def pick(x):
            if x > 0.0:
                return x * 2.0
            return x - 1.0

        x = v1.placeholder(tf.float32, [])
        y = pick(x)
        return [({x: np.float32(v)}, [y]) for v in (3, -3)]

    def function_while():
        @tf.function
        def fib(n):
            a, b = 0, 1
            for _ in tf.range(n):
                a, b = b, a + b
            return a

        n = v1.placeholder(tf.int32, [])
        y = fib(n)
        return [({n: np.int32(k)}, [y]) for k in (0, 1, 10)]

    for build in (function_if, function_while):
        c.traced("autograph/" + build.__name__, build)


def plain_ops(c):
    """Ops that live in function bodies but stand on their own too."""
    for dtype in ("float", "int32", "string", "bool"):
        c.op("ToBool", [lit(0)], "zero", T=dtype)
        c.op("ToBool", [lit(1)], "one", T=dtype)
    c.op("ToBool", [lit([0])], "vector", T="float")
    c.op("ToBool", [empty(0)], "empty", T="float")
    c.op("ToBool", [lit("")], "empty_string", T="string")
    c.op("_ListToArray", [[np.float32(1), np.float32(2)]], T="float", N=2)
    c.op("_ArrayToList", [[np.float32(1), np.float32(2)]], T="float", out_types=["float", "float"])

    def for_loop():
        @tf.function
        def body(i, x):
            return x * 2.0 + tf.cast(i, tf.float32)

        concrete = body.get_concrete_function(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32))
        n, x = v1.placeholder(tf.int32, []), v1.placeholder(tf.float32, [])
        y = tf.raw_ops.For(start=0, limit=n, delta=1, input=[x], body=concrete)
        return [({n: np.int32(k), x: np.float32(1)}, list(y)) for k in (0, 3)]

    c.traced("For", for_loop)

    def for_returns_more():
        @tf.function
        def body(i, x):
            return x, x

        concrete = body.get_concrete_function(tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32))
        n, x = v1.placeholder(tf.int32, []), v1.placeholder(tf.float32, [])
        y = tf.raw_ops.For(start=0, limit=n, delta=1, input=[x], body=concrete)
        return [({n: np.int32(3), x: np.float32(1)}, list(y))]

    c.traced("For/returns_more", for_returns_more, message="For loop body returned 2 arguments. Expected: 1")

    def stateful_case():
        v = v1.get_variable("v", [], tf.float32, v1.zeros_initializer(), use_resource=True)
        i = v1.placeholder(tf.int32, [])
        y = tf.switch_case(i, [lambda: v.assign_add(1.0), lambda: v.assign_add(10.0)])
        return [({}, [], [v.initializer]), ({i: np.int32(1)}, [y]), ({i: np.int32(0)}, [y])]

    c.traced("v2/stateful_case", stateful_case)

    def random_branches():
        """Conditionals and loops that no client marks for lowering, with random ops in functions that several share."""
        low = tf.function(lambda: tf.random.uniform([2], seed=5)).get_concrete_function()
        high = tf.function(lambda: 10.0 + tf.random.uniform([2], seed=5)).get_concrete_function()
        nested = tf.function(
            lambda p: tf.raw_ops.If(cond=p, input=[], Tout=[tf.float32], then_branch=low, else_branch=high)[0]
        ).get_concrete_function(tf.TensorSpec([], tf.bool))
        counted = [tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.float32)]
        test = tf.function(lambda i, x: i < 3).get_concrete_function(*counted)
        body = tf.function(lambda i, x: (i + 1, x + low())).get_concrete_function(*counted)
        call = lambda f, *args: tf.raw_ops.StatefulPartitionedCall(args=list(args), Tout=[tf.float32], f=f)[0]
        p = v1.placeholder(tf.bool, [])
        branch = lambda: tf.raw_ops.If(cond=p, input=[], Tout=[tf.float32], then_branch=low, else_branch=high)[0]
        loop = tf.raw_ops.While(input=[tf.constant(0), tf.zeros([2])], cond=test, body=body)[1]
        drawn = [branch(), branch(), loop, call(low), call(low), call(nested, p), call(nested, p)]
        # One at a time: in stock they draw from one stream, in any order.
        return [({p: np.array(q)}, [value]) for q in (True, False, True) for value in drawn]

    c.traced("If/random_branches", random_branches, seed=3)


def symbolic(c):
    """Errors in graphs with functions."""
    p = c.program("PartitionedCall/unknown_function")
    p.const(np.float32(1), name="x")
    p.node("PartitionedCall", ["x"], name="y", Tin=["float"], Tout=["float"], f="nowhere")
    p.step(fetch=["y"])
    p = c.program("unknown_op")
    p.const(np.float32(1), name="x")
    p.node("NoSuchOp", ["x"], name="y")
    p.step(fetch=["y"])
    p = c.program("If/unknown_function")
    p.const(np.array(True), name="x")
    p.node("If", ["x"], name="y", Tcond="bool", Tin=[], Tout=["float"], then_branch="a", else_branch="b")
    p.step(fetch=["y"])


def cases(c):
    calls(c)
    functional(c)
    autograph(c)
    plain_ops(c)
    symbolic(c)
