"""Graphs with nodes that no step needs, of ops that a server may lack: the other steps run."""

from report import session, show, show_failure, v1

import tensorflow as tf


def add_unused(x):
    """Readers, samplers, summaries, tables and datasets, as input pipelines and hooks of programs leave them."""
    barrier = tf.raw_ops.Barrier(component_types=[tf.float32, tf.int64])
    tf.raw_ops.BarrierClose(handle=barrier)
    files = v1.train.string_input_producer(["a.txt", "b.txt"])
    v1.TextLineReader().read(files)
    v1.summary.audio("sound", tf.reshape(x, [1, 1, 1]), 8000)
    v1.data.make_initializable_iterator(tf.data.Dataset.range(10).map(lambda i: i * 2).batch(2)).get_next()
    v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(1.0)).get_next()
    keys = tf.constant(["a", "b"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([1, 2])), -1)
    table.lookup(keys)
    return tf.random.log_uniform_candidate_sampler([[1, 2]], 2, 4, True, 100)


def run(target):
    x = v1.placeholder(tf.float32, [], name="x")
    candidates, true_counts, _ = add_unused(x)
    doubled = x * 2.0
    behind = tf.reduce_sum(tf.cast(candidates, tf.float32)) + doubled + tf.reduce_sum(true_counts)
    only_called = tf.function(lambda value: tf.image.adjust_hue(value, 0.1))

    def odd():
        return tf.reduce_sum(only_called(tf.ones([1, 1, 3]) * x))

    chosen = tf.cond(x > 100.0, odd, lambda: x - 1.0)
    with session(target) as sess:
        show("beside them", sess.run(doubled, {x: 3.0}))
        show("fed in place of them", sess.run(behind, {x: 1.0, candidates: [1, 2, 3, 4], true_counts: [[0.5, 0.25]]}))
        show("the other branch", sess.run(chosen, {x: 3.0}))
        with tf.name_scope("later"):
            add_unused(x)
        show("added later", sess.run(doubled + 1.0, {x: 3.0}))
    # What stock has no kernel for either is refused with the graph.
    with tf.Graph().as_default() as graph:
        one = tf.constant(1.0)
        tf.raw_ops.ConfigureDistributedTPU()
        with session(target, graph) as sess:
            show_failure("without a kernel", lambda: sess.run(one))
