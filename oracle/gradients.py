"""Writes what stock's gradients are: `testdata/gradients/<family>.pbtxt` and `testdata/gradients/ops.tsv`.

    python oracle/gradients.py [FAMILY]...

A file `gradient_cases/<family>.py` defines `cases(c)`, where `c` is `Gradients`:

    c.case("matmul", lambda a, b: tf.matmul(a, b), any_(2, 3), any_(3, 4))

Each case is a function of tensors that become placeholders. It is recorded with its graph, values for the placeholders, a
weight for every element of the result, and the gradients that `tf.gradients` gives with these weights: with known shapes
for each dtype, and once more in double with shapes that are not known.

A recorded step says: fed are the placeholders and the weights (`dy_0`, `dy_1`, ...), targets are the results, fetches are
what is differentiated by, and expected are the gradients. A fetch is followed by `values` or `indices` if its gradient is
rows, and by `none` if there is none.
"""

import importlib.util
import pathlib
import sys
import zlib

ORACLE = pathlib.Path(__file__).resolve().parent
TESTDATA = ORACLE.parent / "testdata"
sys.path[:0] = [str(ORACLE)]

import environment
import protos
import stock
import workers
from harness import Case, Step, _named
from values import NUMPY

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops

v1 = tf.compat.v1


class Values:
    """Numbers between two bounds, drawn anew for every case."""

    def __init__(self, low, high, shape):
        self.low, self.high, self.shape = low, high, shape

    def draw(self, random, dtype):
        numbers = lambda: np.round(random.uniform(self.low, self.high, self.shape), 3)
        if dtype.startswith("complex"):
            return (numbers() + 1j * numbers()).astype(NUMPY[dtype])
        return np.asarray(numbers()).astype(NUMPY[dtype])


class Fixed:
    """Given numbers."""

    def __init__(self, numbers):
        self.numbers = np.asarray(numbers)

    def draw(self, _, dtype):
        return self.numbers.astype(NUMPY[dtype])


def any_(*shape):
    return Values(-2, 2, shape)


def positive(*shape):
    return Values(0.3, 2.5, shape)


def unit(*shape):
    """Between minus one and one."""
    return Values(-0.9, 0.9, shape)


def probability(*shape):
    return Values(0.1, 0.9, shape)


def above_one(*shape):
    return Values(1.2, 3, shape)


def fixed(numbers):
    return Fixed(numbers)


