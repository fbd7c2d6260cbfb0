"""Variables in pieces: the three partitioners, lookups, sparse and dense updates, reads and assignments."""

import functools

from coordinator import program
from report import show, show_failure

import numpy as np
import tensorflow as tf

PARTITIONERS = {
    "fixed": lambda: tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
    "least": lambda: tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=40, max_shards=2),
    "most": lambda: tf.distribute.experimental.partitioners.MaxSizePartitioner(max_shard_bytes=64),
}


# With one worker, a mixture of parameter servers says no more than these.
LAYOUTS = ("stock", "ours", "our-ps", "our-workers")


def orchestrate(layout, binary):
    for name in PARTITIONERS:
        print(f"partitioner {name}", flush=True)
        program.orchestrate(functools.partial(run, name), layout, binary)


def run(name, cluster):
    strategy, coordinator = program.connect(cluster, PARTITIONERS[name]())
    with strategy.scope():
        table = tf.Variable(tf.reshape(tf.range(24.0), [12, 2]), name="table")
        small = tf.Variable([[1.0, 2.0]], name="small")
        scalar = tf.Variable(3.0, name="scalar")
        counts = tf.Variable(tf.zeros([10], tf.int64), name="counts")
    for variable in (table, small, scalar, counts):
        pieces = getattr(variable, "variables", None)
        show(variable.name, [(list(piece.shape), piece.device) for piece in pieces] if pieces else variable.device)

    @tf.function
    def look_up(ids):
        return tf.nn.embedding_lookup(table, ids)

    @tf.function
    def look_up_sparse(ids, weights):
        return tf.nn.embedding_lookup_sparse(table, ids, weights, combiner="mean")

    @tf.function
    def step(ids, target):
        with tf.GradientTape() as tape:
            found = tf.nn.embedding_lookup(table, ids)
            loss = tf.reduce_mean(tf.square(found * small * scalar - target))
        watched = tape.watched_variables()
        for variable, gradient in zip(watched, tape.gradient(loss, watched)):
            if isinstance(gradient, tf.IndexedSlices):
                variable.scatter_sub(tf.IndexedSlices(0.01 * gradient.values, gradient.indices))
            else:
                variable.assign_sub(0.001 * gradient)
        counts.assign_add(tf.ones([10], tf.int64))
        return loss

    ids = tf.constant([0, 11, 5, 5], tf.int64)
    show("found", coordinator.schedule(look_up, (ids,)).fetch())
    show("found nothing", coordinator.schedule(look_up, (tf.zeros([0], tf.int64),)).fetch())
    sparse = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 7, 3], tf.int64), [2, 2])
    weights = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [1.0, 3.0, 0.5], [2, 2])
    program.show_close("found by lists", [coordinator.schedule(look_up_sparse, (sparse, weights)).fetch()])
    losses = [coordinator.schedule(step, (ids, tf.ones([4, 2]))) for _ in range(5)]
    coordinator.join()
    program.show_close("losses", coordinator.fetch(losses))
    program.show_close("after", [tf.convert_to_tensor(table), small, scalar])
    show("counts", tf.convert_to_tensor(counts).numpy())

    # As programs change and read them by hand.
    table.assign(tf.fill([12, 2], 2.0))
    table.assign_add(tf.ones([12, 2]))
    table.assign_sub(tf.fill([12, 2], 0.5))
    show("assigned", np.unique(tf.convert_to_tensor(table).numpy()))

    @tf.function
    def rows():
        return table[3:7, :1], tf.reduce_sum(table), tf.gather(tf.convert_to_tensor(table), [1, 10])

    show("in a function", coordinator.fetch(coordinator.schedule(rows)))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def out_of_range(ids):
        return tf.nn.embedding_lookup(table, ids)

    coordinator.schedule(out_of_range, (tf.constant([1, 40], tf.int64),))
    show_failure("a row that is not there", coordinator.join)
    show("after that", coordinator.schedule(look_up, (ids,)).fetch())
