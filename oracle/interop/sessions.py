"""Sessions: created, extended, many at once, sharing state through containers, reset and recovered."""

import threading

from report import session, show, show_failure, v1

import tensorflow as tf


def run(target):
    extending(target)
    concurrent_runs(target)
    shared_variables(target)
    isolated_state(target)
    resetting(target)
    recovering(target)
    kept_tensors(target)


def extending(target):
    graph = tf.Graph()
    with graph.as_default():
        a = tf.constant(2.0, name="a")
        with session(target, graph) as first:
            show("first run", first.run(a))
            b = a * 3.0
            show("after extending", first.run([a, b]))
            for _ in range(3):
                b = b + 1.0
                show("grown again", first.run(b))
        show_failure("closed", lambda: first.run(a))


def concurrent_runs(target):
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None])
        y = tf.reduce_sum(x * 2.0)
        sessions = [session(target, graph) for _ in range(4)]
        results = [None] * 32

        def work(i):
            results[i] = sessions[i % 4].run(y, {x: [float(i), 1.0]})

        threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        show("concurrent runs", results)
        for each in sessions:
            each.close()


def shared_variables(target):
    graph = tf.Graph()
    with graph.as_default():
        with graph.container("mine"):
            v = v1.get_variable("shared", [], initializer=v1.zeros_initializer(), use_resource=True)
        add = v1.assign_add(v, 5.0)
        with session(target, graph) as first:
            first.run(v.initializer)
            first.run(add)
        with session(target, graph) as second:
            show("seen by another session", second.run(v))
        v1.Session.reset(target, ["mine"])
        with session(target, graph) as third:
            show_failure("after reset", lambda: third.run(v))


def isolated_state(target):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("private", [], initializer=v1.ones_initializer(), use_resource=True)
        with session(target, graph, isolate_session_state=True) as first:
            first.run(v.initializer)
            show("own state", first.run(v))
            with session(target, graph) as second:
                show_failure("not seen outside", lambda: second.run(v))
        with session(target, graph, isolate_session_state=True) as third:
            show_failure("gone with its session", lambda: third.run(v))


def resetting(target):
    graph = tf.Graph()
    with graph.as_default():
        v = v1.get_variable("lost", [], initializer=v1.ones_initializer(), use_resource=False)
        old = session(target, graph)
        old.run(v.initializer)
        v1.Session.reset(target)
        show_failure("sessions end with a reset", lambda: old.run(v))
        with session(target, graph) as new:
            show_failure("and so does state", lambda: new.run(v))


def recovering(target):
    graph = tf.Graph()
    with graph.as_default():
        step = v1.train.get_or_create_global_step()
        count = v1.assign_add(step, 1)
        scaffold = v1.train.Scaffold(init_op=v1.global_variables_initializer())
        creator = v1.train.ChiefSessionCreator(scaffold=scaffold, master=target)
        with v1.train.MonitoredSession(creator) as monitored:
            show("counted", [monitored.run(count) for _ in range(3)])
            v1.Session.reset(target)
            show("counted again", [monitored.run(count) for _ in range(2)])


def kept_tensors(target):
    """Handles to tensors that a session keeps between steps, which servers refuse to do."""
    with tf.Graph().as_default() as graph:
        value = tf.constant([1.0, 2.0])
        old = tf.raw_ops.GetSessionHandle(value=value)
        kept = tf.raw_ops.GetSessionTensor(handle="a;1;/cpu:0", dtype=tf.float32)
        deleted = tf.raw_ops.DeleteSessionTensor(handle="a;1;/cpu:0")
        for label, fetch in {
            "handle": v1.get_session_handle(value),
            "old": old,
            "kept": kept,
            "deleted": deleted,
        }.items():
            with session(target, graph) as sess:
                show_failure(f"session tensor, {label}", lambda: sess.run(fetch))
