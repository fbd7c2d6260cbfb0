"""What a step tells about itself: timelines and partition graphs."""

import json

import tensorflow as tf
from tensorflow.python.client import timeline

from report import session, show, show_failure, v1


def run(target):
    x = v1.placeholder(tf.float32, [2, 2], name="x")
    product = tf.matmul(x, x, name="product")
    with session(target) as sess:
        feed = {x: [[1.0, 2.0], [3.0, 4.0]]}
        metadata = v1.RunMetadata()
        sess.run(product, feed, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), metadata)
        devices = [stats.device for stats in metadata.step_stats.dev_stats]
        show("devices", devices)
        nodes = [node for stats in metadata.step_stats.dev_stats for node in stats.node_stats]
        traced = [node for node in nodes if node.node_name == "product"]
        show("the node was traced", len(traced))
        show("with times", all(node.all_start_micros > 0 and node.all_end_rel_micros >= 0 for node in traced))
        events = json.loads(timeline.Timeline(metadata.step_stats).generate_chrome_trace_format())["traceEvents"]
        show("its timeline shows the op", any(event.get("name") == "MatMul" for event in events))

        metadata = v1.RunMetadata()
        sess.run(product, feed, v1.RunOptions(output_partition_graphs=True), metadata)
        names = [node.name for graph in metadata.partition_graphs for node in graph.node]
        show("partitions", [len(metadata.partition_graphs), "product" in names])

        metadata = v1.RunMetadata()
        sess.run(product, feed, None, metadata)
        show("nothing unless asked", [len(metadata.step_stats.dev_stats), len(metadata.partition_graphs)])

    config = v1.ConfigProto()
    config.experimental.disable_output_partition_graphs = True
    with v1.Session(target, config=config) as sess:
        ask = v1.RunOptions(output_partition_graphs=True)
        show_failure("partitions that were ruled out", lambda: sess.run(product, feed, ask, v1.RunMetadata()))
