"""Draws nodes from the declarations: an op, its attributes, and inputs that mostly fit.

Inputs come from the tensors that earlier nodes made, so that graphs chain, or are drawn afresh. What an integer input
means (an axis, a shape, an index) is read off its name; a wrong guess only means that both servers must refuse alike.
"""

import dataclasses
import pathlib

import harness
import protos
import recipes
import stock
import updates
import values

import numpy as np

OPS = harness.OPS

# Memory that nobody wrote, what depends on timing or only makes sense in loops, and what ends the process.
_EXCLUDED = {
    "Abort", "Batch", "Empty", "Merge", "Switch", "Enter", "Exit", "NextIteration", "LoopCond", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault",
    "InplaceAdd", "InplaceSub", "InplaceUpdate", "ParallelConcat", "Const", "ImmutableConst", "FakeParam", "TensorArrayClose",
}  # fmt: skip

# What has an internal state but answers alike each time it is made anew: random numbers with seeds, and checks.
_SEEDED = {
    "Multinomial", "ParameterizedTruncatedNormal", "RandomGamma", "RandomPoisson", "RandomPoissonV2", "RandomShuffle", "RandomStandardNormal", "RandomUniform",
    "RandomUniformInt", "TruncatedNormal",
}  # fmt: skip
_REPEATABLE = _SEEDED | {"CheckNumerics", "CheckNumericsV2", "GuaranteeConst", "DeepCopy"}

_AXES = {
    "axis",
    "axes",
    "dim",
    "dims_axis",
    "dimension",
    "reduction_indices",
    "reduction_dims",
    "concat_dim",
    "split_dim",
    "num_lower",
    "num_upper",
}
_SHAPES = {"shape", "dims", "size", "input_sizes", "output_shape", "s0", "s1", "tensor_size", "element_shape"}


@dataclasses.dataclass
class Value:
    """A tensor of the graph: the output that makes it, and what it holds."""

    name: str
    array: np.ndarray

    @property
    def dtype(self):
        return protos.dtype_of(self.array)

    @property
    def node(self):
        """The node that makes it, if there is one."""
        return self.name.split(":")[0]


@dataclasses.dataclass
class Node:
    """A drawn node. `inputs` are Values; those without a producer are fed."""

    name: str
    op: str
    attrs: dict
    inputs: list
    outputs: int


def drawable(op, wide):
    """Whether an op can stand in a drawn graph: no functions, only tensors with values, and no state; but for variables and
    seeds if the draw is `wide`."""
    definition = OPS.get(op)
    if definition is None or op in _EXCLUDED or op.startswith("_"):
        return False
    if updates.is_update(definition):
        return wide
    if not definition.output_arg:
        return False
    if definition.is_stateful and not (wide and op in _REPEATABLE):
        return False
    if definition.deprecation.version:
        return False
    for arg in (*definition.input_arg, *definition.output_arg):
        if arg.is_ref or (arg.type and values.name_of(arg.type) is None):
            return False
    return not any(attr.type in ("func", "list(func)", "tensor", "list(tensor)") for attr in definition.attr)


