"""The models of the examples in stock TensorFlow, for the tests of the examples.

    python examples.py

Reads a request per line, as JSON, and answers each with a line of JSON; ends with its input.
"""

import itertools
import json
import logging
import os
import sys
import threading

import environment  # noqa: F401

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
tf.get_logger().setLevel(logging.ERROR)
v1.disable_v2_behavior()
v1.enable_resource_variables()

DIGITS = os.path.join(os.path.dirname(__file__), "..", "crates", "ferroflow", "data", "digits.csv.gz")
MODELS = {}


def model(build):
    """A function that builds a model: its loss, the operation that trains it, and optionally feeds and hooks."""
    MODELS[build.__name__] = build
    return build


def dense(x, units, seed, name):
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [x.shape[1], units], initializer=v1.glorot_uniform_initializer(seed=seed))
        bias = v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def digits():
    table = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
    return table[:, :64] / 16, table[:, 64].astype(np.int64)


def split(count=360, seed=42):
    """The digits to train with, and those to judge by."""
    images, labels = digits()
    with tf.Graph().as_default(), v1.Session() as session:
        order = v1.data.make_one_shot_iterator(tf.data.Dataset.range(len(labels)).shuffle(len(labels), seed=seed).batch(len(labels)))
        order = session.run(order.get_next())
    return (images[order[count:]], labels[order[count:]]), (images[order[:count]], labels[order[:count]])


def batches(data):
    shuffled = tf.data.Dataset.from_tensor_slices(data).shuffle(1000, seed=42).repeat().batch(64)
    images, labels = v1.data.make_one_shot_iterator(shuffled).get_next()
    images.set_shape([None, 64])
    return images, labels


def classifier(images, labels):
    logits = dense(tf.nn.relu(dense(images, 32, 1, "hidden")), 10, 2, "logits")
    return logits, v1.losses.sparse_softmax_cross_entropy(labels, logits)


@model
def between_graph(step):
    _, loss = classifier(*batches(split()[0]))
    return loss, v1.train.AdagradOptimizer(0.1).minimize(loss, step)


@model
def lstm(step):
    images, labels = batches(digits())
    with v1.variable_scope("basic_lstm_cell"):
        kernel = v1.get_variable("kernel", [8 + 24, 96], initializer=v1.glorot_uniform_initializer(seed=1))
        bias = v1.get_variable("bias", [96], initializer=v1.zeros_initializer())
    h = c = tf.zeros([tf.shape(images)[0], 24])
    for row in tf.unstack(tf.reshape(images, [-1, 8, 8]), axis=1):
        i, j, f, o = tf.split(tf.nn.bias_add(tf.matmul(tf.concat([row, h], 1), kernel), bias), 4, 1)
        c = c * tf.sigmoid(f + 1.0) + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, dense(h, 10, 2, "logits"))
    adam = v1.train.AdamOptimizer(0.01)
    grads, variables = zip(*adam.compute_gradients(loss))
    return loss, adam.apply_gradients(zip(tf.clip_by_global_norm(grads, 1.0)[0], variables), step)


@model
def coordinator(step):
    images, labels = batches(digits())
    weights = v1.get_variable("weights", [64, 10], initializer=v1.glorot_uniform_initializer(seed=1))
    bias = v1.get_variable("bias", [10], initializer=v1.zeros_initializer())
    loss = v1.losses.sparse_softmax_cross_entropy(labels, tf.nn.bias_add(tf.matmul(images, weights), bias))
    return loss, v1.train.AdagradOptimizer(0.1).minimize(loss, step)


@model
def sync_replicas(step):
    x = np.arange(8, dtype=np.float32) / 8
    line = v1.get_variable("line", [2], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(x * line[0] + line[1] - (2 * x - 1)))
    optimizer = v1.train.SyncReplicasOptimizer(v1.train.GradientDescentOptimizer(0.5), 1, 1)
    train = optimizer.minimize(loss, step)
    return loss, train, {}, [optimizer.make_session_run_hook(True, num_tokens=0)]


