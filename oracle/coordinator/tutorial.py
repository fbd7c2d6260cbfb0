"""The program of the official guide to parameter servers: words are looked up, an embedding in pieces learns whether they
please, metrics say how well, and what was learned is exported with the words."""

import importlib.util
import pathlib
import tempfile

from coordinator import program
from report import show

import numpy as np
import tensorflow as tf

# It takes longer than others, and has little to add about mixtures.
LAYOUTS = ("stock", "ours")

WORDS = ["avenger", "ironman", "batman", "hulk", "spiderman", "kingkong", "wonder_woman"]
EPOCHS, STEPS, BATCH = 3, 5, 10


def orchestrate(layout, binary):
    if importlib.util.find_spec("tf_keras") is None:
        print("skipped: Keras 2 is not installed", flush=True)
        return
    program.orchestrate(run, layout, binary)


def examples(number):
    """Three words, and whether the first of all is among them."""
    chosen = np.random.RandomState(number).randint(0, len(WORDS), [60, 3])
    features = [[WORDS[word] for word in row] for row in chosen]
    return features, ["yes" if WORDS[0] in row else "no" for row in features]


def run(cluster):
    import tf_keras as keras

    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=64, max_shards=2)
    strategy, coordinator = program.connect(cluster, partitioner)
    with strategy.scope():
        lookup = dict(num_oov_indices=0, mask_token=None)
        words = keras.layers.StringLookup(vocabulary=WORDS, **lookup)
        labels = keras.layers.StringLookup(vocabulary=["no", "yes"], **lookup)
        text = keras.Input([3], dtype="string", name="words")
        stage = keras.Model(text, words(text))
        label = keras.Input([1], dtype="string", name="label")
        label_stage = keras.Model(label, labels(label))

        numbers = keras.Input([3], dtype="int64", name="features")
        start = keras.initializers.RandomUniform(seed=3)
        embedding = keras.layers.Embedding(len(WORDS), 16, embeddings_initializer=start)
        mean = tf.reduce_mean(embedding(numbers), axis=1)
        likes = keras.layers.Dense(1, activation="sigmoid", kernel_initializer=start)(mean)
        model = keras.Model(numbers, likes)
        optimizer = keras.optimizers.legacy.RMSprop(0.1)
        accuracy = keras.metrics.BinaryAccuracy()
    pieces = model.trainable_weights[0].variables if hasattr(model.trainable_weights[0], "variables") else []
    show("pieces", [[piece.device, piece.shape.as_list()] for piece in pieces or model.trainable_weights])

    def dataset_fn(context=None):
        raw = tf.data.Dataset.from_tensor_slices(examples(7))
        looked_up = lambda x, y: (stage(x), tf.cast(label_stage(tf.expand_dims(y, -1)), tf.float32))
        return raw.shuffle(60, seed=5).repeat().batch(BATCH).map(looked_up).prefetch(2)

    @tf.function
    def per_worker_dataset_fn():
        return strategy.distribute_datasets_from_function(dataset_fn)

    @tf.function
    def step_fn(iterator):
        def replica_fn(batch, target):
            with tf.GradientTape() as tape:
                predicted = model(batch, training=True)
                loss = tf.nn.compute_average_loss(keras.losses.binary_crossentropy(target, predicted))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            accuracy.update_state(target, predicted)
            return loss

        batch, target = next(iterator)
        losses = strategy.run(replica_fn, args=(batch, target))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    per_worker_iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
    for epoch in range(EPOCHS):
        accuracy.reset_states()
        for _ in range(STEPS):
            final = coordinator.schedule(step_fn, args=(per_worker_iterator,))
        coordinator.join()
        program.show_close(f"epoch {epoch}", [final.fetch(), accuracy.result().numpy()])
    show("done", coordinator.done())
    evaluation = keras.metrics.BinaryAccuracy()
    for x, y in dataset_fn().take(3):
        evaluation.update_state(y, model(x))
    program.show_close("evaluated", [evaluation.result().numpy()])

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.string)])
    def serving(text):
        return model(stage(text))

    served = tf.Module()
    served.model, served.stage, served.serving = model, stage, serving
    with tempfile.TemporaryDirectory() as directory:
        tf.saved_model.save(served, directory, signatures={"serving_default": serving})
        show("exported", sorted(each.name for each in pathlib.Path(directory).iterdir()))
        loaded = tf.saved_model.load(directory).signatures["serving_default"]
        answers = loaded(tf.constant([WORDS[:3], WORDS[3:6]]))
        program.show_close("served", list(answers.values()))
