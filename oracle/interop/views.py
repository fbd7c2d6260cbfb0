"""Reads of reference variables: they show updates that come after them in the same step.

Every graph reads a variable, passes the value through an op, updates the variable after that, and computes with the passed
value after the update. What is fetched is that result, the passed value, the read and the variable itself.
"""

from report import session, show, v1

import numpy as np
import tensorflow as tf

raw = tf.raw_ops


def assigned(shape):
    return lambda v: v1.assign(v, np.full(shape, 7.0, np.float32), validate_shape=False)


def ones(v):
    return np.ones(v.shape.as_list(), np.float32)


def second_generation(build):
    """Calls `build` with conditionals and loops as ops of functions, which are marked to become switches."""
    v1.enable_control_flow_v2()
    try:
        return build()
    finally:
        v1.disable_control_flow_v2()


inner = tf.function(tf.identity)

UPDATES = {
    "assign_add": lambda v: v1.assign_add(v, 10.0 * ones(v)),
    "assign_sub": lambda v: v1.assign_sub(v, 10.0 * ones(v), use_locking=True),
    "assign": lambda v: v1.assign(v, 7.0 * ones(v)),
    "assign without lock": lambda v: v1.assign(v, 7.0 * ones(v), use_locking=False),
    "assign of another shape": lambda v: assigned(v.shape.as_list() + [1])(v),
    "assign of another size": assigned([5, 5]),
    "gradient descent": lambda v: raw.ApplyGradientDescent(var=v._ref(), alpha=1.0, delta=ones(v)),
    "scatter_update": lambda v: v1.scatter_update(v, [0], [99.0]),
    "scatter_nd_update": lambda v: v1.scatter_nd_update(v, [[0]], [99.0]),
}

PASSES = {
    "identity": tf.identity,
    "reshape": lambda r: tf.reshape(r, [-1, 1]),
    "expand_dims": lambda r: tf.expand_dims(r, 0),
    "squeeze": lambda r: tf.squeeze(tf.expand_dims(r, 0), 0),
    "bitcast": lambda r: tf.bitcast(tf.bitcast(r, tf.int32), tf.float32),
    "stop_gradient": tf.stop_gradient,
    "identity_n": lambda r: tf.identity_n([tf.constant(1), r])[1],
    "placeholder_with_default": lambda r: v1.placeholder_with_default(r, r.shape),
    "check_numerics": lambda r: v1.debugging.check_numerics(r, ""),
    "switch and merge": lambda r: raw.Merge(
        inputs=list(raw.Switch(data=r, pred=v1.placeholder_with_default(True, [])))
    )[0],
    "enter and exit": lambda r: raw.Exit(data=raw.Enter(data=r, frame_name="frame")),
    "function": tf.function(tf.identity),
    "function of a function": tf.function(lambda x: tf.reshape(inner(x), [-1])),
    "conditional": lambda r: second_generation(
        lambda: tf.cond(v1.placeholder_with_default(True, []), lambda: r, lambda: r + 1.0)
    ),
    "loop": lambda r: second_generation(
        lambda: v1.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x), [tf.constant(0), r])[1]
    ),
    "snapshot": lambda r: raw.Snapshot(input=r),
    "multiply": lambda r: r * 1.5,
    "relu": tf.nn.relu,
    "clip": lambda r: tf.clip_by_value(r, -1000.0, 1000.0),
}

# For vectors only: whole slices and the like are the same memory, parts are not.
VECTOR_PASSES = {
    "whole slice": lambda r: tf.slice(r, [0], [-1]),
    "gather": lambda r: tf.gather(r, [0]),
    "first": lambda r: r[:1],
    "concat": lambda r: tf.concat([r, r], 0),
}

SHAPES = {"scalar": [], "vector": [3], "large": [300_000]}


def run(target):
    for kind, shape in SHAPES.items():
        for update in UPDATES:
            if shape or not update.startswith("scatter"):
                case(target, f"{kind}, {update}", shape, UPDATES[update], tf.identity)
    for kind in ["scalar", "vector"]:
        passes = PASSES if kind == "scalar" else PASSES | VECTOR_PASSES
        for name, through in passes.items():
            case(target, f"{kind}, {name}", SHAPES[kind], UPDATES["assign_add"], through)
    tokens(target)


def case(target, label, shape, update, through):
    with tf.Graph().as_default() as graph, session(target, graph) as sess:
        v = v1.get_variable("viewed", initializer=np.ones(shape, np.float32), use_resource=False, validate_shape=False)
        v.set_shape(shape)
        read = v._snapshot
        passed = through(read)
        with tf.control_dependencies([passed]):
            updated = update(v)
        with tf.control_dependencies([updated]):
            later = raw.Add(x=passed, y=v1.placeholder_with_default(0.0, []))
        sess.run(v1.assign(v, np.ones(shape, np.float32), validate_shape=False).op)
        fetched = [later, passed, read]
        # The variable's own fetch may come before or after memory is replaced.
        if "another size" not in label:
            fetched.append(v._ref())
        found = sess.run(fetched)
        show(label, [np.ravel(value)[0] for value in found])


def tokens(target):
    """The tokens of synchronous replicas are made out of a read that nothing orders after the update."""
    with tf.Graph().as_default() as graph, session(target, graph) as sess:
        step = v1.get_variable("step", [], tf.int64, v1.zeros_initializer(), use_resource=False)
        queue = v1.FIFOQueue(-1, tf.int64, [], shared_name="view_tokens")
        with tf.control_dependencies([v1.assign_add(step, 1)]):
            put = queue.enqueue_many((tf.fill([2], step),))
        take = queue.dequeue_many(2)
        sess.run(step.initializer)
        show("tokens", [(sess.run(put), sess.run(take))[1] for _ in range(3)])
