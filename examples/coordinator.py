"""Trains a classifier of handwritten digits with stock TensorFlow 2, as the guide to parameter-server training has it.

    ferroflow run --ps 2 --workers 3 --coordinator -- python examples/coordinator.py

This program runs once, as the chief: it schedules steps on the workers, which read and update variables on the parameter
servers. TF_CONFIG says where they are. Run again, it goes on from its last checkpoint in `model`. With `--evaluator` it runs
once more beside the cluster, and says how good each checkpoint is.
"""

import os
import pathlib
import sys
import time

# TensorFlow talks much while it starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
STEPS_PER_EPOCH = 100
DIGITS = pathlib.Path(__file__).resolve().parent / "data/digits.csv.gz"

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("ps", "worker"):
    # Started by hand, without Ferroflow: the other tasks run this program, too, and serve.
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    ).join()

# 64 pixels from 0 to 16 and the digit; the last fifth is held out.
rows = np.loadtxt(str(DIGITS), delimiter=",", dtype=np.float32)
images, labels = rows[:, :64] / 16, rows[:, 64].astype(np.int64)
held_out = len(rows) * 4 // 5

# The parameter servers write the variables that they have, so the path is absolute and on several machines a shared one.
MODEL = pathlib.Path("model").resolve()


def make_model():
    return keras.Sequential([keras.Input([64]), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])


if resolver.task_type == "evaluator":
    model, step = make_model(), tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(model=model, step=step)
    # Ends when the chief is done and no checkpoint comes any more.
    for path in tf.train.checkpoints_iterator(MODEL, min_interval_secs=0.1, timeout=60):
        checkpoint.restore(path).expect_partial()
        right = np.mean(tf.argmax(model(images[held_out:]), 1) == labels[held_out:])
        print(f"step {int(step)}: {100 * right:.1f} % of the held-out digits are right", flush=True)
    sys.exit(0)

keras.utils.set_random_seed(1)  # The same weights and the same order of digits in every training.
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

with strategy.scope():
    model = make_model()
    optimizer = keras.optimizers.Adam(0.002)
    optimizer.build(model.trainable_variables)
    # Counted by `assign_add`, which is one operation of a parameter server. Keras 3's metrics and the iterations of its
    # optimizers are read, then written: of two workers that do so at the same time, one is lost.
    step, right, seen = (tf.Variable(0, dtype=tf.int64) for _ in range(3))

checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
manager = tf.train.CheckpointManager(checkpoint, MODEL, max_to_keep=3)
if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint)
    print(f"goes on from {manager.latest_checkpoint}, step {int(step)}", flush=True)


def dataset_fn():
    """The digits to train with, as every worker draws them for itself."""
    digits = tf.data.Dataset.from_tensor_slices((images[:held_out], labels[:held_out]))
    return digits.shuffle(held_out).repeat().batch(64).prefetch(2)


def count(labels, logits):
    right.assign_add(tf.math.count_nonzero(tf.equal(tf.argmax(logits, 1), labels)))
    seen.assign_add(tf.size(labels, tf.int64))


def counted():
    """The share of right answers since the last call, in percent."""
    share = 100 * int(right) / int(seen)
    right.assign(0)
    seen.assign(0)
    return share


@tf.function
def train(iterator):
    def replica(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        step.assign_add(1)
        count(labels, logits)
        return loss

    return strategy.reduce("SUM", strategy.run(replica, args=next(iterator)), axis=None)


@tf.function
def evaluate(images, labels):
    count(labels, model(images, training=False))


batches = iter(coordinator.create_per_worker_dataset(dataset_fn))
began = time.time()
for epoch in range(EPOCHS):
    for _ in range(STEPS_PER_EPOCH):
        # Queued for whichever worker is free; `join` waits for all and raises the error of one that failed.
        loss = coordinator.schedule(train, args=(batches,))
    coordinator.join()
    print(f"epoch {epoch + 1} of {EPOCHS}, last loss {loss.fetch():.3f}, {counted():.1f} % right", flush=True)
    manager.save()
print(f"{EPOCHS * STEPS_PER_EPOCH} steps in {time.time() - began:.1f} s", flush=True)

for part in np.array_split(np.arange(held_out, len(rows)), 4):
    coordinator.schedule(evaluate, args=(tf.constant(images[part]), tf.constant(labels[part])))
coordinator.join()
print(f"{counted():.1f} % of the held-out digits are right; saved {manager.latest_checkpoint}", flush=True)
