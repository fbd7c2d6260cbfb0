"""Functions whose nodes are named alike share nothing: branches, bodies, state, random streams.

Where a random number comes from shows what belongs to whom: every node, or every function that stays one, has a stream of
its own, which goes on from step to step.
"""

import pathlib
import sys

from report import show, v1

import tensorflow as tf

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "differential"))

SEEDS = range(1, 6)


def run(target):
    v1.enable_control_flow_v2()
    for scenario in [branches, nested, streams, instances, counts]:
        for optimized in [True, False]:
            with tf.Graph().as_default():
                v1.set_random_seed(7)
                with v1.Session(target, config=config(optimized)) as sess:
                    scenario(sess, f"{scenario.__name__}, {'optimized' if optimized else 'as it is'}")
    v1.disable_control_flow_v2()
    programs(target)


def config(optimized):
    chosen = v1.ConfigProto(isolate_session_state=True)
    if not optimized:
        chosen.graph_options.rewrite_options.disable_meta_optimizer = True
        chosen.graph_options.optimizer_options.opt_level = -1
    return chosen


def variable():
    return v1.get_variable("v", initializer=0.0, use_resource=True)


def setter(v, yes, no):
    """A function with a node `cond` that assigns one of two values."""

    @tf.function
    def set_one(x):
        tf.cond(x > 0.0, lambda: v.assign(yes), lambda: v.assign(no))
        return v.read_value()

    return set_one


def branches(sess, label):
    v, x = variable(), v1.placeholder(tf.float32, [])
    first, second = setter(v, 1.0, 2.0)(x), setter(v, 30.0, 40.0)(x)
    sess.run(v.initializer)
    show(label, [sess.run(call, {x: value}) for call in (first, second, first) for value in (1.0, -1.0)])


def nested(sess, label):
    v, x = variable(), v1.placeholder(tf.float32, [])
    function = tf.function(lambda x: v.assign_add(x) + 0.0)
    for level in range(5):
        function = wrap(function, v, float(level))
    call = function(x)
    sess.run(v.initializer)
    show(label, [sess.run(call, {x: value}) for value in (1.0, -2.0)] + [sess.run(v)])


def wrap(inner, v, amount):
    @tf.function
    def outer(x):
        x = tf.cond(x > amount, lambda: inner(x), lambda: inner(x + amount))
        _, x = tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, x + v.assign_add(amount)), (0, x))
        return x

    return outer


def streams(sess, label):
    """Random numbers of functions that are called from several places."""
    p = v1.placeholder(tf.bool, [])
    draw = tf.function(lambda: tf.random.uniform([], seed=3))
    other = tf.function(lambda: tf.random.uniform([], seed=3))
    twice = tf.function(lambda: tf.stack([draw(), draw()]))
    calls = {
        "one": draw(),
        "same": draw(),
        "other": other(),
        "twice": twice(),
        "branch": tf.cond(p, lambda: draw() + 10.0, lambda: draw() + 20.0),
        "loop": tf.while_loop(
            lambda i, _: i < 3,
            lambda i, x: (i + 1, tf.concat([x[1:], [draw()]], 0)),
            (0, tf.zeros([3])),
            parallel_iterations=1,
        )[1],
    }
    for turn in range(2):
        for name, call in calls.items():
            show(f"{label}, {turn}, {name}", sess.run(call, {p: turn == 0}))


def instances(sess, label):
    """Conditionals and loops that the client did not mark, which stay calls."""
    p = v1.placeholder(tf.bool, [])
    draw = tf.function(lambda: tf.random.uniform([], seed=3))
    twice = tf.function(lambda: tf.stack([draw(), draw()])).get_concrete_function()
    one = draw.get_concrete_function()
    branch = tf.raw_ops.If(cond=p, input=[], Tout=[tf.float32], then_branch=one, else_branch=one)[0]
    deep = tf.raw_ops.If(cond=p, input=[], Tout=[tf.float32], then_branch=twice, else_branch=twice)[0]
    spec = [tf.TensorSpec([], tf.int32), tf.TensorSpec([None], tf.float32)]
    goes_on = tf.function(lambda i, x: i < 2).get_concrete_function(*spec)
    body = tf.function(lambda i, x: (i + 1, tf.concat([x, [draw()]], 0))).get_concrete_function(*spec)
    loop = tf.raw_ops.While(input=[0, tf.zeros([0])], cond=goes_on, body=body)[1]
    for turn in range(2):
        for name, call in {"branch": branch, "deep": deep, "loop": loop, "both": [branch, deep]}.items():
            show(f"{label}, {turn}, {name}", sess.run(call, {p: True}))


def counts(sess, label):
    """Functions that take or return another number of values than is said where they are called."""
    p, x = v1.placeholder(tf.bool, []), v1.placeholder(tf.int32, [])
    spec = tf.TensorSpec([], tf.int32)
    one = tf.function(lambda a: a + 1).get_concrete_function(spec)
    two = tf.function(lambda a, b: (a + 1, b + 1)).get_concrete_function(spec, spec)
    less = tf.function(lambda a: a < 3).get_concrete_function(spec)
    less_twice = tf.function(lambda a: (a < 3, a < 4)).get_concrete_function(spec)
    both = tf.function(lambda a: (a + 1, a + 2)).get_concrete_function(spec)

    def branch(function, inputs, outputs):
        return lambda: tf.raw_ops.If(
            cond=p, input=inputs, Tout=[tf.int32] * outputs, then_branch=function, else_branch=function
        )

    graphs = {
        "a branch with more results": branch(both, [x], 1),
        "a branch with fewer results": branch(one, [x], 2),
        "a branch with fewer arguments": branch(one, [x, x], 1),
        "a branch with more arguments": branch(two, [x], 2),
        "a body with more results": lambda: tf.raw_ops.While(input=[x], cond=less, body=both),
        "a condition with more results": lambda: tf.raw_ops.While(input=[x], cond=less_twice, body=one),
        "a call with fewer arguments": lambda: tf.raw_ops.PartitionedCall(args=[x, x], Tout=[tf.int32], f=one),
    }
    for name, build in graphs.items():
        try:
            show(f"{label}, {name}", sess.run(build()[0], {p: True, x: 1}))
        except tf.errors.OpError as error:
            said = [line for line in error.message.splitlines() if line and not line.startswith("From /job")]
            print(f"{label}, {name}: {type(error).__name__} {said[0]}", flush=True)


def programs(target):
    import programs as drawn
    import stock

    client = stock.Client(target)
    for seed in SEEDS:
        program = drawn.Program(seed)
        for optimized in [True, False]:
            for step, answer in enumerate(drawn.answers(client, program, optimized)):
                rounded = answer if isinstance(answer, str) else [round(float(value), 3) for value in answer]
                show(f"program {seed}, {'optimized' if optimized else 'as it is'}, step {step}", rounded)
