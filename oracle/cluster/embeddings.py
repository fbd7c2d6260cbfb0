"""Partitioned variables on three parameter servers: lookups, and sparse gradients with duplicate rows."""

from numbers_close import show_close
from report import session, show, v1

import numpy as np
import tensorflow as tf

OPTIMIZERS = [
    ("gradient descent", lambda: v1.train.GradientDescentOptimizer(0.5)),
    ("adagrad", lambda: v1.train.AdagradOptimizer(0.3)),
    ("adam", lambda: v1.train.AdamOptimizer(0.1)),
    ("momentum", lambda: v1.train.MomentumOptimizer(0.2, 0.9)),
    ("ftrl", lambda: v1.train.FtrlOptimizer(0.2, l1_regularization_strength=0.01)),
]


def run(cluster):
    for use_resource in [False, True]:
        for strategy in ["div", "mod"]:
            with tf.Graph().as_default() as graph:
                lookups(cluster, graph, use_resource, strategy)
        for name, optimizer in OPTIMIZERS:
            with tf.Graph().as_default() as graph:
                training(cluster, graph, use_resource, name, optimizer())
    with tf.Graph().as_default() as graph:
        ragged(cluster, graph)


def table(name, use_resource, rows=11, columns=4):
    values = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) / 10
    return v1.get_variable(
        name,
        shape=[rows, columns],
        initializer=lambda shape, dtype=None, partition_info=None: values[partition_info.var_offset[0] :][: shape[0]],
        partitioner=v1.fixed_size_partitioner(3),
        use_resource=use_resource,
    )


def lookups(cluster, graph, use_resource, strategy):
    with v1.device(v1.train.replica_device_setter(ps_tasks=3)):
        emb = table(f"emb_{strategy}_{use_resource}", use_resource)
        ids = v1.placeholder(tf.int64, [None])
        rows = v1.nn.embedding_lookup(emb, ids, partition_strategy=strategy)
        whole = tf.convert_to_tensor(emb)
    with session(cluster.target(), graph) as sess:
        sess.run(v1.global_variables_initializer())
        kind = f"{'resource' if use_resource else 'reference'} {strategy}"
        show(f"{kind} parts", [(part.op.name, part.device, part.shape.as_list()) for part in emb])
        show("rows", [sess.run(rows, {ids: each}) for each in ([0], [10, 0, 5, 5, 3], [])])
        show("whole", sess.run(whole))


def training(cluster, graph, use_resource, name, optimizer):
    with v1.device(v1.train.replica_device_setter(ps_tasks=3)):
        emb = table(f"table_{use_resource}", use_resource)
        ids = v1.placeholder(tf.int64, [None])
        labels = v1.placeholder(tf.float32, [None])
        rows = v1.nn.embedding_lookup(emb, ids, partition_strategy="div")
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(rows, 1) - labels))
        step = v1.train.get_or_create_global_step()
        train = optimizer.minimize(loss, step)
    with session(cluster.target(), graph) as sess:
        sess.run(v1.global_variables_initializer())
        losses = []
        for i in range(4):
            feed = {ids: [i, 10 - i, 4, 4, i], labels: [1.0, -1.0, 0.5, 2.0, float(i)]}
            losses.append(sess.run([loss, train], feed)[0])
        kind = "resource" if use_resource else "reference"
        show_close(f"{kind}, {name}", losses)
        show_close("variables", sess.run(v1.global_variables()))


def ragged(cluster, graph):
    """Lookups of sparse ids with weights, combined by row."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=3)):
        emb = table("weighted", True)
        ids = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [3, 2]], tf.constant([1, 3, 3, 9], tf.int64), [4, 3])
        weights = tf.SparseTensor(ids.indices, [0.5, 1.0, 2.0, -1.0], [4, 3])
        combined = [v1.nn.embedding_lookup_sparse(emb, ids, weights, combiner=how) for how in ("sum", "mean", "sqrtn")]
        plain = [v1.nn.embedding_lookup_sparse(emb, ids, None, combiner=how) for how in ("sum", "mean", "sqrtn")]
        slope = tf.gradients([combined[1], plain[1]], list(emb))
    with session(cluster.target("worker", 1), graph) as sess:
        sess.run(v1.global_variables_initializer())
        show_close("combined", sess.run([*combined, *plain]))
        show_close("gradients", [tf.convert_to_tensor(each).eval(session=sess) for each in slope])
