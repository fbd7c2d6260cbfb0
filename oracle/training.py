"""Writes `testdata/training.tsv`: what stock's initial values, losses, metrics and small models are, step by step, for the models that the
test `training` builds with Ferroflow.

    python oracle/training.py [--check]

A line has a case, a name, and the values in order.
"""

import pathlib
import sys

import environment  # noqa: F401

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
ROOT = pathlib.Path(__file__).parent.parent
FILE = ROOT / "testdata" / "training.tsv"
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def variable(name, shape, initializer, **more):
    return v1.get_variable(name, shape, initializer=initializer, use_resource=True, **more)


def iota(*shape):
    """Numbers that are neither equal nor round: both sides make them the same way."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % 11 - 5) / 8).astype(np.float32).reshape(shape)


def dump(session, variables, prefix=""):
    return {prefix + v.op.name: session.run(v) for v in variables}


@case
def initializers():
    v1.set_random_seed(42)
    made = {
        "zeros": v1.zeros_initializer(),
        "ones": v1.ones_initializer(),
        "constant": v1.constant_initializer(2.5),
        "normal": v1.random_normal_initializer(1.0, 0.5, seed=3),
        "normal_unseeded": v1.random_normal_initializer(1.0, 0.5),
        "truncated": v1.truncated_normal_initializer(0.0, 0.1),
        "uniform": v1.random_uniform_initializer(-1.0, 3.0, seed=9),
        "glorot_uniform": v1.glorot_uniform_initializer(seed=1),
        "glorot_normal": v1.glorot_normal_initializer(seed=1),
        "he_normal": v1.initializers.he_normal(seed=2),
        "he_uniform": v1.initializers.he_uniform(seed=2),
        "lecun_normal": v1.initializers.lecun_normal(seed=2),
        "lecun_uniform": v1.initializers.lecun_uniform(seed=2),
        "identity": v1.initializers.identity(2.0),
        "orthogonal": v1.initializers.orthogonal(1.5, seed=4),
    }
    for name, initializer in made.items():
        variable(name, [4, 3], initializer)
    variable("wide", [2, 3, 8], v1.initializers.orthogonal(seed=4))
    variable("large", [50, 30], v1.zeros_initializer())
    variable("kernel", [3, 3, 2, 4], v1.glorot_uniform_initializer())
    variable("parts", [5, 2], v1.glorot_uniform_initializer(seed=5), partitioner=v1.fixed_size_partitioner(2))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        yield dump(session, v1.global_variables())


@case
def losses():
    labels, predictions = iota(4, 3) > 0, tf.constant(iota(4, 3)[::-1].copy())
    labels = labels.astype(np.float32)
    weights = np.array([[1.0], [0.0], [2.0], [0.5]], np.float32)
    classes = np.array([0, 2, 1, 2])
    onehot = np.eye(3, dtype=np.float32)[classes]
    r = v1.losses.Reduction
    made = {
        "mean_squared_error": v1.losses.mean_squared_error(labels, predictions),
        "absolute_difference": v1.losses.absolute_difference(labels, predictions),
        "huber_loss": v1.losses.huber_loss(labels, predictions, delta=0.5),
        "log_loss": v1.losses.log_loss(labels, tf.sigmoid(predictions)),
        "hinge_loss": v1.losses.hinge_loss(labels, predictions),
        "sigmoid": v1.losses.sigmoid_cross_entropy(labels, predictions),
        "softmax": v1.losses.softmax_cross_entropy(onehot, predictions),
        "sparse": v1.losses.sparse_softmax_cross_entropy(classes, predictions),
        "sigmoid_smooth": v1.losses.sigmoid_cross_entropy(labels, predictions, label_smoothing=0.2),
        "softmax_smooth": v1.losses.softmax_cross_entropy(onehot, predictions, weights[:, 0], label_smoothing=0.1),
        "cosine_distance": v1.losses.cosine_distance(labels, predictions, axis=1),
        "pairwise": v1.losses.mean_pairwise_squared_error(labels, predictions),
        "pairwise_weighted": v1.losses.mean_pairwise_squared_error(labels, predictions, weights),
        "weighted": v1.losses.mean_squared_error(labels, predictions, weights),
        "weighted_sum": v1.losses.mean_squared_error(labels, predictions, weights, reduction=r.SUM),
        "weighted_mean": v1.losses.mean_squared_error(labels, predictions, weights, reduction=r.MEAN),
        "weighted_batch": v1.losses.mean_squared_error(labels, predictions, weights, reduction=r.SUM_OVER_BATCH_SIZE),
        "weighted_none": v1.losses.mean_squared_error(labels, predictions, weights, reduction=r.NONE),
    }
    grads = {"grad_" + name: tf.gradients(loss, predictions)[0] for name, loss in made.items()}
    with v1.Session() as session:
        yield session.run({**made, **grads})


@case
def metrics():
    x = v1.placeholder(tf.float32, [None], name="x")
    y = v1.placeholder(tf.bool, [None], name="y")
    w = x * 2.0
    made = {
        "mean": v1.metrics.mean(x),
        "mean_squared_error": v1.metrics.mean_squared_error(tf.cast(y, tf.float32), x),
        "mean_absolute_error": v1.metrics.mean_absolute_error(tf.cast(y, tf.float32), x),
        "root_mean_squared_error": v1.metrics.root_mean_squared_error(tf.cast(y, tf.float32), x),
        "true_positives": v1.metrics.true_positives(y, x > 0.5),
        "false_positives": v1.metrics.false_positives(y, x > 0.5),
        "true_negatives": v1.metrics.true_negatives(y, x > 0.5),
        "false_negatives": v1.metrics.false_negatives(y, x > 0.5),
        "weighted_mean": v1.metrics.mean(x, w),
        "weighted_accuracy": v1.metrics.accuracy(y, x > 0.5, w),
        "weighted_error": v1.metrics.root_mean_squared_error(tf.cast(y, tf.float32), x, w),
        "weighted_precision": v1.metrics.precision(y, x > 0.5, w),
        "weighted_recall": v1.metrics.recall(y, x > 0.5, w),
        "weighted_false_positives": v1.metrics.false_positives(y, x > 0.5, w),
        "weighted_auc": v1.metrics.auc(y, x, w, num_thresholds=20),
        "accuracy": v1.metrics.accuracy(y, x > 0.5),
        "precision": v1.metrics.precision(y, x > 0.5),
        "recall": v1.metrics.recall(y, x > 0.5),
        "auc": v1.metrics.auc(y, x, num_thresholds=20),
        "auc_pr": v1.metrics.auc(y, x, num_thresholds=20, curve="PR", summation_method="trapezoidal"),
    }
    with v1.Session() as session:
        session.run(v1.local_variables_initializer())
        for i in range(3):
            values = np.abs(iota(12))[i * 4 :][:4]
            feeds = {x: values, y: np.roll(values, 1) > 0.3}
            session.run([update for _, update in made.values()], feeds)
            yield {name: session.run(value) for name, (value, _) in made.items()}


def digits(count):
    rows = np.loadtxt(ROOT / "crates/ferroflow/data/digits.csv.gz", delimiter=",", max_rows=count)
    return (rows[:, :64] / 16).astype(np.float32), rows[:, 64].astype(np.int64)


def train(loss, optimizer, feeds, steps):
    step = v1.train.get_or_create_global_step()
    op = optimizer.minimize(loss, global_step=step)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(steps):
            value, _ = session.run([loss, op], feeds)
            yield {"loss": value}
        yield dump(session, v1.trainable_variables())


@case
def mlp():
    """Two dense layers with dropout."""
    v1.set_random_seed(7)
    x = v1.placeholder(tf.float32, [None, 64])
    y = v1.placeholder(tf.int64, [None])
    w = variable("dense/kernel", [64, 16], v1.glorot_uniform_initializer())
    b = variable("dense/bias", [16], v1.zeros_initializer())
    hidden = v1.nn.dropout(tf.nn.relu(tf.matmul(x, w) + b), rate=0.25, seed=3)
    w = variable("dense_1/kernel", [16, 10], v1.glorot_uniform_initializer())
    b = variable("dense_1/bias", [10], v1.zeros_initializer())
    loss = v1.losses.sparse_softmax_cross_entropy(y, tf.matmul(hidden, w) + b)
    images, labels = digits(50)
    yield from train(loss, v1.train.AdamOptimizer(0.01), {x: images, y: labels}, 8)


@case
def embeddings():
    """A table in three parts, looked up by either assignment of rows."""
    v1.set_random_seed(7)
    ids = v1.placeholder(tf.int64, [None, 2])
    table = variable("table", [11, 4], v1.random_normal_initializer(), partitioner=v1.fixed_size_partitioner(3))
    rows = v1.nn.embedding_lookup(table, ids, partition_strategy="div")
    other = variable("other", [9, 4], v1.random_normal_initializer(), partitioner=v1.fixed_size_partitioner(3))
    rows += v1.nn.embedding_lookup(other, ids, partition_strategy="mod")
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(rows, 1) - 1.0))
    feeds = {ids: np.array([[0, 8], [3, 4], [8, 8], [7, 1], [3, 5]])}
    yield from train(loss, v1.train.AdagradOptimizer(0.5), feeds, 5)


@case
def lstm():
    v1.set_random_seed(7)
    x = v1.placeholder(tf.float32, [None, 8, 8])
    y = v1.placeholder(tf.int64, [None])
    kernel = variable("basic_lstm_cell/kernel", [8 + 6, 24], v1.glorot_uniform_initializer())
    bias = variable("basic_lstm_cell/bias", [24], v1.zeros_initializer())
    h = c = tf.zeros([tf.shape(x)[0], 6])
    for step in tf.unstack(x, axis=1):
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([step, h], 1), kernel), bias), 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
    w = variable("dense/kernel", [6, 10], v1.glorot_uniform_initializer())
    b = variable("dense/bias", [10], v1.zeros_initializer())
    loss = v1.losses.sparse_softmax_cross_entropy(y, tf.matmul(h, w) + b)
    images, labels = digits(20)
    yield from train(loss, v1.train.GradientDescentOptimizer(0.5), {x: images.reshape(-1, 8, 8), y: labels}, 5)


@case
def gru():
    v1.set_random_seed(7)
    x = v1.placeholder(tf.float32, [None, 8, 8])
    y = v1.placeholder(tf.int64, [None])
    gates = variable("gru_cell/gates/kernel", [8 + 6, 12], v1.glorot_uniform_initializer())
    gates_bias = variable("gru_cell/gates/bias", [12], v1.ones_initializer())
    candidate = variable("gru_cell/candidate/kernel", [8 + 6, 6], v1.glorot_uniform_initializer())
    candidate_bias = variable("gru_cell/candidate/bias", [6], v1.zeros_initializer())
    h = tf.zeros([tf.shape(x)[0], 6])
    for step in tf.unstack(x, axis=1):
        r, u = tf.split(tf.sigmoid(tf.nn.bias_add(tf.matmul(tf.concat([step, h], 1), gates), gates_bias)), 2, 1)
        new = tf.tanh(tf.nn.bias_add(tf.matmul(tf.concat([step, r * h], 1), candidate), candidate_bias))
        h = u * h + (1 - u) * new
    w = variable("dense/kernel", [6, 10], v1.glorot_uniform_initializer())
    b = variable("dense/bias", [10], v1.zeros_initializer())
    loss = v1.losses.sparse_softmax_cross_entropy(y, tf.matmul(h, w) + b)
    images, labels = digits(20)
    yield from train(loss, v1.train.GradientDescentOptimizer(0.5), {x: images.reshape(-1, 8, 8), y: labels}, 5)


class Cell:
    """What stock's `dynamic_rnn` wants of a cell."""

    def __init__(self, step, sizes):
        self.step, self.state_size, self.output_size = step, sizes, sizes[-1] if isinstance(sizes, tuple) else sizes

    def zero_state(self, batch_size, dtype):
        zeros = lambda size: tf.zeros([batch_size, size], dtype)  # noqa: E731
        return tf.nest.map_structure(zeros, self.state_size)

    def __call__(self, x, state, scope=None):
        state = self.step(x, state)
        return (state[-1] if isinstance(state, tuple) else state), state


