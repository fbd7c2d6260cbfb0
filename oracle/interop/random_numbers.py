"""Random numbers: equal seeds give equal numbers, in order of use, whichever server draws them."""

from report import session, show, v1

import tensorflow as tf


def run(target):
    v1.set_random_seed(42)
    uniform = v1.random_uniform([5])
    normal = v1.random_normal([5], seed=7)
    truncated = v1.truncated_normal([5], seed=8)
    integers = v1.random_uniform([6], 0, 100, tf.int32, seed=9)
    shuffled = v1.random_shuffle(tf.range(8), seed=10)
    doubles = v1.random_uniform([3], dtype=tf.float64, seed=11)
    halves = v1.random_normal([3], dtype=tf.float16, seed=12)
    categories = v1.multinomial([[0.1, 0.5, 2.0]], 6, seed=13)
    stateless = [
        tf.random.stateless_uniform([4], [1, 2]),
        tf.random.stateless_normal([4], [3, 4]),
        tf.random.stateless_uniform([4], [5, 6], 0, 1000, tf.int64),
        tf.random.stateless_truncated_normal([4], [7, 8]),
    ]
    w = v1.get_variable("w", [3, 3], initializer=v1.glorot_uniform_initializer(seed=5))
    with session(target) as sess:
        for label, tensor in [
            ("uniform", uniform),
            ("normal", normal),
            ("truncated", truncated),
            ("integers", integers),
        ]:
            show(label, [sess.run(tensor) for _ in range(2)])
        show("the stream goes on in another step", sess.run([uniform, normal]))
        show("shuffled", sess.run(shuffled))
        show("types", sess.run([doubles, halves]))
        show("categories", sess.run(categories))
        show("stateless", sess.run(stateless))
        sess.run(w.initializer)
        show("initialized", sess.run(w))
    with session(target) as sess:
        show("a new session starts again", sess.run([uniform, normal]))
