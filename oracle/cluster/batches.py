"""Rows that several clients bring at the same time, computed together on a parameter server."""

import threading

from report import session, show, v1

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function

CLIENTS = 4
# Nobody waits that long: the last row fills the batch.
PATIENCE = 60_000_000


def run(cluster):
    with tf.Graph().as_default() as graph:
        functions(cluster, graph)
    with tf.Graph().as_default() as graph:
        there_and_back(cluster, graph)


def at_once(cluster, graph, fetches, x):
    """Each client's results, half of them from a session at each worker."""
    results = [None] * CLIENTS
    with session(cluster.target("worker", 0), graph) as one, session(cluster.target("worker", 1), graph) as other:

        def client(i):
            sess = (one, other)[i % 2]
            results[i] = sess.run(fetches, {x: np.float32([[i, 10 * i]])})

        threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return results


def functions(cluster, graph):
    @function.Defun(tf.float32)
    def together(rows):
        return rows * 2.0, tf.fill(tf.shape(rows)[:1], tf.shape(rows)[0])

    together.add_to_graph(graph)
    x = v1.placeholder(tf.float32, [None, 2])
    with tf.device("/job:ps/task:0"):
        doubled, size = tf.raw_ops.BatchFunction(
            in_tensors=[x],
            captured_tensors=[],
            f=together,
            num_batch_threads=1,
            max_batch_size=CLIENTS,
            batch_timeout_micros=PATIENCE,
            Tout=[tf.float32, tf.int32],
            shared_name="together",
        )
    for doubled_row, size_row in at_once(cluster, graph, [doubled, size], x):
        show("doubled", [doubled_row.tolist(), size_row.tolist()])


def there_and_back(cluster, graph):
    """One of the clients computes for all of them; each gets its own rows."""
    x = v1.placeholder(tf.float32, [None, 2])
    with tf.device("/job:ps/task:0"):
        tensors, index, number = tf.raw_ops.Batch(
            in_tensors=[x],
            num_batch_threads=1,
            max_batch_size=CLIENTS,
            batch_timeout_micros=PATIENCE,
            grad_timeout_micros=PATIENCE,
            shared_name="there",
        )
        tripled = tensors[0] * 3.0
        back = tf.raw_ops.Unbatch(
            batched_tensor=tripled, batch_index=index, id=number, timeout_micros=PATIENCE, shared_name="back"
        )
    results = at_once(cluster, graph, [back, tf.shape(tripled)[0]], x)
    show("tripled", [row.tolist() for row, _ in results])
    show("computed", sorted(int(rows) for _, rows in results))
