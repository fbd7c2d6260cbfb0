"""Calls of a master to a worker: registered graphs, steps, tensors, and every way to get them wrong."""

import threading

from report import show
from wire import Caller, convert, message, named_tensor

import tensorflow as tf


def run(target):
    caller = Caller(target)
    status = caller("GetStatus", service="Worker")
    device = status.device_attributes[0]
    worker = Peer(caller, device.name, device.incarnation)
    show("devices", [(each.name, each.device_type, each.memory_limit) for each in status.device_attributes])
    sessions(worker)
    worker.call("CreateWorkerSession", session_handle="s")
    registration(worker)
    steps(worker)
    failures(worker)
    tensors(worker)
    repetitions(worker)
    partial_runs(worker)
    cancellations(worker)
    statistics(worker)
    show("deleted", str(worker.call("DeleteWorkerSession", session_handle="s")))
    show("run after that", worker.run("0000000000000001", 900))
    legacy(worker)


class Peer:
    """The worker service of one task, whose own facts do not show in what is printed."""

    def __init__(self, caller, device, incarnation):
        self.caller, self.device, self.incarnation = caller, device, incarnation
        self.graphs = 0

    def call(self, method, **fields):
        return self.clean(self.caller(method, service="Worker", **fields))

    def clean(self, answer):
        """A failed call's text without numbers that differ from run to run."""
        if not isinstance(answer, tuple):
            return answer
        code, text, payloads = answer
        return code, text.replace(str(self.incarnation), "INCARNATION"), payloads

    def register(self, graph, session="s", created=True):
        fields = dict(session_handle=session, create_worker_session_called=created, graph_def=graph)
        answer = self.call("RegisterGraph", **fields)
        return answer if isinstance(answer, tuple) else answer.graph_handle

    def run(self, handle, step, session="s", created=True, body=True, **fields):
        """Runs a graph; gives what it answers, or the code and text of its failure."""
        fields |= dict(session_handle=session, create_worker_session_called=created, graph_handle=handle)
        fields |= dict(step_id=step, store_errors_in_response_body=body)
        answer = self.call("RunGraph", **fields)
        if isinstance(answer, tuple):
            return answer
        if answer.status_code:
            return [answer.status_code, answer.status_error_message]
        return [
            (each.name.split(";")[3], each.tensor.tensor_content or each.tensor.float_val[:]) for each in answer.recv
        ]

    def key(self, edge, device=None, incarnation=None):
        source = device or self.device
        incarnation = self.incarnation if incarnation is None else incarnation
        return f"{source};{incarnation:016x};{self.device};{edge};0:0"

    def recv(self, step, key, **fields):
        answer = self.call("RecvTensor", step_id=step, rendezvous_key=key, **fields)
        if isinstance(answer, tuple):
            return answer
        tensor = answer.tensor
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        return [answer.is_dead, tensor.dtype, shape, tensor.tensor_content, answer.send_start_micros > 0]

    def graph(self, *nodes, device=None):
        """A graph of (name, op, inputs, attributes).

        Stock keeps kernels of stateful nodes by name, sends and receives too, so every graph gets names of its own.
        """
        self.graphs += 1
        graph = message("GraphDef")()
        graph.versions.producer = tf.compat.v1.GraphDef().versions.producer or 2474
        for name, op, inputs, attributes in nodes:
            inputs = [f"g{self.graphs}/{source}" for source in inputs]
            device = self.device if device is None else device
            node = graph.node.add(name=f"g{self.graphs}/{name}", op=op, device=device, input=inputs)
            for attribute, value in attributes.items():
                node.attr[attribute].CopyFrom(attr(value))
        return graph

    def edge(self, name, **more):
        """The attributes of a send or receive."""
        ends = dict(tensor_name=name, send_device=self.device, recv_device=self.device)
        return dict(ends, send_device_incarnation=signed(self.incarnation), **more)

    def send(self, name, source, edge, **more):
        return (name, "_Send", [source], self.edge(edge, T=tf.float32, **more))

    def receive(self, name, edge, **more):
        return (name, "_Recv", [], self.edge(edge, tensor_type=tf.float32, **more))


