"""`Model.fit` and `evaluate` of Keras 2 with a `DatasetCreator`: a model with pieces of embeddings, callbacks, a backup."""

import importlib.util
import pathlib
import tempfile

from coordinator import program
from report import show

import numpy as np
import tensorflow as tf

# It takes longer than others, and has little to add about mixtures.
LAYOUTS = ("stock", "ours")


def orchestrate(layout, binary):
    if importlib.util.find_spec("tf_keras") is None:
        print("skipped: Keras 2 is not installed", flush=True)
        return
    program.orchestrate(run, layout, binary)


def rows(context):
    """Words and numbers, and a sum to learn."""
    random = np.random.RandomState(context.input_pipeline_id)
    words = random.randint(0, 12, [64, 3])
    numbers = random.uniform(-1, 1, [64, 2]).astype(np.float32)
    target = (words.sum(1, keepdims=True) / 12 + numbers.sum(1, keepdims=True)).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(({"words": words, "numbers": numbers}, target))
    return dataset.shuffle(64, seed=1).repeat().batch(16).prefetch(2)


def model():
    import tf_keras as keras

    start = keras.initializers.RandomNormal(seed=1)
    words, numbers = keras.Input([3], name="words", dtype="int64"), keras.Input([2], name="numbers")
    found = keras.layers.Embedding(12, 4, embeddings_initializer=start)(words)
    joined = keras.layers.Concatenate()([keras.layers.Flatten()(found), numbers])
    hidden = keras.layers.Dense(8, activation="tanh", kernel_initializer=start)(joined)
    normal = keras.layers.BatchNormalization()(hidden)
    return keras.Model([words, numbers], keras.layers.Dense(1, kernel_initializer=start)(normal))


def run(cluster):
    import tf_keras as keras

    strategy, _ = program.connect(cluster, tf.distribute.experimental.partitioners.FixedShardsPartitioner(2))
    with strategy.scope():
        trained = model()
        trained.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae", keras.metrics.RootMeanSquaredError()])
    creator = keras.utils.experimental.DatasetCreator(rows)
    with tempfile.TemporaryDirectory() as directory:
        kept = keras.callbacks.ModelCheckpoint(f"{directory}/kept-{{epoch}}", save_weights_only=True)
        backup = keras.callbacks.BackupAndRestore(f"{directory}/backup", delete_checkpoint=False)
        history = trained.fit(creator, epochs=3, steps_per_epoch=8, verbose=0, callbacks=[kept, backup])
        for name, values in sorted(history.history.items()):
            program.show_close(name, [values])
        program.show_close("evaluated", trained.evaluate(creator, steps=4, verbose=0))
        show("files", sorted({path.name.split(".")[0] for path in pathlib.Path(directory).iterdir()}))
        program.show_close("predicted", [local(f"{directory}/kept-3")])
        trained.save(f"{directory}/saved", save_format="tf")
        loaded = tf.saved_model.load(f"{directory}/saved")
        show("signatures", sorted(loaded.signatures))


def local(path):
    """The answer of the same model without a cluster, which takes the weights that the cluster has saved."""
    with tf.device("/job:chief/task:0"):
        alone = model()
        alone.load_weights(path).expect_partial()
        return alone({"words": tf.constant([[1, 2, 3]], tf.int64), "numbers": tf.constant([[0.5, -0.5]])})
