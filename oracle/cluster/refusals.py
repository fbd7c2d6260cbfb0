"""A step that needs an op that our server lacks: the server says so in its log, once for every signature."""

import tasks
from report import v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours",)


def orchestrate(layout, binary):
    with tasks.Cluster({"worker": [tasks.OURS]}, binary) as cluster:
        lines = tasks.Client(ask, cluster.target()).finish(60)
        print(f"refused, {lines}: {lines == ['UnimplementedError'] * 4}", flush=True)
        said = [line for line in cluster.tasks[0].tail().splitlines() if "was refused" in line]
        print(f"told once for each signature, {said}: {len(said) == 2}", flush=True)
        words = ["CollectiveReduce", "'reduced'", "127.0.0.1:"]
        print(f"op, node and client are named: {all(word in line for line in said for word in words)}", flush=True)


def ask(target):
    x = v1.placeholder(tf.float32, [1, 1, 3])
    reduced = tf.raw_ops.CollectiveReduce(
        input=x,
        group_size=1,
        group_key=1,
        instance_key=1,
        merge_op="Add",
        final_op="Id",
        subdiv_offsets=[0],
        name="reduced",
    )
    doubled = reduced * 2.0
    with v1.Session(target) as session:
        for fetch in [reduced, doubled] * 2:
            try:
                session.run(fetch, {x: [[[0.1, 0.2, 0.3]]]})
            except tf.errors.OpError as error:
                print(type(error).__name__, flush=True)