def signed(number):
    return number - (1 << 64) if number >= 1 << 63 else number


def attr(value):
    """An attribute of our own descriptors."""
    made = message("AttrValue")()
    if isinstance(value, tf.DType):
        made.type = value.as_datatype_enum
    elif isinstance(value, bool):
        made.b = value
    elif isinstance(value, int):
        made.i = value
    elif isinstance(value, str):
        made.s = value.encode()
    elif isinstance(value, tf.TensorShape):
        made.shape.SetInParent()
    else:
        made.tensor.CopyFrom(convert("TensorProto", value))
    return made


def constant(name, value):
    return (
        name,
        "Const",
        [],
        dict(dtype=tf.as_dtype(tf.convert_to_tensor(value).dtype), value=tf.make_tensor_proto(value)),
    )


def sessions(worker):
    show("session without a name", worker.call("CreateWorkerSession"))
    for incarnation in [1, 1, 2]:
        fields = dict(master_task="/job:m/replica:0/task:0", master_incarnation=incarnation)
        worker.call("CreateWorkerSession", session_handle=f"of {incarnation}", **fields)
        for handle in ["of 1", "of 2"]:
            known = worker.register(worker.graph(("n", "NoOp", [], {})), handle)
            show(f"master {incarnation}, session {handle}", known)
    worker.call("DeleteWorkerSession", session_handle="of 2")
    show("session deleted", worker.run("0000000000000001", 1, "of 2"))
    show("and as a status", worker.run("0000000000000001", 1, "of 2", body=False))


def registration(worker):
    empty = worker.graph()
    show("unknown session", worker.register(empty, "unknown"))
    show("first handle", worker.register(worker.graph(("n", "NoOp", [], {}))))
    show("no device", worker.register(worker.graph(("n", "NoOp", [], {}), device="")))
    foreign = "/job:other/replica:0/task:0/device:CPU:0"
    show("foreign device", worker.register(worker.graph(("n", "NoOp", [], {}), device=foreign)))
    show("no such device", worker.register(worker.graph(("n", "NoOp", [], {}), device=worker.device[:-1] + "7")))
    show("unknown op", worker.register(worker.graph(("n", "NoSuchOp", [], {})))[0])
    show("unknown input", worker.register(worker.graph(("n", "Identity", ["m"], dict(T=tf.float32))))[0])
    show("missing attribute", worker.register(worker.graph(("n", "_Recv", [], dict(tensor_type=tf.float32))))[0])
    show("two of a name", worker.register(worker.graph(("n", "NoOp", [], {}), ("n", "NoOp", [], {})))[0])
    unknown = dict(session_handle="s", create_worker_session_called=True, graph_handle="77")
    show("deregistering nothing", worker.call("DeregisterGraph", **unknown))
    handle = worker.register(worker.graph(("n", "NoOp", [], {})))
    known = dict(session_handle="s", create_worker_session_called=True, graph_handle=handle)
    show("deregistered", str(worker.call("DeregisterGraph", **known)))
    show("run after that", worker.run(handle, 2)[0])
    show("garbage", worker.caller.raw("/tensorflow.WorkerService/RegisterGraph", b"\xff" * 5)[0])


