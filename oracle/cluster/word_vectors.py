"""Word vectors on two parameter servers: losses over sampled words, with every sampler, and vocabularies from files.

Words are drawn by seeds, so tasks of both kinds must draw the same ones, step by step, and learn the same vectors.
"""

import os
import tempfile

from numbers_close import show_close
from report import session, show, v1

import numpy as np
import tensorflow as tf

WORDS, SIZE, BATCH = 50, 8, 6
PS = 2


def run(cluster):
    with tempfile.TemporaryDirectory() as directory:
        vocabulary = os.path.join(directory, "vocabulary.csv")
        with open(vocabulary, "w") as file:
            file.writelines(f"word{i},{1000 // (i + 1)}\n" for i in range(WORDS))
        for loss in (nce, sampled_softmax):
            for name, sampler in samplers(vocabulary):
                with tf.Graph().as_default() as graph:
                    training(cluster, graph, loss, name, sampler)
        with tf.Graph().as_default() as graph:
            pairs(cluster, graph, directory)


def samplers(vocabulary):
    """Functions of the true classes, by name; none is the default of the losses."""
    same = {"num_true": 1, "num_sampled": 5, "unique": True, "range_max": WORDS}
    fixed = v1.nn.fixed_unigram_candidate_sampler
    return [
        ("default", None),
        ("uniform", lambda true: v1.nn.uniform_candidate_sampler(true, seed=3, **same)),
        ("log uniform", lambda true: v1.nn.log_uniform_candidate_sampler(true, seed=4, **same)),
        ("learned", lambda true: v1.nn.learned_unigram_candidate_sampler(true, seed=5, **same)),
        ("file", lambda true: fixed(true, vocab_file=vocabulary, distortion=0.75, seed=6, **same)),
        ("unigrams", lambda true: fixed(true, unigrams=[1.0 / (i + 1) for i in range(WORDS)], seed=7, **same)),
    ]


def nce(weights, biases, labels, inputs, **sampled):
    return tf.nn.nce_loss(weights, biases, labels, inputs, 5, WORDS, **sampled)


def sampled_softmax(weights, biases, labels, inputs, **sampled):
    return v1.nn.sampled_softmax_loss(weights, biases, labels, inputs, 5, WORDS, partition_strategy="div", **sampled)


def table(name, seed, columns=SIZE, parts=PS):
    """Rows that are spread over the parameter servers."""
    values = np.random.RandomState(seed).uniform(-1, 1, [WORDS, columns]).astype(np.float32).round(3)
    return v1.get_variable(
        name,
        shape=[WORDS, columns],
        initializer=lambda shape, dtype=None, partition_info=None: values[partition_info.var_offset[0] :][: shape[0]],
        partitioner=v1.fixed_size_partitioner(parts),
    )


def training(cluster, graph, loss, name, sampler):
    v1.set_random_seed(17)
    with v1.device(v1.train.replica_device_setter(ps_tasks=PS)):
        embeddings, weights = table("embeddings", 1), table("weights", 2)
        biases = v1.get_variable("biases", initializer=np.zeros(WORDS, np.float32))
        examples, labels = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.int64, [None, 1])
        inputs = v1.nn.embedding_lookup(embeddings, examples, partition_strategy="div")
        sampled = {} if sampler is None else {"sampled_values": sampler(labels)}
        if loss is nce:
            whole = tf.concat(list(weights), 0)
            mean = tf.reduce_mean(nce(whole, biases, labels, inputs, **sampled))
        else:
            mean = tf.reduce_mean(sampled_softmax(list(weights), biases, labels, inputs, **sampled))
        train = v1.train.AdagradOptimizer(0.5).minimize(mean)
    words = np.random.RandomState(3).randint(0, WORDS, [8, 2, BATCH])
    with session(cluster.target(), graph) as sess:
        sess.run(v1.global_variables_initializer())
        losses = [sess.run([mean, train], {examples: e, labels: t[:, None]})[0] for e, t in words]
        show_close(f"{loss.__name__}, {name}", losses)
        if sampler is not None:
            drawn = [sess.run(sampled["sampled_values"], {labels: t[:, None]}) for _, t in words[:3]]
            show(f"{loss.__name__}, {name}: drawn", [each[0].tolist() for each in drawn])
        show_close("vectors", sess.run([list(embeddings), list(weights), biases]))


def pairs(cluster, graph, directory):
    """Pairs of words that are near each other in a text, read by a worker."""
    path = os.path.join(directory, "text")
    numbers = np.random.RandomState(5).permutation(np.repeat(np.arange(9), np.arange(9, 90, 9)))
    with open(path, "w") as file:
        file.write(" ".join(f"w{number}" for number in numbers))
    definition = tf.compat.v1.GraphDef()
    definition.versions.producer = 18
    node = definition.node.add(op="Skipgram", name="pairs")
    node.attr["filename"].s = path.encode()
    for attr, value in (("batch_size", 12), ("window_size", 3), ("min_count", 10)):
        node.attr[attr].i = value
    node.attr["subsample"].f = 1e-2
    tf.import_graph_def(definition, name="")
    with session(cluster.target(), graph) as sess:
        for _ in range(3):
            words, counts, total, epoch, processed, examples, labels = sess.run([f"pairs:{i}" for i in range(7)])
            show("pairs", [total, epoch, processed, examples.tolist(), labels.tolist()])
        show("words", sorted(zip(words.tolist(), counts.tolist(), strict=True)))
