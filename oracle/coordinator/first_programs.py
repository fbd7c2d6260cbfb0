"""First programs: the coordinator is the chief of the cluster, or no task of it; tasks are told of it by flags or by a file."""

import tasks
from coordinator import program
from report import show, show_failure

import tensorflow as tf

WAYS = ["chief", "outside", "configured"]


def orchestrate(layout, binary):
    for number, way in enumerate(WAYS):
        kinds = {"ps": layout["ps"][:1], "worker": layout["worker"][:2]}
        cluster = tasks.Cluster(kinds, binary)
        (port,) = tasks.free_ports(1)
        spec = {**cluster.spec, "chief": [f"localhost:{port}"]} if way != "outside" else cluster.spec
        for task in cluster.tasks:
            # One file for each task, with all of them and the chief.
            task.knows, task.by_file = spec, number % 2 == 0
        with cluster:
            # The same program twice: what the first has left behind is not in the way of the second.
            for _ in range(2):
                for line in tasks.Client(run, spec, way).finish(program.SECONDS):
                    print(f"{way}: {line}", flush=True)


def resolver(spec, way):
    """The cluster as programs describe it."""
    if way == "outside":
        return tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(spec), rpc_layer="grpc")
    if way == "configured":
        config = {"cluster": spec, "task": {"type": "chief", "index": 0}}
        tasks.os.environ["TF_CONFIG"] = tasks.json.dumps(config)
        return tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(spec), rpc_layer="grpc", task_type="chief", task_id=0
    )


def run(spec, way):
    tf.compat.v1.enable_eager_execution()
    strategy = tf.distribute.ParameterServerStrategy(resolver(spec, way))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        counter = tf.Variable(0)

    @tf.function
    def add(n):
        return counter.assign_add(n)

    for n in range(10):
        coordinator.schedule(add, (n,))
    coordinator.join()
    show("counted", counter.numpy())
    show("where", counter.device)
    # Another coordinator is the same one.
    show("one coordinator", tf.distribute.coordinator.ClusterCoordinator(strategy) is coordinator)
    with tf.device("/job:worker/task:1"):
        show("eager on a worker", (tf.constant(1.0) + 1.0).device)
    with tf.device("/job:ps/task:0"):
        show("eager on a parameter server", (tf.constant(1.0) + 1.0).numpy())
    # Another strategy connects anew.
    second = tf.distribute.ParameterServerStrategy(resolver(spec, way))
    with second.scope():
        other = tf.Variable([1.0, 2.0])
    show("of a second strategy", other.numpy())
    show_failure("of the first", counter.numpy)