@model
def wide_and_deep(step, users=1000, items=400, user_kinds=25, item_kinds=16, width=16, batch=128):
    halves = v1.fixed_size_partitioner(2)
    user, item, taken = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.int64, [None]), v1.placeholder(tf.float32, [None])

    def look_up(name, rows, columns, ids, initializer):
        table = v1.get_variable(name, [rows, columns], initializer=initializer, partitioner=halves)
        return v1.nn.embedding_lookup(table, ids, partition_strategy="div")

    with v1.variable_scope("wide"):
        wide = look_up("weights", user_kinds * item_kinds, 1, user % user_kinds * item_kinds + item % item_kinds, v1.zeros_initializer())
    with v1.variable_scope("deep"):
        found = [
            look_up("users", users, width, user, v1.random_normal_initializer(0.0, 0.1, seed=1)),
            look_up("items", items, width, item, v1.random_normal_initializer(0.0, 0.1, seed=2)),
        ]
        deep = dense(tf.nn.relu(dense(tf.concat(found, 1), 32, 3, "hidden")), 1, 4, "logits")
    loss = v1.losses.sigmoid_cross_entropy(taken, tf.reshape(wide + deep, [-1]))
    adagrad = v1.train.AdagradOptimizer(0.1)
    grads = adagrad.compute_gradients(loss)
    follow = v1.train.FtrlOptimizer(0.1).apply_gradients([(g, v) for g, v in grads if v.op.name.startswith("wide/")])
    train = adagrad.apply_gradients([(g, v) for g, v in grads if v.op.name.startswith("deep/")], step)

    def feeds():
        for first in itertools.count(0, batch):
            n = np.arange(first, first + batch, dtype=np.uint64)
            draw = lambda k, below: (split_mix(3 * n + np.uint64(k)) % np.uint64(below)).astype(np.int64)  # noqa: E731
            u, i = draw(0, users), draw(1, items)
            likes = (7 * (u % user_kinds) + 3 * (i % item_kinds)) % 10 < 4
            yield {user: u, item: i, taken: (likes != (draw(2, 10) == 0)).astype(np.float32)}

    return loss, tf.group(follow, train), feeds()


def split_mix(n):
    """Numbers of the generator SplitMix64 with seed 0."""
    x = (n + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def train(name, steps, directory=None):
    """The losses of a model and its variables after training; the variables of a checkpoint, too, as stock restores them."""
    step = v1.train.get_or_create_global_step()
    loss, op, feeds, hooks = (*MODELS[name](step), {}, [])[:4]
    feeds = iter(feeds or itertools.repeat({}))
    variables, saver = v1.global_variables(), v1.train.Saver()
    path = directory and tf.train.latest_checkpoint(directory)
    answer = {}

    # Stock insists on the name.
    def values(step_context):
        found = zip(variables, step_context.session.run(variables))
        return {v.op.name: np.asarray(value, np.float64).ravel().tolist() for v, value in found}

    def restore(step_context):
        saver.restore(step_context.session, path)

    with v1.train.MonitoredTrainingSession(hooks=hooks, stop_grace_period_secs=1) as session:
        answer["losses"] = [float(session.run([loss, op], next(feeds))[0]) for _ in range(steps)]
        answer["trained"] = session.run_step_fn(values)
        if path:
            session.run_step_fn(restore)
            answer["restored"] = session.run_step_fn(values)
            full = {v.to_proto().save_slice_info_def.full_name or v.op.name for v in variables}
            answer["same_names"] = full == {name for name, _ in tf.train.list_variables(path)}
    return answer


def evaluate(directory):
    """Step, loss and accuracy of the latest checkpoint of the classifier."""
    images, labels = split()[1]
    logits, _ = classifier(tf.constant(images), labels)
    step = v1.train.get_or_create_global_step()
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
    with v1.Session() as session:
        v1.train.Saver().restore(session, tf.train.latest_checkpoint(directory))
        return [float(value) for value in session.run([step, loss, right])]


def count(cluster, task, steps):
    """A worker of the shared counter; what it sees at its end."""
    server = tf.distribute.Server(cluster, job_name="worker", task_index=task)
    with tf.device("/job:ps/task:0"):
        counter = v1.get_variable("counter", [], tf.int64, v1.zeros_initializer(), trainable=False)
    increment = counter.assign_add(1, read_value=False)
    # Other workers may be gone.
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])
    with v1.train.MonitoredTrainingSession(server.target, is_chief=False, config=config, max_wait_secs=60) as session:
        for _ in range(steps):
            session.run(increment)
        return int(session.run(counter))


def main():
    # The thread that applies gradients of synchronous training ends by the cancellation of what it waits for.
    threading.excepthook = lambda _: None
    # What libraries print must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        with tf.Graph().as_default():
            answer = {"train": train, "evaluate": evaluate, "count": count}[request.pop("do")](**request)
        print(json.dumps(answer), file=answers, flush=True)
    # A server's threads do not end by themselves.
    os._exit(0)


main()
