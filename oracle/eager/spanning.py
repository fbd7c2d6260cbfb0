"""Functions over several tasks: results that stay where they are made, arguments from elsewhere, values of several devices
as one argument, control flow across tasks."""

from report import show

import tensorflow as tf
from operations import FIRST, PS, SECOND, fail, recovered
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import functional_ops

CLIENT = "/job:client/task:0"


def run(_):
    remote_results()
    arguments()
    devices()
    packed()
    control_flow()
    client_state()
    remote_calls()


def full(device):
    return device.replace("/task", "/replica:0/task") + "/device:CPU:0"


def tell(label, results):
    show(label, [[result.backing_device, result.numpy()] for result in tf.nest.flatten(results)])


def remote_results():
    with tf.device(SECOND):
        v = tf.Variable(1)

    @tf.function
    def f(i):
        with tf.device(SECOND):
            c = v + 1
        with tf.device(PS):
            d = tf.stack([c, c])
        return i + v, c, d

    with tf.device(FIRST):
        results = f(tf.constant([1]))
    tell("results that stay", results)
    with tf.device(FIRST):
        show("used elsewhere", (results[1] + results[0]).numpy())
    with tf.device(PS):
        show("used there", (results[2] * 2).numpy())
        tell("given to a function", f(results[2]))
    tell("called here", f(tf.constant([5])))

    @tf.function
    def text(x):
        with tf.device(PS):
            return tf.strings.join([x, x]), tf.zeros([0, 2]), tf.cast(tf.strings.length(x), tf.int64)

    with tf.device(SECOND):
        results = text(tf.constant(["a", "bc"]))
    tell("text, empty and integers", results)
    show("shapes", [result.shape.as_list() for result in results])

    @tf.function
    def many():
        results = []
        for number in range(12):
            with tf.device([FIRST, SECOND, PS][number % 3]):
                results.append(tf.constant(float(number)) * 2.0)
        return results

    with tf.device(SECOND):
        tell("many", many())
        tell("again", many())

    @tf.function
    def reads():
        with tf.device(PS):
            return v.read_value(), v.assign_add(10)

    with tf.device(FIRST):
        tell("a variable of another task", reads())


def arguments():
    @tf.function
    def same(x, y):
        return x, y, x + y

    with tf.device(FIRST):
        x = tf.constant([1.0, 2.0])
    with tf.device(SECOND):
        y = tf.constant([10.0])
    with tf.device(PS):
        tell("arguments of other tasks", same(x, y))
    with tf.device(SECOND):
        tell("one of them", same(x, y))
    tell("from here", same(x, y))
    with tf.device(FIRST):
        tell("one that is here", same(tf.constant(3.0), y))

    @tf.function
    def twice(x):
        return same(x, x)[2]

    with tf.device(SECOND):
        tell("the same one twice", twice(x))
    text = tf.constant(["α", "", "long " * 100])
    with tf.device(FIRST):
        there = tf.identity(text)
    with tf.device(SECOND):
        tell("text", tf.strings.length(there))
        tell("text of a function", tf.function(tf.strings.length)(there))


def devices():
    @tf.function
    def ambiguous(i):
        with tf.device("/job:worker"):
            return i + tf.constant([2])

    fail("two tasks could", lambda: ambiguous(tf.constant([2])))
    with tf.device(FIRST):
        fail("two others could", lambda: ambiguous(tf.constant([2])))

    @tf.function
    def inside(i):
        with tf.device("CPU:0"):
            a = i * 2
        with tf.device("/job:ps"):
            b = a + 1
        return a, b

    with tf.device(SECOND):
        tell("the nearest one", inside(tf.constant([2])))

    @tf.function
    def nowhere(i):
        with tf.device("/job:nowhere/task:3"):
            return i + 1

    with tf.device(FIRST):
        fail("none is called that", lambda: nowhere(tf.constant(1)))
        show("and on", recovered(lambda: tf.constant(1) + 1))


