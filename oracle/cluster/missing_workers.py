"""A session of stock's that waits for a worker that is not there: our parameter server says for whom, and what helps."""

import tasks
from report import v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("our-ps",)


def orchestrate(layout, binary):
    cluster = tasks.Cluster({"ps": [tasks.OURS], "worker": [tasks.STOCK] * 2}, binary)
    ps, first, second = cluster.tasks
    try:
        for task in [ps, first]:
            task.start()
            task.wait()
        client = tasks.Client(ask, first.target)
        missing = f"{second.name} at {cluster.spec['worker'][1]} does not answer"
        told = tasks.until(lambda: missing in ps.tail(), 60)
        print(f"the missing task is named: {told}", flush=True)
        said = ps.tail()
        waits = f"{first.name} at {cluster.spec['worker'][0]} has wanted to open a session"
        print(f"who waits, and the cure, {said.splitlines()}: {waits in said and 'device_filters' in said}", flush=True)
        second.start()
        second.wait()
        print(f"with it the session opens: {client.finish(60) == ['2.0']}", flush=True)
        print(f"once: {ps.tail().count('does not answer') == 1}", flush=True)
    finally:
        cluster.stop()


def ask(target):
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
        x = v1.placeholder(tf.float32, [])
        with v1.Session(target, graph=graph) as session:
            print(session.run(x + 1.0, {x: 1.0}), flush=True)
