"""The program of the scenario `training`: `training_program.py WORKER WORKER PS`, the addresses of its tasks."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import environment
from report import show

import numpy as np
import tensorflow as tf

WORKER = "/job:worker/task:0"


def main(first, second, _):
    tf.config.experimental_connect_to_host([f"grpc://{first}", second], job_name="worker")
    show("devices", sorted(device.name for device in tf.config.list_logical_devices()))
    inputs = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(8, 3)
    targets = (inputs @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.25).astype(np.float32)
    plain_loop(inputs, targets)
    functions(inputs, targets)
    layers(inputs, targets)
    modules(inputs)
    host_and_back()


def close(values):
    return [round(float(value), 3) for value in values]


def plain_loop(inputs, targets):
    with tf.device(WORKER):
        w, b = tf.Variable(tf.zeros([3, 1])), tf.Variable([0.0])
        x, y = tf.constant(inputs), tf.constant(targets)
        losses = []
        for _ in range(15):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x @ w + b - y))
            for variable, gradient in zip([w, b], tape.gradient(loss, [w, b])):
                variable.assign_sub(0.3 * gradient)
            losses.append(loss)
    show("where", [w.device, losses[0].device])
    show("losses", close(losses))
    show("weights", close(w.numpy().ravel()))


def functions(inputs, targets):
    with tf.device(WORKER):
        w, m = tf.Variable(tf.ones([3, 1])), tf.Variable(tf.zeros([3, 1]))
    with tf.device("/job:worker/task:1"):
        steps = tf.Variable(0)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(tf.matmul(x, w) - y))
        gradient = tape.gradient(loss, w)
        m.assign(0.9 * m + gradient)
        w.assign_sub(0.1 * m)
        steps.assign_add(1)
        return loss

    @tf.function
    def many(x, y, n):
        losses = tf.TensorArray(tf.float32, n)
        for i in tf.range(n):
            losses = losses.write(i, step(x, y))
        return losses.stack()

    with tf.device(WORKER):
        show("steps", close([step(inputs, targets) for _ in range(5)]))
        show("a loop of them", close(many(inputs, targets, 5)))
    with tf.device("/job:worker/task:1"):
        show("from another task", close([step(tf.constant(inputs), tf.constant(targets))]))
    show("from here", close([step(inputs, targets)]))
    show("count", int(steps.numpy()))
    show("weights", close(w.numpy().ravel()))


def layers(inputs, targets):
    tf.keras.utils.set_random_seed(7)
    for optimizer in (
        tf.keras.optimizers.SGD(0.1, momentum=0.5),
        tf.keras.optimizers.Adam(0.05),
        tf.keras.optimizers.RMSprop(0.01),
    ):
        with tf.device(WORKER):
            model = tf.keras.Sequential(
                [
                    tf.keras.Input((3,)),
                    tf.keras.layers.Dense(4, "tanh", kernel_initializer="ones"),
                    tf.keras.layers.LayerNormalization(),
                    tf.keras.layers.Dense(1, kernel_initializer="ones"),
                ]
            )
            optimizer.build(model.trainable_variables)
            metric = tf.keras.metrics.MeanSquaredError()
            loss_fn = tf.keras.losses.MeanSquaredError()

            @tf.function
            def step(x, y, model=model, optimizer=optimizer, metric=metric, loss_fn=loss_fn):
                with tf.GradientTape() as tape:
                    predictions = model(x, training=True)
                    loss = loss_fn(y, predictions)
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables))
                metric.update_state(y, predictions)
                return loss

            losses = [step(inputs, targets) for _ in range(6)]
            show(type(optimizer).__name__, close(losses))
            show("metric", close([metric.result()]))
            with tf.GradientTape() as tape:
                loss = loss_fn(targets, model(inputs))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            show("one by one", close([loss, tf.reduce_sum(model(inputs))]))
        show("where", sorted({variable.value.device for variable in model.trainable_variables}))


def modules(inputs):
    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.reshape(tf.range(12.0), [3, 2, 1, 2]) / 12.0)
            self.table = tf.Variable(tf.reshape(tf.range(10.0), [5, 2]))

        @tf.function
        def __call__(self, image, ids):
            features = tf.nn.relu(tf.nn.conv2d(image, self.kernel, 1, "SAME"))
            rows = tf.nn.embedding_lookup(self.table, ids)
            return tf.reduce_sum(features, [1, 2]) @ tf.transpose(rows)

    with tf.device(WORKER):
        net = Net()
        image, ids = tf.reshape(tf.constant(inputs), [2, 4, 3, 1]), tf.constant([0, 3, 3])
        with tf.GradientTape() as tape:
            result = tf.reduce_sum(net(image, ids))
        gradients = tape.gradient(result, [net.kernel, net.table])
        show("module", close([result]))
        show("gradients", close([tf.reduce_sum(gradients[0]), tf.reduce_sum(tf.convert_to_tensor(gradients[1]))]))
        net.table.scatter_add(tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 2])))
        show("table", net.table.numpy())


def host_and_back():
    with tf.device(WORKER):
        a = tf.constant(np.arange(6, dtype=np.int64).reshape(2, 3))
    local = a.cpu()
    show("copied", [local.device, local.numpy(), a.numpy()])
    with tf.device("/job:worker/task:1"):
        b = tf.identity(a) * 2
    show("between", [b.device, (a + b).numpy()])
    show("python", [int(b[1, 2]), [int(value) for value in b[0]], bool(tf.reduce_all(b >= a))])
    with tf.device(WORKER):
        ragged = tf.ragged.constant([[1, 2], [3]])
        sparse = tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0]])
        show("ragged", tf.reduce_sum(ragged, axis=1).numpy())
        show("sparse", tf.sparse.to_dense(sparse).numpy())
        show("where", tf.where([True, False, True]).numpy())
        show("strings", tf.strings.split("a b c").numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
