"""Tasks with two CPU devices each: listed, placed on, with variables of their own, and tensors that cross between them."""

import tasks
from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf

LAYOUTS = ["stock", "ours", "our-ps", "our-workers", "mixed"]

FULL = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)


class TwoDevices(tasks.Cluster):
    """Tasks that are started with two CPU devices."""

    def stock_config(self):
        return v1.ConfigProto(device_count={"CPU": 2})


def orchestrate(layout, binary):
    cluster = TwoDevices(layout, binary)
    for task in cluster.tasks:
        task.arguments = ["--cpu-devices", "2"]
    with cluster:
        client = tasks.Client(run, cluster)
        lines = client.finish(200)
        print("\n".join(lines), flush=True)
        if client.code != 0:
            raise RuntimeError(client.errors() + cluster.logs())


def run(cluster):
    for target in [cluster.target(), cluster.target("worker", 1)]:
        listed(target)
        for part in [placed, refused, variables, colocated, loops, partial, traced, callables]:
            with tf.Graph().as_default():
                part(target)
    saved(cluster)
    alone(cluster)


def listed(target):
    with tf.Graph().as_default(), session(target) as sess:
        show("devices", sorted((each.name, each.device_type, each.memory_limit_bytes) for each in sess.list_devices()))
        show("incarnations", len({each.incarnation for each in sess.list_devices()}))
    with tf.Graph().as_default(), session(target, device_count={"CPU": 5}) as sess:
        show("a session's own count", len(sess.list_devices()))
    with tf.Graph().as_default(), session(target, device_count={"CPU": 1}) as sess:
        show("a session's smaller count", len(sess.list_devices()))
    with (
        tf.Graph().as_default(),
        session(target, device_filters=["/job:ps/task:0/device:CPU:1", "/job:worker"]) as sess,
    ):
        show("filtered", sorted(each.name for each in sess.list_devices()))
    with tf.Graph().as_default(), session(target, device_filters=["/job:worker/task:0/device:CPU:1"]) as sess:
        show("one of its own, filtered", sorted(each.name for each in sess.list_devices()))


def where(metadata, names):
    """The devices of these nodes, in the partition graphs and in the timeline."""
    graphs = {
        node.name: node.device for graph in metadata.partition_graphs for node in graph.node if node.name in names
    }
    traced = {
        node.node_name: stats.device
        for stats in metadata.step_stats.dev_stats
        for node in stats.node_stats
        if node.node_name in names
    }
    return [graphs, traced]


def placed(target):
    """Nodes on every kind of name, and values that cross from each device to each."""
    x = v1.placeholder(tf.float32, [2], name="x")
    value, names = x, []
    places = [
        "/device:CPU:1",
        "/cpu:0",
        "",
        "/job:ps/task:0/device:CPU:1",
        "/job:ps/task:0",
        "/job:ps/task:0/cpu:0",
        "/job:ps/task:1/cpu:1",
        "/job:worker/task:1/cpu:1",
        "/job:worker/task:0/cpu:1",
        "/job:worker/task:1",
        "/device:CPU:1",
    ]
    for i, place in enumerate(places):
        with tf.device(place):
            value = tf.add(value, float(10**i % 7), name=f"n{i}")
            names.append(value.op.name)
    with session(target) as sess:
        metadata = v1.RunMetadata()
        show("through all", sess.run(value, {x: [1.0, 2.0]}, FULL, metadata))
        show("placed", where(metadata, names))
        devices = sorted({stats.device for stats in metadata.step_stats.dev_stats})
        show("traced devices", devices)
        show(
            "feeds and fetches elsewhere",
            sess.run([f"n{i}:0" for i in range(len(places))], {"n2:0": [5.0, 6.0], x: [0.0, 0.0]}),
        )
        show("a fed node of another device", sess.run("n10:0", {"n9:0": [1.0, 1.0]}))


