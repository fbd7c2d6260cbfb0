"""A training program as users write it, which knows nothing of Ferroflow: the subject of `switched.py`.

    python switched_program.py MODEL JOB TASK CLUSTER_JSON

A worker trains for half a second whenever it reads a line, and prints its number of steps.
"""

import json
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import environment

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()

SECONDS = 0.5


def mlp():
    """A classifier with one hidden layer, on batches that are fed."""
    x, y = v1.placeholder(tf.float32, [None, 64]), v1.placeholder(tf.int64, [None])
    w1, b1 = v1.get_variable("w1", [64, 128]), v1.get_variable("b1", [128])
    w2, b2 = v1.get_variable("w2", [128, 10]), v1.get_variable("b2", [10])
    logits = tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return loss, {x: np.random.rand(64, 64), y: np.random.randint(10, size=64)}


def variables():
    """The sum of 200 small variables."""
    parts = [v1.get_variable(f"v{number}", [16], initializer=v1.ones_initializer()) for number in range(200)]
    return tf.add_n([tf.reduce_sum(part * part) for part in parts]), {}


def sparse():
    """Rows of a table of 100,000 embeddings."""
    ids = v1.placeholder(tf.int64, [None])
    table = v1.get_variable("table", [100_000, 32])
    return tf.reduce_mean(tf.nn.embedding_lookup(table, ids) ** 2), {ids: np.random.randint(100_000, size=256)}


MODELS = {"mlp": mlp, "variables": variables, "sparse": sparse}


def main():
    model, job, task, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
    cluster = tf.train.ClusterSpec(jobs)
    server = tf.distribute.Server(cluster, job_name=job, task_index=task)
    if job == "ps":
        server.join()
    own = f"/job:worker/task:{task}"
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=own)):
        step = v1.train.get_or_create_global_step()
        loss, feeds = MODELS[model]()
        train = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
        initialize, uninitialized = v1.global_variables_initializer(), v1.report_uninitialized_variables()
        nothing = tf.no_op()
    config = v1.ConfigProto(device_filters=["/job:ps", own])
    with v1.Session(server.target, config=config) as session:
        if task == 0:
            session.run(initialize)
        while session.run(uninitialized).size:
            time.sleep(0.05)
        session.run(train, feeds)
        session.run(nothing)
        print("ready", flush=True)
        for line in sys.stdin:
            call = (nothing, {}) if line.strip() == "nothing" else (train, feeds)
            steps, began = 0, time.perf_counter()
            while time.perf_counter() - began < SECONDS:
                session.run(*call)
                steps += 1
            print(steps / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()
