"""Graphs that no client builds: each is refused with stock's code, when it is sent or when it runs at the latest."""

from report import show
from wire import Caller, message


def node(graph, name, op, inputs=(), **types):
    """Adds a node with type attributes."""
    added = graph.node.add(name=name, op=op, input=inputs)
    for key, value in types.items():
        added.attr[key].type = value
    return added


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
    show("still up", len(caller("GetStatus", service="Worker").device_attributes))
