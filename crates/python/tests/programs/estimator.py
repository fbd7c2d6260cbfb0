"""Trains with `tf.estimator`, of TensorFlow 1.15 or 2.15, as the task that TF_CONFIG names; stock 2.21 has none.

TF_CONFIG='{…}' estimator.py MODEL_DIRECTORY
"""

import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

images = np.random.RandomState(0).rand(512, 8).astype(np.float32)
labels = (images.sum(1) > 4).astype(np.int32)


def batches():
    """The input of every worker."""
    return v1.data.Dataset.from_tensor_slices(({"x": images}, labels)).repeat().batch(32)


def model(features, labels, mode):
    """A linear classifier."""
    w = v1.get_variable("w", [8, 2], initializer=v1.zeros_initializer())
    logits = tf.matmul(features["x"], w)
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    train = v1.train.AdagradOptimizer(0.5).minimize(loss, v1.train.get_global_step())
    right = v1.metrics.accuracy(labels, tf.argmax(logits, 1))
    return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops={"accuracy": right})


def main():
    v1.logging.set_verbosity(v1.logging.ERROR)
    server = v1.train.Server
    print("class", "Ferroflow" if getattr(server, "replaces_stock", False) else "stock", flush=True)
    config = v1.estimator.RunConfig(model_dir=sys.argv[1], save_checkpoints_steps=100)
    estimator = v1.estimator.Estimator(model, config=config)
    training = v1.estimator.TrainSpec(batches, max_steps=300)
    v1.estimator.train_and_evaluate(estimator, training, v1.estimator.EvalSpec(batches, steps=10, start_delay_secs=0))
    print("done", flush=True)


if __name__ == "__main__":
    main()
