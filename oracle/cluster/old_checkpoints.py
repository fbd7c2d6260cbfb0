"""Checkpoints of the first format, which stock still writes on demand, restored on parameter servers."""

import pathlib
import tempfile

import checkpoints
from report import session, show, v1

import tensorflow as tf


def run(cluster):
    with tempfile.TemporaryDirectory() as directory:
        path = checkpoints.by_stock(pathlib.Path(directory) / "old", v1.train.SaverDef.V1)
        with tf.Graph().as_default() as graph, v1.device(v1.train.replica_device_setter(ps_tasks=3)):
            w = v1.get_variable("w", [3, 4], use_resource=False)
            n = v1.get_variable("n", [], tf.int64, use_resource=True)
            with session(cluster.target(), graph) as sess:
                v1.train.Saver().restore(sess, path)
                show("of stock", sess.run([w, n]))
