"""Operations on other tasks, one at a time: values that stay there, come back and go from one task to another."""

from report import show, show_failure

import numpy as np
import tensorflow as tf

FIRST, SECOND, PS = "/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"


def run(_):
    show("devices", sorted(device.name for device in tf.config.list_logical_devices()))
    arithmetic()
    copies()
    variables()
    failures()
    streams()


def arithmetic():
    with tf.device(FIRST):
        a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        b = a * 2.0 + 1.0
        show("where", b.device)
        show("sum", b.numpy())
        show("product", tf.linalg.matmul(a, b).numpy())
        show("reduced", tf.reduce_mean(b, axis=0).numpy())
        show("several outputs", [part.numpy() for part in tf.split(b, 2)])
        show("text", tf.strings.join([tf.constant("a"), tf.constant("b")]).numpy())
        show("types", [tf.cast(a, dtype).numpy() for dtype in (tf.float64, tf.int32, tf.bool, tf.uint8)])
        show("shape", tf.shape(b).numpy())
        show("empty", tf.zeros([0, 3]).numpy())
        show("large", float(tf.reduce_sum(tf.ones([300, 400]) * 0.5).numpy()))
        show(
            "random",
            [tf.random.stateless_uniform([2], [1, 2]).numpy(), tf.random.stateless_normal([2], [3, 4]).numpy()],
        )


def copies():
    with tf.device(FIRST):
        there = tf.constant([1, 2, 3])
    show("used here", (there + 1).numpy())
    with tf.device(SECOND):
        show("used elsewhere", (there * 10).numpy())
        moved = tf.identity(there)
    show("where", moved.device)
    with tf.device(PS):
        show("both", (moved + there).numpy())
    back = tf.identity(moved)
    show("back", [back.device, back.numpy()])
    large = tf.reshape(tf.range(100000, dtype=tf.float32), [1000, 100])
    with tf.device(FIRST):
        doubled = large * 2
    show("large", bool(np.array_equal(doubled.numpy(), large.numpy() * 2)))


def variables():
    with tf.device(PS):
        v, n = tf.Variable([1.0, 2.0]), tf.Variable(0, dtype=tf.int64)
    show("created", [v.device, v.numpy(), n.numpy()])
    v.assign_add([1.0, 1.0])
    n.assign(7)
    show("updated", [v.numpy(), n.numpy()])
    with tf.device(FIRST):
        show("read elsewhere", (v + 1.0).numpy())
    v.scatter_sub(tf.IndexedSlices(tf.constant([0.5]), tf.constant([1])))
    show("scattered", v.numpy())
    show("gathered", tf.gather(v, [1, 0]).numpy())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(v * v)
    show("gradient", tape.gradient(loss, v).numpy())
    other = tf.Variable([9.0])
    del v
    show("another", other.numpy())


def failures():
    with tf.device(FIRST):
        a = tf.constant([1.0, 2.0])
        fail("shapes", lambda: tf.reshape(a, [3]))
        show("after that", recovered(lambda: a + 1.0))
        fail("product", lambda: tf.linalg.matmul(tf.ones([2, 3]), tf.ones([2, 3])))
        fail("division", lambda: tf.constant([1]) // tf.constant([0]))
        fail("checked", lambda: tf.debugging.check_numerics(a / 0.0, "a"))
        fail("gather", lambda: tf.gather(a, 7))
        show("after all", recovered(lambda: a * 3.0))
    with tf.device(PS):
        v = tf.Variable([1.0])
        show_failure("assigned", lambda: v.assign(tf.ones([4])))
        show("kept", v.numpy())
    show_failure("no such task", lambda: on("/job:worker/task:7"))


def fail(label, call):
    """Shows how an operation fails, which its client may hear of when it looks at the result, or before."""
    recovered(lambda: tf.constant(0.0) + 1.0)
    show_failure(label, lambda: call().numpy())


def recovered(call):
    """A value after a failure. What the client has sent ahead fails with what failed before it."""
    for _ in range(100):
        try:
            return call().numpy()
        except tf.errors.OpError:
            tf.experimental.async_clear_error()
    return call().numpy()


def on(device):
    with tf.device(device):
        return (tf.constant(1.0) + 1.0).numpy()


def streams():
    """Many operations under way at once, in order."""
    with tf.device(SECOND):
        v = tf.Variable(0.0)
        x = tf.constant(1.0)
        for _ in range(200):
            v.assign_add(x)
        show("in order", v.numpy())
        total = x
        for _ in range(200):
            total = total + x
        show("a chain", total.numpy())