class Source:
    """Draws from one seeded stream."""

    def __init__(self, seed, ops, plain, wide):
        # Whether to leave out special values and types without a kernel.
        self.plain = plain
        # Whether to draw inputs by recipes.
        self.wide = wide
        self.random = np.random.RandomState(seed % (1 << 32))
        self.ops = ops
        self.dims = [self._dim() for _ in range(3)]

    def node(self, number, pool):
        """A node that may use the tensors in `pool`, or None if the op drawn has no types to run on."""
        op = self.op = self.pick(self.ops)
        definition = OPS[op]
        attrs = self._types(definition, pool)
        if attrs is None:
            return None
        for attr in definition.attr:
            if attr.name not in attrs:
                value = self._attr(attr)
                if value is not None:
                    attrs[attr.name] = value
        name = f"n{number}"
        recipe = recipes.of(op) if self.wide else None
        # Now and then what fits is left to chance after all, so that both servers have something to refuse.
        if recipe and (op in _SEEDED or updates.is_update(definition) or self.chance(0.85)):
            inputs = self._fitting(recipe(self, attrs), definition, attrs, name, pool)
        else:
            inputs = self._guessed(definition, attrs, name, pool)
        try:
            is_update = updates.is_update(definition)
            outputs = updates.output_count(definition) if is_update else harness.output_count(definition, attrs)
        except KeyError:
            return None
        return Node(name, op, attrs, inputs, outputs)

    def _fitting(self, wanted, definition, attrs, name, pool):
        """The inputs that a recipe asks for."""
        dtypes = []
        for arg in definition.input_arg:
            if arg.type_list_attr:
                dtypes += attrs[arg.type_list_attr]
            else:
                count = attrs[arg.number_attr] if arg.number_attr else 1
                is_variable = updates.is_variable(arg)
                own = (
                    updates.dtype_of(definition, attrs)
                    if is_variable
                    else values.name_of(arg.type)
                    if arg.type
                    else attrs[arg.type_attr]
                )
                dtypes += [own] * count
        inputs = []
        for i, (dtype, want) in enumerate(zip(dtypes, wanted, strict=True)):
            if not isinstance(want, recipes.Like):
                inputs.append(Value(f"{name}_{i}", values.convert(want, dtype)))
                continue
            shape = tuple(want.shape)
            fitting = [value for value in pool if value.dtype == dtype and value.array.shape == shape]
            if fitting and not want.draw and self.chance(0.7):
                inputs.append(self.pick(fitting))
            elif want.draw:
                inputs.append(Value(f"{name}_{i}", want.draw(*shape, seed=self.small(0, 1 << 20))(dtype)))
            else:
                inputs.append(Value(f"{name}_{i}", self.array(dtype, shape)))
        return inputs

    def _guessed(self, definition, attrs, name, pool):
        """Inputs of the right types, whose shapes and values are guessed from the names of the arguments."""
        inputs, first = [], None
        for arg in definition.input_arg:
            if arg.type_list_attr:
                count, dtypes = None, [self.pick(values.DTYPES) for _ in range(self.small(1, 3))]
                attrs[arg.type_list_attr] = dtypes
            else:
                count = attrs.get(arg.number_attr, 1) if arg.number_attr else 1
                dtypes = [attrs[arg.type_attr] if arg.type_attr else values.name_of(arg.type)] * count
            for i, dtype in enumerate(dtypes):
                value = self._input(f"{name}_{arg.name}_{i}", arg, dtype, pool, first, i)
                first = first if first is not None else value.array
                inputs.append(value)
        return inputs

    def axis(self, shape):
        """An axis of a shape."""
        return self.small(0, len(shape) - 1)

    def integers(self, low, high, shape):
        """Integers between two, both included."""
        return self.random.randint(low, high + 1, shape)

    def chosen(self, items, shape):
        """A tensor of strings, each one of these."""
        flat = [self.pick(items) for _ in range(int(np.prod(shape)))]
        return values.convert(flat, "string").reshape(shape)

    def thinned(self, shape):
        """A shape that broadcasts to this one."""
        kept = shape[self.small(0, len(shape)) :] if self.chance(0.3) else shape
        return tuple(1 if self.chance(0.2) else dim for dim in kept)

    def pick(self, items):
        return items[self.random.randint(len(items))]

    def small(self, low, high):
        return int(self.random.randint(low, high + 1))

    def chance(self, probability):
        return self.random.random_sample() < probability

    def _dim(self):
        return self.pick([1, 2, 2, 3, 3, 4, 5, 8, 0 if self.chance(0.2) else 7])

    def _types(self, definition, pool):
        """A choice of type attributes for which stock has a kernel; now and then one for which it may have none."""
        attrs, fixed = {}, {}
        for attr in definition.attr:
            if attr.type != "type":
                continue
            candidates = harness.kernel_dtypes(definition, attr, fixed)
            if self.chance(0.03) and not self.plain:
                candidates = [values.name_of(t) for t in attr.allowed_values.list.type]
                candidates = [t for t in candidates if t] or list(values.DTYPES)
            if not candidates:
                return None
            present = [value.dtype for value in pool if value.dtype in candidates]
            attrs[attr.name] = fixed[attr.name] = self.pick(present if present and self.chance(0.6) else candidates)
        return attrs

    def _attr(self, attr):
        """A value for an attribute that is no element type; None leaves it to its default."""
        has_default = attr.HasField("default_value")
        if attr.type == "list(type)" or (has_default and self.chance(0.5)):
            return None
        low = attr.minimum if attr.has_minimum else -1
        if attr.type == "int":
            return self.small(low, max(low, 0) + 3)
        if attr.type == "bool":
            return bool(self.chance(0.5))
        if attr.type == "float":
            return float(self.pick([0.0, 0.5, 1.0, -1.0, 1e-3]))
        if attr.type == "string":
            return self.pick(list(attr.allowed_values.list.s) or [b"", b"a"])
        if attr.type == "shape":
            return self.shape()
        if attr.type == "list(int)":
            return [self.small(0, 2) for _ in range(self.small(max(low, 0), max(low, 2)))]
        return None if has_default else []

    def shape(self, least=0):
        """Shapes made of the same few dims, so that they often match or broadcast, of rank `least` and more."""
        a, b, c = self.dims
        shapes = [(), (b,), (a, b), (a, b), (a, b), (1, b), (a, 1), (b, a), (a, a), (c, a, b), (b, c), (2, 1, a, b)]
        return self.pick([shape for shape in shapes if len(shape) >= least])

    def _input(self, name, arg, dtype, pool, first, i):
        if dtype in ("int32", "int64") and (
            arg.name in _AXES | _SHAPES or (arg.type_attr != "T" and first is not None)
        ):
            return Value(name, self._integers(arg.name, first, dtype))
        fitting = [value for value in pool if value.dtype == dtype]
        if fitting and self.chance(0.7):
            return self.pick(fitting)
        like = first.shape if first is not None and self.chance(0.6) else self.shape()
        return Value(name, self.array(dtype, like))

    def array(self, dtype, shape):
        kinds = [values.arr, values.arr, values.pos, values.unit, values.big]
        kind = values.special if self.chance(0.1) and not self.plain else self.pick(kinds)
        return kind(*shape, seed=self.small(0, 1 << 20))(dtype)

    def _integers(self, role, first, dtype):
        """Small integers for an input that steers: `role` is the argument's name, `first` the op's first input."""
        rank = first.ndim if first is not None else 2
        if role in _AXES:
            axis = self.small(-rank, rank) if self.chance(0.1) else self.small(-rank, max(rank - 1, 0))
            result = [axis] if role in ("axes", "reduction_indices") and self.chance(0.6) else axis
        elif role in _SHAPES:
            sized = first is not None and first.size and self.chance(0.7)
            result = (
                self.pick([[first.size], [1, first.size], [first.size, 1], list(first.shape), [-1]])
                if sized
                else list(self.shape())
            )
        elif role == "perm":
            result = self.random.permutation(rank)
        elif role == "paddings":
            result = self.random.randint(0, 3, (rank, 2))
        elif role in ("multiples", "block_shape"):
            result = self.random.randint(0 if self.chance(0.1) else 1, 3, rank)
        elif role == "begin":
            result = np.zeros(rank) if self.chance(0.5) else self.random.randint(0, 2, rank)
        elif role == "end":
            result = np.array(first.shape if first is not None else [1])
        elif role == "strides":
            result = self.pick([np.ones(rank), np.full(rank, 2), -np.ones(rank)])
        elif role == "segment_ids":
            rows = first.shape[0] if rank else 1
            result = np.sort(self.random.randint(0, max(rows, 1), rows))
        elif role in ("indices", "index", "ids") or role.endswith("indices"):
            limit = first.shape[0] if rank and first.shape[0] else 1
            limit += self.chance(0.05)
            result = self.random.randint(0, limit, self.pick([(), (1,), (2,), (2, 1), (3, 2)]))
        else:
            result = self.pick([0, 1, 2, 3, -1, [0], [1, 2], [2]])
        return np.asarray(result).astype(values.NUMPY[dtype])


