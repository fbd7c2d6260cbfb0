"""Traces of steps: timelines and partition graphs."""

import json

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf
from tensorflow.python.client import timeline


def described(output):
    tensor = output.tensor_description
    memory = tensor.allocation_description
    dims = [dim.size for dim in tensor.shape.dim]
    return [output.slot, tensor.dtype, dims, memory.requested_bytes, memory.allocator_name]


def many_outputs(sess):
    """Nodes with several outputs, with none, with references, and large ones, which may run beside each other."""
    x = v1.placeholder(tf.float32, [None, None])
    v = v1.get_variable("traced", initializer=[1.0, 2.0, 3.0], use_resource=False)
    top = tf.math.top_k(tf.reduce_sum(x, 0), 3, name="top")
    large = [tf.matmul(x, x + float(i), name=f"large{i}") for i in range(4)]
    assign = v1.assign(v, [4.0, 5.0, 6.0], name="assign")
    with tf.control_dependencies([assign]):
        done = tf.no_op(name="done")
    sess.run(v.initializer)
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    sess.run([top, done, tf.add_n(large)], {x: np.ones([600, 600], np.float32)}, options, metadata)
    nodes = {node.node_name: node for stats in metadata.step_stats.dev_stats for node in stats.node_stats}
    for name in ["top", "traced", "assign", "done", "large0", "large1", "large2", "large3"]:
        show(name, [described(output) for output in nodes[name].output] if name in nodes else "not traced")


def flow(target):
    """Conditionals and loops, marked and not: what becomes of them, and the nodes of their functions that run."""
    with tf.Graph().as_default():
        v1.enable_control_flow_v2()
        x = v1.placeholder(tf.float32, [], name="x")
        body = tf.function(lambda a: tf.exp(a, name="inner")).get_concrete_function(tf.TensorSpec([], tf.float32))
        list_of = tf.TensorArray(tf.float32, 3, element_shape=[])
        made = {
            "marked if": tf.cond(x > 0.0, lambda: tf.exp(x, name="inner"), lambda: x - 1.0),
            "if": tf.raw_ops.If(cond=x > 0.0, input=[x], Tout=[tf.float32], then_branch=body, else_branch=body)[0],
            "call": tf.raw_ops.PartitionedCall(args=[x], Tout=[tf.float32], f=body)[0],
            "loop": tf.while_loop(lambda i, _: i < 2, lambda i, a: (i + 1, tf.exp(a, name="inner")), (0, x))[1],
            "array": tf.while_loop(
                lambda i, _: i < 3, lambda i, a: (i + 1, a.write(i, tf.exp(x, name="inner"))), (0, list_of)
            )[1].stack(),
        }
        v1.disable_control_flow_v2()
        with session(target) as sess:
            for name, fetch in made.items():
                metadata = v1.RunMetadata()
                options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
                sess.run(fetch, {x: 1.0}, options, metadata)
                ops = {node.op for graph in metadata.partition_graphs for node in graph.node}
                show(
                    f"{name} becomes",
                    sorted(
                        ops
                        & {
                            "If",
                            "StatelessIf",
                            "While",
                            "StatelessWhile",
                            "PartitionedCall",
                            "Switch",
                            "Merge",
                            "Enter",
                            "Exit",
                        }
                    ),
                )
                for stats in metadata.step_stats.dev_stats:
                    ran = [
                        node.node_name for node in stats.node_stats if node.node_name.split("/")[-1].startswith("inner")
                    ]
                    show(f"{name}, its function's node on {stats.device}", len(ran))


def run(target):
    flow(target)
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
        show("its outputs", [described(output) for node in traced for output in node.output])
        lines = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format(show_memory=True)
        drawn = [event["args"] for event in json.loads(lines)["traceEvents"] if event["ph"] == "C"]
        show("its timeline shows memory", max(bytes.get("cpu", 0) for bytes in drawn) >= 16)

        metadata = v1.RunMetadata()
        sess.run(product, feed, v1.RunOptions(output_partition_graphs=True), metadata)
        names = [node.name for graph in metadata.partition_graphs for node in graph.node]
        show("partitions", [len(metadata.partition_graphs), "product" in names])

        metadata = v1.RunMetadata()
        sess.run(product, feed, None, metadata)
        show("nothing unless asked", [len(metadata.step_stats.dev_stats), len(metadata.partition_graphs)])

        many_outputs(sess)

    config = v1.ConfigProto()
    config.experimental.disable_output_partition_graphs = True
    with v1.Session(target, config=config) as sess:
        ask = v1.RunOptions(output_partition_graphs=True)
        show_failure("partitions that were ruled out", lambda: sess.run(product, feed, ask, v1.RunMetadata()))
