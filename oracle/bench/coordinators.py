"""The ratio suite of coordinators: a stock `ClusterCoordinator` on stock tasks, on our parameter server with stock workers,
and on our tasks."""

import functools
import os
import pathlib
import time

import clusters
import tasks
from clusters import Workload
from coordinator import program
from tasks import OURS, STOCK

CLUSTERS = {
    "stock": {"ps": [STOCK], "worker": [STOCK] * 2},
    "mixed": {"ps": [OURS], "worker": [STOCK] * 2},
    "ours": {"ps": [OURS], "worker": [OURS] * 2},
}

LAUNCHED = "coordinator: tasks launched, to first result"

# Functions that are scheduled before the coordinator waits for them.
BATCH = 100


def _connect(cluster, workers):
    """A strategy on the first workers of a cluster."""
    return program.connect(cluster, workers=workers)


def _nothing(_strategy):
    import tensorflow as tf

    @tf.function
    def step():
        tf.no_op()

    return step, ()


def _perceptron(strategy):
    import tensorflow as tf

    with strategy.scope():
        shapes = [[64, 32], [32], [32, 10], [10]]
        variables = [tf.Variable(tf.fill(shape, 0.01)) for shape in shapes]

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            w1, b1, w2, b2 = variables
            logits = tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.01 * gradient)
        return loss

    return step, (tf.fill([16, 64], 0.5), tf.range(16) % 10)


def _many_variables(strategy):
    import tensorflow as tf

    with strategy.scope():
        variables = [tf.Variable(tf.zeros([16])) for _ in range(50)]

    @tf.function
    def step(x):
        for variable in variables:
            variable.assign_add(x)

    return step, (tf.ones([16]),)


def _open(build, cluster, workers):
    """Runs batches of functions, one after the other."""
    strategy, coordinator = _connect(cluster, workers)
    step, arguments = build(strategy)

    def batch():
        for _ in range(BATCH):
            coordinator.schedule(step, arguments)
        coordinator.join()

    batch()
    return batch


