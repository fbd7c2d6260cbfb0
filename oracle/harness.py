"""The language of cases: a `Family` collects them, stock answers them, and the result is the text of a golden file.

A case file `cases/<family>.py` defines `cases(c)`, where `c` is a `Family`:

    c.op("AddV2", [arr(2, 3), arr(3)], "broadcast")        one op, expanded over the dtypes stock has kernels for
    p = c.program("counter"); v = p.node("VariableV2", ...)  a graph of raw nodes and the steps to run on it
    c.traced("while_loop", build)                           a graph made by the tf.compat.v1 API
"""

import itertools
import re

import environment
import protos
import stock
import workers
from values import DTYPES, Template, convert, name_of

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import named_tensor_pb2

OPS = stock.op_defs()

# What `few=True` expands over: one float, one integer, and the kinds with kernels of their own.
_FEW = ("float", "int64", "string", "bool", "complex64")
# Which dtype an attribute takes while another one is being expanded.
_PREFERRED = ("int32", "int64", "float", *DTYPES)


class Step:
    """One RunStep and what stock answered."""

    def __init__(self, feeds, fetches, targets, message_contains=""):
        self.feeds, self.fetches, self.targets = feeds, fetches, targets
        self.message_contains = message_contains
        self.expected, self.code, self.message = [], stock.OK, ""


class Case:
    """A graph and the steps run on it in one session."""

    def __init__(self, name, graph, steps, accuracy, group=None):
        self.name, self.graph, self.steps, self.accuracy = name, graph, steps, accuracy
        # Cases of one group that fail alike are recorded once.
        self.group = group
        self.code, self.message = stock.OK, ""

    def answer(self, server):
        """Runs the case on stock; a step after a failed one still runs, as clients do."""
        try:
            session = server.session(self.graph)
        except stock.StockError as error:
            self.code, self.message = error.code, error.message
            self.steps = []
            return
        for step in self.steps:
            try:
                answers = [protos.array(t) for t in session.run(step.feeds, step.fetches, step.targets)]
                # Of random values only dtype and shape are compared, so they are not recorded.
                step.expected = [protos.tensor(np.zeros_like(a) if self.accuracy == "random" else a) for a in answers]
            except stock.StockError as error:
                step.code, step.message = error.code, error.message
        session.close()

    def codes(self):
        return (self.code, *(step.code for step in self.steps))

    def text(self):
        out = ["case {", f'  name: "{self.name}"']
        if self.accuracy != "exact":
            out.append(f'  accuracy: "{self.accuracy}"')
        out.append("  graph {")
        out += [f"    node {{ {protos.line(node)} }}" for node in self.graph.node]
        out.append(f"    versions {{ {protos.line(self.graph.versions)} }}")
        if self.graph.HasField("library"):
            out.append("    library {")
            out += [f"      function {{ {protos.line(f)} }}" for f in self.graph.library.function]
            out += [f"      gradient {{ {protos.line(g)} }}" for g in self.graph.library.gradient]
            out.append("    }")
        out.append("  }")
        out += _status_lines("  ", self.code, self.message, "")
        for step in self.steps:
            out.append("  step {")
            out += [f"    feed {{ {protos.line(feed)} }}" for feed in step.feeds]
            out += [f'    fetch: "{name}"' for name in step.fetches]
            out += [f'    target: "{name}"' for name in step.targets]
            out += [f"    expected {{ {protos.line(tensor)} }}" for tensor in step.expected]
            out += _status_lines("    ", step.code, step.message, step.message_contains)
            out.append("  }")
        out.append("}")
        return "\n".join(out) + "\n"


_CODES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED"
    " FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()


