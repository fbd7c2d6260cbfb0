"""Functions on other tasks: planned once, run again, on one task and across several."""

import itertools

from report import show

import tensorflow as tf
from operations import FIRST, PS, SECOND, fail, recovered


def run(_):
    one_task()
    control_flow()
    nested()
    across()
    training()
    failures()


def one_task():
    @tf.function
    def f(x, y):
        return x * y, tf.reduce_sum(x) + y

    with tf.device(FIRST):
        results = f(tf.constant([1.0, 2.0]), tf.constant(3.0))
        show("where", [result.device for result in results])
        show("results", [result.numpy() for result in results])
        show("again", [result.numpy() for result in f(tf.constant([5.0, 6.0]), tf.constant(2.0))])
        show("another shape", [result.numpy() for result in f(tf.constant([[1.0], [2.0]]), tf.constant(4.0))])
        show("another type", [result.numpy() for result in f(tf.constant([1, 2]), tf.constant(3))])
    with tf.device(SECOND):
        show("another task", [result.numpy() for result in f(tf.constant([1.0, 2.0]), tf.constant(3.0))])


def control_flow():
    @tf.function
    def branches(x):
        if tf.reduce_sum(x) > 3.0:
            return x - 1.0
        return x + 1.0

    @tf.function
    def loop(x, n):
        i = tf.constant(0)
        while i < n:
            x, i = x * 2.0, i + 1
        return x

    @tf.function
    def lists(n):
        squares = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        for i in tf.range(n):
            squares = squares.write(i, i * i)
        return squares.stack()

    with tf.device(FIRST):
        show("branches", [branches(tf.constant([1.0])).numpy(), branches(tf.constant([9.0])).numpy()])
        show("loop", loop(tf.constant([1.0, 3.0]), tf.constant(5)).numpy())
        show("lists", lists(tf.constant(6)).numpy())


def nested():
    @tf.function
    def inner(x):
        return x * x

    @tf.function
    def outer(x):
        return inner(inner(x)) + inner(x)

    with tf.device(SECOND):
        show("nested", outer(tf.constant([1.0, 2.0])).numpy())


def across():
    with tf.device(PS):
        v, n = tf.Variable([1.0, 2.0]), tf.Variable(0)
    with tf.device(SECOND):
        w = tf.Variable([10.0])

    @tf.function
    def step(x):
        v.assign_sub(0.5 * x * v)
        n.assign_add(1)
        return tf.reduce_sum(v), x + w

    with tf.device(FIRST):
        x = tf.constant([1.0, 0.5])
        results = step(x)
        show("where", [result.device for result in results])
        show("across", [result.numpy() for result in results])
        for _ in range(3):
            results = step(x)
        show("again", [result.numpy() for result in results])
    show("state", [v.numpy(), n.numpy()])
    show("from here", [result.numpy() for result in step(tf.constant([0.0, 0.0]))])

    @tf.function
    def placed(x):
        with tf.device(SECOND):
            y = x + 1.0
        with tf.device(PS):
            z = y * 2.0
        return z - x

    with tf.device(FIRST):
        show("placed by hand", placed(tf.constant([1.0, 2.0])).numpy())

    with tf.device(SECOND):
        there = tf.constant([7.0])

    @tf.function
    def takes(x, y):
        return x + y

    with tf.device(FIRST):
        show("an argument of another task", takes(there, tf.constant([1.0])).numpy())


def training():
    with tf.device(PS):
        weights, bias = tf.Variable(tf.zeros([2, 1])), tf.Variable(tf.zeros([1]))
    inputs = tf.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    targets = tf.constant([[2.0], [3.0], [5.0]])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matmul(inputs, weights) + bias - targets))
        for variable, gradient in zip([weights, bias], tape.gradient(loss, [weights, bias])):
            variable.assign_sub(0.25 * gradient)
        return loss

    losses = []
    for number in range(10):
        with tf.device([FIRST, SECOND][number % 2]):
            losses.append(float(step().numpy()))
    show("falls", [loss < before for before, loss in itertools.pairwise(losses)])
    show("close", bool(losses[-1] < 1.0))


def failures():
    with tf.device(PS):
        v = tf.Variable([1.0, 2.0])

    @tf.function(input_signature=[tf.TensorSpec(None)])
    def bad(x):
        v.assign_add(tf.reshape(x, [-1]))
        return tf.reduce_sum(v)

    with tf.device(FIRST):
        fail("on another task", lambda: bad(tf.constant([1.0, 2.0, 3.0])))
        recovered(lambda: tf.constant(0.0) + 1.0)
        show("after that", bad(tf.constant([1.0, 2.0])).numpy())

    @tf.function
    def checked(x):
        tf.debugging.assert_positive(x)
        return x * 2.0

    with tf.device(SECOND):
        fail("an assertion", lambda: checked(tf.constant(-1.0)))
        show("and then", recovered(lambda: checked(tf.constant(1.0))))
