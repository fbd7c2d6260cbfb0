"""Synchronous replicas given the same gradients: dense and sparse accumulators, the token queue, backup workers."""

import threading

from numbers_close import show_close
from report import show, v1

import tensorflow as tf

STEPS = 4


def run(cluster):
    for use_resource in [False, True]:
        together(cluster, use_resource, aggregate=2)
    together(cluster, True, aggregate=1)
    accumulators(cluster)


class Replica:
    """One worker's graph and session, as a training program makes them."""

    def __init__(self, cluster, index, use_resource, aggregate):
        self.graph = tf.Graph()
        with self.graph.as_default():
            setter = v1.train.replica_device_setter(ps_tasks=3, worker_device=f"/job:worker/task:{index}")
            with v1.device(setter):
                step = v1.train.get_or_create_global_step()
                dense = v1.get_variable("dense", initializer=[1.0, 2.0, 3.0], use_resource=use_resource)
                rows = v1.get_variable(
                    "rows", initializer=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], use_resource=use_resource
                )
                self.x = v1.placeholder(tf.float32, [])
                sparse = tf.IndexedSlices(
                    tf.stack([[self.x, 1.0], [2.0, self.x]]),
                    tf.constant([0, 2], tf.int64),
                    tf.constant([3, 2], tf.int64),
                )
                optimizer = v1.train.SyncReplicasOptimizer(
                    v1.train.AdagradOptimizer(0.1), aggregate, total_num_replicas=2
                )
                self.train = optimizer.apply_gradients(
                    [(tf.stack([self.x, -self.x, 0.5]), dense), (sparse, rows)], step
                )
            self.state = [step, dense, rows]
            # Without tokens at the start a worker's step ends only when its gradient has been applied.
            hooks = [optimizer.make_session_run_hook(index == 0, num_tokens=0)]
            kind = v1.train.ChiefSessionCreator if index == 0 else v1.train.WorkerSessionCreator
            # A chief's queue runner may wait for gradients that never come.
            self.session = v1.train.MonitoredSession(
                kind(v1.train.Scaffold(), cluster.target("worker", index)), hooks, stop_grace_period_secs=1
            )

    def step(self, value):
        with self.graph.as_default():
            self.session.run(self.train, {self.x: value})


def together(cluster, use_resource, aggregate):
    v1.Session.reset(cluster.target())
    replicas = [Replica(cluster, index, use_resource, aggregate) for index in range(2)]
    for i in range(STEPS):
        # With a backup worker either gradient may be the one that counts, so both are the same.
        values = [0.5 + i, 0.5 + i if aggregate == 1 else -1.0]
        threads = [threading.Thread(target=replica.step, args=(value,)) for replica, value in zip(replicas, values)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        show("both went on", [thread.is_alive() for thread in threads])
    kind = "resource" if use_resource else "reference"
    with replicas[0].graph.as_default():
        show_close(f"{kind}, {aggregate} of 2", replicas[0].session.run(replicas[0].state))
    for replica in reversed(replicas):
        replica.session.close()


def accumulators(cluster):
    """The accumulators themselves, used from two workers."""
    v1.Session.reset(cluster.target())
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:1"):
            dense = v1.ConditionalAccumulator(tf.float32, [2], shared_name="dense_gradients")
            sparse = v1.SparseConditionalAccumulator(tf.float32, [None, 2], shared_name="sparse_gradients")
        x = v1.placeholder(tf.float32, [2])
        stamp = v1.placeholder(tf.int64, [])
        put = dense.apply_grad(x, stamp)
        put_sparse = sparse.apply_grad([1, 3], tf.stack([x, x * 2.0]), [4, 2], stamp)
        count = [dense.num_accumulated(), sparse.num_accumulated()]
        take = [dense.take_grad(2), *sparse.take_grad(2)[:2]]
        advance = [dense.set_global_step(5), sparse.set_global_step(5)]
        one, two = (v1.Session(cluster.target("worker", index), graph=graph) for index in range(2))
        taken = []
        thread = threading.Thread(target=lambda: taken.append(one.run(take)))
        one.run(count)
        thread.start()
        for sess, value in [(one, [1.0, 2.0]), (two, [3.0, 5.0])]:
            sess.run([put, put_sparse], {x: value, stamp: 0})
        thread.join(30)
        show("taken when there were enough", taken)
        two.run(advance)
        one.run([put, put_sparse], {x: [1.0, 1.0], stamp: 4})
        show("stale gradients are dropped", two.run(count))
        one.run([put, put_sparse], {x: [1.0, 1.0], stamp: 5})
        show("fresh ones count", two.run(count))
        one.close()
        two.close()