def _status_lines(indent, code, message, contains):
    """The status, with stock's wording beside it as a model for our message."""
    if code == stock.OK:
        return []
    if isinstance(contains, re.Pattern):
        found = contains.search(message)
        contains = found.group() if found else contains.pattern
    if contains and contains not in message:
        raise ValueError(f"stock does not say {contains!r} but {message!r}")
    said = [line.strip() for line in message.split("\n") if line.strip() and not line.startswith("From /job:")]
    lines = [indent + "# " + said[0][:300], f"{indent}status: {_CODES[code]}"]
    return lines + (
        [f'{indent}message_contains: "{text_format.text_encoding.CEscape(contains, True)}"'] if contains else []
    )


class Family:
    """Collects the cases of one golden file."""

    def __init__(self, name):
        self.name = name
        self.cases = []
        self._names = set()
        self.default_accuracy = "exact"

    def accuracy(self, accuracy):
        """The accuracy of later cases of this family unless they say otherwise: `exact`, `rounding` or `random`."""
        self.default_accuracy = accuracy

    def dtypes(self, op, attr, **fixed):
        """The dtypes of type attribute `attr` for which stock has a CPU kernel."""
        return kernel_dtypes(OPS[op], next(a for a in OPS[op].attr if a.name == attr), fixed)

    def op(
        self,
        op,
        inputs,
        name="",
        *,
        accuracy=None,
        few=False,
        types=None,
        message="",
        producer=None,
        fetch=None,
        **attrs,
    ):
        """One op fed with `inputs` (templates, literals, arrays, or lists of these for list inputs), once per dtype.

        Type attributes given in `attrs` are fixed, or expanded when given as a tuple. The first one left open is expanded
        over every dtype with a CPU kernel (or `types`; or a handful with `few`), the others one at a time around it. If
        stock refuses, our message must contain `message`, or what a compiled regular expression finds in stock's.
        """
        for chosen in self._expand(op, inputs, attrs, few, types):
            concrete = {key: value for key, value in attrs.items() if key not in chosen} | chosen
            dtypes = [concrete[a.name] for a in OPS[op].attr if a.type == "type" and a.name in concrete]
            label = "/".join(filter(None, [op, name, "-".join(dtypes)]))
            arrays = _concrete_inputs(OPS[op], inputs, concrete)
            accuracy_here = accuracy or self.default_accuracy
            self._add(
                Case(
                    label,
                    *_single_op(op, arrays, concrete, message, producer, fetch),
                    accuracy_here,
                    (op, name) if few else None,
                )
            )

    def _add(self, case):
        if case.name in self._names:
            raise ValueError(f"{self.name}: two cases are named {case.name}")
        self._names.add(case.name)
        self.cases.append(case)

    def _expand(self, op, inputs, attrs, few, types):
        """The choices of type attributes, each a dict from attribute to dtype."""
        op_def = OPS[op]
        open_attrs = [a for a in op_def.attr if a.type == "type" and not isinstance(attrs.get(a.name), str)]
        order = [arg.type_attr for arg in op_def.input_arg if arg.type_attr] + [a.name for a in open_attrs]
        open_attrs.sort(key=lambda a: order.index(a.name))
        if not open_attrs:
            return [{}]
        fixed = {a.name: attrs[a.name] for a in op_def.attr if a.type == "type" and isinstance(attrs.get(a.name), str)}
        candidates = {
            a.name: list(attrs[a.name]) if a.name in attrs else kernel_dtypes(op_def, a, fixed) for a in open_attrs
        }
        primary = open_attrs[0].name
        if types is not None:
            candidates[primary] = [t for t in types if t in candidates[primary]]
        elif few and primary not in attrs:
            candidates[primary] = [t for t in _FEW if t in candidates[primary]] or candidates[primary][:1]
        if few:
            for a in open_attrs[1:]:
                if a.name not in attrs:
                    candidates[a.name] = [_default_dtype(a, candidates[a.name])]
        if not candidates[primary]:
            return []
        base = {a.name: _default_dtype(a, candidates[a.name]) for a in open_attrs}
        choices = [base | {primary: dtype} for dtype in candidates[primary]]
        for a in open_attrs[1:]:
            center = base | {primary: candidates[primary][0] if "float" not in candidates[primary] else "float"}
            choices += [center | {a.name: dtype} for dtype in candidates[a.name]]
        unique = []
        for choice in choices:
            if choice not in unique:
                unique.append(choice)
        return unique

    def program(self, name, accuracy=None, producer=None):
        """A graph of raw nodes; see `Program`."""
        program = Program(name, accuracy or self.default_accuracy, producer or stock.GRAPH_VERSION)
        self._add(program)
        return program

    def traced(self, name, build, accuracy=None, seed=None, message=""):
        """A graph built by `build()` with the TensorFlow Python API; it returns the steps as a list of `(feeds, fetches, targets)`.

        `feeds` is a dict from tensors to values; fetches and targets are tensors and operations. Shorter tuples are allowed.
        `message` counts for the steps that stock refuses.
        """
        graph = tf.Graph()
        with graph.as_default():
            if seed is not None:
                tf.compat.v1.set_random_seed(seed)
            described = build()
        steps = []
        for feeds, fetches, targets in (tuple(step) + ({}, [], [])[len(step) :] for step in described):
            protos_fed = [
                _named(tensor.name, np.asarray(value) if not isinstance(value, Template) else value)
                for tensor, value in feeds.items()
            ]
            steps.append(
                Step(protos_fed, [f.name for f in tf.nest.flatten(fetches)], [t.name for t in targets], message)
            )
        graph_def = protos.normalize_functions(graph.as_graph_def())
        graph_def.versions.ClearField("min_consumer")
        self._add(Case(name, graph_def, steps, accuracy or self.default_accuracy))

    def text(self, server, trace=False):
        """Asks stock and writes the golden file; `trace` names each case first."""
        out = [f"# Written by stock TensorFlow from oracle/cases/{self.name}.py; refresh with `cargo xtask goldens`.\n"]
        out.append(f'family: "{self.name}"\nstock_version: "{stock.VERSION}"\n')
        failures = set()
        for case in self.cases:
            if trace:
                print(f"{self.name}: {case.name}", flush=True)
            if not workers.begin(case.name):
                continue
            case.answer(server)
            if case.group and any(case.codes()):
                if (case.group, case.codes()) in failures:
                    continue
                failures.add((case.group, case.codes()))
            out.append(case.text())
        return "".join(out)