def supported(listed, wide):
    """The drawable ops among those that a server lists, without those known to differ."""
    names = (
        op["name"]
        for op in listed
        if (op["any"] or op["types"]) and (op["accuracy"] != "random" or (wide and op["name"] in _SEEDED))
    )
    left_out = known().keys() | undrawn()
    return sorted(name for name in names if drawable(name, wide) and name not in left_out)


def known():
    """Known differences, by op."""
    lines = pathlib.Path(__file__).with_name("known.tsv").read_text().splitlines()
    return dict(line.split("\t") for line in lines if not line.startswith("#"))


def undrawn():
    """Ops that the rules about what stock leaves open do not cover yet."""
    lines = pathlib.Path(__file__).with_name("undrawn.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


def graph_of(nodes):
    """The GraphDef of these nodes, with placeholders for what is fed."""
    program = harness.Program("differential", "rounding", stock.GRAPH_VERSION)
    fed = {value.name: feed_name(value) for value in fed_values(nodes)}
    for value in fed_values(nodes):
        program.placeholder(value.dtype, name=fed[value.name])
    for node in nodes:
        names, definition = [fed.get(value.name, value.name) for value in node.inputs], OPS[node.op]
        if updates.is_update(definition):
            updates.add(program, definition, node, names)
        else:
            program.node(node.op, names, name=node.name, **node.attrs)
    return program.graph


def fetches(nodes):
    """Every output of these nodes."""
    return [f"{node.name}:{i}" for node in nodes for i in range(node.outputs)]


def fed_values(nodes):
    """The inputs that none of these nodes makes, once each."""
    made = {node.name for node in nodes}
    return list({value.name: value for node in nodes for value in node.inputs if value.node not in made}.values())


def feed_name(value):
    """The placeholder that stands for a value whose node is not in the graph."""
    return "fed_" + value.name.replace(":", "_")


def output_name(value):
    """The name under which an answer holds a value that a node made."""
    return value.name if ":" in value.name else value.name + ":0"