def dynamic(cell):
    """Classifies sequences of different lengths, by the last output and by all of them."""
    x = v1.placeholder(tf.float32, [None, None, 8])
    y = v1.placeholder(tf.int64, [None])
    outputs, state = v1.nn.dynamic_rnn(cell, x, sequence_length=np.arange(20) % 9, dtype=tf.float32)
    last = state[-1] if isinstance(state, tuple) else state
    w = variable("dense/kernel", [6, 10], v1.glorot_uniform_initializer())
    b = variable("dense/bias", [10], v1.zeros_initializer())
    loss = v1.losses.sparse_softmax_cross_entropy(y, tf.matmul(last + tf.reduce_sum(outputs, 1), w) + b)
    images, labels = digits(20)
    yield from train(loss, v1.train.GradientDescentOptimizer(0.5), {x: images.reshape(-1, 8, 8), y: labels}, 5)


@case
def dynamic_lstm():
    v1.set_random_seed(7)
    kernel = variable("basic_lstm_cell/kernel", [8 + 6, 24], v1.glorot_uniform_initializer())
    bias = variable("basic_lstm_cell/bias", [24], v1.zeros_initializer())

    def step(x, state):
        c, h = state
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), kernel), bias), 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        return c, tf.tanh(c) * tf.sigmoid(o)

    yield from dynamic(Cell(step, (6, 6)))


