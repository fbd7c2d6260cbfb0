"""Queues on a parameter server, used from two workers."""

import threading

from report import session, show, show_failure, v1

import tensorflow as tf


def run(cluster):
    for build in [fifo, padding, priority, shuffle]:
        with tf.Graph().as_default() as graph:
            build(cluster, graph)
    with tf.Graph().as_default() as graph:
        waiting(cluster, graph)
    with tf.Graph().as_default() as graph:
        ending(cluster, graph)
    with tf.Graph().as_default() as graph:
        runners(cluster, graph)


def pair(cluster, graph):
    return [session(cluster.target("worker", index), graph, operation_timeout_in_ms=30_000) for index in [0, 1]]


def fifo(cluster, graph):
    with tf.device("/job:ps/task:0"):
        queue = v1.FIFOQueue(10, [tf.int32, tf.string], [[], []], shared_name="fifo")
    x = v1.placeholder(tf.int32, [])
    put = queue.enqueue([x, tf.strings.as_string(x)])
    put_many = queue.enqueue_many([[7, 8, 9], ["a", "b", "c"]])
    take, take_many, size = queue.dequeue(), queue.dequeue_many(2), queue.size()
    one, two = pair(cluster, graph)
    for i in range(3):
        one.run(put, {x: i})
    show("size seen by the other", two.run(size))
    show("first in, first out", [two.run(take), one.run(take), two.run(take)])
    two.run(put_many)
    show("many", one.run(take_many))
    show("left", [two.run(size), two.run(take)])
    one.close()
    two.close()


def padding(cluster, graph):
    with tf.device("/job:ps/task:1"):
        queue = v1.PaddingFIFOQueue(10, [tf.float32], [[None]], shared_name="padding")
    x = v1.placeholder(tf.float32, [None])
    put, take = queue.enqueue([x]), queue.dequeue_many(3)
    one, two = pair(cluster, graph)
    for values in [[1.0], [2.0, 3.0, 4.0], []]:
        one.run(put, {x: values})
    show("padded", two.run(take))
    one.close()
    two.close()


def priority(cluster, graph):
    with tf.device("/job:ps/task:2"):
        queue = v1.PriorityQueue(10, [tf.string], [[]], shared_name="priority")
    put = queue.enqueue_many([[5, 1, 3], ["five", "one", "three"]])
    take = queue.dequeue()
    one, two = pair(cluster, graph)
    one.run(put)
    show("by priority", [two.run(take) for _ in range(3)])
    one.close()
    two.close()


def shuffle(cluster, graph):
    with tf.device("/job:ps/task:0"):
        queue = v1.RandomShuffleQueue(10, 0, [tf.int32], [[]], shared_name="shuffle")
    put, take, close = queue.enqueue_many([[1, 2, 3, 4]]), queue.dequeue(), queue.close()
    one, two = pair(cluster, graph)
    one.run(put)
    two.run(close)
    show("each once", sorted(int(two.run(take)) for _ in range(4)))
    show_failure("then no more", lambda: one.run(take))
    one.close()
    two.close()


def waiting(cluster, graph):
    """A dequeue that waits for the other worker, and an enqueue that waits for room."""
    with tf.device("/job:ps/task:1"):
        queue = v1.FIFOQueue(2, [tf.int32], [[]], shared_name="waiting")
    x = v1.placeholder(tf.int32, [])
    put, take, size = queue.enqueue([x]), queue.dequeue(), queue.size()
    one, two = pair(cluster, graph)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(one.run([take, take])))
    thread.start()
    two.run(put, {x: 1})
    thread.join(30)
    show("waited for", taken)
    two.run(put, {x: 1})
    two.run(put, {x: 2})
    thread = threading.Thread(target=lambda: two.run(put, {x: 3}))
    thread.start()
    show("makes room", [one.run(take), one.run(take), one.run(take)])
    thread.join(30)
    show("empty", one.run(size))
    one.close()
    two.close()


def ending(cluster, graph):
    with tf.device("/job:ps/task:2"):
        queue = v1.FIFOQueue(5, [tf.int32], [[]], shared_name="ending")
    put, take, take_many, up_to = queue.enqueue([1]), queue.dequeue(), queue.dequeue_many(2), queue.dequeue_up_to(4)
    close, cancel, closed = queue.close(), queue.close(cancel_pending_enqueues=True), queue.is_closed()
    one, two = pair(cluster, graph)
    one.run(put)
    one.run(put)
    one.run(put)
    two.run(close)
    show("closed", one.run(closed))
    show_failure("no more in", lambda: one.run(put))
    show("but out", two.run(take_many))
    show_failure("not enough", lambda: two.run(take_many))
    show("what is left", one.run(up_to))
    show_failure("end of input", lambda: two.run(take))
    one.run(cancel)
    one.close()
    two.close()
    with tf.Graph().as_default() as other:
        with tf.device("/job:ps/task:2"):
            queue = v1.FIFOQueue(5, [tf.int32], [[]], shared_name="ended_while_waiting")
        take, close = queue.dequeue(), queue.close()
        size = queue.size()
        one, two = pair(cluster, other)
        one.run(size)
        thread = threading.Thread(target=lambda: show_failure("closed under a waiter", lambda: one.run(take)))
        thread.start()
        two.run(close)
        thread.join(30)
        one.close()
        two.close()


def runners(cluster, graph):
    """An input pipeline of the first generation: a queue runner on a worker fills, the step drains to the end."""
    with tf.device("/job:worker/task:0"):
        source = v1.FIFOQueue(3, [tf.int32], [[]], shared_name="source")
        once = v1.get_variable(
            "epochs",
            [],
            tf.int32,
            v1.zeros_initializer(),
            collections=[v1.GraphKeys.LOCAL_VARIABLES],
            use_resource=True,
        )
        with tf.control_dependencies([tf.raw_ops.ResourceCountUpTo(resource=once.handle, limit=1, T=tf.int32)]):
            fill = source.enqueue_many([tf.range(7)])
        v1.train.add_queue_runner(v1.train.QueueRunner(source, [fill]))
        number = source.dequeue()
    with tf.device("/job:ps/task:0"):
        total = v1.get_variable("total", [], tf.int32, v1.zeros_initializer(), use_resource=True)
    add = v1.assign_add(total, number)
    with session(cluster.target(), graph) as sess:
        sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(sess, coordinator)
        count = 0
        try:
            while count < 100:
                sess.run(add)
                count += 1
        except tf.errors.OutOfRangeError:
            pass
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=20)
        show("read to the end", [count, sess.run(total)])
