"""Loops of functions that never end, on one server: they end when told to, and until then others get their turn. Stock's
server is deaf when there are as many as it has threads.
"""

import threading

import tasks
from cancellation import stands_still, wait_for_work
from report import session, v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours",)


def orchestrate(layout, binary):
    with tasks.Cluster({"worker": layout["worker"][:1]}, binary) as cluster:
        for line in tasks.Client(use, cluster.target()).finish(120):
            print(line, flush=True)


def endless(kind):
    """A loop that counts in a variable, and the variable. It is a function's body, marked or not, or calls itself."""
    with tf.Graph().as_default() as graph, graph.container(f"long loops {kind}"):
        v1.enable_control_flow_v2()
        count = v1.get_variable("count", [], tf.int64, v1.zeros_initializer(), use_resource=True)

        def body(i):
            with tf.control_dependencies([count.assign_add(1)]):
                return tf.identity(i)

        if kind == "marked":
            end = tf.while_loop(lambda i: i < 1, body, [tf.constant(0)])[0]
        else:
            spec = [tf.TensorSpec([], tf.int32)]
            goes_on = tf.function(lambda i, _: i < 1).get_concrete_function(*spec, tf.TensorSpec(None, tf.resource))
            step = tf.function(body).get_concrete_function(*spec)
            handles = step.captured_inputs
            end = tf.raw_ops.While(
                input=[tf.constant(0), *handles], cond=goes_on, body=with_handles(step, len(handles))
            )[0]
        tf.identity(end, name="end")
        tf.add(1, v1.placeholder_with_default(1, [], name="one"), name="tiny")
        v1.disable_control_flow_v2()
    return graph, count


def with_handles(step, handles):
    """The body of a loop that hands its resources on to the next iteration."""
    specs = [tf.TensorSpec([], tf.int32)] + [tf.TensorSpec(None, tf.resource)] * handles

    def body(i, *passed):
        called = tf.raw_ops.StatefulPartitionedCall(args=[i, *passed], Tout=[tf.int32], f=step)
        return (called[0], *passed)

    return tf.function(body).get_concrete_function(*specs)


def use(target):
    for kind in ["marked", "unmarked"]:
        graph, count = endless(kind)
        with session(target, graph) as sess:
            sess.run(count.initializer)
            print(
                f"{kind}, a step keeps to its deadline: {ends(sess, tf.errors.DeadlineExceededError, 500)}", flush=True
            )
            print(f"{kind}, its work stops: {stands_still(sess, count)}", flush=True)
            doomed = session(target, graph)
            doomed.run(count)
            ended = []
            # More than the server has threads of a kind on a small machine.
            threads = [
                threading.Thread(target=lambda: ended.append(ends(doomed, tf.errors.CancelledError, 0)))
                for _ in range(4)
            ]
            [thread.start() for thread in threads]
            wait_for_work(sess, count)
            patient = v1.RunOptions(timeout_in_ms=20_000)
            others = [each.run("tiny:0", options=patient) for each in (sess, doomed) for _ in range(10)]
            print(f"{kind}, others are served: {others == [2] * 20}", flush=True)
            with session(target, graph) as late:
                print(f"{kind}, others may come: {late.run('tiny:0', options=patient) == 2}", flush=True)
            doomed.close()
            [thread.join() for thread in threads]
            print(f"{kind}, closing their session ends them: {ended == [True] * 4}", flush=True)
            print(f"{kind}, and their work: {stands_still(sess, count)}", flush=True)


def ends(sess, error, milliseconds):
    try:
        sess.run("end:0", options=v1.RunOptions(timeout_in_ms=milliseconds))
    except error:
        return True
    except (tf.errors.OpError, RuntimeError):
        pass
    return False
