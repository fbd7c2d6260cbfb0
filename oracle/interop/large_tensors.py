"""A large tensor in a feed, in a fetch and in the graph; FERROFLOW_LARGE_BYTES says how large (1 GB by hand, less in a quick test)."""

import os

from report import session, show, v1

import numpy as np
import tensorflow as tf


def run(target):
    count = int(os.environ.get("FERROFLOW_LARGE_BYTES", str(64 << 20))) // 4
    x = v1.placeholder(tf.float32, [None], name="x")
    n = v1.placeholder(tf.int32, [], name="n")
    with session(target) as sess:
        value = np.zeros(count, np.float32)
        value[[0, count // 2, -1]] = [1, 2, 3]
        ends = tf.gather(x, [0, count // 2, count - 1])
        show("fed", sess.run([tf.shape(x)[0] - count, ends], {x: value}))
        del value
        fetched = sess.run(tf.fill([n], 7.0), {n: count})
        show("fetched", [len(fetched) - count, float(fetched[0]), float(fetched[-1]), bool((fetched == 7).all())])
        # A few bytes on the wire whatever its size: slots of optimizers start so.
        repeated = tf.constant(7, tf.int8, [9 * count])
        show("repeated", sess.run([tf.size(repeated) - 9 * count, repeated[0], repeated[-1]]))
