"""Temporary variables: made, filled and turned into values within a step."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def temporary(c, name, shape=(2,), dtype="float", **attrs):
    p = c.program(f"TemporaryVariable/{name}")
    p.node("TemporaryVariable", name="t", dtype=dtype, shape=list(shape), **attrs)
    return p


def destroy(p, name, ref, var_name, dtype="float", after=()):
    p.node("DestroyTemporaryVariable", [ref, *after], name=name, T=dtype, var_name=var_name)


def filled(p, ref="t", name="set", add="more"):
    p.placeholder("float", name=f"{name}_to")
    p.node("Assign", [ref, f"{name}_to"], name=name, T="float")
    p.node("AssignAdd", [name, f"{name}_to"], name=add, T="float")


def loops(c):
    """Each iteration has its own, of one name."""

    def traced():
        x = v1.placeholder(tf.float32, [])

        def body(i, total):
            t = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="in_loop")
            t = tf.raw_ops.Assign(ref=t, value=tf.fill([2], tf.cast(i, tf.float32)))
            t = tf.raw_ops.AssignAdd(ref=t, value=tf.fill([2], x))
            return i + 1, total + tf.raw_ops.DestroyTemporaryVariable(ref=t, var_name="in_loop")

        _, total = v1.while_loop(lambda i, total: i < 5, body, [0, tf.zeros([2])], parallel_iterations=5)
        return [({x: np.float32(2)}, [total]), ({x: np.float32(3)}, [total])]

    v1.disable_control_flow_v2()
    c.traced("TemporaryVariable/loop", traced)
    v1.enable_control_flow_v2()


def cases(c):
    p = temporary(c, "filled_and_destroyed", var_name="x")
    filled(p)
    destroy(p, "value", "more", "x")
    for _ in range(2):
        p.step(fetch=["value"], feed={"set_to": np.float32([1, 2])})
    p.step(fetch=["more"], feed={"set_to": np.float32([1, 2])})
    p.step(
        fetch=["value"],
        feed={"set_to": np.float32([1, 2, 3])},
        message="Assign requires shapes of both tensors to match",
    )
    p = temporary(c, "several", var_name="x")
    p.node("TemporaryVariable", name="u", dtype="float", shape=[2], var_name="y")
    filled(p)
    filled(p, "u", "set_u", "more_u")
    destroy(p, "value", "more", "x")
    destroy(p, "value_u", "more_u", "y")
    p.step(fetch=["value", "value_u"], feed={"set_to": np.float32([1, 2]), "set_u_to": np.float32([3, 4])})
    p = temporary(c, "named_like_its_node")
    filled(p)
    destroy(p, "value", "more", "t")
    destroy(p, "other", "more", "other")
    destroy(p, "nameless", "more", "")
    p.step(fetch=["value"], feed={"set_to": np.float32([1, 2])})
    p.step(fetch=["other"], feed={"set_to": np.float32([1, 2])}, message="does not exist")
    p.step(fetch=["nameless"], feed={"set_to": np.float32([1, 2])}, message="Missing var_name attribute")
    p = temporary(c, "not_filled", shape=(0, 2), var_name="x")
    p.node("IsVariableInitialized", ["t"], name="is_initialized", dtype="float")
    p.node("Identity", ["t"], name="read", T="float")
    destroy(p, "value", "t", "x", after=["^is_initialized", "^read"])
    p.step(fetch=["is_initialized", "read", "value"])
    p = temporary(c, "another_shape", var_name="x")
    p.placeholder("float", name="to")
    p.node("Assign", ["t", "to"], name="set", T="float", validate_shape=False)
    destroy(p, "value", "set", "x")
    p.step(fetch=["value"], feed={"to": np.float32([1, 2, 3])})
    p = temporary(c, "shape_not_known", shape=(None,), var_name="x")
    p.step(target=["t"], message="is not fully defined")
    p = c.program("DestroyTemporaryVariable/of_another_variable")
    p.node("VariableV2", name="v", dtype="float", shape=[2])
    filled(p, "v")
    destroy(p, "value", "more", "v")
    p.step(fetch=["value"], feed={"set_to": np.float32([1, 2])}, message="does not exist")
    loops(c)
