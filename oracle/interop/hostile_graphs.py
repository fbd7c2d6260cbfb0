"""Graphs that no client builds: each is refused with stock's code, when it is sent or when it runs at the latest."""

from report import show
from wire import Caller, message


def node(graph, name, op, inputs=(), **types):
    """Adds a node with type attributes."""
    added = graph.node.add(name=name, op=op, input=inputs)
    for key, value in types.items():
        added.attr[key].type = value
    return added


def function(graph, name):
    """Adds a function of a number."""
    added = graph.library.function.add()
    added.signature.name = name
    added.signature.input_arg.add(name="x", type=1)
    added.signature.output_arg.add(name="y", type=1)
    added.node_def.add(name="negative", op="Neg", input=["x"]).attr["T"].type = 1
    added.ret["y"] = "negative:y:0"


def graphs():
    graph = message("GraphDef")
    g = graph()
    node(g, "a", "NoSuchOp")
    yield "unknown op", g
    g = graph()
    node(g, "a", "Identity", ["b"], T=1)
    yield "dangling input", g
    g = graph()
    node(g, "a", "Identity", ["b"], T=1)
    node(g, "b", "Identity", ["a"], T=1)
    yield "cycle", g
    g = graph()
    node(g, "a", "Identity", ["a"], T=1)
    yield "self loop", g
    g = graph()
    node(g, "a", "NoOp")
    node(g, "a", "NoOp")
    yield "name twice", g
    g = graph()
    node(g, "a", "Placeholder")
    yield "missing attribute", g
    g = graph()
    node(g, "a", "Placeholder", dtype=1)
    node(g, "b", "Identity", ["a"], T=3)
    yield "types differ", g
    g = graph()
    node(g, "a", "Placeholder", dtype=1)
    node(g, "b", "Identity", ["a:5"], T=1)
    yield "no such output", g
    g = graph()
    node(g, "a", "Placeholder", dtype=1)
    node(g, "b", "Add", ["a"], T=1)
    yield "too few inputs", g
    g = graph()
    node(g, "a", "Placeholder", dtype=1)
    node(g, "b", "Identity", ["^a", "a"], T=1)
    yield "control input first", g
    g = graph()
    node(g, "bad name!", "NoOp")
    yield "bad name", g
    g = graph()
    node(g, "", "NoOp")
    yield "empty name", g
    g = graph()
    bomb = node(g, "a", "Const", dtype=1)
    bomb.attr["value"].tensor.dtype = 1
    for _ in range(3):
        bomb.attr["value"].tensor.tensor_shape.dim.add(size=1 << 40)
    yield "shape beyond counting", g
    # The second is an op that a server may lack.
    for name in ["Square", "Barrier", "NoSuchOp"]:
        g = graph()
        function(g, name)
        node(g, "a", "NoOp")
        yield f"function named {name}", g
    g = graph()
    node(g, "a", "NoOp").device = "/job:nowhere/task:9"
    yield "unknown device", g
    g = graph()
    node(g, "a", "NoOp").device = "nonsense"
    yield "malformed device", g


def run(target):
    caller = Caller(target)
    for label, graph in graphs():
        graph.versions.producer = 2474
        answer = caller("CreateSession", graph_def=graph)
        if not isinstance(answer, tuple):
            handle = answer.session_handle
            answer = caller("RunStep", session_handle=handle, target=[graph.node[-1].name])
            caller("CloseSession", session_handle=handle)
        show(label, answer[0] if isinstance(answer, tuple) else "OK")
    named_later(caller)
    show("still up", len(caller("GetStatus", service="Worker").device_attributes))


def named_later(caller):
    """Functions named like ops that come when a session exists, or with a part of a graph."""
    graph = message("GraphDef")
    for name in ["Square", "Barrier", "NoSuchOp"]:
        extension = graph()
        extension.versions.producer = 2474
        function(extension, name)
        node(extension, "a", "NoOp").device = "/job:localhost/replica:0/task:0/device:CPU:0"
        session = caller("CreateSession")
        grown = caller("ExtendSession", session_handle=session.session_handle, graph_def=extension)
        caller("CloseSession", session_handle=session.session_handle)
        registered = caller("RegisterGraph", service="Worker", graph_def=extension)
        answers = [answer[:2] if isinstance(answer, tuple) else "OK" for answer in (grown, registered)]
        show(f"function named {name} later", answers)