def packed():
    with tf.device(FIRST):
        v = tf.Variable(1.0)
    with tf.device(SECOND):
        w = tf.Variable(2.0)
        value = tf.zeros([2])
    handle = ops.pack_eager_tensors([v.handle, w.handle])
    show("where", [handle.device, handle.backing_device])

    @tf.function
    def add():
        with tf.device(full(FIRST)):
            a = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        with tf.device(full(SECOND)):
            b = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        return a + b

    with tf.device(FIRST):
        show("on a task of it", add().numpy())
    with tf.device(PS):
        show("on another", add().numpy())
    show("here", add().numpy())

    @tf.function
    def update(amount):
        for device in (FIRST, SECOND):
            with tf.device(full(device)):
                tf.raw_ops.AssignAddVariableOp(resource=handle, value=amount)

    with tf.device(SECOND):
        update(tf.constant(3.0))
    context.async_wait()
    show("each has its own", [v.numpy(), w.numpy()])
    one = ops.pack_eager_tensors([value])

    @tf.function
    def takes(x):
        with tf.device(full(SECOND)):
            there = x + 1.0
        return there + 1.0

    with tf.device(FIRST):
        show("one value", takes(one).numpy())
    with tf.device(SECOND):
        show("its own", takes(one).numpy())
    with tf.device(FIRST):
        a = tf.constant([1.0])
    with tf.device(PS):
        b = tf.constant([2.0])
    both = ops.pack_eager_tensors([a, b])

    @tf.function
    def values(x):
        with tf.device(full(PS)):
            there = x * 10.0
        with tf.device(full(FIRST)):
            return x + there

    with tf.device(FIRST):
        show("values of two tasks", values(both).numpy())


def control_flow():
    with tf.device(SECOND):
        v = tf.Variable(1.0)

    @tf.function
    def loop(x, n):
        for _ in tf.range(n):
            with tf.device(PS):
                x = x * 2.0 + v
            v.assign_add(1.0)
        return x

    @tf.function
    def branch(x):
        if x > 0.0:
            with tf.device(PS):
                return x + v
        else:
            v.assign(x)
            return x

    with tf.device(FIRST):
        show("loops", [loop(tf.constant(1.0), tf.constant(n)).numpy() for n in (0, 1, 4)])
        show("branches", [branch(tf.constant(x)).numpy() for x in (1.0, -2.0, 3.0)])
    show("state", v.numpy())
    show("from here", [loop(tf.constant(1.0), tf.constant(3)).numpy(), branch(tf.constant(2.0)).numpy()])


def client_state():
    v = tf.Variable(5)

    @tf.function
    def f():
        with tf.device(CLIENT):
            read = v.read_value()
        return read + 1

    with tf.device(FIRST):
        tell("a variable of the client", f())

    @tf.function
    def add(x):
        v.assign_add(x)
        return v * 2

    with tf.device(SECOND):
        tell("updated", add(tf.constant(2)))
    show("state", v.numpy())


def remote_calls():
    """Functions that name, while they run, the device that another function runs on."""
    scalar = tf.TensorSpec([], tf.float32)
    with tf.device(SECOND):
        v = tf.Variable(5.0)

    @tf.function
    def line(x):
        return x * 2.0 + 1.0

    @tf.function
    def add(x):
        return v.assign_add(x)

    @tf.function
    def elsewhere(x):
        with tf.device(PS):
            return x * 3.0

    @tf.function
    def text(x):
        return tf.strings.join([tf.strings.as_string(x, precision=1), "!"])

    @tf.function
    def refuse(x):
        with tf.control_dependencies([tf.debugging.Assert(x > 100.0, [x])]):
            return x + 1.0

    def caller(function, result=tf.float32):
        body = function.get_concrete_function(scalar)

        @tf.function
        def call(x, target):
            return functional_ops.remote_call(target=target, args=[x, *body.captured_inputs], Tout=[result], f=body)

        return call

    lines = caller(line)

    def run(call, device, target):
        with tf.device(device):
            return [result.numpy() for result in call(tf.constant(1.0), tf.constant(target))]

    show("on its own device", run(lines, FIRST, full(FIRST)))
    show("on any", run(lines, FIRST, "/device:CPU:0"))
    show("on another task", [run(lines, FIRST, full(device)) for device in (SECOND, PS, CLIENT)])
    show("by a shorter name", run(lines, FIRST, SECOND))
    show("asked from here", run(lines, CLIENT, full(SECOND)))
    show("its own state", run(caller(add), SECOND, full(SECOND)))
    everywhere = [FIRST, SECOND, PS, CLIENT]
    for device in (FIRST, SECOND, CLIENT):
        show(f"state of a task, by {device}", [run(caller(add), device, full(target)) for target in everywhere])
    with tf.device(CLIENT):
        u = tf.Variable(7.0)

    @tf.function
    def subtract(x):
        return u.assign_sub(x)

    for device in (FIRST, CLIENT):
        show(
            f"state of the client, by {device}", [run(caller(subtract), device, full(target)) for target in everywhere]
        )
    show("over three tasks", run(caller(elsewhere), FIRST, full(SECOND)))
    show("text", run(caller(text, tf.string), FIRST, full(SECOND)))
    fail("no such task", lambda: run(lines, FIRST, "/job:nowhere/replica:0/task:0/device:CPU:0"))
    fail("no device", lambda: run(lines, FIRST, "hello"))
    fail("one that fails", lambda: run(caller(refuse), FIRST, full(SECOND)))
    show("and on", recovered(lambda: tf.constant(1) + 1))
    show("state", v.numpy())
