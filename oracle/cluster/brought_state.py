"""Who shares the variables of a task: sessions that bring a cluster definition, with every way to ask for it, and others."""

import itertools

from report import show, show_failure, v1

import tensorflow as tf

# By name: fields of the configuration, and whether the session brings its own cluster and asks to share what it finds.
KINDS = {
    "plain": (False, False, {}),
    "isolated": (False, False, {"isolate_session_state": True}),
    "brought": (True, False, {}),
    "brought, sharing": (True, True, {}),
    "brought, sharing, isolated": (True, True, {"isolate_session_state": True}),
    "sharing, isolated": (False, True, {"isolate_session_state": True}),
}

# What a session that brings a cluster calls the jobs there.
ALL, MASTER = {"ps": "store", "worker": "trainer"}, {"ps": "ps", "worker": "trainer"}


def run(cluster):
    refused(cluster)
    for first, second in itertools.product(KINDS, KINDS):
        pair(cluster, ALL, first, second)
    for first, second in itertools.permutations(["plain", "brought", "brought, sharing"], 2):
        pair(cluster, MASTER, first, second)
    containers(cluster)
    resets(cluster)


def refused(cluster):
    """The master's task under the name that it was started with."""
    graph, write, _ = graph_of("brought", MASTER)
    config = config_of(cluster, "brought", {"ps": "ps", "worker": "worker"})
    show_failure(
        "the master under its own name", lambda: v1.Session(cluster.target(), graph=graph, config=config).run(write)
    )


def config_of(cluster, kind, names):
    brought, sharing, fields = KINDS[kind]
    config = v1.ConfigProto(**fields)
    if brought:
        for name, addresses in cluster.spec.items():
            job = config.cluster_def.job.add(name=names[name])
            for index, address in enumerate(addresses):
                job.tasks[index] = address
    config.experimental.share_session_state_in_clusterspec_propagation = sharing
    return config


def graph_of(kind, names, container=""):
    """A variable of each kind on two tasks, another on the master's, and a queue."""
    job = names["ps"] if KINDS[kind][0] else "ps"
    graph = tf.Graph()
    with graph.as_default(), graph.container(container):
        with tf.device(f"/job:{job}/task:0"):
            r = v1.get_variable("ref", [], initializer=v1.zeros_initializer(), use_resource=False)
            queue = tf.queue.FIFOQueue(10, [tf.float32], shapes=[[]], shared_name="queue")
        with tf.device(f"/job:{job}/task:1"):
            v = v1.get_variable("resource", [], initializer=v1.zeros_initializer(), use_resource=True)
        own = v1.get_variable("own", [], initializer=v1.zeros_initializer(), use_resource=True)
        write = [v1.assign(r, 5.0), v1.assign(v, 6.0), v1.assign(own, 7.0), queue.enqueue(8.0)]
        read = [
            v1.is_variable_initialized(r),
            tf.raw_ops.VarIsInitializedOp(resource=v.handle),
            tf.raw_ops.VarIsInitializedOp(resource=own.handle),
            queue.size(),
        ]
    return graph, write, read


def pair(cluster, names, first, second):
    """The state that a second session sees while the first one is open, and after that."""
    v1.Session.reset(cluster.target())
    graph, write, _ = graph_of(first, names)
    writer = v1.Session(cluster.target(), graph=graph, config=config_of(cluster, first, names))
    writer.run(write)
    graph, _, read = graph_of(second, names)
    with v1.Session(cluster.target(), graph=graph, config=config_of(cluster, second, names)) as reader:
        beside = reader.run(read)
        writer.close()
        show(f"{names['ps']}: {first} -> {second}", [beside, reader.run(read)])
    with v1.Session(cluster.target(), graph=graph, config=config_of(cluster, second, names)) as reader:
        show("  a later one", reader.run(read))


def containers(cluster):
    """Containers of sessions that share are those of the tasks."""
    for container in ["", "box"]:
        v1.Session.reset(cluster.target(), ["", "box", "store", "ps", "worker", "trainer", "localhost"])
        graph, write, _ = graph_of("brought, sharing", ALL, container)
        with v1.Session(cluster.target(), graph=graph, config=config_of(cluster, "brought, sharing", ALL)) as writer:
            writer.run(write)
        for other in ["", "box"]:
            graph, _, read = graph_of("plain", ALL, other)
            with v1.Session(cluster.target(), graph=graph) as reader:
                show(f"container '{container}' seen in '{other}'", reader.run(read))


def resets(cluster):
    """A reset empties what is shared, also in clusters that a session brought, and not what a session has for itself."""
    for kind in ["brought", "brought, sharing"]:
        graph, write, read = graph_of(kind, ALL)
        owner = v1.Session(cluster.target("worker", 1), graph=graph, config=config_of(cluster, kind, ALL))
        owner.run(write)
        v1.Session.reset(cluster.target("worker", 0))
        show_failure(f"{kind} after a reset", lambda: owner.run(read))
        owner.close()
