"""Input on the workers: datasets that every worker makes for itself, values of each worker, the end of the input."""

import tempfile

from coordinator import program
from report import show, show_failure

import tensorflow as tf
from tensorflow.python.distribute.coordinator import cluster_coordinator


def orchestrate(layout, binary):
    program.orchestrate(run, layout, binary)
    program.orchestrate(of_the_program, layout, binary)
    program.orchestrate(every_worker, layout, binary, workers=2)
    program.orchestrate(embeddings, layout, binary)


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

    # A dataset, not a function that makes one: the coordinator sends its graph.
    iterator = iter(coordinator.create_per_worker_dataset(rows().map(lambda x: x + 0.5).shuffle(10, seed=3)))
    values = [coordinator.schedule(whole, (iterator,)) for _ in range(3)]
    show("of a dataset", [value.shape for value in coordinator.fetch(values)])
    show("sum", float(sum(value.sum() for value in coordinator.fetch(values))))

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


def embeddings(cluster):
    """Examples in records: parsed, shuffled, batched, and an embedding on the parameter servers that learns from them."""
    strategy, coordinator = program.connect(cluster)
    int64s = lambda values: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    with tempfile.TemporaryDirectory() as folder:
        for file in range(2):
            with tf.io.TFRecordWriter(f"{folder}/examples-{file}") as writer:
                for i in range(file, 40, 2):
                    words = [i * 7 % 16, i * 5 % 16, i % 16][: 1 + i % 3]
                    feature = {"words": int64s(words), "label": int64s([sum(words) % 2])}
                    writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        features = {"words": tf.io.RaggedFeature(tf.int64), "label": tf.io.FixedLenFeature([], tf.int64)}
        with strategy.scope():
            table = tf.Variable(tf.reshape(tf.cos(tf.range(64, dtype=tf.float32)), [16, 4]))
            output = tf.Variable([0.5, -0.25, 0.125, 1.0])

        def batches():
            paths = [f"{folder}/examples-{file}" for file in range(2)]
            records = tf.data.Dataset.from_tensor_slices(paths).interleave(tf.data.TFRecordDataset, cycle_length=2)
            shuffled = records.shuffle(16, seed=5).repeat().batch(8)
            return shuffled.map(lambda serialized: tf.io.parse_example(serialized, features)).prefetch(2)

        @tf.function
        def step(iterator):
            batch = next(iterator)
            words, labels = batch["words"], tf.cast(batch["label"], tf.float32)
            with tf.GradientTape() as tape:
                sums = tf.math.segment_sum(tf.gather(table, words.values), words.value_rowids())
                logits = tf.linalg.matvec(sums, output)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
            slices, dense = tape.gradient(loss, [table, output])
            table.scatter_sub(tf.IndexedSlices(0.5 * slices.values, slices.indices))
            output.assign_sub(0.5 * dense)
            return loss

        iterator = iter(coordinator.create_per_worker_dataset(batches))
        losses = [coordinator.schedule(step, (iterator,)) for _ in range(12)]
        coordinator.join()
        program.show_close("losses", coordinator.fetch(losses))
        program.show_close("table", [table.numpy()[:, 0]])
