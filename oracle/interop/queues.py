"""Queues that several threads fill and empty at the same time."""

import threading

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf

ELEMENTS = 200


def run(target):
    for name, part in PARTS.items():
        print(f"-- {name}", flush=True)
        with tf.Graph().as_default():
            part(target)


def together(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def sorted_batches(target):
    """Batches of a priority queue are sorted, in whichever order they come."""
    queue = v1.PriorityQueue(ELEMENTS * 2, (tf.int64,), ((),))
    keys = np.random.default_rng(3).integers(-20, 20, ELEMENTS)
    puts = [queue.enqueue_many((part, part * 7)) for part in np.split(keys, 20)]
    take = queue.dequeue_many(ELEMENTS)
    taken = []
    with session(target) as sess:
        for _ in range(3):
            together(lambda: taken.append(sess.run(take)), *[lambda put=put: sess.run(put) for put in puts])
    for batch, values in taken:
        show("sorted", [np.array_equal(batch, np.sort(keys)), np.array_equal(values, batch * 7)])


def small_capacity(target):
    """Nothing is lost when producers and consumers wait for each other."""
    queue = v1.PriorityQueue(10, (tf.int64,), ((),))
    counts = [3, 9, 1, 7, 10, 5, 0, 5]
    puts = [queue.enqueue_many((np.arange(count), np.arange(count))) for count in counts]
    takes = [queue.dequeue_many(count) for count in reversed(counts)]
    taken = []
    with session(target) as sess:
        together(
            *[lambda take=take: taken.append(sess.run(take[0])) for take in takes],
            *[lambda put=put: sess.run(put) for put in puts],
        )
        show("each sorted", [np.array_equal(batch, np.sort(batch)) for batch in taken])
        show("all", np.sort(np.concatenate(taken)))
        show("left", sess.run(queue.size()))


def attributes(target):
    """A queue of a shared name that is asked for with other attributes."""
    first = v1.FIFOQueue(10, tf.float32, shared_name="shared", name="first")
    others = {
        "capacity": v1.FIFOQueue(15, tf.float32, shared_name="shared"),
        "component types": v1.FIFOQueue(10, tf.int32, shared_name="shared"),
        "component shapes": v1.FIFOQueue(10, tf.float32, shapes=[(1, 1)], shared_name="shared"),
        "Expected FIFOQueue, found RandomShuffleQueueV2": v1.RandomShuffleQueue(
            10, 5, tf.float32, shared_name="shared"
        ),
        "names are the client's": v1.FIFOQueue(10, tf.float32, names=["x"], shared_name="shared"),
    }
    with session(target) as sess:
        sess.run(first.queue_ref.op)
        for name, queue in others.items():
            try:
                sess.run(queue.queue_ref.op)
                show(name, "shared")
            except tf.errors.InvalidArgumentError as error:
                show(name, name in error.message)
        show_failure(
            "wrong shape",
            lambda: sess.run(v1.PriorityQueue(5, (tf.int64,), ((),)).enqueue((tf.zeros([2], tf.int64), 1))),
        )


def sessions(target):
    """Without a shared name, a queue or accumulator is its session's own."""
    made = {}
    for shared_name in (None, "shared_by_sessions"):
        queue = v1.FIFOQueue(10, tf.float32, shapes=[()], shared_name=shared_name)
        made[f"queue {shared_name}"] = (queue.enqueue(1.0), queue.size())
        accumulator = v1.ConditionalAccumulator(
            tf.float32, shape=(), shared_name=shared_name and "accumulator_" + shared_name
        )
        made[f"accumulator {shared_name}"] = (accumulator.apply_grad(1.0), accumulator.num_accumulated())
    with session(target) as first, session(target) as second:
        for name, (put, size) in made.items():
            first.run(put)
            show(name, [first.run(size), second.run(size)])
    with session(target) as third:
        show("later", [third.run(size) for _, size in made.values()])


PARTS = {
    "sorted_batches": sorted_batches,
    "small_capacity": small_capacity,
    "attributes": attributes,
    "sessions": sessions,
}