class Gradients:
    """Collects the cases of one family."""

    def __init__(self, family, server):
        self.family, self.server, self.texts, self.names = family, server, [], set()

    def case(
        self, name, build, *inputs, dtypes=("float", "double"), unknown=True, unsmooth=False, first_generation=False
    ):
        """`build` makes a tensor or a list of them from placeholders. It may return `(results, also)`, where `also` are
        handles of variables that it made. `unsmooth` is a function whose slope does not show in differences;
        `first_generation` is one whose conditionals and loops are switches, merges and frames."""
        if first_generation:
            v1.disable_control_flow_v2()
            try:
                return self.case(name, build, *inputs, dtypes=dtypes, unknown=unknown, unsmooth=unsmooth)
            finally:
                v1.enable_control_flow_v2()
        for dtype in dtypes:
            self._record(f"{name}/{dtype}", build, inputs, dtype, True, unsmooth)
        if unknown:
            self._record(
                f"{name}/unknown", build, inputs, "double" if "double" in dtypes else dtypes[0], False, unsmooth
            )

    def _record(self, name, build, inputs, dtype, known, unsmooth):
        name += "/unsmooth" if unsmooth else ""
        if name in self.names:
            raise ValueError(f"{self.family}: two cases are named {name}")
        self.names.add(name)
        if not workers.begin(name):
            return
        random = np.random.RandomState(zlib.crc32(name.encode()))
        graph = tf.Graph()
        with graph.as_default(), v1.Session(graph=graph) as session:
            v1.set_random_seed(7)
            arrays = [value.draw(random, dtype) for value in inputs]
            placeholders = [
                v1.placeholder(array.dtype, array.shape if known else None, name=f"x_{i}")
                for i, array in enumerate(arrays)
            ]
            results, also = build(*placeholders), []
            if isinstance(results, tuple):
                results, also = results
            results = results if isinstance(results, list) else [results]
            fed = dict(zip(placeholders, arrays))
            init = graph.get_collection("init")
            session.run(init)
            shapes = [array.shape for array in session.run(results, fed)]
            weights = []
            for i, (result, shape) in enumerate(zip(results, shapes)):
                weight = Values(0.5, 1.5, shape).draw(
                    random, protos.dtype_of(np.zeros((), result.dtype.as_numpy_dtype))
                )
                weight = np.where(random.uniform(size=shape) < 0.5, weight, -weight).astype(weight.dtype)
                placeholder = v1.placeholder(result.dtype, shape if known else None, name=f"dy_{i}")
                fed[placeholder] = weight
                weights.append(placeholder)
            forward = protos.normalize_functions(graph.as_graph_def())
            forward.versions.ClearField("min_consumer")
            sources = placeholders + also
            gradients = tf.gradients(results, sources, grad_ys=weights)
            labels, fetched = [], []
            for source, gradient in zip(sources, gradients):
                if gradient is None:
                    labels.append(f"{source.name} none")
                    fetched.append(tf.constant(0.0))
                elif isinstance(gradient, tf.IndexedSlices):
                    labels += [f"{source.name} values", f"{source.name} indices"]
                    fetched += [gradient.values, gradient.indices]
                else:
                    labels.append(source.name)
                    fetched.append(gradient)
            whole = graph.as_graph_def()
        feeds = [_named(tensor.name, value) for tensor, value in fed.items()]
        steps = [Step([], [], [op.name for op in init])] if init else []
        steps.append(Step(feeds, [tensor.name for tensor in fetched], []))
        case = Case(name, whole, steps, "rounding")
        case.answer(self.server)
        if any(case.codes()):
            raise ValueError(f"{self.family}: {name}: stock says {[step.message for step in case.steps]}")
        case.graph = forward
        steps[-1].fetches, steps[-1].targets = labels, [result.name for result in results]
        self.texts.append(case.text())

    def text(self):
        head = f"# Written by stock TensorFlow from oracle/gradient_cases/{self.family}.py; refresh with `cargo xtask goldens`.\n"
        return head + f'family: "{self.family}"\nstock_version: "{stock.VERSION}"\n' + "".join(self.texts)


def registered():
    """Every op that stock knows the gradient of: whether by a function, or that there is none."""
    registry = tf_ops.gradient_registry
    known = {op: "none" if registry.lookup(op) is None else "function" for op in registry.list()}
    return "# Stock's gradients: an op, and whether they are built by a function.\n" + "".join(
        f"{op}\t{kind}\n" for op, kind in sorted(known.items())
    )


def families():
    return sorted(path.stem for path in (ORACLE / "gradient_cases").glob("*.py"))


def files(names=None):
    """The contents of the files by path below testdata/."""
    # Whoever ran in this process before may have chosen the first generation.
    v1.enable_control_flow_v2()
    server = stock.Stock()
    texts = {} if names else {"gradients/ops.tsv": registered()}
    for name in names or families():
        spec = importlib.util.spec_from_file_location(
            f"gradient_cases_{name}", ORACLE / "gradient_cases" / f"{name}.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        collected = Gradients(name, server)
        module.cases(collected)
        texts[f"gradients/{name}.pbtxt"] = collected.text()
    return texts


if __name__ == "__main__":
    for path, text in files(sys.argv[1:]).items():
        (TESTDATA / path).parent.mkdir(parents=True, exist_ok=True)
        (TESTDATA / path).write_text(text)
        print(path, text.count("\ncase {"))