def refused(target):
    for place in ["/device:CPU:2", "/job:ps/task:0/device:CPU:2", "/job:worker/task:1/cpu:7", "/device:GPU:0"]:
        with tf.Graph().as_default(), tf.device(place):
            value = tf.add(v1.placeholder(tf.float32, [], name="x"), 1.0, name="here")
            with session(target) as sess:
                try:
                    sess.run(value, {"x:0": 1.0})
                except tf.errors.InvalidArgumentError as error:
                    message = error.message.split("\n")[0]
                    show(
                        place,
                        [
                            name in message
                            for name in [
                                "/job:ps/replica:0/task:0/device:CPU:0",
                                "/job:ps/replica:0/task:0/device:CPU:1",
                                "/job:worker/replica:0/task:1/device:CPU:1",
                            ]
                        ],
                    )
            with session(target, allow_soft_placement=True) as sess:
                metadata = v1.RunMetadata()
                show("softly", [sess.run(value, {"x:0": 1.0}, FULL, metadata), where(metadata, ["here"])])


def variables(target):
    """Devices of one task share its containers."""
    made, reads = [], []
    for kind, resource in [("resource", True), ("ref", False)]:
        for place in ["/job:ps/task:0/cpu:0", "/job:ps/task:0/cpu:1", "/job:worker/task:0/cpu:1"]:
            with tf.device(place):
                v = v1.get_variable(
                    f"{kind}{len(made)}", [2], initializer=v1.zeros_initializer(), use_resource=resource
                )
                made.append(v)
                reads.append(v1.assign_add(v, [1.0, 2.0]))
    sums = tf.add_n([tf.identity(each) for each in made])
    with session(target) as sess:
        sess.run([v.initializer for v in made])
        show("added", sess.run(reads))
        metadata = v1.RunMetadata()
        show("summed", sess.run(sums, None, FULL, metadata))
        show("their devices", where(metadata, [v.op.name for v in made]))
        show("set", [sess.run(made[i].assign([7.0, float(i)])) for i in range(6)])
    with session(target) as sess:
        show("later", sess.run(made))
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0/cpu:1"):
            r = v1.get_variable("ref3", [2], use_resource=False)
            w = v1.get_variable("resource0", [2], use_resource=True)
        with session(target) as sess:
            show_failure("a reference variable of the other device", lambda: sess.run(r))
            show_failure("a resource variable of the other device", lambda: sess.run(w))
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0/cpu:0"):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="crossing")
        with tf.device("/job:ps/task:0/cpu:1"):
            carried = tf.identity(handle)
            read = tf.raw_ops.ReadVariableOp(resource=carried, dtype=tf.float32)
        assign = tf.raw_ops.AssignVariableOp(resource=handle, value=4.0)
        with session(target) as sess:
            show_failure("a handle for another device", lambda: [sess.run(assign), sess.run(read)])


def colocated(target):
    with tf.device("/job:ps/task:1/cpu:1"):
        v = v1.get_variable("anchor", [2], initializer=v1.ones_initializer(), use_resource=True)
        q = tf.queue.FIFOQueue(4, [tf.float32], shapes=[[2]], shared_name="q1")
    with v1.colocate_with(v.op):
        beside = tf.multiply(v1.placeholder(tf.float32, [2], name="fed"), 3.0, name="beside")
    put = q.enqueue(beside + v)
    with tf.device("/job:ps/task:1/cpu:0"):
        out = tf.multiply(q.dequeue(), 2.0, name="out")
    with session(target) as sess:
        sess.run(v.initializer)
        metadata = v1.RunMetadata()
        sess.run(put, {"fed:0": [2.0, 2.0]}, FULL, metadata)
        show("beside its variable", where(metadata, ["beside", "anchor", put.name]))
        show("through a queue", sess.run(out))
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:1/cpu:1"):
            anchor = v1.placeholder_with_default(1.0, [], name="anchor")
        with v1.colocate_with(anchor, ignore_existing=True):
            other = tf.add(anchor, 1.0, name="other")
        other.op._set_device_from_string("/job:ps/task:1/device:CPU:0")
        with session(target) as sess:
            show_failure("colocated with what is elsewhere", lambda: sess.run(other))


