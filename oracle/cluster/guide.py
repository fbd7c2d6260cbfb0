"""A training program in the style of TensorFlow's guide to distributed training, on two parameter servers.

A stock worker has its server, and so its master, in the trainer's own process; a Ferroflow server is a process to connect to.
"""

import contextlib
import itertools
import pathlib
import tempfile

import tasks
from numbers_close import show_close
from report import show, v1

import numpy as np
import tensorflow as tf

LAST_STEP = 25
# More steps than anybody takes.
ENDLESS = 1_000_000


def orchestrate(layout, binary):
    for use_resource in [False, True]:
        alone(layout, binary, use_resource)
    two_workers(layout, binary)


@contextlib.contextmanager
def cluster_of(layout, binary, workers):
    """Two parameter servers and the workers that are not part of their trainers."""
    cluster = tasks.Cluster({"ps": layout["ps"][:2], "worker": layout["worker"][:workers]}, binary)
    inside = [task for task in cluster.tasks if task.job == "worker" and task.kind == tasks.STOCK]
    cluster.tasks = [task for task in cluster.tasks if task not in inside]
    with cluster, tempfile.TemporaryDirectory() as directory:
        yield cluster, [task.index for task in inside], directory


def model(index, use_resource, ps_tasks=2):
    """A perceptron with one hidden layer; its numbers are the same every time."""
    random = np.random.RandomState(7)
    with v1.device(v1.train.replica_device_setter(ps_tasks=ps_tasks, worker_device=f"/job:worker/task:{index}")):
        step = v1.train.get_or_create_global_step()
        x, y = v1.placeholder(tf.float32, [None, 8], name="x"), v1.placeholder(tf.int64, [None], name="y")

        def variable(name, *shape):
            value = random.uniform(-0.5, 0.5, shape).astype(np.float32)
            return v1.get_variable(name, initializer=value, use_resource=use_resource)

        hidden = tf.nn.relu(tf.matmul(x, variable("hidden_w", 8, 16)) + variable("hidden_b", 16))
        logits = tf.matmul(hidden, variable("out_w", 16, 4)) + variable("out_b", 4)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train = v1.train.AdagradOptimizer(0.1).minimize(loss, step)
    return x, y, step, loss, train


def batches(seed):
    random = np.random.RandomState(seed)
    while True:
        values = random.uniform(-1, 1, [32, 8]).astype(np.float32)
        yield values, np.argmax(values[:, :4], 1)


def own_target(cluster, index, inside):
    """The master of a trainer: in its own process, or its worker's."""
    if index in inside:
        return tf.distribute.Server(cluster.spec, job_name="worker", task_index=index).target
    return cluster.target("worker", index)


def trainer(cluster, index, inside, directory, use_resource, last_step, enough=lambda taken: False):
    """A user's trainer.py; `enough(steps taken here)` ends it too."""
    target = own_target(cluster, index, inside)
    with tf.Graph().as_default():
        x, y, step, loss, train = model(index, use_resource)
        losses, steps = [], []
        with v1.train.MonitoredTrainingSession(
            master=target,
            is_chief=index == 0,
            checkpoint_dir=directory,
            hooks=[v1.train.StopAtStepHook(last_step=last_step)],
            config=v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"]),
            max_wait_secs=60,
            log_step_count_steps=None,
            save_summaries_steps=None,
            save_summaries_secs=None,
        ) as session:
            print("in training", flush=True)
            source = batches(index)
            while not session.should_stop() and not enough(len(losses)):
                values, labels = next(source)
                now, at, _ = session.run([loss, step, train], {x: values, y: labels})
                losses.append(now)
                steps.append(at)
    return losses, steps


def show_training(*arguments):
    losses, _ = trainer(*arguments)
    show("steps", len(losses))
    show_close("losses", losses)


def contents(directory):
    latest = tf.train.latest_checkpoint(directory)
    reader = tf.train.load_checkpoint(latest)
    show("checkpoint", pathlib.Path(latest).name)
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    show("variables", sorted(values))
    show_close("values", values)


def alone(layout, binary, use_resource):
    """One worker trains, ends, and goes on from its checkpoint."""
    with cluster_of(layout, binary, 1) as (cluster, inside, directory):
        for last_step in [LAST_STEP, LAST_STEP + 10]:
            print(
                *tasks.Client(show_training, cluster, 0, inside, directory, use_resource, last_step).finish(90),
                sep="\n",
                flush=True,
            )
            print(*tasks.Client(contents, directory).finish(60), sep="\n", flush=True)


def show_bounds(*arguments):
    """Shows what holds for one of several workers: its losses say little, because the others change the variables as well."""
    losses, steps = trainer(*arguments)
    show("trained", [bool(np.isfinite(losses).all()), all(a <= b for a, b in itertools.pairwise(steps))])
    print("steps", len(losses), flush=True)


def two_workers(layout, binary):
    """Two workers train at the same time, without regard to each other."""
    with cluster_of(layout, binary, 2) as (cluster, inside, directory):
        end = pathlib.Path(directory) / "end"
        chief = tasks.Client(show_bounds, cluster, 0, inside, directory, True, ENDLESS, lambda _: end.exists())
        # A worker that finds the variables uninitialized sleeps for half a minute.
        chief.wait_for("in training", 60)
        other = tasks.Client(show_bounds, cluster, 1, inside, directory, True, ENDLESS, lambda taken: taken >= 100)
        steps = 0
        for name, client in [("other", other), ("chief", chief)]:
            *lines, count = client.finish(90)
            print(f"{name}: {lines}", flush=True)
            steps += int(count.split()[-1])
            end.touch()
        print(*tasks.Client(after_two, directory, steps).finish(60), sep="\n", flush=True)


def after_two(directory, steps):
    """The variables in the last checkpoint of both workers."""
    with tf.Graph().as_default(), v1.Session() as session:
        x, y, step, loss, _ = model(0, True, ps_tasks=0)
        values, labels = next(batches(2))
        session.run(v1.global_variables_initializer())
        before = session.run(loss, {x: values, y: labels})
        v1.train.Saver().restore(session, tf.train.latest_checkpoint(directory))
        show("no step was lost or counted twice", int(session.run(step)) == steps)
        show("the model has learned", bool(session.run(loss, {x: values, y: labels}) < before))
