"""Summaries that a program without sessions writes on another task, by tf.summary."""

import glob
import os
import tempfile

from report import show

import tensorflow as tf

WORKER = "/job:worker/task:0"


def run(_):
    with tempfile.TemporaryDirectory() as directory:
        with tf.device(WORKER):
            writer = tf.summary.create_file_writer(directory, max_queue=2)
            with writer.as_default():
                for step in range(3):
                    tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
                tf.summary.histogram("weights", tf.range(10, dtype=tf.float32), step=3)
                tf.summary.text("words", tf.constant(["a", "b"]), step=4)
                traced(tf.constant(5, tf.int64))
            writer.close()
        for path in sorted(glob.glob(os.path.join(directory, "*"))):
            for event in tf.compat.v1.train.summary_iterator(path):
                for value in event.summary.value:
                    tensor = tf.make_ndarray(value.tensor)
                    show("value", [event.step, value.tag, value.metadata.plugin_data.plugin_name, tensor.tolist()])


@tf.function
def traced(step):
    tf.summary.scalar("traced", tf.cast(step, tf.float32) * 2.0, step=step)
