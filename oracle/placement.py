"""Writes where stock places the nodes of small graphs: `testdata/placement/*.pbtxt`.

    python oracle/placement.py [case]...

Each file is a GraphDef as a client sends it to one task of a cluster of two ps and two workers. Its comments say which
task that is, whether placement is soft, and what stock answers: the device of every node, or an error.
"""

import ctypes
import os
import pathlib
import re
import sys
import tempfile

import environment
import stock
import workers

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import cluster_pb2, config_pb2, tensorflow_server_pb2

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "testdata"
v1 = tf.compat.v1
CASES = {}
TASKS = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]


def case(master=("worker", 0), soft=False):
    def add(build):
        CASES[build.__name__] = (build, master, soft)
        return build

    return add


@case()
def unconstrained():
    a = v1.constant(1.0, name="a")
    v1.add(a, a, name="b")
    v1.no_op(name="nothing")


@case(master=("ps", 1))
def unconstrained_elsewhere():
    a = v1.constant(1.0, name="a")
    v1.add(a, a, name="b")


@case()
def partial_names():
    for i, device in enumerate(
        [
            "/job:ps",
            "/job:ps/task:1",
            "/task:1",
            "/job:worker",
            "/cpu:0",
            "/job:worker/task:1/device:CPU:0",
            "/replica:0",
            "/device:CPU:*",
        ]
    ):
        with v1.device(device):
            x = v1.placeholder(tf.float32, [2], name=f"x{i}")
            v1.identity(x, name=f"y{i}")


@case()
def sources_follow_their_consumers():
    one = v1.constant(1.0, name="one")
    two = v1.constant(2.0, name="two")
    three = v1.constant(3.0, name="three")
    v1.constant(4.0, name="alone")
    with v1.device("/job:ps/task:1"):
        both = v1.add(one, two, name="both")
    v1.add(both, two, name="mixed")
    with v1.device("/job:ps/task:0"):
        v1.negative(three, name="negative")
    with v1.device("/job:worker/task:1"):
        v1.negative(v1.constant(5.0, name="here"), name="there")


@case()
def sources_of_control_edges():
    with v1.control_dependencies([v1.constant(1.0, name="first")]):
        second = v1.constant(2.0, name="second")
    with v1.device("/job:ps/task:0"), v1.control_dependencies([v1.constant(3.0, name="third")]):
        v1.identity(second, name="end")


@case()
def shapes_follow_their_input():
    with v1.device("/job:ps/task:1"):
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        y = v1.negative(x, name="y")
    tf.raw_ops.Shape(input=y, name="shape")
    tf.raw_ops.Size(input=y, name="size")
    tf.raw_ops.Rank(input=y, name="rank")
    tf.raw_ops.ShapeN(input=[y, y], name="shapes")
    tf.raw_ops.Shape(input=x, name="shape_of_source")
    with v1.device("/job:ps/task:0"):
        tf.raw_ops.Shape(input=y, name="elsewhere")


def ref_variable(name, shape=()):
    return tf.raw_ops.VariableV2(shape=shape, dtype=tf.float32, shared_name="", container="", name=name)


@case()
def references():
    with v1.device("/job:ps/task:1"):
        v = ref_variable("v")
    init = v1.constant(0.0, name="init")
    tf.raw_ops.Assign(ref=v, value=init, name="assign")
    v1.identity(v, name="read")
    with v1.device("/job:worker/task:1"):
        tf.raw_ops.AssignAdd(ref=v, value=v1.constant(1.0, name="one"), name="elsewhere")
    w = ref_variable("w")
    tf.raw_ops.Assign(ref=w, value=v1.constant(0.0, name="w_init"), name="w_assign")
    with v1.device("/job:ps/task:0"):
        u = ref_variable("u")
    pred = v1.placeholder(tf.bool, [], name="pred")
    _left, right = tf.raw_ops.RefSwitch(data=u, pred=pred, name="switch")
    tf.raw_ops.AssignSub(ref=right, value=v1.constant(1.0, name="u_one"), name="u_minus")


@case()
def references_to_unplaced_variables():
    v = ref_variable("v")
    with v1.device("/job:ps/task:1"):
        tf.raw_ops.Assign(ref=v, value=v1.constant(0.0, name="init"), name="assign")


