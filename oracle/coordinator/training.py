"""The loop of the parameter-server tutorial: a Keras model, optimizer and metrics, steps scheduled and joined."""

import functools
import itertools

from coordinator import program
from report import show

import numpy as np
import tensorflow as tf

OPTIMIZERS = ["SGD", "Adam", "Ftrl"]


# With one worker, a mixture of parameter servers says no more than these.
LAYOUTS = ("stock", "ours", "our-ps", "our-workers")


def orchestrate(layout, binary):
    program.orchestrate(run, layout, binary)


def model():
    """Words and numbers to one of three kinds."""
    import keras

    words = keras.Input([4], dtype="int64")
    numbers = keras.Input([3])
    embedded = keras.layers.Embedding(10, 4, embeddings_initializer=keras.initializers.RandomNormal(seed=1))(words)
    pooled = keras.layers.GlobalAveragePooling1D()(embedded)
    joined = keras.layers.Concatenate()([pooled, numbers])
    dense = functools.partial(keras.layers.Dense, kernel_initializer=keras.initializers.GlorotUniform(seed=2))
    hidden = dense(8, activation="relu")(joined)
    return keras.Model([words, numbers], dense(3)(keras.layers.LayerNormalization()(hidden)))


def batches(count, seed=7):
    random = np.random.RandomState(seed)
    for _ in range(count):
        words = random.randint(0, 10, [8, 4])
        numbers = random.uniform(-1, 1, [8, 3]).astype(np.float32)
        yield words, numbers, (words.sum(1) + (numbers.sum(1) > 0)) % 3


def run(cluster):
    import keras

    # Keras 3 takes no variables in pieces.
    strategy, coordinator = program.connect(cluster)
    for name in OPTIMIZERS:
        with strategy.scope():
            trained = model()
            optimizer = getattr(keras.optimizers, name)(0.05)
            optimizer.build(trained.trainable_variables)
            accuracy, mean = keras.metrics.SparseCategoricalAccuracy(), keras.metrics.Mean()

        @tf.function
        def step(words, numbers, labels):
            def replica(words, numbers, labels):
                with tf.GradientTape() as tape:
                    logits = trained([words, numbers], training=True)
                    losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
                    loss = tf.nn.compute_average_loss(losses)
                gradients = tape.gradient(loss, trained.trainable_variables)
                optimizer.apply_gradients(zip(gradients, trained.trainable_variables))
                accuracy.update_state(labels, logits)
                mean.update_state(loss)
                return loss

            losses = strategy.run(replica, args=(words, numbers, labels))
            return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

        for epoch in range(2):
            values = [coordinator.schedule(step, args) for args in itertools.islice(batches(6), 6)]
            coordinator.join()
            program.show_close(f"{name}, epoch {epoch}", coordinator.fetch(values))
            program.show_close("metrics", [accuracy.result(), mean.result()])
            accuracy.reset_state()
            mean.reset_state()
        show("iterations", int(optimizer.iterations.numpy()))
        program.show_close("weights", [tf.norm(weight) for weight in trained.get_weights()])
