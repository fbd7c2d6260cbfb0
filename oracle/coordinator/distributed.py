"""Input that a strategy distributes: every worker takes its share from iterators of replicas."""

from coordinator import program
from report import show, show_failure

import tensorflow as tf


def orchestrate(layout, binary):
    program.orchestrate(run, layout, binary)


def run(cluster):
    strategy, coordinator = program.connect(cluster)
    with strategy.scope():
        total = tf.Variable(0.0)

    def dataset_fn(context):
        first = tf.cast(context.input_pipeline_id, tf.int64)
        return tf.data.Dataset.range(first, first + 6).map(lambda n: tf.cast(n, tf.float32)).batch(2)

    @tf.function
    def step(iterator):
        def replica(batch):
            total.assign_add(tf.reduce_sum(batch))
            return tf.reduce_sum(batch)

        losses = strategy.run(replica, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    iterator = iter(
        coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(dataset_fn))
    )
    values = [coordinator.schedule(step, (iterator,)) for _ in range(3)]
    coordinator.join()
    show("sums", coordinator.fetch(values))
    show("total", total.numpy())
    coordinator.schedule(step, (iterator,))
    show_failure("the end", coordinator.join)
