"""Errors on other tasks, timeouts and cancellation that reach them, and that the cluster works afterwards."""

import re
import threading

import tasks
from report import session, show, show_failure, v1

import tensorflow as tf


def run(cluster):
    for index in [0, 1]:
        with tf.Graph().as_default() as graph:
            errors(cluster, graph, index)
    with tf.Graph().as_default() as graph:
        several(cluster, graph)
    with tf.Graph().as_default() as graph:
        timeouts(cluster, graph)
    with tf.Graph().as_default() as graph:
        closing(cluster, graph)
    with tf.Graph().as_default() as graph:
        loops(cluster, graph)


def said(call, words):
    """The class, whether a task is named, which nodes are, and whether the words are there."""
    try:
        return ["no failure", call()]
    except tf.errors.OpError as error:
        text = error.message
        # Stock sometimes names a transfer too.
        nodes = sorted({name for name in re.findall(r"\{\{node ([^}]*)\}\}", text) if not re.search(r"_S\d+$", name)})
        # Which of the tasks of a step tells of an error first is a matter of chance.
        return [
            type(error).__name__,
            re.search(r"From /job:(ps|worker)/replica:0/task:\d:\n", text) is not None,
            nodes,
            words in text,
        ]


def errors(cluster, graph, index):
    x = v1.placeholder(tf.float32, None, name="x")
    i = v1.placeholder(tf.int32, None, name="i")
    with tf.device("/job:ps/task:1"):
        checked = tf.debugging.check_numerics(x, "not a number here", name="checked")
        gathered = tf.gather([1.0, 2.0], i, name="gathered")
        asserted = v1.Assert(tf.reduce_all(x > 0.0), ["must be positive"], name="asserted")
        v = v1.get_variable("never", [], use_resource=False)
        r = v1.get_variable("never_resource", [], use_resource=True)
        matrix = tf.matmul(tf.reshape(x, [1, -1]), tf.ones([2, 1]), name="matrix")
    with tf.device("/job:ps/task:0"):
        after = tf.identity(checked + 1.0, name="after")
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with v1.Session(cluster.target("worker", index), graph=graph, config=config) as sess:
        show(
            f"from worker {index}, numerics",
            said(lambda: sess.run(after, {x: float("nan")}), "not a number here : Tensor had NaN values"),
        )
        show("range", said(lambda: sess.run(gathered, {i: 7}), "indices = 7 is not in [0, 2)"))
        show("assertion", said(lambda: sess.run(asserted, {x: -1.0}), "assertion failed: [must be positive]"))
        show("shape", said(lambda: sess.run(matrix, {x: [1.0, 2.0, 3.0]}), "In[0]: [1,3]"))
        show_failure("uninitialized reference", lambda: sess.run(v + 1.0))
        show_failure("uninitialized resource", lambda: sess.run(r + 1.0))
        show("not fed", said(lambda: sess.run(after), "You must feed a value for placeholder tensor 'x'"))
        show("works afterwards", [sess.run(after, {x: 1.0}), sess.run(gathered, {i: 1})])


def several(cluster, graph):
    """Two tasks fail in one step: one of the two errors is told."""
    x = v1.placeholder(tf.float32, None)
    both = []
    for index in range(2):
        with tf.device(f"/job:ps/task:{index}"):
            both.append(tf.debugging.check_numerics(x, "bad"))
    with session(cluster.target(), graph) as sess:
        for _ in range(3):
            show_failure("two failures", lambda: sess.run(both, {x: float("inf")}))
        show("works afterwards", sess.run(both, {x: 2.0}))


def queue_on(task, name):
    with tf.device(f"/job:ps/task:{task}"):
        queue = v1.FIFOQueue(5, [tf.int32], [[]], shared_name=name)
        return queue.enqueue([1]), queue.dequeue(name=name + "_dequeue"), queue.size()


def timeouts(cluster, graph):
    put, take, size = queue_on(1, "slow")
    with tf.device("/job:ps/task:2"):
        doubled = take * 2
    with session(cluster.target(), graph) as sess:
        sess.run(size)
        for _ in range(3):
            show_failure("timeout of a step", lambda: sess.run(doubled, options=v1.RunOptions(timeout_in_ms=300)))
        sess.run(put)
        show("the queue is whole", [sess.run(size), sess.run(doubled), sess.run(size)])
    with session(cluster.target(), graph, operation_timeout_in_ms=300) as sess:
        show_failure("timeout of a session", lambda: sess.run(doubled))
    with session(cluster.target("worker", 1), graph) as sess:
        sess.run(put)
        show("seen from another worker", sess.run(doubled))


def closing(cluster, graph):
    with tf.device("/job:ps/task:0"):
        began = v1.get_variable("began", [], tf.int64, v1.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([v1.assign_add(began, 1).op]):
        put, take, size = queue_on(0, "closed_under")
    doomed = session(cluster.target(), graph)
    doomed.run(began.initializer)
    thread = threading.Thread(target=lambda: show_failure("closed under a step", lambda: doomed.run(take)))
    thread.start()
    with session(cluster.target(), graph) as sess:
        tasks.until(lambda: sess.run(began) == 1, 60)
        doomed.close()
        thread.join(30)
        sess.run(put)
        show("the queue is whole", [sess.run(size), sess.run(take)])


def loops(cluster, graph):
    """An endless loop over two tasks, ended from outside: its work stops on both."""
    v1.disable_control_flow_v2()
    counts = []
    for index in range(2):
        with tf.device(f"/job:ps/task:{index}"):
            counts.append(v1.get_variable(f"count_{index}", [], tf.int64, v1.zeros_initializer(), use_resource=True))

    def body(i):
        for index, count in enumerate(counts):
            with tf.device(f"/job:ps/task:{index}"), tf.control_dependencies([v1.assign_add(count, 1)]):
                i = tf.identity(i)
        return i

    loop = v1.while_loop(lambda i: i < 1, body, [tf.constant(0)], parallel_iterations=1)
    with session(cluster.target(), graph) as sess:
        sess.run(v1.global_variables_initializer())

        def given_up(milliseconds):
            return said(lambda: sess.run(loop, options=v1.RunOptions(timeout_in_ms=milliseconds)), "")[0]

        # Before it runs, it has to be made ready on all tasks.
        ends = {
            given_up(milliseconds)
            for milliseconds in [500, 5000, 20_000]
            if not all(count > 0 for count in sess.run(counts))
        }
        show("an endless loop", ends)

        def stopped():
            """Whether nothing is counted while other steps run on the same tasks."""
            return all(sess.run(counts) == before for before in [sess.run(counts)] for _ in range(50))

        show("its work stopped on all tasks", [tasks.until(stopped, 20), all(count > 0 for count in sess.run(counts))])
