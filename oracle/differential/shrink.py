"""Makes a disagreement small, and writes it as a case for `oracle/cases/`."""

import numpy as np

import answers
import draw
import protos


def shrink(nodes, expected, disagrees):
    """The fewest nodes that still disagree: those that nothing needs go, others are replaced by what stock made of them.

    `expected` holds stock's values of all outputs; `disagrees(nodes)` asks both servers.
    """
    at = 0
    while at < len(nodes):
        rest = [_fed(node, nodes[at], expected) for node in nodes if node is not nodes[at]]
        if rest and disagrees(rest):
            nodes = rest
        else:
            at += 1
    return nodes


def _fed(node, gone, expected):
    """`node` with the outputs of `gone` fed: as values they no longer name a node of the graph."""
    inputs = []
    for value in node.inputs:
        name = value.name if ":" in value.name else value.name + ":0"
        if name.split(":")[0] == gone.name and expected.arrays and name in expected.arrays:
            inputs.append(draw.Value(value.name, expected.arrays[name]))
        else:
            inputs.append(value)
    return draw.Node(node.name, node.op, node.attrs, inputs, node.outputs)


def case(nodes, seed):
    """The graph in the words of `oracle/harness.py`."""
    lines = [f'p = c.program("differential_{seed}", accuracy="rounding")']
    fed = draw.fed_values(nodes)
    names = {value.name: value.name.replace(":", "_") for value in fed}
    for value in fed:
        lines.append(f'p.placeholder("{value.dtype}", name="{names[value.name]}")')
    for node in nodes:
        inputs = ", ".join(repr(names.get(value.name, value.name)) for value in node.inputs)
        attrs = "".join(f", {key}={value!r}" for key, value in node.attrs.items())
        lines.append(f'p.node("{node.op}", [{inputs}], name="{node.name}"{attrs})')
    fetches = [f"{node.name}:{i}" for node in nodes for i in range(node.outputs)]
    feeds = ", ".join(f'"{names[value.name]}": {_literal(value)}' for value in fed)
    lines.append(f"p.step(fetch={fetches}, feed={{{feeds}}})")
    return "\n".join("    " + line for line in lines)


def _literal(value):
    array = value.array
    if array.size == 0 or protos.dtype_of(array) in ("half", "bfloat16"):
        return f'convert(np.array({array.astype(np.float32).tolist()}).reshape({array.shape}), "{value.dtype}")'
    return f'convert({array.tolist()}, "{value.dtype}")'.replace("nan", "np.nan").replace("inf", "np.inf")


def confirm(theirs, ours, nodes):
    """Both answers and where they part, or None if they agree; a difference in the graph that stock itself refuses counts too."""
    expected, actual = answers.ask(theirs, nodes), answers.ask(ours, nodes)
    return answers.difference(expected, actual) and (expected, actual)
