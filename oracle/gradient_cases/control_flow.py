"""Conditionals and loops: those of the first generation as old graphs have them, and choices by number."""

import tensorflow as tf

from gradients import any_, fixed, positive

v1 = tf.compat.v1


def cases(c):
    conditionals(c)
    loops(c)
    choices(c)


def conditionals(c):
    def case(name, build, *inputs, **options):
        c.case(f"Switch/{name}", build, *inputs, first_generation=True, **options)

    positive_sum = lambda x: tf.reduce_sum(x) > 0  # noqa: E731
    both = lambda x, y: tf.cond(positive_sum(x), lambda: x * y, lambda: x - y * y)  # noqa: E731
    case("taken", both, positive(2, 3), any_(2, 3))
    case("not_taken", both, fixed([[-1.0, -2.0]]), any_(1, 2))
    one_side = lambda x, y: tf.cond(positive_sum(x), lambda: tf.exp(x) + 1, lambda: y * 2)  # noqa: E731
    case("one_side", one_side, positive(3), any_(3))
    case("other_side", one_side, fixed([-1.0, -0.5, 0.25]), any_(3))

    def nested(x, y):
        inner = lambda: tf.cond(tf.reduce_sum(y) > 0, lambda: x * y, lambda: tf.sin(x) * y)  # noqa: E731
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


def loops(c):
    def case(name, build, *inputs, **options):
        c.case(f"Enter/{name}", build, *inputs, first_generation=True, **options)

    def repeat(times, body, *values):
        last = tf.while_loop(lambda i, *_: i < times, lambda i, *values: (i + 1, *body(i, *values)), (0, *values))
        return last[1:]

    case("power", lambda x, y: repeat(3, lambda i, v: (v * x + y,), x)[0], any_(2), any_(2))
    case("no_iterations", lambda x, y: repeat(0, lambda i, v: (v * y,), x)[0], any_(2), any_(2))
    case("from_constant", lambda x: repeat(3, lambda i, v: (v * 0.5 + tf.sin(x),), tf.zeros([2], x.dtype))[0], any_(2), unknown=False)
    case("two", lambda x, y: list(repeat(3, lambda i, a, b: (a * b, b + x), x, y)), any_(2), any_(2))
    case("invariant_result", lambda x, y: list(repeat(2, lambda i, a, b: (a * b, b), x, y)), any_(2), any_(2))
    counted = lambda x: repeat(4, lambda i, v: (v * tf.cast(i + 1, x.dtype),), x)[0]  # noqa: E731
    case("counter", counted, any_(3))
    case("matrices", lambda x, w: repeat(3, lambda i, v: (tf.tanh(tf.matmul(v, w)),), x)[0], any_(2, 3), any_(3, 3))

    def nested(x, y):
        inner = lambda v: repeat(2, lambda j, u: (tf.sin(u) * y,), v)[0]  # noqa: E731
        return repeat(3, lambda i, v: (inner(v) + x,), x)[0]

    case("nested", nested, any_(2), any_(2))

    def steps(x):
        read = tf.TensorArray(x.dtype, 3).unstack(x)
        write = tf.TensorArray(x.dtype, 3)
        body = lambda i, state, flow: (i + 1, state * read.read(i), flow.write(i, tf.exp(state)))  # noqa: E731
        _, state, flow = tf.while_loop(lambda i, *_: i < 3, body, (0, tf.ones_like(x[0]), write))
        return [state, flow.stack()]

    case("tensor_array", steps, any_(3, 2), unknown=False)

    def variable(x):
        handle = v1.get_variable("w", initializer=tf.constant([0.5, -1.5], x.dtype), use_resource=True)
        tf.compat.v1.add_to_collection("init", handle.initializer)
        return repeat(3, lambda i, v: (v * handle + x,), x)[0], [handle.handle]

    case("variable", variable, any_(2))
    after = lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: repeat(2, lambda i, v: (v * x,), x)[0], lambda: x)  # noqa: E731
    case("within_conditional", after, positive(2))


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
