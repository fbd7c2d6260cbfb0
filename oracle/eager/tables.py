"""Lookup tables on other tasks: made, filled, asked and changed from here, one operation at a time and in functions."""

from report import show, show_failure

import tensorflow as tf

FIRST, PS = "/job:worker/task:0", "/job:ps/task:0"


def run(_):
    static()
    mutable()
    dense()
    functions()


def static():
    with tf.device(PS):
        keys, values = tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
        show("static", [table.lookup(tf.constant(["b", "c"])).numpy(), table.size().numpy()])
        show_failure("other type", lambda: table.lookup(tf.constant([1])))


def mutable():
    with tf.device(FIRST):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.5)
        table.insert(tf.constant(["x", "y"]), tf.constant([1.0, 2.0]))
        table.remove(tf.constant(["x"]))
        show("mutable", [table.lookup(tf.constant(["x", "y"])).numpy(), table.size().numpy()])
        show("exported", [part.numpy() for part in table.export()])


def dense():
    with tf.device(PS):
        table = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.int64, -1, empty_key=0, deleted_key=-1, initial_num_buckets=4
        )
        table.insert(tf.constant([5, 9, 7], tf.int64), tf.constant([50, 90, 70], tf.int64))
        table.erase(tf.constant([9], tf.int64))
        show("dense", [table.lookup(tf.constant([5, 9], tf.int64)).numpy(), table.size().numpy()])
        show("buckets", [part.numpy() for part in table.export()])


def functions():
    with tf.device(PS):
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)

        @tf.function
        def count(keys):
            table.insert(keys, table.lookup(keys) + 1)
            return table.lookup(keys)

        for _ in range(3):
            counted = count(tf.constant([3, 4], tf.int64))
        show("counted", counted.numpy())
