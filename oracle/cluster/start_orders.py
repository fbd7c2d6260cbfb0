"""The order in which tasks and clients start: any works, and who waits keeps to the session's deadline."""

import time

import tasks
from report import show, show_failure, v1

import tensorflow as tf

LAYOUTS = ("stock", "ours", "mixed")


def orchestrate(layout, binary):
    layout = {"ps": layout["ps"][:2], "worker": layout["worker"][:2]}
    for order in [ps_first, workers_first, chief_last, late_worker, absent_worker, named_worker, absent_ps]:
        cluster = tasks.Cluster(layout, binary)
        try:
            print(f"{order.__name__.replace('_', ' ')}:", flush=True)
            order(cluster)
        finally:
            cluster.stop()


def start(cluster, *names):
    chosen = [cluster.task(job, index) for job, index in names]
    for task in chosen:
        task.start()
    for task in chosen:
        task.wait()


def work(cluster, index, filters=False, milliseconds=60_000, peer=None, devices=False):
    """A client that uses both parameter servers, and another worker if it says so."""
    print("asks", flush=True)
    own = [f"/job:worker/task:{index}"] if filters else []
    config = v1.ConfigProto(device_filters=["/job:ps", *own] if filters else [], operation_timeout_in_ms=milliseconds)
    with tf.Graph().as_default() as graph:
        counts = []
        for ps in range(2):
            with tf.device(f"/job:ps/task:{ps}"):
                handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=f"count_{ps}")
                counts.append(tf.raw_ops.VarIsInitializedOp(resource=handle))
        if peer is not None:
            with tf.device(f"/job:worker/task:{peer}"):
                counts.append(tf.logical_not(tf.constant(False)))
        with tf.device(f"/job:worker/task:{index}"):
            found = tf.stack(counts)

        def ask():
            with v1.Session(cluster.target("worker", index), graph=graph, config=config) as sess:
                return [sess.run(found), len(sess.list_devices()) if devices else "alone"]

        show_failure(f"worker {index}", ask)


def client(cluster, index, **arguments):
    return tasks.Client(lambda: work(cluster, index, **arguments))


def report(*clients):
    for each in clients:
        for line in each.finish(90):
            print(" ", line, flush=True)


def asked(*clients):
    """Until the clients have asked, and a little longer, so that they wait."""
    for each in clients:
        each.wait_for("asks", 60)
    time.sleep(1)


def ps_first(cluster):
    start(cluster, ("ps", 0), ("ps", 1))
    start(cluster, ("worker", 0), ("worker", 1))
    report(client(cluster, 0, devices=True), client(cluster, 1, devices=True))


def workers_first(cluster):
    start(cluster, ("worker", 0), ("worker", 1))
    waiting = client(cluster, 0), client(cluster, 1, filters=True)
    asked(*waiting)
    start(cluster, ("ps", 1))
    start(cluster, ("ps", 0))
    report(*waiting)


def chief_last(cluster):
    start(cluster, ("worker", 1), ("ps", 0), ("ps", 1))
    waiting = client(cluster, 1)
    asked(waiting)
    start(cluster, ("worker", 0))
    report(client(cluster, 0), waiting)


def late_worker(cluster):
    start(cluster, ("ps", 0), ("ps", 1), ("worker", 0))
    report(client(cluster, 0, filters=True))
    start(cluster, ("worker", 1))
    report(client(cluster, 1, devices=True), client(cluster, 0, devices=True))


def absent_worker(cluster):
    start(cluster, ("ps", 0), ("ps", 1), ("worker", 0))
    report(client(cluster, 0, filters=True))
    # Stock's masters wait for it all the same; ours do not.
    does_without = cluster.task("worker", 0).kind == tasks.OURS
    *_, found = client(cluster, 0, milliseconds=60_000 if does_without else 1500).finish(90)
    show(
        "  without filters",
        [does_without, "no failure" in found, "DeadlineExceededError" in found]
        in ([True, True, False], [False, False, True]),
    )
    report(client(cluster, 0, milliseconds=1500, peer=1))
    report(client(cluster, 0, filters=True))


def named_worker(cluster):
    """A graph names a worker that comes late."""
    start(cluster, ("ps", 0), ("ps", 1), ("worker", 0))
    waiting = client(cluster, 0, peer=1)
    asked(waiting)
    start(cluster, ("worker", 1))
    report(waiting)


def absent_ps(cluster):
    start(cluster, ("ps", 0), ("worker", 0), ("worker", 1))
    report(client(cluster, 0, filters=True, milliseconds=1500))