@case()
def resources():
    handles = []
    for task in (0, 1):
        with v1.device(f"/job:ps/task:{task}"):
            handles.append(tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=f"v{task}", name=f"v{task}"))
    tf.raw_ops.AssignVariableOp(resource=handles[0], value=v1.constant(0.0, name="init"), name="assign")
    tf.raw_ops.ReadVariableOp(resource=handles[1], dtype=tf.float32, name="read")
    with v1.device("/job:worker/task:1"):
        tf.raw_ops.ReadVariableOp(resource=handles[0], dtype=tf.float32, name="elsewhere")
    passed = tf.raw_ops.Identity(input=handles[1], name="passed")
    tf.raw_ops.ReadVariableOp(resource=passed, dtype=tf.float32, name="read_passed")
    pred = v1.placeholder(tf.bool, [], name="pred")
    _left, right = tf.raw_ops.Switch(data=handles[0], pred=pred, name="switch")
    tf.raw_ops.ReadVariableOp(resource=right, dtype=tf.float32, name="read_switched")
    entered = tf.raw_ops.Enter(data=handles[1], frame_name="loop", is_constant=True, name="enter")
    tf.raw_ops.ReadVariableOp(resource=entered, dtype=tf.float32, name="read_entered")
    with v1.device("/job:ps/task:1"):
        queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], name="queue")
    tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.float32], name="dequeue")


@case()
def resources_that_conflict():
    with v1.device("/job:ps/task:0"):
        a = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="a", name="a")
    with v1.device("/job:ps/task:1"):
        b = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="b", name="b")
    pred = v1.placeholder(tf.bool, [], name="pred")
    _picked, _ = tf.raw_ops.Merge(
        inputs=[tf.raw_ops.Switch(data=a, pred=pred, name="sa")[0], tf.raw_ops.Switch(data=b, pred=pred, name="sb")[1]],
        name="picked",
    )


def colocated(name, with_names, device=""):
    with v1.device(device):
        op = v1.placeholder(tf.float32, [], name=name).op
        op._set_attr(
            "_class",
            tf.compat.v1.AttrValue(
                list=tf.compat.v1.AttrValue.ListValue(s=[b"loc:@" + n.encode() for n in with_names])
            ),
        )


@case()
def colocation():
    with v1.device("/job:ps/task:1"):
        v1.placeholder(tf.float32, [], name="a")
    colocated("b", ["a"])
    colocated("c", ["b"])
    colocated("d", ["group"])
    colocated("e", ["group", "c"])
    colocated("f", ["elsewhere"], "/job:worker")
    colocated("g", ["elsewhere"], "/task:1")
    colocated("h", ["h"], "/job:ps/task:0")


def conflicting_colocation():
    with v1.device("/job:ps/task:1"):
        v1.placeholder(tf.float32, [], name="a")
    colocated("b", ["a"], "/job:worker/task:0")


@case()
def colocation_that_conflicts():
    conflicting_colocation()


@case(soft=True)
def colocation_that_conflicts_softly():
    conflicting_colocation()


@case()
def colocation_of_tasks_that_do_not_exist():
    colocated("a", ["group"], "/job:ps")
    colocated("b", ["group"], "/task:7")


@case()
def unknown_job():
    with v1.device("/job:nobody"):
        v1.placeholder(tf.float32, [], name="a")


@case(soft=True)
def unknown_task_softly():
    with v1.device("/job:ps/task:9/device:CPU:0"):
        v1.placeholder(tf.float32, [], name="a")


@case()
def unknown_type():
    with v1.device("/job:ps/task:0/device:GPU:0"):
        v1.placeholder(tf.float32, [], name="a")


@case(soft=True)
def unknown_type_softly():
    with v1.device("/job:ps/task:1/device:GPU:0"):
        x = v1.placeholder(tf.float32, [], name="x")
        v = ref_variable("v")
        tf.raw_ops.Assign(ref=v, value=x, name="assign")
    with v1.device("/device:GPU:3"):
        v1.negative(x, name="default")
    with v1.device("/device:CPU:7"):
        v1.negative(x, name="number")