def steps(worker):
    handle = worker.register(worker.graph(constant("c", 2.5), worker.send("send", "c", "out")))
    show("run", worker.run(handle, 10))
    show("its tensor", worker.recv(10, worker.key("out")))
    show("cleanup", str(worker.call("CleanupGraph", step_id=10)))
    show("cleanup again", str(worker.call("CleanupGraph", step_id=10)))
    show("unknown graph", worker.run("77", 11))
    show("unknown graph, as a status", worker.run("77", 12, body=False))

    add = dict(T=tf.float32)
    handle = worker.register(
        worker.graph(
            worker.receive("in", "x:0", client_terminated=True),
            constant("one", 1.0),
            ("sum", "AddV2", ["in", "one"], add),
            worker.send("back", "sum", "y:0", client_terminated=True),
        )
    )
    fed = [named_tensor(worker.key("x:0"), 3.0)]
    show("fed and fetched", worker.run(handle, 13, send=fed, recv_key=[worker.key("y:0")]))
    show("fed with another type", worker.run(handle, 14, send=[named_tensor(worker.key("x:0"), 3)])[0])
    show("fed under a bad key", worker.run(handle, 15, send=[named_tensor("x:0", 3.0)])[0])

    # A dead value crosses as one.
    handle = worker.register(
        worker.graph(
            constant("data", 1.0),
            constant("no", False),
            ("switch", "Switch", ["data", "no"], add),
            worker.send("false", "switch", "taken"),
            worker.send("true", "switch:1", "not taken"),
        )
    )
    show("switch", worker.run(handle, 16))
    show("taken", worker.recv(16, worker.key("taken")))
    show("not taken", worker.recv(16, worker.key("not taken")))
    for step in [13, 14, 15, 16]:
        worker.call("CleanupGraph", step_id=step)


def failures(worker):
    checked = ("check", "CheckNumerics", ["in"], dict(T=tf.float32, message="bad value"))
    receiving = worker.receive("in", "x", client_terminated=True)
    handle = worker.register(worker.graph(receiving, checked, worker.send("send", "check", "out")))
    nan = [named_tensor(worker.key("x"), float("nan"))]
    early = later(lambda: worker.recv(20, worker.key("out")))
    show("failing op", worker.run(handle, 20, send=nan))
    code, text, _ = early.result()
    show("a peer that waited", [code, text.split("\n")[0]])
    code, text, _ = worker.recv(20, worker.key("out"))
    show("a peer that comes later", [code, text.split("\n")[0]])
    show("failing op, as a status", worker.run(handle, 21, send=nan, body=False))
    uninitialized = ("v", "VariableV2", [], dict(dtype=tf.float32, shape=tf.TensorShape([])))
    graph = worker.graph(uninitialized, worker.send("send", "v", "out"))
    show("uninitialized", worker.run(worker.register(graph), 22)[0])
    for step in [20, 21, 22]:
        worker.call("CleanupGraph", step_id=step)


def tensors(worker):
    handle = worker.register(
        worker.graph(
            constant("matrix", [[1.0, 2.0], [3.0, 4.0]]),
            constant("words", ["a", "bc"]),
            constant("flags", [True, False]),
            ("send0", "_Send", ["matrix"], worker.edge("matrix", T=tf.float32)),
            ("send1", "_HostSend", ["words"], worker.edge("words", T=tf.string)),
            ("send2", "_Send", ["flags"], worker.edge("flags", T=tf.bool)),
        )
    )
    show("three sends", worker.run(handle, 30))
    for edge in ["matrix", "words", "flags"]:
        show(edge, worker.recv(30, worker.key(edge)))
    show("bad key", worker.recv(30, "no key at all"))
    show("unknown device", worker.recv(30, worker.key("matrix", device=worker.device[:-5] + "GPU:3")))
    show("another incarnation", worker.recv(30, worker.key("matrix", incarnation=7)))
    early = later(lambda: worker.recv(31, worker.key("matrix")))
    show("run after a peer asked", worker.run(handle, 31))
    show("the peer's tensor", early.result())
    for step in [30, 31]:
        worker.call("CleanupGraph", step_id=step)


def repetitions(worker):
    handle = worker.register(worker.graph(constant("c", 1.0), worker.send("send", "c", "out")))
    show("first", worker.run(handle, 40, request_id=1001))
    show("again", worker.run(handle, 40, request_id=1001, body=False)[1].split(".")[0])
    show("tensor", worker.recv(40, worker.key("out"), request_id=1002))
    code, text, _ = worker.recv(40, worker.key("out"), request_id=1002)
    show("tensor again", [code, text.split(".")[0]])
    worker.call("CleanupGraph", step_id=40)
    show("the same step id once more", worker.run(handle, 40))
    show("its tensor", worker.recv(40, worker.key("out")))
    worker.call("CleanupGraph", step_id=40)