def _for_a_second(batch):
    """The number of functions, and the seconds that they took."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() < start + 1.0:
        batch()
        count += BATCH
    return count, time.perf_counter() - start


def _scheduled(build, workers):
    """Functions per second."""

    def open_on(cluster, _):
        batch = _open(build, cluster, workers)

        def sample():
            count, seconds = _for_a_second(batch)
            return count / seconds

        return sample

    return open_on


def _processor_time(build, of_client):
    """Microseconds of processor time that a function takes, of the client or of the tasks, which no other program's load
    changes."""

    def open_on(cluster, _):
        batch = _open(build, cluster, 1)
        clock = time.process_time if of_client else lambda: sum(_used(task.pid) for task in cluster.tasks)

        def sample():
            start = clock()
            count, _ = _for_a_second(batch)
            return (clock() - start) / count * 1e6

        return sample

    return open_on


def _used(pid):
    """Seconds of processor time that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _median(call, count=200):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[count // 2]


def _joined(cluster, _):
    """Microseconds of one function, from `schedule` to the end of `join`."""
    strategy, coordinator = _connect(cluster, 1)
    step, arguments = _nothing(strategy)

    def one():
        coordinator.schedule(step, arguments)
        coordinator.join()

    return lambda: _median(one) * 1e6


def _round_trip(cluster, _):
    """Microseconds of an operation on a worker, with its result."""
    import tensorflow as tf

    _connect(cluster, 1)
    with tf.device("/job:worker/task:0"):
        x = tf.constant(1.0)

        def one():
            with tf.device("/job:worker/task:0"):
                (x + x).numpy()

        return lambda: _median(one) * 1e6


def _begin(cluster):
    """A coordinator from its first line to its first result: a model whose graph takes no time to build."""
    import tensorflow as tf

    start = time.perf_counter()
    strategy, coordinator = _connect(cluster, 2)
    with strategy.scope():
        counter = tf.Variable(0)
    value = coordinator.schedule(tf.function(lambda: counter.assign_add(1)))
    coordinator.join()
    value.fetch()
    print(repr(time.perf_counter() - start), flush=True)


def _beginning(cluster, _):
    """Milliseconds of a program from its strategy to its first result, on tasks that are there."""

    def sample():
        client = tasks.Client(_begin, cluster)
        if not client.wait_for(r"\d", clusters.SECONDS):
            raise RuntimeError(client.errors())
        seconds = float(client.lines()[0])
        client.kill()
        return seconds * 1e3

    return sample


def launched(binary, layouts, rounds):
    """Tasks from nothing, and a coordinator to its first result. Its process has imported TensorFlow."""
    samples = {name: [] for name in layouts}
    for _ in range(rounds):
        for name, layout in layouts.items():
            cluster = clusters.Fresh(layout, binary)
            start = time.perf_counter()
            with cluster:
                client = tasks.Client(_begin, cluster)
                if not client.wait_for(r"\d", clusters.SECONDS):
                    raise RuntimeError(client.errors())
                samples[name].append(time.perf_counter() - start)
                client.kill()
    return clusters.Row(LAUNCHED, "s", samples, False, {"ours": 2.0, "mixed": None})


def _resident(cluster, _):
    """Megabytes of a worker that has nothing to do, of a coordinator that has used it."""
    strategy, coordinator = _connect(cluster, 2)
    step, arguments = _perceptron(strategy)
    for _ in range(10):
        coordinator.schedule(step, arguments)
    coordinator.join()
    return lambda: cluster.task("worker", 0).resident() / 1e6


def all_workloads():
    """Every row."""
    works = [
        ("nothing", _nothing, 2.5),
        ("a small perceptron", _perceptron, 2.5),
        ("50 variables", _many_variables, 4.0),
    ]
    for workers in (1, 2):
        for name, build, bar in works:
            yield Workload(
                f"coordinator: functions of {name}, workers: {workers}",
                "functions/s",
                _scheduled(build, workers),
                least_ours=bar,
                least_mixed=None,
            )
    lower = {"rate": False, "least_mixed": None}
    for name, build, _ in works:
        title = f"coordinator: processor time of the tasks, functions of {name}"
        yield Workload(title, "µs", _processor_time(build, False), **lower)
    title = "coordinator: processor time of the client, functions of nothing"
    yield Workload(title, "µs", _processor_time(_nothing, True), **lower)
    yield Workload("coordinator: schedule and join", "µs", _joined, **lower)
    yield Workload("coordinator: an operation on a worker and its result", "µs", _round_trip, least_ours=1.5, **lower)
    yield Workload("coordinator: strategy to first result", "ms", _beginning, least_ours=2.0, **lower)
    yield Workload("coordinator: resident memory of a worker, idle", "MB", _resident, **lower)


def rows(binary, wanted, quick):
    """The lines of the table, one after the other."""
    chosen = [workload for workload in all_workloads() if wanted.search(workload.name)]
    if not chosen and not wanted.search(LAUNCHED):
        return
    tasks.preload()
    layouts = {
        name: {job: [STOCK] * len(kinds) if binary == STOCK else kinds for job, kinds in layout.items()}
        for name, layout in CLUSTERS.items()
    }
    if wanted.search(LAUNCHED):
        yield launched(binary, layouts, 2 if quick else 4)
    # A cluster for each workload: what one left behind must not weigh on the next.
    for workload in chosen:
        running = {name: tasks.Cluster(layout, binary) for name, layout in layouts.items()}
        try:
            for cluster in running.values():
                cluster.start()
            starts = {name: functools.partial(clusters.Sampler, workload, cluster) for name, cluster in running.items()}
            yield clusters.measure(workload, starts, 3 if quick else workload.rounds)
        finally:
            for cluster in running.values():
                cluster.stop()
