"""Makes a disagreement small, and writes it as a case for `oracle/cases/`."""

import dataclasses

import draw

import numpy as np


def shrink(nodes, arrays, disagrees):
    """The fewest nodes that still disagree: each in turn is left out, and what others take from it is fed.

    `arrays` holds stock's values of all outputs; `disagrees(nodes)` asks both servers.
    """
    at = 0
    while at < len(nodes):
        rest = without(nodes, {nodes[at].name}, arrays)
        if rest and disagrees(rest):
            nodes = rest
        else:
            at += 1
    return nodes


def without(nodes, names, arrays):
    """The nodes but those called `names`, whose outputs get stock's values."""

    def fed(value):
        return draw.Value(value.name, arrays[draw.output_name(value)]) if value.node in names else value

    kept = [node for node in nodes if node.name not in names]
    return [dataclasses.replace(node, inputs=[fed(value) for value in node.inputs]) for node in kept]


def case(nodes, seed):
    """The graph in the words of `oracle/harness.py`."""
    lines = [f'p = c.program("differential_{seed}", accuracy="rounding")']
    fed = {value.name: draw.feed_name(value) for value in draw.fed_values(nodes)}
    for value in draw.fed_values(nodes):
        lines.append(f'p.placeholder("{value.dtype}", name="{fed[value.name]}")')
    for node in nodes:
        inputs = [fed.get(value.name, value.name) for value in node.inputs]
        attrs = "".join(f", {key}={value!r}" for key, value in node.attrs.items())
        lines.append(f'p.node("{node.op}", {inputs}, name="{node.name}"{attrs})')
    feeds = ", ".join(f'"{fed[value.name]}": {_literal(value)}' for value in draw.fed_values(nodes))
    lines.append(f"p.step(fetch={draw.fetches(nodes)}, feed={{{feeds}}})")
    return "\n".join("    " + line for line in lines)


def _literal(value):
    array = value.array.astype(np.float32) if value.dtype in ("half", "bfloat16") else value.array
    text = repr(array.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    shaped = f"np.zeros({array.shape})" if array.size == 0 else text
    return f'convert({shaped}, "{value.dtype}")'
