"""The models of the examples in stock TensorFlow, for the tests of the examples.

    python examples.py between_graph DIGITS STEPS            the loss of every step
    python examples.py between_graph DIGITS STEPS DIRECTORY  restores the latest checkpoint first; the global step, then losses
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

v1 = tf.compat.v1
v1.disable_v2_behavior()
v1.enable_resource_variables()


def dense(x, units, seed, name):
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [x.shape[1], units], initializer=v1.glorot_uniform_initializer(seed=seed))
        bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def between_graph(digits, steps, directory=None):
    table = np.loadtxt(digits, delimiter=",", dtype=np.float32)
    data = tf.data.Dataset.from_tensor_slices((table[:, :64] / 16, table[:, 64].astype(np.int64)))
    images, labels = v1.data.make_one_shot_iterator(data.shuffle(1000, seed=42).repeat().batch(64)).get_next()
    images.set_shape([None, 64])
    hidden = tf.nn.relu(dense(images, 32, 1, "hidden"))
    loss = v1.losses.sparse_softmax_cross_entropy(labels, dense(hidden, 10, 2, "logits"))
    step = v1.train.get_or_create_global_step()
    train = v1.train.AdagradOptimizer(0.1).minimize(loss, step)
    with v1.Session() as session:
        if directory:
            v1.train.Saver().restore(session, tf.train.latest_checkpoint(directory))
            print(session.run(step))
        else:
            session.run(v1.global_variables_initializer())
        for _ in range(int(steps)):
            print(repr(float(session.run([loss, train])[0])))


if __name__ == "__main__":
    {"between_graph": between_graph}[sys.argv[1]](*sys.argv[2:])
