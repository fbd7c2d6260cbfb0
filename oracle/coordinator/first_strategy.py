"""The first parameter-server strategy, in sessions: every worker builds its graph and trains through its own server."""

import functools

import tasks
from coordinator import program
from report import show, v1

import numpy as np
import tensorflow as tf

STEPS = 6


def orchestrate(layout, binary):
    kinds = {"ps": layout["ps"][:2], "worker": layout["worker"][:2]}
    with tasks.Cluster(kinds, binary) as cluster:
        clients = [tasks.Client(train, cluster, index) for index in range(2)]
        for index, client in enumerate(clients):
            for line in client.finish(program.SECONDS):
                print(f"worker {index}: {line}", flush=True)
        for line in tasks.Client(train_alone, cluster).finish(program.SECONDS):
            print(line, flush=True)


def strategy_of(cluster, index):
    # A fork, whose parent has turned eager execution off.
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.spec), rpc_layer="grpc", task_type="worker", task_id=index
    )
    return v1.distribute.experimental.ParameterServerStrategy(resolver)


def build(strategy):
    random = np.random.RandomState(5)
    x = tf.constant(random.uniform(-1, 1, [16, 4]), tf.float32)
    y = tf.reduce_sum(x, 1, keepdims=True)
    with strategy.scope():
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", [4, 1], initializer=v1.zeros_initializer())
        b = v1.get_variable("b", [1], initializer=v1.zeros_initializer())
        optimizer = v1.train.AdagradOptimizer(0.5)

        def replica(x, y):
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
            with tf.control_dependencies([optimizer.minimize(loss, step)]):
                return tf.identity(loss)

        loss = strategy.reduce("SUM", strategy.extended.call_for_each_replica(replica, args=(x, y)), axis=None)
    return loss, step, [w, b]


def train(cluster, index):
    from tensorflow.python.training import monitored_session

    # By default a worker that finds the variables uninitialized sleeps for half a minute.
    monitored_session.sm.SessionManager = functools.partial(v1.train.SessionManager, recovery_wait_secs=0.1)
    strategy = strategy_of(cluster, index)
    loss, _, variables = build(strategy)
    show("where", [variable.device for variable in variables])
    show("chief", strategy.extended.should_checkpoint)
    with v1.train.MonitoredTrainingSession(
        cluster.target("worker", index),
        is_chief=index == 0,
        hooks=[v1.train.StopAtStepHook(last_step=40)],
        log_step_count_steps=None,
    ) as session:
        last = None
        while not session.should_stop():
            last = session.run(loss)
    show("learned", bool(last is None or last < 0.5))


def train_alone(cluster):
    """One worker: the numbers are those of stock."""
    v1.Session.reset(cluster.target("ps", 0))
    v1.Session.reset(cluster.target("ps", 1))
    loss, step, variables = build(strategy_of(cluster, 0))
    config = v1.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
    with v1.Session(cluster.target("worker", 0), config=config) as session:
        session.run(v1.global_variables_initializer())
        program.show_close("losses", [[session.run(loss)] for _ in range(STEPS)])
        program.show_close("weights", [session.run(variable) for variable in variables])
        show("steps", session.run(step))
