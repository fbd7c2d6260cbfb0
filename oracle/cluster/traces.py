"""Traces of steps: the timelines and partition graphs of all its tasks, merged."""

from report import session, show, v1

import tensorflow as tf


def run(cluster):
    with tf.Graph().as_default():
        costs(cluster)
    x = v1.placeholder(tf.float32, [2, 2], name="x")
    with tf.device("/job:ps/task:0"):
        product = tf.matmul(x, x, name="product")
    with tf.device("/job:ps/task:2"):
        total = tf.reduce_sum(product, name="total")
    with tf.device("/job:worker/task:1"):
        tripled = tf.multiply(total, 3.0, name="tripled")
    feed = {x: [[1.0, 2.0], [3.0, 4.0]]}
    for index in [0, 1]:
        with session(cluster.target("worker", index)) as sess:
            metadata = v1.RunMetadata()
            show("result", sess.run(tripled, feed, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), metadata))
            stats = metadata.step_stats.dev_stats
            show("devices", sorted({each.device for each in stats}))
            named = {
                node.node_name: each.device
                for each in stats
                for node in each.node_stats
                if node.node_name in ("product", "total", "tripled")
            }
            show("nodes", named)
            times = [node for each in stats for node in each.node_stats if node.node_name in named]
            show("with times", all(node.all_start_micros > 0 and node.all_end_rel_micros >= 0 for node in times))
            show("transfers into the last task", transfers(sess, tripled, feed))

            metadata = v1.RunMetadata()
            sess.run(tripled, feed, v1.RunOptions(output_partition_graphs=True), metadata)
            owners = {
                node.name: node.device
                for graph in metadata.partition_graphs
                for node in graph.node
                if node.name in named
            }
            show("partitions", [len(metadata.partition_graphs), owners])
            metadata = v1.RunMetadata()
            sess.run(tripled, feed, None, metadata)
            show("nothing unless asked", [len(metadata.step_stats.dev_stats), len(metadata.partition_graphs)])


def costs(cluster):
    """Costs of some of the steps: of which, and how nodes hang together in them."""
    x = v1.placeholder(tf.float32, [2, 2], name="given")
    with tf.device("/job:ps/task:0"):
        product = tf.matmul(x, x, name="squared")
    with tf.device("/job:ps/task:1"):
        top, _ = tf.math.top_k(product, 1, name="top")
    total = tf.subtract(tf.reduce_sum(top, name="topmost"), x, name="moved")
    for every, after in [(0, 0), (1, 0), (2, 0), (3, 1), (2, 3), (-1, 0)]:
        config = v1.ConfigProto()
        config.graph_options.build_cost_model, config.graph_options.build_cost_model_after = every, after
        with v1.Session(cluster.target(), config=config) as sess:
            found = []
            for _ in range(5):
                metadata = v1.RunMetadata()
                sess.run(total, {x: [[1.0, 2.0], [3.0, 4.0]]}, None, metadata)
                found.append(
                    [
                        len(metadata.cost_graph.node) > 0,
                        metadata.HasField("cost_graph"),
                        len(metadata.step_stats.dev_stats),
                    ]
                )
            show(f"costs of every {every} after {after}", found)
            metadata = v1.RunMetadata()
            sess.run(
                total, {x: [[1.0, 2.0], [3.0, 4.0]]}, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), metadata
            )
            show("and traced", [len(metadata.cost_graph.node) > 0, len(metadata.step_stats.dev_stats) > 0])
            if every == 1:
                show("a model", model(metadata.cost_graph))


def model(graph):
    """The part of a trace that does not depend on the names of what was added, or on the clock."""
    lines, parts = [], []
    for node in graph.node:
        if node.name == "_SOURCE":
            parts.append({})
        parts[-1][node.id] = node
    for part in parts:
        lines.append([part[0].name, part[1].name, sorted(part) == list(range(len(part))), part[1].control_input[0]])
        for node in part.values():
            if node.name not in ["squared", "top", "topmost", "moved"]:
                continue
            outputs = [[each.size, [dim.size for dim in each.shape.dim], each.dtype] for each in node.output_info]
            known = [part[each.preceding_node].name in ("squared", "top", "topmost") for each in node.input_info]
            ports = [each.preceding_port for each in node.input_info]
            lines.append(
                [node.name, node.device, outputs, known, ports, node.is_final, node.compute_cost >= 0, node.inaccurate]
            )
        sends = [node for node in part.values() if node.is_final]
        lines.append([len(sends), all(not node.output_info for node in sends), all(node.device for node in sends)])
    return sorted(lines, key=str)


def transfers(sess, fetch, feed):
    """Where tensors came from, as the last task logged it; a log that is fetched too early misses some."""
    end = "/job:worker/replica:0/task:1/device:CPU:0"
    for _ in range(50):
        metadata = v1.RunMetadata()
        sess.run(fetch, feed, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), metadata)
        nodes = [node for each in metadata.step_stats.dev_stats for node in each.node_stats]
        labels = [node.timeline_label for node in nodes if node.node_name == "RecvTensor"]
        routes = sorted({label[label.index("from ") :] for label in labels if label.endswith(end)})
        if routes:
            return routes
    return []