class Program(Case):
    """A graph written node by node, and steps on it. Nodes are referred to by name, outputs as `name:1`."""

    def __init__(self, name, accuracy, producer):
        graph = graph_pb2.GraphDef()
        graph.versions.producer = producer
        super().__init__(name, graph, [], accuracy)

    def node(self, op, inputs=(), name=None, device="", **attrs):
        """Adds a node and returns its name. Inputs are `name`, `name:1` or `^name`; attrs are checked against the OpDef."""
        node = self.graph.node.add(op=op, name=name or self._fresh(op), device=device)
        node.input.extend(inputs)
        _set_attrs(node, OPS.get(op), attrs)
        return node.name

    def const(self, value, dtype=None, name=None):
        array = _array(value, dtype)
        return self.node("Const", name=name, dtype=protos.dtype_of(array), value=array)

    def placeholder(self, dtype, name=None, shape=None):
        attrs = {} if shape is None else {"shape": shape}
        return self.node("Placeholder", name=name, dtype=dtype, **attrs)

    def step(self, fetch=(), target=(), feed=None, message=""):
        """Adds a RunStep. `feed` maps names to arrays (with the dtype of the placeholder)."""
        names = [name if ":" in name else name + ":0" for name in fetch]
        feeds = [_named(name if ":" in name else name + ":0", value) for name, value in (feed or {}).items()]
        self.steps.append(Step(feeds, names, list(target), message))

    def _fresh(self, op):
        taken = {node.name for node in self.graph.node}
        return next(n for n in itertools.chain([op], (f"{op}_{i}" for i in itertools.count(1))) if n not in taken)


