"""Function libraries: calls, nested calls, state and control flow inside, gradients through them."""

from report import session, show, show_failure, v1

import tensorflow as tf


def run(target):
    @tf.function
    def double(x):
        return x * 2.0

    @tf.function
    def quadruple(x):
        return double(double(x))

    @tf.function
    def two_results(x, y):
        return {"sum": x + y, "product": quadruple(x) * y}

    @tf.function
    def factorial(n):
        result = tf.constant(1.0)
        while n > 1.0:
            result *= n
            n -= 1.0
        return result

    @tf.function
    def fails(x):
        return tf.debugging.check_numerics(double(x), "inside")

    x = v1.placeholder(tf.float32, [], name="x")
    calls = [double(x), quadruple(x), two_results(x, 3.0), factorial(x)]
    slope = tf.gradients(quadruple(x) * x, x)
    v = v1.get_variable("v", [], initializer=v1.zeros_initializer(), use_resource=True)

    @tf.function
    def bump(amount):
        v.assign_add(amount)
        return v.read_value()

    @tf.function
    def no_number(x):
        return tf.where(x > 0.0, x, float("nan"))

    stateful = tf.raw_ops.StatefulPartitionedCall(args=[x], Tout=[tf.float32], f=double.get_concrete_function(x))
    plain = tf.raw_ops.PartitionedCall(args=[x], Tout=[tf.float32], f=double.get_concrete_function(x))
    bumped = bump(x)
    with session(target) as sess:
        sess.run(v.initializer)
        show("calls", sess.run(calls, {x: 5.0}))
        show("gradient", sess.run(slope, {x: 3.0}))
        show("both kinds", sess.run([stateful, plain], {x: 1.5}))
        show("state", [sess.run(bumped, {x: 2.0}) for _ in range(3)])
        show_failure("failing inside", lambda: sess.run(fails(x), {x: float("nan")}))
        # The client sends all functions again with every addition; a constant that is no number equals itself.
        show("no number", sess.run(no_number(x), {x: -1.0}))
        show("added later", sess.run(tf.function(lambda a: a - 1.0)(x), {x: 1.0}))
        many_at_once(sess)


def many_at_once(sess):
    """Calls of one function that all wait are no recursion."""
    queue = tf.queue.FIFOQueue(300, tf.float32, shapes=[[]])
    waiting = tf.function(lambda: queue.dequeue() + 1.0)
    total = tf.add_n([waiting() for _ in range(300)])
    fill = queue.enqueue_many(tf.range(300.0))
    show("many at once", sess.run([total, fill]))
