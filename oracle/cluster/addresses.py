"""Where tasks are: numbers with gaps, tasks that know only part of their cluster, files, addresses to listen on."""

import socket

import tasks
from report import show, v1

import tensorflow as tf

LAYOUTS = ("stock", "ours", "our-ps", "our-workers")


def orchestrate(layout, binary):
    ps, worker = layout["ps"][0], layout["worker"][0]
    for scenario in [gaps, parts, only_itself, listening, foreign_name]:
        print(f"{scenario.__name__.replace('_', ' ')}:", flush=True)
        scenario(ps, worker, binary)


def half_by_file(cluster):
    """Half of our tasks read their cluster from a file."""
    for task in cluster.tasks[::2]:
        task.by_file = True
    return cluster


def report(*arguments):
    print(*(f"  {line}" for line in tasks.Client(*arguments).finish(90)), sep="\n", flush=True)


def use(target, places, writes=True):
    """A variable at the first place is used at the others."""
    with tf.Graph().as_default() as graph:
        with tf.device(places[0]):
            v = v1.get_variable("v", initializer=tf.constant([1.0, 2.0]) * 2.0, use_resource=True)
        total = v.read_value()
        for place in places[1:]:
            with tf.device(place):
                total = total * 2.0
        with v1.Session(target, graph=graph, config=v1.ConfigProto(operation_timeout_in_ms=60_000)) as sess:
            sess.run(v.initializer)
            show("read", sess.run(total))
            if writes:
                show("written", sess.run([v1.assign_add(v, [1.0, 1.0]), total])[0])
            show("devices", sorted(each.name for each in sess.list_devices()))


def gaps(ps, worker, binary):
    with half_by_file(tasks.Cluster({"ps": {3: ps, 11: ps}, "worker": {1: worker, 7: worker}}, binary)) as cluster:
        for index in [1, 7]:
            report(
                use,
                cluster.target("worker", index),
                ["/job:ps/task:3", "/job:ps/task:11", "/job:worker/task:7", "/job:worker/task:1"],
            )


def parts(ps, worker, binary):
    """A worker knows the parameter servers and itself."""
    cluster = tasks.Cluster({"ps": [ps, ps], "worker": [worker, worker]}, binary)
    for index in range(2):
        cluster.task("worker", index).knows = {
            "ps": cluster.spec["ps"],
            "worker": {index: cluster.spec["worker"][index]},
        }
    with half_by_file(cluster):
        for index in range(2):
            report(
                use, cluster.target("worker", index), ["/job:ps/task:0", "/job:ps/task:1", f"/job:worker/task:{index}"]
            )


def only_itself(ps, worker, binary):
    """A parameter server that knows nobody else can still be asked."""
    cluster = tasks.Cluster({"ps": [ps], "worker": [worker]}, binary)
    cluster.task("ps", 0).knows = {"ps": cluster.spec["ps"]}
    with half_by_file(cluster):
        report(use, cluster.target(), ["/job:ps/task:0", "/job:worker/task:0"], False)


def reached(host, port):
    with socket.socket() as each:
        return each.connect_ex((host, port)) == 0


def listening(ps, _, binary):
    """A Ferroflow server listens where its entry says, or where it is told to; stock's listen everywhere."""
    with tasks.Cluster({"ps": [ps, ps]}, binary, hosts={("ps", 0): "127.0.0.1", ("ps", 1): "127.0.0.1"}) as cluster:
        for index in range(2):
            task = cluster.task("ps", index)
            port = int(task.target.rsplit(":", 1)[1])
            if ps == tasks.OURS:
                task.kill()
                task.arguments = [["--bind", "127.0.0.2"], ["--bind", "0.0.0.0"]][index]
                alone = not reached("127.0.0.2", port)
                task.start()
                task.wait()
                alone &= reached("127.0.0.1", port) == (index == 1)
            else:
                alone = True
            show(f"  told where, {index}", [reached("127.0.0.2", port), alone])


def foreign_name(_, worker, binary):
    """The entry of a task names another machine, as it does behind a forwarded port: it listens everywhere and says so."""
    for name in ["no-such-host.invalid", "203.0.113.7"]:
        with tasks.Cluster({"worker": [worker]}, binary, hosts={("worker", 0): name}) as cluster:
            task = cluster.task("worker", 0)
            port = task.target.rsplit(":", 1)[1]
            report(use, f"grpc://127.0.0.1:{port}", ["/job:worker/task:0", "/job:worker/task:0"])
            show("  a word about it", worker == tasks.STOCK or "listening on all interfaces" in task.tail(50))