def _array(value, dtype):
    if isinstance(value, Template):
        return value(dtype or "float")
    if dtype is not None:
        return convert(value, dtype)
    array = np.asarray(value)
    if array.dtype.kind in "SU":
        return convert(value, "string")
    if array.dtype == np.float64 and not isinstance(value, (np.ndarray, np.generic)):
        array = array.astype(np.float32)
    if array.dtype == np.int64 and not isinstance(value, (np.ndarray, np.generic)):
        array = array.astype(np.int32)
    return array


def _named(name, value):
    return named_tensor_pb2.NamedTensorProto(name=name, tensor=protos.tensor(_array(value, None)))


def kernel_dtypes(op_def, attr, fixed):
    """The dtypes of `attr` for which stock has a CPU kernel, given the attributes fixed already."""
    declared = {name_of(t) for t in attr.allowed_values.list.type} or set(DTYPES)
    found = set()
    for kernel in stock.cpu_kernels(op_def.name):
        allowed = {c.name: [name_of(t) for t in c.allowed_values.list.type] for c in kernel.constraint}
        if all(value in allowed.get(name, [value]) for name, value in fixed.items()):
            found |= set(allowed.get(attr.name, declared))
    return [dtype for dtype in DTYPES if dtype in found & declared]


def _default_dtype(attr, candidates):
    declared = name_of(attr.default_value.type)
    if declared in candidates:
        return declared
    return next(dtype for dtype in _PREFERRED if dtype in candidates)


def _concrete_inputs(op_def, inputs, attrs):
    """Arrays by input argument; a list where the argument is one."""
    arrays = {}
    for arg, value in zip(op_def.input_arg, inputs, strict=True):
        dtype = attrs[arg.type_attr] if arg.type_attr else name_of(arg.type) if arg.type else None
        if arg.number_attr or arg.type_list_attr:
            arrays[arg.name] = [_array(item, dtype) for item in value]
        else:
            arrays[arg.name] = _array(value, dtype)
    return arrays


def _single_op(op, arrays, attrs, message, producer, fetch):
    """A graph with one node of interest named after its op, and the single step that fetches all its outputs."""
    op_def = OPS[op]
    program = Program(
        "", "", producer or (op_def.deprecation.version - 1 if op_def.deprecation.version else stock.GRAPH_VERSION)
    )
    attrs, names, feeds = dict(attrs), [], {}
    for arg in op_def.input_arg:
        value = arrays[arg.name]
        items = (
            [(f"{arg.name}_{i}", item) for i, item in enumerate(value)]
            if isinstance(value, list)
            else [(arg.name, value)]
        )
        if arg.number_attr:
            attrs.setdefault(arg.number_attr, len(items))
        if arg.type_list_attr:
            attrs.setdefault(arg.type_list_attr, [protos.dtype_of(item) for _, item in items])
        for name, item in items:
            names.append(name)
            program.placeholder(protos.dtype_of(item), name=name)
            feeds[name] = item
    node = program.node(op, names, name=op.lstrip("_"), **attrs)
    outputs = range(fetch if fetch is not None else output_count(op_def, attrs))
    program.step(fetch=[f"{node}:{i}" for i in outputs], target=[] if outputs else [node], feed=feeds, message=message)
    return program.graph, program.steps


def output_count(op_def, attrs):
    count = 0
    for arg in op_def.output_arg:
        if arg.number_attr:
            count += attrs[arg.number_attr]
        elif arg.type_list_attr:
            count += len(attrs[arg.type_list_attr])
        else:
            count += 1
    return count


def _set_attrs(node, op_def, attrs):
    kinds = {a.name: a.type for a in op_def.attr} if op_def else {}
    for key, value in attrs.items():
        if key in kinds:
            node.attr[key].CopyFrom(protos.attr(kinds[key], value))
        else:
            node.attr[key].CopyFrom(value)