@case()
def training():
    with v1.device(v1.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:1")):
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", [3, 2], use_resource=False)
        b = v1.get_variable("b", [2], use_resource=False, initializer=v1.zeros_initializer())
        loss = v1.reduce_mean(v1.square(v1.matmul(x, w) + b))
        step = v1.train.get_or_create_global_step()
        v1.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
        v1.train.Saver(sharded=True)
    v1.global_variables_initializer()


@case()
def training_with_resources():
    with v1.device(v1.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")):
        ids = v1.placeholder(tf.int64, [None], name="ids")
        table = v1.get_variable("table", [10, 4], use_resource=True)
        w = v1.get_variable("w", [4, 2], use_resource=True)
        loss = v1.reduce_mean(v1.square(v1.matmul(v1.nn.embedding_lookup(table, ids), w)))
        v1.train.AdamOptimizer(0.1).minimize(loss, global_step=v1.train.get_or_create_global_step())
    v1.global_variables_initializer()


@case()
def a_loop():
    v1.disable_control_flow_v2()
    with v1.device("/job:ps/task:0"):
        step = v1.constant(2.0, name="step")

    def body(i, total):
        with v1.device("/job:ps/task:1"):
            doubled = v1.multiply(total, step, name="doubled")
        return i + 1, doubled

    v1.while_loop(lambda i, total: i < 3, body, [v1.constant(0), v1.constant(1.0)])


class Cluster:
    """Stock tasks in this process."""

    def __init__(self):
        import socket

        # They keep the ports for the servers, and do not listen.
        self._sockets = [socket.socket() for _ in TASKS]
        for s in self._sockets:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("localhost", 0))
        addresses = {task: f"localhost:{s.getsockname()[1]}" for task, s in zip(TASKS, self._sockets)}
        spec = cluster_pb2.ClusterDef()
        for job in sorted({job for job, _ in TASKS}):
            entry = spec.job.add(name=job)
            for (name, task), address in addresses.items():
                if name == job:
                    entry.tasks[task] = address
        self._servers = [
            tf.distribute.Server(
                tensorflow_server_pb2.ServerDef(cluster=spec, job_name=job, task_index=task, protocol="grpc")
            )
            for job, task in TASKS
        ]
        self._clients = {task: stock.Client(address) for task, address in addresses.items()}

    def place(self, graph, master, soft):
        """The lines that stock prints about the placement of a graph."""
        config = config_pb2.ConfigProto(
            isolate_session_state=True, allow_soft_placement=soft, log_device_placement=True
        )
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        client = self._clients[master]
        with Printed() as printed:
            handle = client.call("CreateSession", graph_def=graph, config=config).session_handle
        client.call("CloseSession", session_handle=handle)
        return printed.text.splitlines()


class Printed:
    """Captures what C code prints to standard output meanwhile."""

    def __enter__(self):
        libc = ctypes.CDLL(None)
        self._flush = lambda: libc.fflush(None)
        self._flush()
        self._file = tempfile.TemporaryFile("w+")
        self._saved = os.dup(1)
        os.dup2(self._file.fileno(), 1)
        return self

    def __exit__(self, *_):
        self._flush()
        os.dup2(self._saved, 1)
        os.close(self._saved)
        self._file.seek(0)
        self.text = self._file.read()


def without_hints(graph):
    """The graph without what has no influence on placement."""
    for node in graph.node:
        for name in [name for name in node.attr if name.startswith("_") and name != "_class"]:
            del node.attr[name]
    return graph


def case_text(cluster, name):
    build, master, soft = CASES[name]
    with tf.Graph().as_default() as graph:
        build()
    graph = without_hints(graph.as_graph_def())
    graph.library.Clear()
    lines = [
        f"# Placed by TensorFlow {stock.VERSION}; written by oracle/placement.py.",
        f"# master: /job:{master[0]}/replica:0/task:{master[1]}/device:CPU:0",
        f"# soft: {str(soft).lower()}",
    ]
    try:
        placed = {}
        for line in cluster.place(graph, master, soft):
            match = re.fullmatch(r"(\S+): \(\S+\): (\S+)", line)
            if match:
                placed[match[1]] = match[2]
        missing = [node.name for node in graph.node if node.name not in placed]
        assert not missing, f"{name}: stock says nothing of {missing}"
        lines += [f"# placed: {node.name} {placed[node.name]}" for node in graph.node]
    except stock.StockError as error:
        lines.append(f"# error: {error.code} {error.message!r}")
    return "\n".join(lines) + "\n" + text_format.MessageToString(graph)


def files(names=None):
    """The contents of the files by path below testdata/."""
    cluster = Cluster()
    return {f"placement/{name}.pbtxt": case_text(cluster, name) for name in names or CASES if workers.begin(name)}


if __name__ == "__main__":
    for path, text in files(sys.argv[1:]).items():
        (TESTDATA / path).parent.mkdir(parents=True, exist_ok=True)
        (TESTDATA / path).write_text(text)
        print(path)
