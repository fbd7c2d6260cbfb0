"""Cancellation: by a timeout, by closing the session, by giving up the call; and the work really stops."""

import threading
import time

from report import session, show, show_failure, v1
from wire import Caller, convert, message

import tensorflow as tf


def endless(container):
    """A loop without end that counts its iterations in a variable."""
    with tf.Graph().as_default() as graph, graph.container(container):
        count = v1.get_variable("count", [], tf.int64, v1.zeros_initializer(), use_resource=True)

        def body(i):
            with tf.control_dependencies([v1.assign_add(count, 1)]):
                return tf.identity(i)

        loop = v1.while_loop(lambda i: i < 1, body, [0], parallel_iterations=1, name="loop")
        tf.identity(loop, name="end")
    return graph, count


def wait_for_work(sess, count):
    """Until the counter has gone on from where it is."""
    deadline = time.monotonic() + 20
    before = int(sess.run(count))
    while int(sess.run(count)) == before and time.monotonic() < deadline:
        time.sleep(0.01)


def stands_still(sess, count):
    """Whether the counter has started and stopped."""
    deadline = time.monotonic() + 20
    before = -1
    while time.monotonic() < deadline:
        now = int(sess.run(count))
        if now == before:
            return now > 0
        before = now
        time.sleep(0.2)
    return False


def run(target):
    v1.control_flow_v2_enabled() and v1.disable_control_flow_v2()
    graph, count = endless("timeouts")
    with session(target, graph) as sess:
        sess.run(count.initializer)
        options = v1.RunOptions(timeout_in_ms=500)
        show_failure("timeout of a step", lambda: sess.run("end:0", options=options))
        show("its work stopped", stands_still(sess, count))
    with session(target, graph, operation_timeout_in_ms=500) as sess:
        show_failure("timeout of a session", lambda: sess.run("end:0"))

    graph, count = endless("closing")
    with session(target, graph) as sess:
        sess.run(count.initializer)
        doomed = session(target, graph)
        doomed.run(count)
        thread = threading.Thread(target=lambda: show_failure("closed under a step", lambda: doomed.run("end:0")))
        thread.start()
        wait_for_work(sess, count)
        doomed.close()
        thread.join()
        show("its work stopped", stands_still(sess, count))

    graph, count = endless("dropping")
    with session(target, graph) as sess:
        sess.run(count.initializer)
        caller = Caller(target)
        definition = convert("GraphDef", graph.as_graph_def())
        handle = caller("CreateSession", graph_def=definition).session_handle
        request = message("RunStepRequest")(session_handle=handle, fetch=["end:0"])
        call = caller.channel.unary_unary("/tensorflow.MasterService/RunStep").future(request.SerializeToString())
        wait_for_work(sess, count)
        call.cancel()
        show("a dropped call's work stopped", stands_still(sess, count))
        call = caller.channel.unary_unary("/tensorflow.MasterService/RunStep").future(request.SerializeToString())
        wait_for_work(sess, count)
        caller.channel.close()
        show("a lost connection's work stopped", stands_still(sess, count))
