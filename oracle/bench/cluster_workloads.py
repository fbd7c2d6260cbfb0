"""Workloads that the ratio suite measures on clusters."""

import threading
import time

from clusters import Workload

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def _config(index):
    """Only the parameter servers and the client's own worker, as training programs say."""
    return v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])


def _worker(index):
    return f"/job:worker/task:{index}"


def _seconds(call, least=0.4, repeats=3):
    """The median time of one call, of as many as fit into the time but at least a few."""
    times = []
    end = time.perf_counter() + least
    while time.perf_counter() < end or len(times) < repeats:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def per_second(call, seconds=1.0):
    start = time.perf_counter()
    count = 0
    while time.perf_counter() < start + seconds:
        call()
        count += 1
    return count / (time.perf_counter() - start)


def _session(cluster, index, graph):
    # Sessions share variables by name; every workload has its own container.
    return v1.Session(cluster.target("worker", index), graph=graph, config=_config(index))


def _perceptron(index, workers):
    """A small perceptron on one parameter server, trained without regard to other workers."""
    random = np.random.RandomState(3)
    graph = tf.Graph()
    with graph.as_default(), graph.container(f"perceptron_{workers}"):
        with v1.device(v1.train.replica_device_setter(ps_tasks=1, worker_device=_worker(index))):
            step = v1.train.get_or_create_global_step()
            x, y = v1.placeholder(tf.float32, [None, 64]), v1.placeholder(tf.int64, [None])

            def variable(name, *shape):
                return v1.get_variable(
                    name, initializer=random.uniform(-0.1, 0.1, shape).astype(np.float32), use_resource=True
                )

            hidden = tf.nn.relu(tf.matmul(x, variable("hidden_w", 64, 128)) + variable("hidden_b", 128))
            logits = tf.matmul(hidden, variable("out_w", 128, 10)) + variable("out_b", 10)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            train = v1.train.AdagradOptimizer(0.01).minimize(loss, step)
    feed = {x: random.uniform(-1, 1, [32, 64]).astype(np.float32), y: random.randint(0, 10, [32])}
    return graph, [loss, train], feed


def _training(workers):
    def open_on(cluster, index):
        graph, fetches, feed = _perceptron(index, workers)
        with graph.as_default():
            session = v1.train.MonitoredTrainingSession(
                cluster.target("worker", index), is_chief=index == 0, config=_config(index), log_step_count_steps=None
            )
            return lambda: per_second(lambda: session.run(fetches, feed))

    return open_on


def _dense(megabytes, servers, push):
    def open_on(cluster, index):
        graph = tf.Graph()
        size = megabytes * 250_000 // servers
        with graph.as_default(), graph.container(f"dense_{megabytes}_{servers}_{push}"):
            here, moves = [], []
            for ps in range(servers):
                with tf.device(f"/job:ps/task:{ps}"):
                    there = v1.get_variable(f"there_{ps}", initializer=tf.fill([size], 0.5), use_resource=True)
                with tf.device(_worker(index)):
                    if push:
                        here = v1.get_variable(f"here_{ps}", initializer=tf.fill([size], 1.5), use_resource=True)
                        moves.append(v1.assign(there, here.read_value()).op)
                    else:
                        moves.append(tf.slice(there.read_value(), [0], [1]))
            initialize = v1.global_variables_initializer()
        session = _session(cluster, index, graph)
        session.run(initialize)
        with graph.as_default():
            call = session.make_callable(moves)
        return lambda: megabytes / _seconds(call)

    return open_on


def _embedding(cluster, index, rows=1_000_000, columns=64, lookups=4096):
    graph = tf.Graph()
    with graph.as_default(), graph.container("embedding"):
        with v1.device(v1.train.replica_device_setter(ps_tasks=2, worker_device=_worker(index))):
            table = v1.get_variable(
                "table",
                [rows, columns],
                initializer=v1.zeros_initializer(),
                partitioner=v1.fixed_size_partitioner(2),
                use_resource=True,
            )
            ids = v1.placeholder(tf.int64, [lookups])
            found = v1.nn.embedding_lookup(table, ids, partition_strategy="div")
            loss = tf.reduce_mean(tf.square(found - 1.0))
            train = v1.train.AdagradOptimizer(0.1).minimize(loss)
        initialize = v1.global_variables_initializer()
    session = _session(cluster, index, graph)
    session.run(initialize)
    with graph.as_default():
        call = session.make_callable([train], [ids])
    random = np.random.RandomState(5)
    return lambda: 1 / _seconds(lambda: call(random.randint(0, rows, [lookups])))


