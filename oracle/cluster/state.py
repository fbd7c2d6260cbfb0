"""Variables on parameter servers, of both kinds, shared by the sessions of two workers."""

import threading

from report import session, show, show_failure, v1

import tensorflow as tf


def run(cluster):
    for use_resource in [False, True]:
        with tf.Graph().as_default() as graph:
            shared(cluster, graph, use_resource)
    with tf.Graph().as_default() as graph:
        counted(cluster, graph)
    with tf.Graph().as_default() as graph:
        types(cluster, graph)
    with tf.Graph().as_default() as graph:
        many(cluster, graph)


def shared(cluster, graph, use_resource):
    kind = "resource" if use_resource else "reference"
    with v1.device(v1.train.replica_device_setter(ps_tasks=3)):
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable(f"w_{kind}", initializer=[[1.0, 2.0], [3.0, 4.0]], use_resource=use_resource)
        b = v1.get_variable(f"b_{kind}", [2], initializer=v1.zeros_initializer(), use_resource=use_resource)
        x = v1.placeholder(tf.float32, [None, 2])
        y = tf.matmul(x, w) + b
        update = tf.group(v1.assign_add(b, [1.0, 2.0]), v1.assign(w, w * 0.5), v1.assign_add(step, 1))
        rows = v1.scatter_add(w, [1, 1], [[1.0, 1.0], [2.0, 2.0]])
    show(f"{kind} variables are at", [w.device, b.device, step.device])
    one, two = (session(cluster.target("worker", index), graph) for index in [0, 1])
    show_failure("before initialization", lambda: one.run(y, {x: [[1.0, 1.0]]}))
    show("uninitialized", sorted(one.run(v1.report_uninitialized_variables()).tolist()))
    one.run(v1.global_variables_initializer())
    show("seen by another worker", two.run([w, b, step]))
    one.run(update)
    two.run(update)
    show("updated by both", one.run([w, b, step]))
    show("rows", two.run(rows))
    show("used", [each.run(y, {x: [[1.0, 1.0]]}) for each in (one, two)])
    one.close()
    two.close()


def counted(cluster, graph):
    """Updates from many threads and two masters: none is lost."""
    with tf.device("/job:ps/task:2"):
        v = v1.get_variable("count", [], tf.int64, v1.zeros_initializer(), use_resource=True)
        r = v1.get_variable("count_ref", [], tf.int64, v1.zeros_initializer(), use_resource=False)
        add = tf.group(v1.assign_add(v, 1), r.assign_add(1, use_locking=True).op)
    sessions = [session(cluster.target("worker", index % 2), graph) for index in range(4)]
    sessions[0].run(v1.global_variables_initializer())

    def work(sess):
        for _ in range(15):
            sess.run(add)

    threads = [threading.Thread(target=work, args=(sess,)) for sess in sessions for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    show("counted", sessions[1].run([v, r]))
    for sess in sessions:
        sess.close()


def types(cluster, graph):
    values = {
        "half": tf.constant([1.5], tf.float16),
        "int32": tf.constant([1, 2]),
        "int64": tf.constant(2**50, tf.int64),
        "bool": tf.constant([True, False]),
        "string": tf.constant(["a", "bc"]),
        "double": tf.constant(0.1, tf.float64),
    }
    with v1.device(v1.train.replica_device_setter(ps_tasks=3)):
        variables = [
            v1.get_variable(f"of_{name}_{use}", initializer=value, use_resource=use)
            for name, value in values.items()
            for use in [True, False]
        ]
    with session(cluster.target(), graph) as sess:
        sess.run(v1.global_variables_initializer())
        show("types", sess.run([tf.identity(v) for v in variables]))


def many(cluster, graph):
    """A step that touches two hundred variables on three tasks."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=3)):
        variables = [v1.get_variable(f"many_{i}", initializer=float(i), use_resource=i % 2 == 0) for i in range(200)]
        total = tf.add_n([tf.identity(v) for v in variables])
        update = tf.group([v1.assign_add(v, 1.0).op for v in variables])
    with session(cluster.target("worker", 1), graph) as sess:
        sess.run(v1.global_variables_initializer())
        sums = []
        for _ in range(3):
            sums.append(sess.run(total))
            sess.run(update)
        show("two hundred variables", sums)