def partial_runs(worker):
    graph = worker.graph(
        worker.receive("a", "a", client_terminated=True),
        worker.receive("b", "b", client_terminated=True),
        ("twice", "AddV2", ["a", "a"], dict(T=tf.float32)),
        ("sum", "AddV2", ["a", "b"], dict(T=tf.float32)),
        worker.send("send0", "twice", "twice", client_terminated=True),
        worker.send("send1", "sum", "sum", client_terminated=True),
    )
    handle = worker.register(graph)
    first = dict(send=[named_tensor(worker.key("a"), 1.0)], recv_key=[worker.key("twice")])
    show("first part", worker.run(handle, 50, is_partial=True, **first))
    second = dict(send=[named_tensor(worker.key("b"), 5.0)], recv_key=[worker.key("sum")])
    show("last part", worker.run(handle, 50, is_partial=True, is_last_partial_run=True, **second))
    worker.call("CleanupGraph", step_id=50)
    show("nothing at first", worker.run(handle, 51, is_partial=True))
    both = dict(send=first["send"] + second["send"], recv_key=first["recv_key"] + second["recv_key"])
    show("all at once", sorted(worker.run(handle, 51, is_partial=True, is_last_partial_run=True, **both)))
    worker.call("CleanupGraph", step_id=51)
    show("partial run of nothing", worker.run("77", 52, is_partial=True, is_last_partial_run=True))


def cancellations(worker):
    handle = worker.register(worker.graph(worker.receive("in", "never", client_terminated=True)))
    request = message("RunGraphRequest")(
        session_handle="s", create_worker_session_called=True, graph_handle=handle, step_id=60
    )
    call = worker.caller.raw("/tensorflow.WorkerService/RunGraph", request.SerializeToString(), timeout=0.5)
    show("given up", call[0])
    show("a peer's wait for it", worker.recv(60, worker.key("out"))[0])
    worker.call("CleanupGraph", step_id=60)
    show("logging", str(worker.call("Logging", fetch_step_id=[60])))


def statistics(worker):
    handle = worker.register(worker.graph(constant("c", 2.5), worker.send("send", "c", "out")))
    fields = dict(session_handle="s", create_worker_session_called=True, graph_handle=handle, step_id=70)
    options = message("ExecutorOpts")(record_timeline=True, record_partition_graphs=True)
    answer = worker.call("RunGraph", exec_opts=options, **fields)
    names = {stats.node_name for device in answer.step_stats.dev_stats for stats in device.node_stats}
    show("traced", sorted(name for name in names if name.endswith("/c")))
    show("devices", sorted({device.device for device in answer.step_stats.dev_stats}))
    show("parts", [sorted(node.name for node in part.node) for part in answer.partition_graph])
    worker.call("CleanupGraph", step_id=70)
    for fields in [dict(enable_rpc_logging=True), dict(disable_rpc_logging=True), dict(clear=True)]:
        show("logging", str(worker.call("Logging", **fields)))


def legacy(worker):
    graph = worker.graph(constant("c", 4.5), worker.send("send", "c", "out"))
    handle = worker.register(graph, session="any", created=False)
    show("without a session", worker.run(handle, 80, session="any", created=False))
    show("its tensor", worker.recv(80, worker.key("out")))
    worker.call("CleanupGraph", step_id=80)
    known = dict(session_handle="any", create_worker_session_called=False, graph_handle=handle)
    show("deregistered", str(worker.call("DeregisterGraph", **known)))
    show("and again", worker.call("DeregisterGraph", **known)[0])


class later:
    """A call in a thread of its own."""

    def __init__(self, call):
        self.answer = None
        self.thread = threading.Thread(target=lambda: setattr(self, "answer", call()), daemon=True)
        self.thread.start()

    def result(self):
        self.thread.join(30)
        return self.answer
