"""Control flow of the first generation: Switch, Merge and loop frames, dead values included."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def raw(c):
    for dtype in c.dtypes("Switch", "T"):
        p = c.program(f"Switch/{dtype}")
        p.const(arr(2)(dtype), name="x")
        p.placeholder("bool", name="which")
        p.node("Switch", ["x", "which"], name="s", T=dtype)
        p.node("Identity", ["s:0"], name="no", T=dtype)
        p.node("Identity", ["s:1"], name="yes", T=dtype)
        p.node("Merge", ["no", "yes"], name="m", T=dtype, N=2)
        for which in (False, True):
            p.step(fetch=["m:0", "m:1"], feed={"which": np.array(which)})
    p = c.program("Switch/fetch_dead")
    p.const(np.float32(1), name="x")
    p.const(np.array(True), name="which")
    p.node("Switch", ["x", "which"], name="s", T="float")
    p.node("Neg", ["s:0"], name="dead", T="float")
    p.step(fetch=["s:1"])
    p.step(fetch=["s:0"], message="was not valid")
    p.step(fetch=["dead"], message="was not valid")
    p.step(target=["dead"])
    p = c.program("Switch/pred_not_scalar")
    p.const(np.float32(1), name="x")
    p.const(np.array([True, False]), name="which")
    p.node("Switch", ["x", "which"], name="s", T="float")
    p.step(fetch=["s:1"])
    # A dead control input kills a node as a dead value does.
    p = c.program("Switch/dead_control")
    p.const(np.float32(1), name="x")
    p.placeholder("bool", name="which")
    p.node("Switch", ["x", "which"], name="s", T="float")
    p.node("Identity", ["s:1"], name="gate", T="float")
    p.node("Neg", ["x", "^gate"], name="y", T="float")
    p.const(np.float32(5), name="other")
    p.node("Merge", ["y", "other"], name="m", T="float", N=2)
    p.step(fetch=["y"], feed={"which": np.array(True)})
    p.step(fetch=["y"], feed={"which": np.array(False)})
    p.step(fetch=["m:0"], feed={"which": np.array(False)})
    p = c.program("Merge/all_dead")
    p.const(np.float32(1), name="x")
    p.const(np.array(True), name="which")
    p.node("Switch", ["x", "which"], name="s", T="float")
    p.node("Merge", ["s:0", "s:0"], name="m", T="float", N=2)
    p.step(fetch=["m:0"])
    p = c.program("ControlTrigger/after_dead")
    p.const(np.float32(1), name="x")
    p.const(np.array(True), name="which")
    p.node("Switch", ["x", "which"], name="s", T="float")
    p.node("Identity", ["s:0"], name="dead", T="float")
    p.node("ControlTrigger", ["^dead"], name="trigger")
    p.node("Neg", ["x", "^trigger"], name="y", T="float")
    p.step(fetch=["y"])
    p = c.program("RefSwitch")
    p.node("VariableV2", name="v", dtype="float", shape=[2])
    p.const(np.float32([1, 2]), name="init")
    p.node("Assign", ["v", "init"], name="assign", T="float")
    p.placeholder("bool", name="which")
    p.node("RefSwitch", ["v", "which"], name="s", T="float")
    p.node("AssignAdd", ["s:0", "init"], name="add", T="float")
    p.node("AssignSub", ["s:1", "init"], name="sub", T="float")
    p.node("RefMerge", ["add", "sub"], name="m", T="float", N=2)
    p.step(target=["assign"])
    for which in (False, False, True):
        p.step(fetch=["m:0", "m:1"], feed={"which": np.array(which)})
    p.step(fetch=["v"])
    p = c.program("RefSelect")
    p.node("VariableV2", name="v", dtype="float", shape=[])
    p.node("VariableV2", name="w", dtype="float", shape=[])
    p.const(np.float32(1), name="one")
    p.const(np.float32(2), name="two")
    p.node("Assign", ["v", "one"], name="av", T="float")
    p.node("Assign", ["w", "two"], name="aw", T="float")
    p.placeholder("int32", name="i")
    p.node("RefSelect", ["i", "v", "w"], name="s", T="float", N=2)
    p.step(target=["av", "aw"])
    for index in (0, 1, 2):
        p.step(fetch=["s"], feed={"i": np.int32(index)})
    p = c.program("_SwitchN")
    p.const(np.float32(3), name="x")
    p.placeholder("int32", name="i")
    p.node("_SwitchN", ["x", "i"], name="s", T="float", num_outs=3)
    p.node("Neg", ["s:1"], name="n", T="float")
    p.node("Merge", ["s:0", "n", "s:2"], name="m", T="float", N=3)
    for index in (0, 1, 2, 5, -1):
        p.step(fetch=["m:0", "m:1"], feed={"i": np.int32(index)})
    p = c.program("RefIdentity")
    p.node("VariableV2", name="v", dtype="float", shape=[])
    p.const(np.float32(1), name="one")
    p.node("Assign", ["v", "one"], name="a", T="float")
    p.node("RefIdentity", ["a"], name="r", T="float")
    p.node("AssignAdd", ["r", "one"], name="b", T="float")
    p.step(fetch=["b"])
    p = c.program("ref_loop")
    p.node("VariableV2", name="v", dtype="float", shape=[])
    p.const(np.float32(1), name="one")
    p.const(np.float32(5), name="limit")
    p.node("Assign", ["v", "one"], name="a", T="float")
    p.node("RefEnter", ["v"], name="enter", T="float", frame_name="loop")
    p.node("Enter", ["one"], name="step", T="float", frame_name="loop", is_constant=True)
    p.node("Enter", ["limit"], name="bound", T="float", frame_name="loop", is_constant=True)
    p.node("RefMerge", ["enter", "next"], name="merge", T="float", N=2)
    p.node("Less", ["merge", "bound"], name="less", T="float")
    p.node("LoopCond", ["less"], name="cond")
    p.node("RefSwitch", ["merge", "cond"], name="switch", T="float")
    p.node("AssignAdd", ["switch:1", "step"], name="add", T="float")
    p.node("RefNextIteration", ["add"], name="next", T="float")
    p.node("RefExit", ["switch:0"], name="exit", T="float")
    p.step(target=["a"])
    p.step(fetch=["exit"])
    p.step(fetch=["v"])
    p = c.program("cycle_without_merge")
    p.node("Neg", ["b"], name="a", T="float")
    p.node("Neg", ["a"], name="b", T="float")
    p.step(fetch=["a"])


def traced(c):
    def cond():
        x = v1.placeholder(tf.float32, [])
        y = v1.cond(x > 0, lambda: x * 2, lambda: x - 1)
        return [({x: np.float32(3)}, [y]), ({x: np.float32(-3)}, [y])]

    def nested_cond():
        x = v1.placeholder(tf.int32, [])
        y = v1.cond(x > 0, lambda: v1.cond(x > 10, lambda: x * 100, lambda: x * 10), lambda: -x)
        return [({x: np.int32(n)}, [y]) for n in (20, 5, -5)]

    def cond_assigns_one_side():
        x = v1.placeholder(tf.bool, [])
        v = v1.get_variable("v", [], tf.float32, v1.zeros_initializer(), use_resource=False)
        done = v1.cond(x, lambda: v1.assign_add(v, 1.0), lambda: v1.assign_sub(v, 10.0))
        return [({}, [], [v.initializer]), ({x: np.array(True)}, [done]), ({x: np.array(False)}, [done]), ({}, [v])]

    def counted():
        n = v1.placeholder(tf.int32, [])
        i, total = v1.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), [0, 0])
        return [({n: np.int32(k)}, [i, total]) for k in (0, 1, 10, 100)]

    def nested():
        n = v1.placeholder(tf.int32, [])

        def row(i, s):
            _, s = v1.while_loop(lambda j, s: j < i, lambda j, s: (j + 1, s + i * j), [0, s])
            return i + 1, s

        _, total = v1.while_loop(lambda i, s: i < n, row, [0, 0])
        return [({n: np.int32(k)}, [total]) for k in (0, 1, 5)]

    def sequential():
        n = v1.placeholder(tf.int32, [])
        loop = v1.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s * 2), [0, 1.0], parallel_iterations=1)
        return [({n: np.int32(k)}, loop) for k in (0, 7)]

    def cond_in_loop():
        n = v1.placeholder(tf.int32, [])
        step = lambda i, s: (i + 1, v1.cond(tf.equal(i % 2, 0), lambda: s + i, lambda: s - 1))
        loop = v1.while_loop(lambda i, s: i < n, step, [0, 0])
        return [({n: np.int32(k)}, loop) for k in (1, 2, 9)]

    def loop_in_cond():
        n = v1.placeholder(tf.int32, [])
        loop = lambda: v1.while_loop(lambda i: i < n, lambda i: i + 3, [0])
        y = v1.cond(n > 5, loop, lambda: tf.constant(-1))
        return [({n: np.int32(k)}, [y]) for k in (3, 10)]

    def shapes_change():
        n = v1.placeholder(tf.int32, [])
        grow = lambda i, x: (i + 1, tf.concat([x, x + 1.0], 0))
        loop = v1.while_loop(
            lambda i, x: i < n,
            grow,
            [0, tf.constant([1.0])],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
        )
        return [({n: np.int32(k)}, loop) for k in (0, 1, 3)]

    def variable_in_loop():
        v = v1.get_variable("v", [], tf.float32, v1.zeros_initializer(), use_resource=False)

        def body(i):
            with tf.control_dependencies([v1.assign_add(v, 2.0)]):
                return i + 1

        loop = v1.while_loop(lambda i: i < 4, body, [0], parallel_iterations=1)
        return [({}, [], [v.initializer]), ({}, [loop]), ({}, [v])]

    def loop_gradient():
        x = v1.placeholder(tf.float32, [])
        _, y = v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), [0, tf.constant(1.0)])
        return [({x: np.float32(2)}, [y, v1.gradients(y, x)[0]])]

    def cond_gradient():
        x = v1.placeholder(tf.float32, [])
        y = v1.cond(x > 0, lambda: x * x, lambda: 3 * x)
        return [({x: np.float32(v)}, [y, v1.gradients(y, x)[0]]) for v in (2, -2)]

    def nested_gradient():
        x = v1.placeholder(tf.float32, [])

        def outer(i, y):
            _, y = v1.while_loop(lambda j, y: j < 2, lambda j, y: (j + 1, y * x), [0, y])
            return i + 1, y

        _, y = v1.while_loop(lambda i, y: i < 2, outer, [0, x])
        return [({x: np.float32(1.5)}, [y, v1.gradients(y, x)[0]])]

    def dead_in_loop():
        n = v1.placeholder(tf.int32, [])

        def body(i, s):
            s = v1.cond(i > 2, lambda: s + v1.cond(i > 4, lambda: 100, lambda: 10), lambda: s)
            return i + 1, s

        return [({n: np.int32(7)}, v1.while_loop(lambda i, s: i < n, body, [0, 0]))]

    def failure_in_loop():
        n = v1.placeholder(tf.int32, [])
        loop = v1.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + 6 // (3 - i)), [0, 0])
        return [({n: np.int32(3)}, loop), ({n: np.int32(5)}, loop), ({n: np.int32(2)}, loop)]

    def case():
        i = v1.placeholder(tf.int32, [])
        y = v1.case(
            [(tf.equal(i, 0), lambda: tf.constant(10)), (tf.equal(i, 1), lambda: tf.constant(20))],
            default=lambda: tf.constant(-1),
        )
        return [({i: np.int32(k)}, [y]) for k in (0, 1, 2)]

    def map_and_scan():
        x = v1.placeholder(tf.float32, [None])
        return [
            (
                {x: np.float32([1, 2, 3])},
                [v1.map_fn(lambda e: e * e, x), v1.scan(lambda a, e: a + e, x), v1.foldl(lambda a, e: a * e, x)],
            )
        ]

    for build in (
        cond,
        nested_cond,
        cond_assigns_one_side,
        counted,
        nested,
        sequential,
        cond_in_loop,
        loop_in_cond,
        shapes_change,
        variable_in_loop,
    ):
        c.traced(build.__name__, build)
    for build in (loop_gradient, cond_gradient, nested_gradient, dead_in_loop, failure_in_loop, case, map_and_scan):
        c.traced(build.__name__, build, accuracy="rounding")


def cases(c):
    raw(c)
    v1.disable_control_flow_v2()
    try:
        traced(c)
    finally:
        v1.enable_control_flow_v2()
