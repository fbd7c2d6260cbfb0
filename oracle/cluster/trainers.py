"""Synchronous training programs as people write them: monitored sessions, a hook, a last step, variables of both kinds.

Every worker is a thread with a graph of its own. What is printed is the step at which all of them stopped, and whether the
model was trained; a trainer whose tokens are stale stands still and is given up.
"""

import threading

from report import show, v1

import numpy as np
import tensorflow as tf

LAST_STEP = 40
SECONDS_EACH = 60


def run(cluster):
    for use_resource in [False, True]:
        for aggregate in [2, 1]:
            trained(cluster, use_resource, aggregate)


def trained(cluster, use_resource, aggregate):
    v1.Session.reset(cluster.target())
    results, began = [None, None], threading.Event()

    def work(index):
        # Stock's workers look for their chief every 30 seconds, which nobody needs to wait for here.
        if index > 0:
            began.wait(SECONDS_EACH)
        results[index] = Trainer(cluster, index, use_resource, aggregate).run(began)

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_EACH)
    kind = "resource" if use_resource else "reference"
    show(f"{kind}, {aggregate} of 2: trained to the last step", results[0])
    show(f"{kind}, {aggregate} of 2: both ended", [not thread.is_alive() for thread in threads])


class Trainer:
    """One worker's program."""

    def __init__(self, cluster, index, use_resource, aggregate):
        self.index, self.master = index, cluster.target("worker", index)
        self.graph = tf.Graph()
        with self.graph.as_default():
            setter = v1.train.replica_device_setter(ps_tasks=3, worker_device=f"/job:worker/task:{index}")
            with v1.device(setter), v1.variable_scope("model", use_resource=use_resource):
                self.step = v1.get_variable("global_step", [], tf.int64, v1.zeros_initializer(), trainable=False)
                v1.add_to_collection(v1.GraphKeys.GLOBAL_STEP, self.step)
                x, y = batch(index)
                self.untrained_loss = np.mean(np.square(y))
                x, y = tf.constant(x), tf.constant(y)
                weights = v1.get_variable("weights", [4, 1], initializer=v1.zeros_initializer())
                bias = v1.get_variable("bias", [1], initializer=v1.zeros_initializer())
                self.loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) + bias - y))
                optimizer = v1.train.GradientDescentOptimizer(0.1)
                optimizer = v1.train.SyncReplicasOptimizer(optimizer, aggregate, total_num_replicas=2)
                self.train = optimizer.minimize(self.loss, self.step)
            # A worker whose gradients are not needed may find no token when the chief has gone: it leaves before.
            last_step = LAST_STEP if index == 0 or aggregate == 2 else LAST_STEP // 2
            self.hooks = [optimizer.make_session_run_hook(index == 0), v1.train.StopAtStepHook(last_step=last_step)]

    def run(self, began):
        """Trains to the end; whether the last step was reached and the loss has fallen until then."""
        with self.graph.as_default():
            session = v1.train.MonitoredTrainingSession(
                self.master, self.index == 0, hooks=self.hooks, stop_grace_period_secs=1, log_step_count_steps=None
            )
            with session:
                began.set()
                while not session.should_stop():
                    session.run(self.train)
            # Asked afterwards: what a step fetches of them may be from before the updates of the other worker.
            with v1.Session(self.master) as session:
                step, loss = session.run([self.step, self.loss])
            return bool(step >= LAST_STEP and loss < self.untrained_loss / 4)


def batch(index):
    random = np.random.RandomState(index)
    x = random.uniform(-1.0, 1.0, [32, 4]).astype(np.float32)
    y = x @ np.array([[1.0], [-2.0], [0.5], [3.0]], np.float32) + 0.25
    return x, y.astype(np.float32)