@case
def dynamic_gru():
    v1.set_random_seed(7)
    gates = variable("gru_cell/gates/kernel", [8 + 6, 12], v1.glorot_uniform_initializer())
    gates_bias = variable("gru_cell/gates/bias", [12], v1.ones_initializer())
    candidate = variable("gru_cell/candidate/kernel", [8 + 6, 6], v1.glorot_uniform_initializer())
    candidate_bias = variable("gru_cell/candidate/bias", [6], v1.zeros_initializer())

    def step(x, h):
        r, u = tf.split(tf.sigmoid(tf.nn.bias_add(tf.matmul(tf.concat([x, h], 1), gates), gates_bias)), 2, 1)
        new = tf.tanh(tf.nn.bias_add(tf.matmul(tf.concat([x, r * h], 1), candidate), candidate_bias))
        return u * h + (1 - u) * new

    yield from dynamic(Cell(step, 6))


@case
def batch_norm():
    """Dense layers with batch normalization; the averages are updated in every step."""
    v1.set_random_seed(7)
    x = v1.placeholder(tf.float32, [None, 64])
    y = v1.placeholder(tf.int64, [None])
    w = variable("dense/kernel", [64, 16], v1.glorot_uniform_initializer())
    b = variable("dense/bias", [16], v1.zeros_initializer())
    hidden = tf.matmul(x, w) + b
    gamma = variable("batch_normalization/gamma", [16], v1.ones_initializer())
    beta = variable("batch_normalization/beta", [16], v1.zeros_initializer())
    averages = [
        variable("batch_normalization/moving_mean", [16], v1.zeros_initializer(), trainable=False),
        variable("batch_normalization/moving_variance", [16], v1.ones_initializer(), trainable=False),
    ]
    moments = tf.nn.moments(hidden, [0])
    updates = [a.assign_sub((a - m) * np.float32(0.01)) for a, m in zip(averages, moments)]
    hidden = tf.nn.batch_normalization(hidden, *moments, beta, gamma, 0.001)
    w = variable("dense_1/kernel", [16, 10], v1.glorot_uniform_initializer())
    b = variable("dense_1/bias", [10], v1.zeros_initializer())
    loss = v1.losses.sparse_softmax_cross_entropy(y, tf.matmul(tf.nn.relu(hidden), w) + b)
    step = v1.train.get_or_create_global_step()
    with tf.control_dependencies(updates):
        op = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=step)
    images, labels = digits(50)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(5):
            value, _ = session.run([loss, op], {x: images, y: labels})
            yield {"loss": value}
        yield dump(session, [v for v in v1.global_variables() if "Momentum" not in v.op.name])


