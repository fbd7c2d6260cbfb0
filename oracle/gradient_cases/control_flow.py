"""Conditionals and loops: those of the first generation as old graphs have them, and choices by number."""

from gradients import any_, fixed, positive

import tensorflow as tf

v1 = tf.compat.v1


def cases(c):
    conditionals(c)
    loops(c)
    conditionals_in_loops(c)
    conditionals_in_functions(c)
    choices(c)


def conditionals(c):
    def case(name, build, *inputs, **options):
        c.case(f"Switch/{name}", build, *inputs, first_generation=True, **options)

    positive_sum = lambda x: tf.reduce_sum(x) > 0
    both = lambda x, y: tf.cond(positive_sum(x), lambda: x * y, lambda: x - y * y)
    case("taken", both, positive(2, 3), any_(2, 3))
    case("not_taken", both, fixed([[-1.0, -2.0]]), any_(1, 2))
    one_side = lambda x, y: tf.cond(positive_sum(x), lambda: tf.exp(x) + 1, lambda: y * 2)
    case("one_side", one_side, positive(3), any_(3))
    case("other_side", one_side, fixed([-1.0, -0.5, 0.25]), any_(3))

    def nested(x, y):
        inner = lambda: tf.cond(tf.reduce_sum(y) > 0, lambda: x * y, lambda: tf.sin(x) * y)
        return tf.cond(positive_sum(x), lambda: inner() + x, lambda: y) * y

    case("nested", nested, positive(3), positive(3))
    case("nested_inner_else", nested, positive(3), fixed([-1.0, 0.25, 0.5]))
    case("nested_outer_else", nested, fixed([-1.0, 0.25, 0.5]), positive(3))

    def two_results(x, y):
        a, b = tf.cond(positive_sum(x), lambda: (x * y, y), lambda: (y, x * x))
        return a * b + x

    case("two_results", two_results, positive(2), any_(2))
    case("two_results_else", two_results, fixed([-1.0, 0.5]), any_(2))

    def variable(x):
        handle = v1.get_variable("w", initializer=tf.constant([0.5, -1.5], x.dtype), use_resource=True)
        tf.compat.v1.add_to_collection("init", handle.initializer)
        y = tf.cond(positive_sum(x), lambda: tf.exp(handle) * x, lambda: x)
        return y, [handle.handle]

    case("variable", variable, positive(2))
    case("variable_else", variable, fixed([-1.0, -2.0]))

    second = lambda x, y: tf.gradients(both(x, y) * x, [x, y])
    case("second", second, positive(2, 3), any_(2, 3))
    case("second_else", second, fixed([[-1.0, -2.0]]), any_(1, 2))


def repeat(times, body, *values):
    last = tf.while_loop(lambda i, *_: i < times, lambda i, *values: (i + 1, *body(i, *values)), (0, *values))
    return last[1:]


