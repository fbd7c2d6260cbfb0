"""Trains three small models on a parameter server and a worker, and prints every loss: a classic program of stock's.

    train.py JOB TASK PS_ADDRESS WORKER_ADDRESS

One model applies gradients as they come, one averages them (`SyncReplicasOptimizer`), and one reads its input from a
queue that a thread fills. All seeds are fixed.
"""

import json
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()

job, task, ps, worker = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
cluster = tf.train.ClusterSpec({"ps": [ps], "worker": [worker]})
server = tf.distribute.Server(cluster, job_name=job, task_index=task)
print("class", "Ferroflow" if getattr(type(server), "replaces_stock", False) else "stock", flush=True)
if job == "ps":
    server.join()
    sys.exit(0)

STEPS = 12
data = np.random.RandomState(3)
images = data.rand(256, 8).astype(np.float32)
labels = (images.sum(1) > 4).astype(np.float32)[:, None]


def model(image, label):
    """A classifier with one hidden layer, and its loss."""
    w1 = v1.get_variable("w1", [8, 16], initializer=v1.random_normal_initializer(seed=1))
    w2 = v1.get_variable("w2", [16, 1], initializer=v1.truncated_normal_initializer(seed=2))
    logits = tf.matmul(tf.tanh(tf.matmul(image, w1)), w2)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=logits))


def losses(kind):
    """Trains one model, and returns its losses."""
    device = v1.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")
    with tf.Graph().as_default(), v1.device(device):
        v1.set_random_seed(5)
        step = v1.train.get_or_create_global_step()
        image, label = v1.placeholder(tf.float32, [None, 8]), v1.placeholder(tf.float32, [None, 1])
        hooks = []
        if kind == "queue":
            queue = tf.queue.FIFOQueue(4, [tf.float32, tf.float32], [[32, 8], [32, 1]])
            enqueue = queue.enqueue([image, label])
            loss = model(*queue.dequeue())
        else:
            loss = model(image, label)
        optimizer = v1.train.AdamOptimizer(0.05)
        if kind == "sync":
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=1, total_num_replicas=1)
            hooks.append(optimizer.make_session_run_hook(True, num_tokens=1))
        train = optimizer.minimize(loss, global_step=step)
        seen = []
        with v1.train.MonitoredTrainingSession(server.target, hooks=hooks, stop_grace_period_secs=1) as session:
            for number in range(STEPS):
                batch = slice(number * 16, number * 16 + 32)
                feed = {image: images[batch], label: labels[batch]}
                if kind == "queue":
                    session.run(enqueue, feed)
                    feed = {}
                seen.append(float(session.run([loss, train], feed)[0]))
        return seen


for kind in ("async", "sync", "queue"):
    print(kind, json.dumps(losses(kind)), flush=True)

# The parameter server may serve another program after this one.
v1.Session.reset(server.target)
