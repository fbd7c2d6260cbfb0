"""Two processes that were started as the same worker: the second is refused, and says where both are; a restart is not."""

import tasks
from report import v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours", "our-ps")


def orchestrate(layout, binary):
    kinds = {"ps": [tasks.OURS], "worker": [layout["worker"][0]]}
    cluster = tasks.Cluster(kinds, binary)
    # The same task, elsewhere.
    other = tasks.Cluster({"worker": kinds["worker"]}, binary)
    (first,), (second,) = [[task for task in each.tasks if task.job == "worker"] for each in (cluster, other)]
    second.knows = {"ps": cluster.spec["ps"], "worker": other.spec["worker"]}
    addresses = [each.spec["worker"][0] for each in (cluster, other)]
    try:
        with cluster:
            second.start()
            second.wait()
            holder = tasks.Client(hold, first.target)
            print(f"the first works: {holder.wait_for('begun', 60)}", flush=True)
            said = " ".join(tasks.Client(count, second.target).finish(60))
            # A master of stock does not say where it is; the address from which it called is named then.
            named = [addresses[0] in said, addresses[1] in said or "the process that calls from 127.0.0.1" in said]
            print(
                f"the second is refused, {said}, {addresses}: {'AlreadyExists' in said and named == [True, True]}",
                flush=True,
            )
            print(f"the first goes on: {holder.wait_for('goes on', 60)}", flush=True)
            holder.kill()
            first.kill()
            first.start()
            first.wait()
            lines = tasks.Client(count, first.target).finish(60)
            print(f"it may restart: {lines == ['counted 1.0']}", flush=True)
            holder = tasks.Client(hold, first.target)
            holder.wait_for("begun", 60)
            first.kill()
            lines = tasks.Client(count, second.target).finish(60)
            print(f"or come back elsewhere: {lines == ['counted 1.0']}", flush=True)
            holder.kill()
    finally:
        other.stop()


def counter(target):
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            v = v1.get_variable("count", [], initializer=v1.zeros_initializer(), use_resource=True)
            add = v.assign_add(1.0)
        return v1.Session(target, graph=graph), v.initializer, add


def count(target):
    session, initialize, add = counter(target)
    try:
        session.run(initialize)
        print("counted", session.run(add), flush=True)
    except tf.errors.OpError as error:
        print(type(error).__name__, error.message.replace("\n", " "), flush=True)


def hold(target):
    """Counts for ever, in one session; says so when it began and whenever others may have disturbed it."""
    session, initialize, add = counter(target)
    session.run(initialize)
    session.run(add)
    print("begun", flush=True)
    for _ in range(200):
        session.run(add)
    print("goes on", flush=True)
    while True:
        session.run(add)
