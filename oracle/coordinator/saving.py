"""Object checkpoints and SavedModels: a cluster writes them, a process of stock reads them, and back."""

import functools
import pathlib
import tempfile

import tasks
from coordinator import program
from report import show

import tensorflow as tf

# With one worker, a mixture of parameter servers says no more than these.
LAYOUTS = ("stock", "ours", "our-ps", "our-workers")


def orchestrate(layout, binary):
    with tempfile.TemporaryDirectory() as directory:
        program.orchestrate(functools.partial(save, directory), layout, binary)
        for line in tasks.Client(local, directory).finish(program.SECONDS):
            print(line, flush=True)
        # Pieces are of another size there, and the manager goes on with its numbers.
        program.orchestrate(functools.partial(restore, directory), layout, binary, ps=3)


class Model(tf.Module):
    """Variables in pieces and whole ones, as a model has them."""

    def __init__(self):
        super().__init__()
        self.table = tf.Variable(tf.reshape(tf.range(24.0), [12, 2]))
        self.bias = tf.Variable([0.5, -0.5])
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def __call__(self, ids):
        return tf.nn.embedding_lookup(self.table, ids) + self.bias


def build(cluster):
    strategy, coordinator = program.connect(
        cluster, tf.distribute.experimental.partitioners.FixedShardsPartitioner(len(cluster.spec["ps"]))
    )
    with strategy.scope():
        model = Model()
    return strategy, coordinator, model, tf.train.Checkpoint(model=model)


def train(coordinator, model, steps):
    @tf.function
    def step(ids):
        model.bias.assign_add(tf.reduce_mean(model(ids), 0))
        return model.steps.assign_add(1)

    for number in range(steps):
        coordinator.schedule(step, (tf.constant([number, 11 - number], tf.int64),))
    coordinator.join()


def values(model):
    return [tf.convert_to_tensor(each).numpy() for each in (model.table, model.bias, model.steps)]


def local(directory):
    """Another process, without a cluster: what it finds, changes and leaves."""
    tf.compat.v1.enable_eager_execution()
    model = Model()
    checkpoint = tf.train.Checkpoint(model=model)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=2)
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    show("local", values(model))
    loaded = tf.saved_model.load(f"{directory}/exported")
    show("loaded", loaded(tf.constant([1, 10], tf.int64)).numpy())
    show("served", loaded.signatures["serving_default"](tf.constant([3], tf.int64))["output_0"].numpy())
    model.table.assign(-model.table)
    show("kept", pathlib.Path(manager.save()).name)


def save(directory, cluster):
    _, coordinator, model, checkpoint = build(cluster)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=2)
    train(coordinator, model, 3)
    for _ in range(3):
        train(coordinator, model, 1)
        manager.save()
    show("saved", [pathlib.Path(path).name for path in manager.checkpoints])
    show("names", sorted(name for name, _ in tf.train.list_variables(manager.latest_checkpoint)))
    show("values", values(model))
    # Restored in place, into variables that have changed since.
    model.table.assign(tf.zeros([12, 2]))
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    show("restored", values(model))
    tf.saved_model.save(model, f"{directory}/exported")
    show("exported", sorted(name for name, _ in tf.train.list_variables(f"{directory}/exported/variables/variables")))


def restore(directory, cluster):
    _, coordinator, model, checkpoint = build(cluster)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=2)
    status = checkpoint.restore(manager.latest_checkpoint)
    status.assert_consumed()
    show("elsewhere", values(model))
    train(coordinator, model, 2)
    show("goes on", values(model))
    show("saved", pathlib.Path(manager.save()).name)
    # Restored before the variables are made.
    fresh = tf.train.Checkpoint()
    fresh.restore(manager.latest_checkpoint)
    with tf.distribute.get_strategy().scope():
        fresh.bias = tf.Variable([0.0, 0.0])
    show("others are untouched", fresh.bias.numpy())
