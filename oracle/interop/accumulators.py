"""Accumulators: who takes waits for who applies, in another session, and loses nothing when the wait ends early."""

import threading

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf


def run(target):
    dense(target)
    sparse(target)
    synchronous(target)


def background(call):
    """Starts a call on a thread; the result waits for it."""
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(call()))
    thread.start()

    def result():
        thread.join(60)
        return outcome[0]

    return result


def dense(target):
    gradient, step = v1.placeholder(tf.float32, [2]), v1.placeholder(tf.int64, [])
    accumulator = v1.ConditionalAccumulator(tf.float32, [2], shared_name="dense")
    apply, take = accumulator.apply_grad(gradient, step), accumulator.take_grad(2)
    count, set_step = accumulator.num_accumulated(), accumulator.set_global_step(step)
    with session(target) as sess, session(target) as other:
        sess.run(set_step, {step: 0})
        show_failure("deadline", lambda: sess.run(take, options=v1.RunOptions(timeout_in_ms=300)))
        taken = background(lambda: other.run(take))
        sess.run(apply, {gradient: [1, 2], step: 0})
        sess.run(apply, {gradient: [3, 6], step: 0})
        show("taken", taken())
        sess.run(apply, {gradient: [9, 9], step: 0})
        show("stale", sess.run(count))
        sess.run(apply, {gradient: [5, 5], step: 1})
        show_failure("deadline with one there", lambda: sess.run(take, options=v1.RunOptions(timeout_in_ms=300)))
        show("still there", sess.run(count))
        sess.run(apply, {gradient: [7, 7], step: 1})
        show("taken", sess.run(take))
        show_failure(
            "wrong shape", lambda: sess.run(accumulator.apply_grad(v1.placeholder_with_default([1.0], None), 5))
        )
        show_failure("nothing required", lambda: sess.run(accumulator.take_grad(v1.placeholder_with_default(0, None))))


def sparse(target):
    accumulator = v1.SparseConditionalAccumulator(tf.float32, [4, 2], shared_name="sparse")
    indices, values = v1.placeholder(tf.int64, [None]), v1.placeholder(tf.float32, [None, 2])
    apply = accumulator.apply_grad(indices, values, [4, 2], local_step=5)
    take = accumulator.take_grad(2)
    with session(target) as sess:
        taken = background(lambda: sess.run(take))
        sess.run(apply, {indices: [0, 2], values: [[1, 2], [3, 4]]})
        sess.run(apply, {indices: [2, 3], values: [[5, 6], [7, 8]]})
        show("sparse", taken())
        sess.run(
            accumulator.apply_indexed_slices_grad(tf.IndexedSlices([[1.0, 1.0]], tf.constant([1], tf.int64), [4, 2]), 9)
        )
        slices = sess.run(accumulator.take_indexed_slices_grad(1))
        show("slices", [slices.indices, slices.values])


def synchronous(target):
    """Two replicas that train together, as threads of one client."""
    step = v1.train.get_or_create_global_step()
    w = v1.get_variable("w", initializer=[1.0, -1.0])
    emb = v1.get_variable("emb", initializer=np.arange(8, dtype=np.float32).reshape(4, 2))
    x, ids = v1.placeholder(tf.float32, [2]), v1.placeholder(tf.int32, [None])
    loss = tf.reduce_sum(tf.square(w * x - 3.0)) + tf.reduce_sum(tf.square(tf.gather(emb, ids)))
    optimizer = v1.train.SyncReplicasOptimizer(
        v1.train.AdagradOptimizer(0.1), replicas_to_aggregate=2, total_num_replicas=2
    )
    train = optimizer.minimize(loss, global_step=step)
    with session(target) as sess:
        sess.run([v1.global_variables_initializer()])
        sess.run([optimizer.chief_init_op, optimizer.local_step_init_op])
        runner = optimizer.get_chief_queue_runner()
        coordinator = v1.train.Coordinator()
        runner.create_threads(sess, coord=coordinator, daemon=True, start=True)
        for _i in range(4):
            replicas = [background(lambda k=k: sess.run(train, {x: [1.0 + k, 2.0], ids: [k, 3]})) for k in range(2)]
            for replica in replicas:
                replica()
            # Without tokens to begin with, a replica goes on only after the update that its gradient is part of.
            show("trained", sess.run([step, w, emb]))
        coordinator.request_stop()
