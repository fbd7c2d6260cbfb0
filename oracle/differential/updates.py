"""Ops that read or change variables, as nodes that take the variables' values and give them back.

In the graph such a node is several: each variable is made, filled, used, and read when the op is done.
"""

import re

import values

_UPDATES = re.compile(
    "(Resource)?(Sparse)?Apply[A-Z].*|(Resource)?Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|Assign(Add|Sub)?(VariableOp)?|(Resource)?StridedSliceAssign"
    "|ResourceGather(Nd)?|(Resource)?CountUpTo"
)
_RESOURCE = values.types_pb2.DT_RESOURCE


def is_update(definition):
    return bool(_UPDATES.fullmatch(definition.name))


def is_variable(arg):
    return arg.is_ref or arg.type == _RESOURCE


def dtype_of(definition, attrs):
    """The element type of the op's variables."""
    return attrs["dtype" if any(attr.name == "dtype" for attr in definition.attr) else "T"]


def output_count(definition):
    """The op's own results, then its variables."""
    return len(_own(definition)) + sum(map(is_variable, definition.input_arg))


def _own(definition):
    return [arg for arg in definition.output_arg if not arg.is_ref]


def add(program, definition, node, names):
    """Adds the nodes that stand for `node`, whose inputs have these names, to a program; the last one has its name."""
    dtype = dtype_of(definition, node.attrs)
    inputs, made, reads = [], [], []
    for i, (arg, name, value) in enumerate(zip(definition.input_arg, names, node.inputs)):
        if not is_variable(arg):
            inputs.append(name)
            continue
        variable, shape = f"{node.name}_v{i}", list(value.array.shape)
        if arg.is_ref:
            program.node("VariableV2", name=variable, dtype=dtype, shape=shape)
            inputs.append(program.node("Assign", [variable, name], name=f"{variable}_made", T=dtype))
            reads.append(("Identity", inputs[-1], {"T": dtype}))
        else:
            program.node("VarHandleOp", name=variable, dtype=dtype, shape=shape, shared_name=variable)
            made.append("^" + program.node("AssignVariableOp", [variable, name], name=f"{variable}_made", dtype=dtype))
            inputs.append(variable)
            reads.append(("ReadVariableOp", variable, {"dtype": dtype}))
    update = program.node(definition.name, inputs + made, name=f"{node.name}_update", **node.attrs)
    found = [f"{update}:{i}" for i in range(len(_own(definition)))]
    found += [
        program.node(op, [name, "^" + update], name=f"{node.name}_r{i}", **attrs)
        for i, (op, name, attrs) in enumerate(reads)
    ]
    types = [_own_type(arg, node.attrs) for arg in _own(definition)] + [dtype] * len(reads)
    program.node("IdentityN", found, name=node.name, T=types)


def _own_type(arg, attrs):
    return attrs[arg.type_attr] if arg.type_attr else values.name_of(arg.type)
