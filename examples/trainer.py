"""Trains a classifier of handwritten digits with stock TensorFlow, 1.15 or any later version.

    ferroflow run --ps 1 --workers 2 -- python examples/trainer.py

Every worker runs this program and builds the same graph; the variables are on the parameter servers. TF_CONFIG says
which task this process is.
"""

import json
import os
import pathlib
import sys
import time

# TensorFlow talks much while it starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

v1 = tf.compat.v1

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
DIGITS = pathlib.Path(__file__).resolve().parent / "data/digits.csv.gz"

config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
own = "/job:{}/task:{}".format(job, index)
server = tf.distribute.Server(tf.train.ClusterSpec(config["cluster"]), job_name=job, task_index=index)

# 64 pixels from 0 to 16 and the digit; the last fifth is held out.
rows = np.loadtxt(str(DIGITS), delimiter=",", dtype=np.float32)
images, labels = rows[:, :64] / 16, rows[:, 64].astype(np.int64)
held_out = len(rows) * 4 // 5

graph = tf.Graph()
graph.seed = 1  # The same weights at the start of every training.
with graph.as_default(), v1.device(v1.train.replica_device_setter(cluster=config["cluster"], worker_device=own)):
    step = v1.train.get_or_create_global_step()
    image = v1.placeholder(tf.float32, [None, 64])
    label = v1.placeholder(tf.int64, [None])
    w1 = v1.get_variable("w1", [64, 128])
    b1 = v1.get_variable("b1", [128], initializer=v1.zeros_initializer())
    w2 = v1.get_variable("w2", [128, 10])
    b2 = v1.get_variable("b2", [10], initializer=v1.zeros_initializer())
    logits = tf.matmul(tf.nn.relu(tf.matmul(image, w1) + b1), w2) + b2
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
    train = v1.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=step)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), label), tf.float32))
    initialize = v1.global_variables_initializer()
    uninitialized = v1.report_uninitialized_variables()
    saver = v1.train.Saver()

random = np.random.RandomState(index)
filters = v1.ConfigProto(device_filters=["/job:ps", own])  # No worker waits for another.
with v1.Session(server.target, graph=graph, config=filters) as session:
    if index == 0:
        session.run(initialize)
    while session.run(uninitialized).size:
        time.sleep(0.1)
    reached, own_steps, began = 0, 0, time.time()
    while reached < STEPS:
        batch = random.randint(held_out, size=64)
        _, cost, reached = session.run([train, loss, step], {image: images[batch], label: labels[batch]})
        own_steps += 1
        if own_steps % 250 == 0:
            print("step {} of {}, loss {:.3f}".format(reached, STEPS, cost), flush=True)
    print("{} steps in {:.1f} s".format(own_steps, time.time() - began), flush=True)
    if index == 0:
        right = session.run(accuracy, {image: images[held_out:], label: labels[held_out:]})
        path = saver.save(session, "model/digits", global_step=step)
        print("{:.1f} % of the held-out digits are right; saved {}".format(100 * right, path), flush=True)
