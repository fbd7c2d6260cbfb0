"""Writes, with stock, the files that the tests of the package read: graphs, a checkpoint, and events."""

import pathlib
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
directory = pathlib.Path(sys.argv[1])

graph = tf.Graph()
with graph.as_default():
    x = v1.placeholder(tf.float32, [None, 2], name="x")
    w = v1.get_variable("w", initializer=[[1.0], [2.0]], use_resource=False)
    y = tf.matmul(x, w, name="y")
    words = tf.strings.join([v1.placeholder(tf.string, [None], name="words"), "!"], name="loud")
    grow = v1.assign_add(w, tf.ones([2, 1]), name="grow")
    queue = tf.queue.FIFOQueue(1, [tf.float32], name="queue")
    never = tf.identity(queue.dequeue(), name="never")
    half = tf.cast(x, tf.bfloat16, name="half")
    v1.global_variables_initializer()
    partitioned = v1.get_variable(
        "p", [6, 2], initializer=v1.ones_initializer(), partitioner=v1.fixed_size_partitioner(3)
    )
    saver = v1.train.Saver()
    initialize = v1.global_variables_initializer()
    with v1.Session() as session:
        session.run(initialize)
        saver.save(session, str(directory / "model"), global_step=7)
    v1.train.export_meta_graph(str(directory / "graph.meta.txt"), as_text=True)

v1.io.write_graph(graph, str(directory), "graph.pb", as_text=False)
v1.io.write_graph(graph, str(directory), "graph.pbtxt", as_text=True)

with tf.summary.create_file_writer(str(directory / "events")).as_default():
    tf.summary.scalar("loss", 0.5, step=3)
    tf.summary.histogram("weights", np.arange(4.0), step=3)

v1.disable_eager_execution()
with v1.summary.FileWriter(str(directory / "events-1"), graph=tf.Graph()) as writer:
    writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=0.25)]), global_step=4)
