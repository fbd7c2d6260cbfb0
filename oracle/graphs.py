"""Shows what stock makes of graphs that Rust programs build, and the same models in stock's own words.

    python oracle/graphs.py models                      prints values, gradients and second gradients, as JSON
    python oracle/graphs.py run [GRAPH REQUEST]...      imports GraphDefs and runs them
    python oracle/graphs.py meta META REQUEST           imports a MetaGraphDef and runs it
    python oracle/graphs.py errors                      prints what stock says of inputs that do not fit
    python oracle/graphs.py write DIRECTORY             writes a GraphDef and a MetaGraphDef, prints their values

A request is JSON: {"feeds": {name: value}, "fetches": [name], "targets": [name]}.
"""

import inspect
import json
import pathlib
import sys

import environment

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.enable_control_flow_v2()
MODELS = {}


def model(build):
    MODELS[build.__name__] = build
    return build


@model
def loop(x, w):
    def body(i, y):
        return i + 1, y * x + w

    return v1.while_loop(lambda i, y: i < 5, body, [tf.constant(0), w])[1]


@model
def branch(x, w):
    return tf.cond(x > 1.0, lambda: x * x * w, lambda: x + w)


@model
def other_branch(x, w):
    return tf.cond(x > 2.0, lambda: x * x * w, lambda: (x + w) * w)


@model
def nested_loops(x, w):
    def outer(i, a):
        return i + 1, v1.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * w + x), [tf.constant(0), a])[1]

    return v1.while_loop(lambda i, a: i < 3, outer, [tf.constant(0), x])[1]


@model
def branch_in_loop(x, w):
    def body(i, y):
        return i + 1, tf.cond(i < 2, lambda: y * x, lambda: y * y + w)

    return v1.while_loop(lambda i, y: i < 4, body, [tf.constant(0), w])[1]


@model
def loop_in_branch(x, w):
    def repeated():
        return v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * y * w), [tf.constant(0), x])[1]

    return tf.cond(x > 1.0, repeated, lambda: x)


@model
def list_in_loop(x, w):
    values = tf.raw_ops.TensorListFromTensor(tensor=tf.stack([x, w, x * w]), element_shape=tf.constant([], tf.int32))

    def body(i, y):
        item = tf.raw_ops.TensorListGetItem(
            input_handle=values, index=i, element_shape=tf.constant([], tf.int32), element_dtype=tf.float32
        )
        return i + 1, y * item + x

    return v1.while_loop(lambda i, y: i < 3, body, [tf.constant(0), w])[1]


@model
def calls(x, w):
    def double_product(a, b):
        return a * b + x * b

    return double_product(double_product(x, w), w)


def lists(values):
    return [np.asarray(value).tolist() for value in values]


def models():
    results = {}
    for name, build in MODELS.items():
        with v1.Graph().as_default(), v1.Session() as session:
            x, w = v1.placeholder(tf.float32, [], "x"), v1.placeholder(tf.float32, [], "w")
            y = build(x, w)
            grads = v1.gradients(y, [x, w])
            curves = v1.gradients(grads[0], [x, w], unconnected_gradients="zero")
            values = session.run([y, *grads, *curves], {x: 1.5, w: 0.5})
            results[name] = [float(value) for value in values]
    print(json.dumps(results))


def run(session, request):
    request = json.loads(request)
    for target in request.get("targets", []):
        session.run(target)
    return lists(session.run(request["fetches"], request.get("feeds", {})))


def run_graphs(*arguments):
    results = []
    for path, request in zip(arguments[::2], arguments[1::2]):
        with v1.Graph().as_default(), v1.Session() as session:
            definition = v1.GraphDef()
            definition.ParseFromString(pathlib.Path(path).read_bytes())
            v1.import_graph_def(definition, name="")
            results.append(run(session, request))
    print(json.dumps(results))


def run_meta(path, request):
    with v1.Graph().as_default() as graph, v1.Session() as session:
        v1.train.import_meta_graph(path)
        names = [variable.name for variable in v1.global_variables()]
        assert names == ["w:0"], names
        assert graph.get_collection("losses")[0].name == "loss:0", graph.get_collection("losses")
        print(json.dumps(run(session, request)))


# Ops whose inputs do not fit, with the inputs' shapes.
MISFITS = [
    ("MatMul", [[2, 3], [4, 5]]),
    ("MatMul", [[2], [2, 3]]),
    ("AddV2", [[2, 3], [4, 3]]),
    ("Mul", [[5], [2, 3]]),
    ("BiasAdd", [[2, 3], [4]]),
    ("BatchMatMulV2", [[2, 3, 4], [2, 5, 6]]),
    ("SoftmaxCrossEntropyWithLogits", [[2, 3], [2, 4]]),
    ("Select", [[2], [2, 3], [4, 3]]),
]


def errors():
    texts = []
    for op, shapes in MISFITS:
        with v1.Graph().as_default():
            dtypes = [tf.bool if op == "Select" and i == 0 else tf.float32 for i in range(len(shapes))]
            inputs = [v1.placeholder(dtype, shape) for dtype, shape in zip(dtypes, shapes)]
            definition = getattr(tf.raw_ops, op)
            names = list(inspect.signature(definition).parameters)
            try:
                definition(**dict(zip(names, inputs)))
                texts.append("")
            except (ValueError, TypeError) as error:
                texts.append(str(error))
    print(json.dumps([[op, shapes, text] for (op, shapes), text in zip(MISFITS, texts)]))


def write(directory):
    directory = pathlib.Path(directory)
    with v1.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 2], "x")
        w = v1.get_variable("w", initializer=tf.constant([[1.0], [2.0]]), use_resource=True)
        total = v1.while_loop(
            lambda i, t: i < 3, lambda i, t: (i + 1, t + tf.matmul(x, w)), [tf.constant(0), tf.matmul(x, w)]
        )[1]
        loss = tf.cond(tf.reduce_sum(total) > 0, lambda: tf.reduce_sum(total * total), lambda: tf.reduce_sum(total))
        loss = tf.identity(loss, name="loss")
        v1.add_to_collection("losses", loss)
        init = v1.global_variables_initializer()
        (directory / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
        v1.train.export_meta_graph(str(directory / "graph.meta"), saver_def=v1.train.Saver().saver_def)
        grad = v1.gradients(loss, [w])[0]
        with v1.Session() as session:
            session.run(init)
            print(json.dumps(lists(session.run([loss, grad], {x: [[1.0, -1.0], [2.0, 0.5]]}))))


if __name__ == "__main__":
    {"models": models, "run": run_graphs, "meta": run_meta, "errors": errors, "write": write}[sys.argv[1]](
        *sys.argv[2:]
    )
