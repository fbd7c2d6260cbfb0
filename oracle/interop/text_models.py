"""Models of text and of columns, from files to trained weights: vocabularies, crosses, ragged batches."""

import os
import tempfile

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf

KINDS = {
    "fruit": "apple pear plum fig juice tree",
    "metal": "iron copper ore smelt rust alloy",
    "sea": "wave salt fish tide",
}


def run(target):
    with tempfile.TemporaryDirectory() as directory:
        for part in (vocabulary_classifier, wide_and_deep, ragged_classifier, vocabularies_refused):
            print(f"-- {part.__name__}", flush=True)
            with tf.Graph().as_default():
                v1.set_random_seed(11)
                part(target, directory)


def initial(name, *shape):
    values = np.random.RandomState(sum(map(ord, name))).uniform(-0.5, 0.5, shape).astype(np.float32).round(3)
    return v1.get_variable(name, initializer=values, use_resource=True)


def rounded(values):
    return [f"{value:.4f}" for value in np.ravel(values)]


def texts(directory):
    """Lines of a kind and some words, in two files, and the file of the words that are known."""
    random = np.random.RandomState(2)
    paths = [os.path.join(directory, f"texts{i}") for i in range(2)]
    for path in paths:
        with open(path, "w") as file:
            for _ in range(15):
                kind = random.choice(list(KINDS))
                words = random.choice([*KINDS[kind].split(), "the", "of", "unseen"], random.randint(1, 7))
                file.write(f"{kind}\t{' '.join(words)}\n")
    vocabulary = os.path.join(directory, "vocabulary")
    with open(vocabulary, "w") as file:
        file.writelines(f"{word}\n" for words in KINDS.values() for word in words.split())
    return paths, vocabulary


def vocabulary_table(vocabulary, buckets=3):
    keys = tf.lookup.TextFileInitializer(
        vocabulary, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    return tf.lookup.StaticVocabularyTable(keys, buckets)


def vocabulary_classifier(target, directory):
    """Lines of text files, looked up, padded, averaged, classified."""
    paths, vocabulary = texts(directory)
    table = vocabulary_table(vocabulary)
    kinds = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(sorted(KINDS), tf.range(3, dtype=tf.int64)), -1
    )

    def parse(line):
        parts = tf.strings.split([line], "\t").values
        words = tf.strings.split([parts[1]]).values
        return kinds.lookup(parts[0]), table.lookup(words)

    dataset = (
        tf.data.TextLineDataset(paths)
        .shuffle(40, seed=4)
        .repeat(2)
        .map(parse)
        .padded_batch(8, ([], [None]), (np.int64(-1), np.int64(-1)))
    )
    iterator = v1.data.make_initializable_iterator(dataset)
    labels, ids = iterator.get_next()
    known = tf.cast(ids >= 0, tf.float32)[..., None]
    vectors = tf.nn.embedding_lookup(initial("vectors", 19, 4), tf.maximum(ids, 0)) * known
    mean = tf.reduce_sum(vectors, 1) / tf.reduce_sum(known, 1)
    logits = tf.matmul(mean, initial("weights", 4, 3)) + initial("bias", 3)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = v1.train.AdagradOptimizer(0.5).minimize(loss)
    with session(target) as sess:
        sess.run([v1.global_variables_initializer(), v1.tables_initializer(), iterator.initializer])
        show("size", sess.run(table.size()))
        while True:
            try:
                value, classes, words, _ = sess.run([loss, labels, ids, train])
            except tf.errors.OutOfRangeError:
                break
            show("batch", [classes, words, rounded(value)])
        show("weights", rounded(sess.run([v for v in v1.trainable_variables() if v.name == "weights:0"])))


