"""Sessions over several tasks: filters, cluster definitions that a client brings, containers, private state, resets."""

from report import session, show, show_failure, v1

import tensorflow as tf


def run(cluster):
    filters(cluster)
    brought(cluster)
    containers(cluster)
    private(cluster)
    resets(cluster)
    recovery(cluster)
    extending(cluster)
    unused(cluster)


def filters(cluster):
    def on(device):
        with tf.Graph().as_default() as graph, tf.device(device):
            return graph, v1.placeholder_with_default(1.0, []) + 1.0

    places = ["/job:ps/task:1", "/job:worker/task:1", "/job:worker/task:0"]
    for allowed in [
        ["/job:ps"],
        ["/job:ps/task:1"],
        ["/job:ps", "/job:worker/task:0"],
        ["/job:worker/task:1"],
        ["/job:ps/task:0", "/job:ps/task:1", "/job:worker"],
    ]:
        for place in places:
            graph, x = on(place)
            with session(cluster.target(), graph, device_filters=allowed) as sess:
                show_failure(f"{allowed}, {place}", lambda: sess.run(x))
        graph, x = on("")
        with session(cluster.target(), graph, device_filters=allowed) as sess:
            show("devices", sorted(each.name for each in sess.list_devices()))


def brought(cluster):
    """A cluster definition in the session's configuration."""
    config = v1.ConfigProto()
    jobs = {"trainer": {2: cluster.spec["worker"][0]}, "store": {0: cluster.spec["ps"][1], 3: cluster.spec["ps"][2]}}
    for name, members in jobs.items():
        job = config.cluster_def.job.add(name=name)
        for index, address in members.items():
            job.tasks[index] = address
    with tf.Graph().as_default() as graph:
        with tf.device("/job:store/task:3"):
            v = v1.get_variable("brought", initializer=[1.0, 2.0], use_resource=True)
        with tf.device("/job:store/task:0"):
            doubled = v * 2.0
        with v1.Session(cluster.target(), graph=graph, config=config) as sess:
            sess.run(v.initializer)
            show("a cluster of other names", sess.run([v, doubled]))
            show("devices", sorted(each.name for each in sess.list_devices()))
        with v1.Session(cluster.target(), graph=graph, config=config) as sess:
            show_failure("state after it", lambda: sess.run(doubled))
    config = v1.ConfigProto()
    config.cluster_def.job.add(name="elsewhere").tasks[0] = cluster.spec["ps"][0]
    with tf.Graph().as_default() as graph:
        tf.no_op(name="nothing")
        show_failure(
            "without the master", lambda: v1.Session(cluster.target(), graph=graph, config=config).run("nothing")
        )


def containers(cluster):
    def graph_with(container):
        graph = tf.Graph()
        with graph.as_default(), graph.container(container):
            with tf.device("/job:ps/task:0"):
                v = v1.get_variable("v", [], initializer=v1.zeros_initializer(), use_resource=True)
            with tf.device("/job:ps/task:1"):
                r = v1.get_variable("r", [], initializer=v1.zeros_initializer(), use_resource=False)
            add = [v1.assign_add(v, 5.0), v1.assign_add(r, 7.0)]
        return graph, [v.initializer, r.initializer], add, [v.value(), r.value()]

    graphs = {name: graph_with(name) for name in ["left", "right"]}
    for name, (graph, initialize, add, _read) in graphs.items():
        with session(cluster.target(), graph) as sess:
            sess.run(initialize)
            sess.run(add)
            if name == "left":
                sess.run(add)
    for name, (graph, _, _, read) in graphs.items():
        with session(cluster.target("worker", 1), graph) as sess:
            show(name, sess.run(read))
    v1.Session.reset(cluster.target(), ["left"])
    for name, (graph, _, _, read) in graphs.items():
        with session(cluster.target(), graph) as sess:
            show_failure(f"{name} after a reset of left", lambda: sess.run(read))


def private(cluster):
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:2"):
            v = v1.get_variable("private", [], initializer=v1.ones_initializer(), use_resource=True)
        with session(cluster.target(), graph, isolate_session_state=True) as first:
            first.run(v.initializer)
            first.run(v1.assign_add(v, 4.0))
            show("own state", first.run(v))
            with session(cluster.target(), graph) as second:
                show_failure("not seen outside", lambda: second.run(v))
            with session(cluster.target(), graph, isolate_session_state=True) as third:
                show_failure("nor by another of its kind", lambda: third.run(v))
            show("still there", first.run(v))
        with session(cluster.target(), graph, isolate_session_state=True) as fourth:
            show_failure("gone with its session", lambda: fourth.run(v))


def resets(cluster):
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            v = v1.get_variable("lost", [], initializer=v1.ones_initializer(), use_resource=False)
        with tf.device("/job:ps/task:1"):
            r = v1.get_variable("lost_resource", [], initializer=v1.ones_initializer(), use_resource=True)
        old = session(cluster.target(), graph)
        other = session(cluster.target("worker", 1), graph)
        old.run([v.initializer, r.initializer])
        show("seen elsewhere", other.run([v, r]))
        v1.Session.reset(cluster.target())
        show_failure("sessions of this master end", lambda: old.run(v))
        show_failure("those of others find nothing", lambda: other.run(r))
        with session(cluster.target(), graph) as new:
            show_failure("references are lost", lambda: new.run(v))
            show_failure("resources too", lambda: new.run(r))
            new.run([v.initializer, r.initializer])
            show("and made again", new.run([v, r]))
        other.close()


def recovery(cluster):
    """A monitored session goes on after its server has forgotten everything."""
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            step = v1.train.get_or_create_global_step()
        count = v1.assign_add(step, 1)
        scaffold = v1.train.Scaffold(init_op=v1.global_variables_initializer())
        creator = v1.train.ChiefSessionCreator(scaffold=scaffold, master=cluster.target())
        with v1.train.MonitoredSession(creator) as monitored:
            show("counted", [monitored.run(count) for _ in range(3)])
            v1.Session.reset(cluster.target())
            show("counted again", [monitored.run(count) for _ in range(2)])


def extending(cluster):
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            a = v1.placeholder_with_default(2.0, [])
        with session(cluster.target(), graph) as sess:
            results = [sess.run(a)]
            for index in range(3):
                with tf.device(f"/job:ps/task:{index}"):
                    a = a * 3.0
                results.append(sess.run(a))
            show("grown over tasks", results)
            with tf.device("/job:ps/task:7"):
                bad = a + 1.0
            show_failure("badly grown", lambda: sess.run(bad))


def unused(cluster):
    """Nodes of ops that a task may lack, here and there and in functions, and steps that do not need them."""
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            barrier = tf.raw_ops.Barrier(component_types=[tf.float32])
        size = tf.raw_ops.BarrierReadySize(handle=barrier)
        with tf.device("/job:ps/task:1"):
            x = v1.placeholder_with_default(3.0, [])
            tf.function(lambda value: tf.image.adjust_hue(value, 0.1))(tf.ones([1, 1, 3]) * x)
        doubled = x * 2.0
        behind = doubled + tf.cast(size, tf.float32)
        with session(cluster.target(), graph) as sess:
            show("beside ops that a task may lack", sess.run(doubled))
            show("fed in place of them", sess.run(behind, {size: 2}))
