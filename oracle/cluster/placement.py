"""Where ops run: device strings and their merging, colocation, soft placement, and edges between tasks."""

from report import session, show, show_failure, v1

import tensorflow as tf


def plain(**options):
    """Options that keep stock from rewriting the graph, so that every node runs where it was placed."""
    config = v1.ConfigProto(**options)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config


def ran_on(sess, fetches, names, feed=None):
    """The devices on which nodes of these names ran."""
    metadata = v1.RunMetadata()
    sess.run(fetches, feed, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), metadata)
    found = {}
    for stats in metadata.step_stats.dev_stats:
        for node in stats.node_stats:
            if node.node_name in names:
                found[node.node_name] = stats.device
    return found


def run(cluster):
    spread(cluster)
    device_strings(cluster)
    colocation(cluster)
    control_edges(cluster)
    kinds_of_edges(cluster)
    refused(cluster)


def spread(cluster):
    """One graph over all tasks, from either worker."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], name="x")
        parts = []
        for task in ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:2", "/job:worker/task:1"]:
            with tf.device(task):
                x = tf.add(x, len(parts) + 1.0)
                parts.append(tf.multiply(x, x))
        with tf.device("/job:worker/task:0"):
            total = tf.add_n(parts)
        for index in [0, 1]:
            with v1.Session(cluster.target("worker", index), graph=graph) as sess:
                show(f"from worker {index}", [sess.run(total, {"x:0": [float(i), 2.0]}) for i in range(3)])
                show("every part", sess.run(parts, {"x:0": [1.0]}))
        with v1.Session(cluster.target("ps", 1), graph=graph) as sess:
            show("from a ps", sess.run(total, {"x:0": [5.0]}))
            show("devices", sorted(each.name for each in sess.list_devices()))


def device_strings(cluster):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], name="x")
        y = tf.identity(x, name="nowhere")
        with tf.device("/job:ps"):
            y = tf.identity(y, name="job_only")
            with tf.device("/task:2"):
                y = tf.identity(y, name="job_and_task")
                with tf.device("/cpu:0"):
                    y = tf.identity(y, name="legacy")
            with tf.device("/job:worker/task:1"):
                y = tf.identity(y, name="overridden")
            with tf.device(None):
                y = tf.identity(y, name="cleared")
        with tf.device("/device:CPU:0"):
            y = tf.identity(y, name="kind_only")
        with tf.device("/job:ps/replica:0/task:1/device:CPU:0"):
            y = tf.identity(y, name="whole")
        names = [node.name for node in graph.get_operations()]
        for index in [0, 1]:
            with v1.Session(cluster.target("worker", index), graph=graph, config=plain()) as sess:
                show(f"from worker {index}", ran_on(sess, y, names, {x: 1.0}))


def colocation(cluster):
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:1"):
            v = v1.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
            r = v1.get_variable("r", initializer=[3.0, 4.0], use_resource=False)
        with v1.colocate_with(r):
            beside = tf.negative(tf.identity(r), name="beside")
        read = tf.raw_ops.ReadVariableOp(resource=v.handle, dtype=tf.float32, name="read")
        update = tf.raw_ops.AssignAdd(ref=r._ref(), value=[1.0, 1.0], name="update")
        result = tf.add(read, update, name="result")
        with v1.Session(cluster.target(), graph=graph, config=plain()) as sess:
            sess.run(v1.global_variables_initializer())
            show("follow what they belong to", ran_on(sess, [beside, result], ["beside", "read", "update", "result"]))


def control_edges(cluster):
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            a = v1.get_variable("a", [], initializer=v1.ones_initializer(), use_resource=True)
        with tf.device("/job:ps/task:1"):
            b = v1.get_variable("b", [], initializer=v1.zeros_initializer(), use_resource=False)
        with tf.control_dependencies([v1.assign(a, a * 2.0)]):
            with tf.control_dependencies([v1.assign_add(b, 10.0)]):
                with tf.control_dependencies([v1.assign(a, a.read_value() + b.read_value())]):
                    both = [a.read_value(), b.read_value()]
        with tf.device("/job:worker/task:1"), tf.control_dependencies(both):
            nothing = tf.no_op()
        with v1.Session(cluster.target(), graph=graph) as sess:
            sess.run(v1.global_variables_initializer())
            show("in order across tasks", [sess.run(both) for _ in range(3)])
            show("a target elsewhere", sess.run(nothing))
            show("after it", sess.run([a, b]))


def kinds_of_edges(cluster):
    """Every kind of value on an edge between tasks."""
    values = [
        tf.constant([1, -2], tf.int32),
        tf.constant([[1, 2**40]], tf.int64),
        tf.constant([True, False]),
        tf.constant(["", "text", "\0bytes"]),
        tf.constant(1.5 - 2j, tf.complex64),
        tf.constant([0.5], tf.float16),
        tf.constant([0.5], tf.bfloat16),
        tf.constant([[]], tf.float64),
        tf.constant(7, tf.uint8),
    ]
    fed = [v1.placeholder(value.dtype, value.shape) for value in values]
    with tf.device("/job:ps/task:0"):
        once = [tf.identity(value) for value in fed]
    with tf.device("/job:ps/task:1"):
        twice = [tf.identity(value) for value in once]
    big = v1.placeholder(tf.float32, [None])
    with tf.device("/job:ps/task:2"):
        sums = [tf.reduce_sum(big), tf.size(big)]
        large = tf.reshape(tf.range(3_000_000), [-1, 3])
    with v1.Session(cluster.target()) as sess:
        contents = sess.run(values)
        show("there and back", sess.run(twice, dict(zip(fed, contents))))
        show("large, there", sess.run(sums, {big: [0.5] * 2_000_000}))
        fetched = sess.run(large)
        show("large, back", [fetched.shape, int(fetched.sum(dtype="int64"))])
    config = v1.ConfigProto()
    config.graph_options.enable_bfloat16_sendrecv = True
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [3])
        with tf.device("/job:ps/task:1"):
            y = x * 1.0
        with v1.Session(cluster.target(), graph=graph, config=config) as sess:
            show("halved on the wire", sess.run(y, {x: [1.001, 3.14159, -7e9]}))


def refused(cluster):
    def attempt(label, device, **options):
        with tf.Graph().as_default() as graph:
            with tf.device(device):
                x = tf.constant(1.0) + v1.placeholder_with_default(1.0, [])
            with session(cluster.target(), graph, **options) as sess:
                show_failure(label, lambda: sess.run(x))

    attempt("no such task", "/job:ps/task:9")
    attempt("no such job", "/job:nobody/task:0")
    attempt("no such kind", "/job:ps/task:0/device:GPU:0")
    attempt("another kind will do", "/job:ps/task:0/device:GPU:0", allow_soft_placement=True)
    attempt("a task must be there", "/job:ps/task:9", allow_soft_placement=True)
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="torn")
        with tf.device("/job:ps/task:1"):
            assign = tf.raw_ops.AssignVariableOp(resource=handle, value=1.0)
        with session(cluster.target(), graph) as sess:
            show_failure("a resource used elsewhere", lambda: sess.run(assign))
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            v = tf.raw_ops.VariableV2(shape=[], dtype=tf.float32, shared_name="torn_ref")
        with tf.device("/job:ps/task:1"):
            assign = tf.raw_ops.Assign(ref=v, value=1.0)
        with session(cluster.target(), graph) as sess:
            show_failure("a reference used elsewhere", lambda: sess.run(assign))