def loops(c):
    def case(name, build, *inputs, **options):
        c.case(f"Enter/{name}", build, *inputs, first_generation=True, **options)

    case("power", lambda x, y: repeat(3, lambda i, v: (v * x + y,), x)[0], any_(2), any_(2))
    case("no_iterations", lambda x, y: repeat(0, lambda i, v: (v * y,), x)[0], any_(2), any_(2))
    case(
        "from_constant",
        lambda x: repeat(3, lambda i, v: (v * 0.5 + tf.sin(x),), tf.zeros([2], x.dtype))[0],
        any_(2),
        unknown=False,
    )
    case("two", lambda x, y: list(repeat(3, lambda i, a, b: (a * b, b + x), x, y)), any_(2), any_(2))
    case("invariant_result", lambda x, y: list(repeat(2, lambda i, a, b: (a * b, b), x, y)), any_(2), any_(2))
    counted = lambda x: repeat(4, lambda i, v: (v * tf.cast(i + 1, x.dtype),), x)[0]
    case("counter", counted, any_(3))
    case("matrices", lambda x, w: repeat(3, lambda i, v: (tf.tanh(tf.matmul(v, w)),), x)[0], any_(2, 3), any_(3, 3))

    def nested(x, y):
        inner = lambda v: repeat(2, lambda j, u: (tf.sin(u) * y,), v)[0]
        return repeat(3, lambda i, v: (inner(v) + x,), x)[0]

    case("nested", nested, any_(2), any_(2))

    def steps(x):
        read = tf.TensorArray(x.dtype, 3).unstack(x)
        write = tf.TensorArray(x.dtype, 3)
        body = lambda i, state, flow: (i + 1, state * read.read(i), flow.write(i, tf.exp(state)))
        _, state, flow = tf.while_loop(lambda i, *_: i < 3, body, (0, tf.ones_like(x[0]), write))
        return [state, flow.stack()]

    case("tensor_array", steps, any_(3, 2), unknown=False)

    def variable(x):
        handle = v1.get_variable("w", initializer=tf.constant([0.5, -1.5], x.dtype), use_resource=True)
        tf.compat.v1.add_to_collection("init", handle.initializer)
        return repeat(3, lambda i, v: (v * handle + x,), x)[0], [handle.handle]

    case("variable", variable, any_(2))
    after = lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: repeat(2, lambda i, v: (v * x,), x)[0], lambda: x)
    case("within_conditional", after, positive(2))


def conditionals_in_loops(c):
    def case(name, build, *inputs, **options):
        c.case(f"Merge/{name}", build, *inputs, first_generation=True, **options)

    def in_loop(times, predicate, yes, no):
        return lambda x, y: repeat(
            times, lambda i, v: (tf.cond(predicate(i, v), lambda: yes(i, v, x, y), lambda: no(i, v, x, y)),), x
        )[0]

    even = lambda i, v: tf.equal(i % 2, 0)
    large = lambda i, v: tf.reduce_sum(v) > 0.5
    product = lambda i, v, x, y: v * x
    wave = lambda i, v, x, y: tf.sin(v) + y
    case("alternating", in_loop(4, even, product, wave), any_(2), any_(2))
    case("by_value", in_loop(3, large, product, wave), any_(2), any_(2))
    case("always", in_loop(3, lambda i, v: i >= 0, product, wave), any_(2), any_(2))
    case("never", in_loop(3, lambda i, v: i < 0, product, wave), any_(2), any_(2))
    case("no_iterations", in_loop(0, even, product, wave), any_(2), any_(2))
    case("as_it_is", in_loop(3, even, lambda i, v, x, y: v, lambda i, v, x, y: y * v), any_(2), any_(2))
    case(
        "constant",
        in_loop(3, lambda i, v: i < 1, lambda i, v, x, y: tf.constant([0.5, -0.25], x.dtype), wave),
        any_(2),
        any_(2),
    )
    case(
        "counter",
        in_loop(
            3, even, lambda i, v, x, y: v * tf.cast(i + 1, x.dtype), lambda i, v, x, y: v * tf.cast(i, x.dtype) * y
        ),
        any_(2),
        any_(2),
    )

    def two_results(x, y):
        def yes(a, b):
            shared = tf.exp(a * 0.25)
            return shared * x, shared + b * y

        body = lambda i, a, b: tf.cond(even(i, a), lambda: yes(a, b), lambda: (b, a * b))
        return list(repeat(3, body, x, y))

    case("two_results", two_results, any_(2), any_(2))

    def nested(x, y):
        inner = lambda i, v: tf.cond(large(i, v), lambda: v * y, lambda: tf.cos(v) * x)
        return repeat(4, lambda i, v: (tf.cond(even(i, v), lambda: inner(i, v) + x, lambda: v * 0.5),), x)[0]

    case("nested", nested, any_(2), any_(2))

    def loop_between(x, y):
        inner = lambda v: repeat(2, lambda j, u: (tf.sin(u) * y,), v)[0]
        return repeat(3, lambda i, v: (tf.cond(even(i, v), lambda: inner(v) + x, lambda: v * y),), x)[0]

    case("loop_between", loop_between, any_(2), any_(2))

    def inner_loop(x, y):
        inner = lambda v: repeat(3, lambda j, u: (tf.cond(even(j, u), lambda: u * y, lambda: tf.sin(u)),), v)[0]
        return repeat(2, lambda i, v: (inner(v) + x,), x)[0]

    case("inner_loop", inner_loop, any_(2), any_(2))

    def around(x, y):
        looped = lambda: in_loop(3, even, product, wave)(x, y)
        return tf.cond(tf.reduce_sum(x) > 0, looped, lambda: x * y)

    case("within_conditional", around, positive(2), any_(2))
    case("within_conditional_else", around, fixed([-1.0, 0.5]), any_(2))

    def checked(x, y):
        def body(i, v):
            with tf.control_dependencies([v1.Assert(i < 10, [i])]):
                return (tf.cond(even(i, v), lambda: v * x, lambda: v + y),)

        return repeat(3, body, x)[0]

    case("checked", checked, any_(2), any_(2))

    def variable(x):
        handle = v1.get_variable("w", initializer=tf.constant([0.5, -1.5], x.dtype), use_resource=True)
        tf.compat.v1.add_to_collection("init", handle.initializer)
        body = lambda i, v: (tf.cond(even(i, v), lambda: v * handle, lambda: v + x),)
        return repeat(3, body, x)[0], [handle.handle]

    case("variable", variable, any_(2))

    def sequences(x, w):
        """Steps beyond a row's length keep its state, as unrolled networks of rows with lengths do."""
        lengths, steps = tf.constant([1, 3]), tf.TensorArray(x.dtype, 3).unstack(x)

        def body(i, state, flow):
            new = tf.tanh(tf.matmul(state, w) + steps.read(i))
            past = tf.expand_dims(i >= lengths, 1)
            keep = lambda: (tf.where(past, tf.zeros_like(new), new), tf.where(past, state, new))
            output, state = tf.cond(i < 1, lambda: (new, new), keep)
            return i + 1, state, flow.write(i, output)

        _, state, flow = tf.while_loop(
            lambda i, *_: i < 3, body, (0, tf.zeros([2, 2], x.dtype), tf.TensorArray(x.dtype, 3))
        )
        return [state, flow.stack()]

    case("sequences", sequences, any_(3, 2, 2), any_(2, 2), unknown=False)


