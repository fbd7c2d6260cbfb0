"""Input on the workers: datasets that every worker makes for itself, values of each worker, the end of the input."""

from coordinator import program
from report import show, show_failure

import tensorflow as tf
from tensorflow.python.distribute.coordinator import cluster_coordinator


def orchestrate(layout, binary):
    program.orchestrate(run, layout, binary)
    program.orchestrate(of_the_program, layout, binary)
    program.orchestrate(every_worker, layout, binary, workers=2)


def rows(first=0):
    """Six numbers in batches of two."""
    return tf.data.Dataset.range(first, first + 6).map(lambda n: tf.cast(n, tf.float32) * 2.0).batch(2)


def run(cluster):
    strategy, coordinator = program.connect(cluster)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def step(iterator):
        batch = next(iterator)
        total.assign_add(tf.reduce_sum(batch))
        return batch

    dataset = coordinator.create_per_worker_dataset(lambda: rows().shuffle(10, seed=3).repeat(2))
    show("kind", type(dataset).__name__)
    show("element", str(dataset.element_spec))
    iterator = iter(dataset)
    values = [coordinator.schedule(step, (iterator,)) for _ in range(6)]
    coordinator.join()
    show("batches", coordinator.fetch(values))
    coordinator.schedule(step, (iterator,))
    show_failure("the end", coordinator.join)
    show("total", total.numpy())

    # A loop in the function, and several iterators at once.
    @tf.function
    def consume(one, other):
        sums = tf.zeros([])
        for _ in tf.range(2):
            sums += tf.reduce_sum(next(one)) + tf.reduce_sum(next(other))
        return sums

    one, other = (iter(coordinator.create_per_worker_dataset(lambda: rows(1).cache().prefetch(1))) for _ in range(2))
    show("loops", coordinator.schedule(consume, (one, other)).fetch())

    # A model's batch of a structure, of several types.
    def structured():
        source = {"words": tf.constant([["a", "b"], ["c", "d"], ["e", "f"]]), "number": tf.range(3)}
        return tf.data.Dataset.from_tensor_slices((source, [0.5, 1.5, 2.5])).repeat().batch(2)

    iterator = iter(coordinator.create_per_worker_dataset(structured))

    @tf.function
    def whole(iterator):
        return next(iterator)

    show("structured", coordinator.fetch([coordinator.schedule(whole, (iterator,)) for _ in range(2)]))

    def fails():
        raise ValueError("while it is traced")

    show_failure("a function that fails", lambda: coordinator.create_per_worker_dataset(fails))


def of_the_program(cluster):
    """Input that uses what the program has: a table, which stays there, and a dataset, which cannot."""
    strategy, coordinator = program.connect(cluster)

    def words(context):
        values = tf.constant([10, 20, 30], tf.int64)
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.range(3, dtype=tf.int64), values), default_value=-1
        )
        return tf.data.Dataset.range(5).map(table.lookup).batch(context.get_per_replica_batch_size(5))

    distributed = lambda: strategy.distribute_datasets_from_function(words)

    @tf.function
    def step(iterator):
        return next(iterator)

    iterator = iter(coordinator.create_per_worker_dataset(distributed))
    show("looked up", coordinator.schedule(step, (iterator,)).fetch())
    numbers = tf.data.Dataset.range(6)

    @tf.function
    def shuffled():
        return numbers.shuffle(6)

    iterator = iter(coordinator.create_per_worker_dataset(shuffled))
    coordinator.schedule(step, (iterator,))
    try:
        coordinator.join()
    except cluster_coordinator.ClosureInputError as error:
        show("a dataset of the program", "Failed copying input tensor" in str(error))


def every_worker(cluster):
    """Each of two workers has an input of its own, from its beginning."""
    strategy, coordinator = program.connect(cluster)
    with strategy.scope():
        seen = tf.Variable(tf.zeros([6], tf.int64))

    @tf.function
    def step(iterator):
        ids = tf.cast(next(iterator) / 2.0, tf.int32)
        seen.scatter_nd_add(ids[:, tf.newaxis], tf.ones_like(ids, tf.int64))

    iterator = iter(coordinator.create_per_worker_dataset(lambda: rows().repeat()))
    for _ in range(12):
        coordinator.schedule(step, (iterator,))
    coordinator.join()
    show("batches", int(tf.reduce_sum(seen)) // 2)