def loops(target):
    """Control flow over both devices of a task and over tasks."""
    limit = v1.placeholder(tf.int32, [])

    def body(i, total):
        with tf.device("/job:ps/task:0/cpu:1"):
            total = total + tf.cast(i, tf.float32)
        with tf.device("/cpu:1"):
            return i + 1, total * 1.5

    _, total = tf.while_loop(lambda i, _: i < limit, body, [0, 1.0])
    flag = v1.placeholder(tf.bool, [])
    with tf.device("/cpu:1"):
        chosen = tf.cond(flag, lambda: total + 1.0, lambda: total - 1.0)
    with session(target) as sess:
        show("loops", [sess.run(chosen, {limit: n, flag: b}) for n in (0, 3, 9) for b in (True, False)])

    @tf.function
    def two(a):
        with tf.device("/cpu:1"):
            b = a * 2.0
        with tf.device("/job:ps/task:1/cpu:1"):
            return b + 1.0

    with session(target) as sess:
        show("a function over devices", sess.run(two(v1.placeholder_with_default(4.0, []))))


def partial(target):
    a, b = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    with tf.device("/cpu:1"):
        first = tf.add(a, 1.0)
    with tf.device("/job:ps/task:2/cpu:1"):
        second = first * b
    with session(target) as sess:
        handle = sess.partial_run_setup([first, second], [a, b])
        show("first", sess.partial_run(handle, first, {a: 2.0}))
        show("second", sess.partial_run(handle, second, {b: 5.0}))


def traced(target):
    """Transfers between devices of a task and between tasks, in the timeline."""
    x = v1.placeholder(tf.float32, [600, 600])
    with tf.device("/job:worker/task:0/cpu:1"):
        left = tf.matmul(x, x, name="left")
    with tf.device("/job:worker/task:0/cpu:0"):
        right = tf.matmul(left, x, name="right")
    with tf.device("/job:worker/task:1/cpu:1"):
        total = tf.reduce_sum(right, name="total")
    with session(target) as sess:
        metadata = v1.RunMetadata()
        show("large", np.isfinite(sess.run(total, {x: np.eye(600, dtype=np.float32)}, FULL, metadata)))
        show("where", where(metadata, ["left", "right", "total"]))
        sizes = {graph.node[0].device for graph in metadata.partition_graphs if graph.node}
        show("partitions", sorted(sizes))


def callables(target):
    x = v1.placeholder(tf.float32, [2])
    with tf.device("/cpu:1"):
        y = x * 2.0
    with session(target) as sess:
        call = sess.make_callable(y, [x])
        show("called", [call([1.0, 2.0]), call([3.0, 4.0])])


def saved(cluster):
    """A saver whose variables are on several devices."""
    with tf.Graph().as_default():
        for i, place in enumerate(["/job:ps/task:0/cpu:0", "/job:ps/task:0/cpu:1", "/job:ps/task:1/cpu:1"]):
            with tf.device(place):
                v1.get_variable(f"saved{i}", initializer=[float(i)] * 3)
        saver = v1.train.Saver(sharded=True)
        with session(cluster.target()) as sess:
            sess.run(v1.global_variables_initializer())
            path = saver.save(sess, str(cluster.directory / "model"))
            sess.run([v1.assign(v, [9.0] * 3) for v in v1.global_variables()])
            saver.restore(sess, path)
            show("restored", sess.run(v1.global_variables()))


def alone(cluster):
    """Filters that leave the master's task alone with its two devices."""
    with tf.Graph().as_default():
        with tf.device("/cpu:1"):
            v = v1.get_variable("alone", initializer=[1.0, 2.0])
            doubled = tf.multiply(v, 2.0, name="doubled")
        with tf.device("/cpu:0"):
            result = tf.add(doubled, 1.0, name="result")
        filters = ["/job:worker/task:0"]
        with session(cluster.target(), device_filters=filters) as sess:
            sess.run(v.initializer)
            metadata = v1.RunMetadata()
            show("alone", [sess.run(result, None, FULL, metadata), where(metadata, ["alone", "doubled", "result"])])
            show("its devices", sorted(each.name for each in sess.list_devices()))
            handle = sess.partial_run_setup([result], [doubled])
            show("partially", sess.partial_run(handle, result, {doubled: [5.0, 5.0]}))