def conditionals_in_functions(c):
    def called(build):
        """A function whose body has the switches and merges, or the frames, of `build`."""

        def call(*xs):
            body = tf.Graph()
            with body.as_default():
                args = [v1.placeholder(x.dtype, x.shape) for x in xs]
                result = build(*args)

            def imported(*values):
                mapped = {arg.name: value for arg, value in zip(args, values)}
                return tf.import_graph_def(body.as_graph_def(), mapped, [result.name], name="")[0]

            return v1.wrap_function(imported, [tf.TensorSpec(x.shape, x.dtype) for x in xs])(*xs)

        return call

    # What is dead leaves a function of stock's as an empty float, which must not be something else.
    def case(name, build, *inputs):
        c.case(f"PartitionedCall/{name}", called(build), *inputs, first_generation=True, dtypes=["float"])

    both = lambda x, y: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x) * y, lambda: x - y * y)
    case("taken", both, positive(2, 3), any_(2, 3))
    case("not_taken", both, fixed([[-1.0, -2.0]]), any_(1, 2))

    def nested(x, y):
        inner = lambda: tf.cond(tf.reduce_sum(y) > 0, lambda: x * y, lambda: tf.sin(x) * y)
        return tf.cond(tf.reduce_sum(x) > 0, lambda: inner() + x, lambda: y) * y

    case("nested", nested, positive(3), positive(3))
    case("nested_inner_else", nested, positive(3), fixed([-1.0, 0.25, 0.5]))


def choices(c):
    def chosen(index):
        def build(x, y):
            return tf.switch_case(
                tf.constant(index) + tf.zeros([], tf.int32),
                [lambda: x * y, lambda: tf.exp(x), lambda: [tf.sin(y) * x][0]],
            )

        return build

    for index in range(4):
        c.case(f"Case/{index}", chosen(index), any_(3), any_(3))