@case
def cnn():
    v1.set_random_seed(7)
    x = v1.placeholder(tf.float32, [None, 8, 8, 1])
    y = v1.placeholder(tf.int64, [None])
    w = variable("conv2d/kernel", [3, 3, 1, 4], v1.glorot_uniform_initializer())
    b = variable("conv2d/bias", [4], v1.zeros_initializer())
    h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"), b))
    gamma = variable("batch_normalization/gamma", [4], v1.ones_initializer())
    beta = variable("batch_normalization/beta", [4], v1.zeros_initializer())
    h, _, _ = v1.nn.fused_batch_norm(h, gamma, beta, epsilon=0.001)
    h = tf.nn.max_pool2d(h, 2, 2, "VALID")
    w = variable("conv2d_1/kernel", [3, 3, 4, 6], v1.glorot_uniform_initializer())
    b = variable("conv2d_1/bias", [6], v1.zeros_initializer())
    h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(h, w, [1, 1, 1, 1], "VALID"), b))
    h = tf.nn.avg_pool2d(h, 2, 2, "VALID")
    w = variable("dense/kernel", [6, 10], v1.glorot_uniform_initializer())
    b = variable("dense/bias", [10], v1.zeros_initializer())
    loss = v1.losses.sparse_softmax_cross_entropy(y, tf.matmul(tf.reshape(h, [-1, 6]), w) + b)
    images, labels = digits(30)
    yield from train(loss, v1.train.RMSPropOptimizer(0.01), {x: images.reshape(-1, 8, 8, 1), y: labels}, 5)


def lines():
    for name, run in CASES.items():
        with tf.Graph().as_default():
            for number, values in enumerate(run()):
                for key in sorted(values):
                    flat = np.asarray(values[key]).ravel()
                    text = " ".join(repr(v) for v in flat.tolist())
                    yield f"{name}\t{number}\t{key}\t{text}\n"


def main():
    v1.disable_v2_tensorshape()
    text = "".join(lines())
    if "--check" in sys.argv:
        known = FILE.read_text().splitlines()
        wrong = [line for line in text.splitlines() if line not in known]
        sys.exit(f"{FILE} is out of date: {wrong[:3]}" if wrong else None)
    FILE.write_text(text)


if __name__ == "__main__":
    main()