def wide_and_deep(target, directory):
    """Columns of a CSV file as feature columns make them: buckets, hashes, crosses, embeddings, numbers."""
    path = os.path.join(directory, "people.csv")
    random = np.random.RandomState(5)
    jobs = ["cook", "clerk", "smith", "", "pilot"]
    with open(path, "w") as file:
        file.write("age,job,place,hours,rich\n")
        for _ in range(40):
            age, job, place = random.randint(17, 90), random.choice(jobs), random.choice(["north", "south", '"a, b"'])
            hours = "" if random.rand() < 0.2 else f"{random.uniform(5, 60):.1f}"
            file.write(f"{age},{job},{place},{hours},{int(age > 40)}\n")
    columns = tf.data.experimental.CsvDataset(path, [tf.int64, "none", "", 40.0, tf.int64], header=True)
    dataset = columns.shuffle(40, seed=3).repeat(2).batch(16, drop_remainder=True)
    iterator = v1.data.make_one_shot_iterator(dataset)
    age, job, place, hours, rich = iterator.get_next()
    ages = tf.cast(tf.raw_ops.Bucketize(input=age, boundaries=[18.0, 25.0, 40.0, 65.0]), tf.int64)
    crossed = tf.sparse.cross_hashed(
        [tf.sparse.from_dense(job[:, None]), tf.sparse.from_dense(place[:, None]), ages[:, None]], num_buckets=30
    )
    hashed = tf.strings.to_hash_bucket_fast(job, 10)
    wide = tf.nn.safe_embedding_lookup_sparse(initial("wide", 30, 1), crossed, combiner="sum")
    bucketed = tf.matmul(tf.one_hot(ages, 5), initial("buckets", 5, 1))
    normal = (hours - 40.0) / 12.0
    deep = tf.concat([tf.nn.embedding_lookup(initial("jobs", 10, 3), hashed), normal[:, None]], 1)
    hidden = tf.nn.relu(tf.matmul(deep, initial("hidden", 4, 6)) + initial("hidden_bias", 6))
    logits = (wide + bucketed + tf.matmul(hidden, initial("out", 6, 1)))[:, 0]
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(rich, tf.float32), logits=logits))
    wide_variables = [v for v in v1.global_variables() if v.name[:-2] in ("wide", "buckets")]
    deep_variables = [v for v in v1.global_variables() if v not in wide_variables]
    step = v1.train.get_or_create_global_step()
    train = tf.group(
        v1.train.FtrlOptimizer(0.2, l1_regularization_strength=0.01).minimize(loss, step, wide_variables),
        v1.train.AdagradOptimizer(0.1).minimize(loss, var_list=deep_variables),
    )
    with session(target) as sess:
        sess.run(v1.global_variables_initializer())
        for _ in range(5):
            value, features, _ = sess.run([loss, [ages, hashed, crossed.values, hours], train])
            show("batch", [rounded(value), *features[:3], rounded(features[3])])
        show("steps", sess.run(step))
        show("weights", [rounded(value) for value in sess.run(wide_variables + deep_variables)])
        show_failure("end", lambda: sess.run(loss))


def ragged_classifier(target, directory):
    """Sentences of several lengths as ragged tensors: words, pairs of words, lookups, means."""
    paths, vocabulary = texts(directory)
    table = vocabulary_table(vocabulary)
    lines = v1.placeholder(tf.string, [None])
    parts = tf.strings.split(lines, "\t").to_tensor()
    words = tf.strings.split(tf.strings.lower(parts[:, 1]))
    pairs = tf.strings.ngrams(words, 2, separator=" ")
    ids = tf.ragged.map_flat_values(table.lookup, words)
    pair_ids = tf.ragged.map_flat_values(tf.strings.to_hash_bucket_fast, pairs, num_buckets=25)
    vectors = tf.ragged.map_flat_values(tf.nn.embedding_lookup, initial("vectors", 19, 4), ids)
    pair_vectors = tf.ragged.map_flat_values(tf.nn.embedding_lookup, initial("pairs", 25, 4), pair_ids)
    means = tf.reduce_mean(vectors, axis=1)
    sums = tf.reduce_sum(pair_vectors, axis=1)
    logits = tf.matmul(tf.concat([means, sums], 1), initial("weights", 8, 3))
    labels = tf.argmax(tf.equal(parts[:, :1], tf.constant([sorted(KINDS)])), 1)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = v1.train.AdamOptimizer(0.05).minimize(loss)
    lengths, longest = words.row_lengths(), tf.reduce_max(words.row_lengths())
    sorted_words = tf.sort(ids.to_tensor(99), axis=1)
    batch = open(paths[0]).read().splitlines()
    with session(target) as sess:
        sess.run([v1.global_variables_initializer(), v1.tables_initializer()])
        feed = {lines: batch}
        show(
            "words",
            [sess.run(value, feed) for value in (lengths, longest, pairs.row_splits, pairs.values, sorted_words)],
        )
        for _ in range(4):
            show("loss", rounded(sess.run([loss, train], feed)[0]))
        show("weights", [rounded(value) for value in sess.run(v1.trainable_variables())])
        show("one line", rounded(sess.run(loss, {lines: batch[:1]})))


def vocabularies_refused(target, directory):
    """Files of vocabularies that are missing, damaged or say a word twice."""
    files = {
        "twice": b"a\nb\na\n",
        "empty": b"",
        "blank_lines": b"a\n\nb\n",
        "control": b"\x01\n\x00\n",
        "columns": b"a 1\nb\n",
        "number": b"a one\n",
    }
    for name, content in files.items():
        path = os.path.join(directory, name)
        with open(path, "wb") as file:
            file.write(content)
        for kind, key, value, types in (
            ("lines", -2, -1, (tf.string, tf.int64)),
            ("columns", 0, 1, (tf.string, tf.int64)),
        ):
            with tf.Graph().as_default():
                start = tf.lookup.TextFileInitializer(path, types[0], key, types[1], value, delimiter=" ")
                table = tf.lookup.StaticHashTable(start, -1)
                with session(target) as sess:
                    try:
                        sess.run(v1.tables_initializer())
                        show(f"{name} {kind}", sess.run([table.size(), table.lookup(tf.constant(["a", "b", ""]))]))
                    except tf.errors.OpError as error:
                        show(
                            f"{name} {kind}", [type(error).__name__, "file:" in error.message or name in error.message]
                        )
    with tf.Graph().as_default():
        table = vocabulary_table(os.path.join(directory, "nowhere"))
        with session(target) as sess:
            show_failure("missing", lambda: sess.run(v1.tables_initializer()))
