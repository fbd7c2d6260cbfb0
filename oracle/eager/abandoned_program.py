"""The client of the scenario `abandoned`: `abandoned_program.py WORKER WORKER PS`. It prints the number of its context once
operations of it run that never end by themselves."""

import pathlib
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import environment

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context


def main(first, second, ps):
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec({"worker": [first, second], "ps": [ps]}), job_name="client"
    )
    with tf.device("/job:ps"):
        v = tf.Variable(tf.zeros([1000]))
        never = tf.queue.FIFOQueue(1, tf.float32, shapes=[[]])

    @tf.function
    def step(x):
        v.assign_add(tf.fill([1000], x))
        return tf.reduce_sum(v)

    @tf.function
    def wait():
        return never.dequeue() + tf.reduce_sum(v)

    for device in ("/job:worker/task:0", "/job:worker/task:1"):
        with tf.device(device):
            step(tf.constant(1.0)).numpy()

    def blocked(device):
        with tf.device(device):
            wait().numpy()

    for device in ("/job:worker/task:0", "/job:ps"):
        threading.Thread(target=blocked, args=[device], daemon=True).start()
    print(pywrap_tfe.TFE_GetContextId(context.context()._handle), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
