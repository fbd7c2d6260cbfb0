"""Coordinators as clients of a cluster: `tf.distribute.ParameterServerStrategy` in a process that `tasks.Client` forked.

Scenarios of this folder are run by `oracle/cluster/run.py`, as `coordinator.NAME`. Each starts a cluster of its own, because
a coordinator that ends leaves its context to expire.
"""

import tasks
from report import show

import numpy as np
import tensorflow as tf

# A program takes seconds; one that takes longer hangs.
SECONDS = 120


def connect(cluster, partitioner=None, workers=None):
    """The strategy and the coordinator of a cluster, or of its first workers, whose chief is this process."""
    # The process that was forked had it off, for sessions.
    tf.compat.v1.enable_eager_execution()
    (port,) = tasks.free_ports(1)
    chosen = {**cluster.spec, "worker": cluster.spec["worker"][:workers]}
    spec = tf.train.ClusterSpec({**chosen, "chief": [f"localhost:{port}"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, rpc_layer="grpc", task_type="chief", task_id=0
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    return strategy, tf.distribute.coordinator.ClusterCoordinator(strategy)


def orchestrate(program, layout, binary, ps=2, workers=1):
    """Prints what `program(cluster)` prints in a process of its own, on the first tasks of a layout.

    With one worker, closures run one after the other, and numbers do not depend on which worker was faster.
    """
    kinds = {"ps": layout["ps"][:ps], "worker": layout["worker"][:workers]}
    with tasks.Cluster(kinds, binary) as cluster:
        client = tasks.Client(program, cluster)
        for line in client.finish(SECONDS):
            print(line, flush=True)
        if client.code != 0:
            print(client.errors(30), cluster.logs(), file=tasks.sys.stderr, flush=True)


def show_close(label, values):
    """Prints numbers whose last bits may depend on the order of sums."""
    show("~" + label, [np.ravel(value).astype(float).tolist() for value in values])
