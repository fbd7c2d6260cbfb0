"""Models that the ratio suite trains with whole programs; `benches/src/bin/trainer.rs` has the same models."""

import itertools

from cluster_workloads import per_second
from clusters import Workload

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
ROWS = 100_000


def _variable(name, shape, initializer=None):
    return v1.get_variable(name, shape, initializer=initializer or v1.glorot_uniform_initializer(), use_resource=True)


def _dense(x, units, name):
    bias = _variable(name + "/bias", [units], v1.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(x, _variable(name + "/kernel", [x.shape[1], units])), bias)


def _images(batch):
    x, y = v1.placeholder(tf.float32, [None, 64]), v1.placeholder(tf.int64, [None])
    pixels = (np.arange(batch * 64) * 37 % 101 / 50 - 1).astype(np.float32).reshape(batch, 64)
    return x, y, [{x: pixels, y: np.arange(batch) * 7 % 10}]


def _perceptron():
    x, y, feeds = _images(32)
    loss = v1.losses.sparse_softmax_cross_entropy(y, _dense(tf.nn.relu(_dense(x, 128, "hidden")), 10, "logits"))
    return loss, v1.train.AdagradOptimizer(0.01), feeds


def _convolutional():
    x, y, feeds = _images(64)
    h = tf.reshape(x, [-1, 8, 8, 1])
    for filters, name in ((16, "edges"), (32, "shapes")):
        h = tf.nn.conv2d(h, _variable(name + "/kernel", [3, 3, h.shape[3], filters]), [1, 1, 1, 1], "SAME")
        h = tf.nn.relu(tf.nn.bias_add(h, _variable(name + "/bias", [filters], v1.zeros_initializer())))
    h = tf.reshape(tf.nn.max_pool2d(h, 2, 2, "VALID"), [-1, 4 * 4 * 32])
    loss = v1.losses.sparse_softmax_cross_entropy(y, _dense(tf.nn.relu(_dense(h, 64, "hidden")), 10, "logits"))
    return loss, v1.train.AdamOptimizer(0.001), feeds


def _wide_and_deep(batch=256, servers=2):
    ids = [v1.placeholder(tf.int64, [None]) for _ in range(3)]
    labels = v1.placeholder(tf.float32, [None])

    def look_up(name, rows, width, ids):
        start = v1.random_uniform_initializer(-0.1, 0.1, seed=1)
        table = v1.get_variable(
            name, [rows, width], initializer=start, partitioner=v1.fixed_size_partitioner(servers), use_resource=True
        )
        return v1.nn.embedding_lookup(table, ids, partition_strategy="div")

    users, items = look_up("users", ROWS, 32, ids[0]), look_up("items", ROWS, 32, ids[1])
    wide = look_up("pairs", ROWS // 10, 1, ids[2])
    deep = _dense(tf.nn.relu(_dense(tf.concat([users, items], 1), 64, "hidden")), 1, "logits")
    loss = v1.losses.sigmoid_cross_entropy(labels, tf.reshape(wide + deep, [-1]))

    def feeds(number):
        visits = np.arange(number * batch, (number + 1) * batch)
        rows = (visits * 7919 % ROWS, visits * 104_729 % ROWS, visits * 3571 % (ROWS // 10))
        return {**dict(zip(ids, rows)), labels: (np.arange(batch) % 3 // 2).astype(np.float32)}

    return loss, v1.train.AdagradOptimizer(0.05), [feeds(number) for number in range(64)]


def _program(build):
    def open_on(cluster, index):
        target = ""
        if cluster.tasks:
            server = tf.distribute.Server(cluster.spec, job_name="worker", task_index=index)
            target = server.target
        graph = tf.Graph()
        with graph.as_default():
            with v1.device(
                v1.train.replica_device_setter(ps_tasks=len(cluster.tasks), worker_device=f"/job:worker/task:{index}")
            ):
                loss, optimizer, feeds = build()
                train = optimizer.minimize(loss, v1.train.get_or_create_global_step())
            session = v1.train.MonitoredTrainingSession(target, log_step_count_steps=None)
        turns = itertools.cycle(feeds)
        return lambda: per_second(lambda: session.run([loss, train], next(turns)))

    return open_on


def all_programs():
    """The workload of stock's program, the name of our model, and the number of parameter servers."""
    bars = {"unit": "steps/s", "least_mixed": None, "rounds": 9}
    yield (
        Workload("perceptron 64-128-10, servers: 1", open=_program(_perceptron), least_ours=8, **bars),
        "perceptron",
        1,
    )
    yield (
        Workload("convolutional network in one process", open=_program(_convolutional), least_ours=1, **bars),
        "cnn",
        0,
    )
    yield Workload("wide and deep, servers: 2", open=_program(_wide_and_deep), least_ours=4, **bars), "wide_and_deep", 2
