"""Where stock's own answer means nothing: it reads memory that nobody wrote, leaves the order open, or converts numbers
that do not fit. There, and only there, an answer of ours may differ.

A rule gets a node, its inputs and one of its outputs as stock gave it; it returns a mask of the elements that mean
nothing, or True for all of them.
"""

import numpy as np

import values


def meaningless(node, inputs, expected):
    """The elements of an output for which stock's answer means nothing: a mask, False for none, or True for all."""
    rule = _RULES.get(node.op)
    return rule(node, inputs, expected) if rule else False


def _cast(node, inputs, expected):
    """Floats beyond the range of an integer: C++ leaves them open, and stock's vector and scalar loops disagree but for
    the types that the processor converts to by itself."""
    source, target = inputs[0], values.NUMPY[node.attrs["DstT"]]
    if node.attrs["DstT"] not in values.INTS or node.attrs["DstT"] in ("int32", "int64") or source.dtype.kind not in "fcV":
        return False
    real = source.real if source.dtype.kind == "c" else source
    real = real.astype(np.float64)
    info = np.iinfo(target)
    with np.errstate(all="ignore"):
        return ~((real > float(info.min) - 1) & (real < float(info.max) + 1))


def _counter(node, inputs, expected):
    """A counter shorter than the algorithm's: stock reads what lies behind it."""
    return inputs[2].size < 2


def _no_indices(node, inputs, expected):
    """Without indices stock leaves the rows of the result as it found them."""
    return inputs[1].size == 0


_RULES = {
    "Cast": _cast,
    "SparseSegmentSumGrad": _no_indices,
    "SparseSegmentMeanGrad": _no_indices,
    "SparseSegmentSqrtNGrad": _no_indices,
    **{f"Stateless{op}V2": _counter for op in ("RandomUniform", "RandomNormal", "TruncatedNormal", "RandomUniformInt", "RandomUniformFullInt")},
}