def _many_variables(cluster, index, count=200):
    graph = tf.Graph()
    with graph.as_default(), graph.container("many"):
        with v1.device(v1.train.replica_device_setter(ps_tasks=2, worker_device=_worker(index))):
            variables = [
                v1.get_variable(f"v{i}", initializer=tf.fill([16], float(i)), use_resource=True) for i in range(count)
            ]
            loss = tf.add_n([tf.reduce_sum(tf.square(v)) for v in variables])
            train = v1.train.GradientDescentOptimizer(1e-6).minimize(loss)
        initialize = v1.global_variables_initializer()
    session = _session(cluster, index, graph)
    session.run(initialize)
    with graph.as_default():
        call = session.make_callable([train])
    return lambda: 1 / _seconds(call)


def _replicas(cluster, _, workers=2):
    """Two replicas in step, each in a thread of this client."""
    sessions, runs = [], []
    for index in range(workers):
        graph = tf.Graph()
        with graph.as_default(), graph.container("replicas"):
            with v1.device(v1.train.replica_device_setter(ps_tasks=2, worker_device=_worker(index))):
                step = v1.train.get_or_create_global_step()
                w = v1.get_variable("w", [64, 64], initializer=v1.zeros_initializer(), use_resource=True)
                b = v1.get_variable("b", [64], initializer=v1.zeros_initializer(), use_resource=True)
                optimizer = v1.train.SyncReplicasOptimizer(
                    v1.train.GradientDescentOptimizer(0.01), workers, total_num_replicas=workers
                )
                train = optimizer.minimize(tf.reduce_mean(tf.square(tf.matmul(tf.ones([8, 64]), w) + b - 1.0)), step)
            kind = v1.train.ChiefSessionCreator if index == 0 else v1.train.WorkerSessionCreator
            creator = kind(v1.train.Scaffold(), cluster.target("worker", index), config=_config(index))
            sessions.append(
                v1.train.MonitoredSession(
                    creator, [optimizer.make_session_run_hook(index == 0, num_tokens=0)], stop_grace_period_secs=1
                )
            )
            runs.append(lambda session=sessions[-1], train=train: session.run(train))

    def sample(steps=60):
        # A replica may take more steps than the other; only together they take an even number.
        left = iter(range(steps * workers))
        lock = threading.Lock()

        def work(run):
            while True:
                with lock:
                    if next(left, None) is None:
                        return
                run()

        start = time.perf_counter()
        threads = [threading.Thread(target=work, args=(run,)) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return steps / (time.perf_counter() - start)

    return sample


def _checkpoint(directory, restore, megabytes=100):
    def open_on(cluster, index):
        graph = tf.Graph()
        with graph.as_default(), graph.container("checkpoint"):
            with v1.device(v1.train.replica_device_setter(ps_tasks=2, worker_device=_worker(index))):
                for i in range(10):
                    v1.get_variable(f"v{i}", initializer=tf.fill([megabytes * 25_000], float(i)), use_resource=True)
                saver = v1.train.Saver(sharded=True, max_to_keep=1)
            initialize = v1.global_variables_initializer()
        session = _session(cluster, index, graph)
        session.run(initialize)
        prefix = str(directory / f"{cluster.directory.name}-model")
        path = saver.save(session, prefix, write_meta_graph=False)
        if restore:
            return lambda: megabytes / _seconds(lambda: saver.restore(session, path))
        return lambda: megabytes / _seconds(lambda: saver.save(session, prefix, write_meta_graph=False))

    return open_on


def first_step(cluster):
    """A whole first step: a session on new servers, initialization, one step of training."""
    graph, fetches, feed = _perceptron(0, 0)
    with graph.as_default():
        initialize = v1.global_variables_initializer()

    def step():
        with v1.Session(cluster.target(), graph=graph) as session:
            session.run(initialize)
            session.run(fetches, feed)

    return step


def all_workloads(directory):
    """The suite, in the order of the table."""
    for workers in (1, 2, 4):
        yield Workload(
            f"tiny perceptron, asynchronous, workers: {workers}", "steps/s", _training(workers), workers, least_ours=3
        )
    for servers in (1, 2):
        for megabytes in (1, 16, 100):
            for push in (False, True):
                way = "push" if push else "pull"
                yield Workload(
                    f"dense {way} of {megabytes} MB, servers: {servers}",
                    "MB/s",
                    _dense(megabytes, servers, push),
                    least_ours=2,
                )
    yield Workload("sparse step: 4,096 rows of 1M × 64", "steps/s", _embedding, least_ours=3)
    yield Workload("step that touches 200 small variables", "steps/s", _many_variables, least_ours=3)
    yield Workload("synchronous replicas, workers: 2", "steps/s", _replicas)
    yield Workload("checkpoint of 100 MB, saved", "MB/s", _checkpoint(directory, False))
    yield Workload("checkpoint of 100 MB, restored", "MB/s", _checkpoint(directory, True))
