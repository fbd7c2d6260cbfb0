"""Wide and deep models' features: crosses, embeddings of several ids, ragged batches, sets."""

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf

ROWS = 6
WORDS = [["red", "blue"], ["green"], [], ["red", "red", "black"], ["a color with a long name"], ["blue"]]
PLACES = [["north"], ["south", "east"], ["west"], ["north"], [], ["east"]]


def run(target):
    with tf.Graph().as_default():
        wide_and_deep(target)
    with tf.Graph().as_default():
        ragged_batches(target)
    with tf.Graph().as_default():
        sets_and_counts(target)
    with tf.Graph().as_default():
        queued(target)


def sparse(rows):
    indices = [[row, at] for row, values in enumerate(rows) for at in range(len(values))]
    values = [value for row in rows for value in row]
    return v1.SparseTensorValue(indices, values, [len(rows), max(map(len, rows))])


def initial(*shape):
    return np.linspace(-0.5, 0.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def wide_and_deep(target):
    words = v1.sparse_placeholder(tf.string, [ROWS, None], name="words")
    places = v1.sparse_placeholder(tf.string, [ROWS, None], name="places")
    numbers = tf.constant([[3], [14], [15], [92], [6], [5]], tf.int64)
    labels = tf.constant([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    feeds = {words: sparse(WORDS), places: sparse(PLACES)}

    crossed = tf.sparse.cross_hashed([words, places, numbers], num_buckets=50, hash_key=956888297470)
    named = tf.sparse.cross([words, places])
    ids = tf.sparse.SparseTensor(words.indices, tf.strings.to_hash_bucket_fast(words.values, 20), words.dense_shape)
    weights = tf.sparse.SparseTensor(
        words.indices, tf.cast(tf.strings.length(words.values), tf.float32), words.dense_shape
    )

    wide = v1.get_variable("wide", initializer=initial(50, 1))
    deep = v1.get_variable("deep", initializer=initial(20, 4))
    dense = v1.get_variable("dense", initializer=initial(12, 1))
    bias = v1.get_variable("bias", initializer=0.1)
    linear = tf.nn.safe_embedding_lookup_sparse(wide, crossed, combiner="sum")
    means = tf.nn.safe_embedding_lookup_sparse(deep, ids, combiner="mean")
    weighted = tf.nn.safe_embedding_lookup_sparse(deep, ids, weights, combiner="sqrtn", default_id=7)
    one_hot = tf.sparse.SparseTensor(
        tf.stack([words.indices[:, 0], ids.values], axis=1), tf.ones_like(weights.values), [ROWS, 20]
    )
    bags = tf.sparse.sparse_dense_matmul(tf.sparse.reorder(one_hot), deep)
    hidden = tf.concat([means, weighted, bags], axis=1)
    logits = tf.reshape(linear + tf.matmul(hidden, dense), [ROWS]) + bias
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    train = v1.train.AdagradOptimizer(0.3).minimize(loss)
    filled, empty = tf.sparse.fill_empty_rows(words, "")
    dense_words = tf.sparse.to_dense(words, "-")
    attention = tf.sparse.softmax(weights)
    largest = tf.sparse.reduce_max(weights, axis=1)
    parts = tf.sparse.split(sp_input=words, num_split=2, axis=0)
    joined = tf.sparse.concat(axis=1, sp_inputs=[words, places])
    with session(target) as sess:
        sess.run(v1.global_variables_initializer())
        show("crossed", sess.run(crossed, feeds))
        show("named crosses", sess.run(named, feeds))
        for step in range(4):
            show(f"loss of step {step}", np.round(sess.run([loss, train], feeds)[0], 5))
        show("weights", [np.round(value, 4) for value in sess.run([wide, dense, bias])])
        show("filled", sess.run([filled, empty, dense_words], feeds))
        show("attention", np.round(sess.run(attention, feeds).values, 5))
        show("largest", sess.run(largest, feeds))
        show("parts", sess.run([parts, joined], feeds))
        unsorted = v1.SparseTensorValue([[1, 0], [0, 0]], ["a", "b"], [ROWS, 1])
        show_failure("unsorted", lambda: sess.run(dense_words, {words: unsorted}))


def ragged_batches(target):
    flat = v1.placeholder(tf.float32, [None, 2], name="flat")
    lengths = v1.placeholder(tf.int64, [None], name="lengths")
    rows = tf.RaggedTensor.from_row_lengths(flat, lengths)
    padded = rows.to_tensor(default_value=-1.0, shape=[None, 3, None])
    gathered = tf.gather(rows, [2, 0, 0])
    sums = tf.reduce_sum(rows, axis=1)
    doubled = tf.map_fn(lambda row: row * 2.0, rows)
    slope = tf.gradients(tf.reduce_sum(padded * padded) + tf.reduce_sum(gathered.to_tensor()), flat)
    words = tf.ragged.constant([["a", "b"], ["c"], []])
    crossed = tf.ragged.cross_hashed([words, tf.ragged.constant([[1, 2], [3], [4, 5]], dtype=tf.int64)], 100)
    ranges = tf.ragged.range([3, 0, 7], [5, 0, 1], [1, 1, -2])
    feeds = {flat: np.arange(12, dtype=np.float32).reshape(6, 2), lengths: [2, 0, 4]}
    with session(target) as sess:
        show("padded", sess.run(padded, feeds))
        show("gathered", sess.run([gathered.flat_values, gathered.row_splits, sums], feeds))
        show("mapped", sess.run([doubled.flat_values, doubled.row_splits], feeds))
        show("slope", sess.run(slope, feeds))
        show("crossed", sess.run([crossed.values, crossed.row_splits]))
        show("ranges", sess.run([ranges.values, ranges.row_splits, ranges.to_sparse()]))
        show("joined", sess.run(tf.concat([words, words], axis=1).to_tensor("-")))


def sets_and_counts(target):
    a = tf.constant([[3, 1, 3], [5, 9, 10], [2, 2, 2]])
    b = tf.constant([[1, 4], [10, 10], [7, 8]])
    found = [tf.sets.intersection(a, b), tf.sets.difference(a, b), tf.sets.union(a, b)]
    size = tf.sets.size(found[2])
    counted = tf.sparse.bincount(a, maxlength=8)
    weighted = tf.sparse.bincount(a[0], weights=[0.5, 1.0, 2.0])
    names = tf.sets.union(tf.constant([["x", "y"]]), tf.sparse.from_dense([["y", "z"]]))
    with session(target) as sess:
        show("sets", sess.run(found))
        show("size", sess.run(size))
        show("counts", sess.run([counted, weighted]))
        show("names", sess.run(names))


def queued(target):
    """Sparse tensors through a queue, as input pipelines of the first generation carry them."""
    words = v1.sparse_placeholder(tf.string, [None, None], name="words")
    queue = tf.queue.FIFOQueue(10, [tf.string], [[3]])
    rows = tf.io.serialize_many_sparse(words)
    enqueue = queue.enqueue_many([rows])
    batch = tf.io.deserialize_many_sparse(queue.dequeue_many(3), tf.string, rank=1)
    with session(target) as sess:
        sess.run(enqueue, {words: sparse(WORDS)})
        show("first batch", sess.run(batch))
        show("second batch", sess.run(batch))
