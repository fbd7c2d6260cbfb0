"""The answer of a server to a drawn graph, and whether two answers agree."""

import draw
import protos
import stock
import undefined

import numpy as np
from tensorflow.core.protobuf import named_tensor_pb2

# How far floats may be apart, relative to the largest value in the tensor: sums may be taken in another order.
_TOLERANCE = {"half": 1e-2, "bfloat16": 8e-2, "float": 2e-5, "complex64": 2e-5, "double": 1e-9, "complex128": 1e-9}

# What a call to a server that died gives; no graph deserves it.
GONE = 14
# What a graph gives that takes longer than anyone waits: some of stock's samplers never accept a number.
LATE = 4
INVALID_ARGUMENT, UNIMPLEMENTED = 3, 12

# Stock quotes strings in messages byte for byte, which a client cannot read unless they are UTF-8.
_UNREADABLE = "Exception deserializing response"
UNREADABLE = -1


class Answer:
    """Arrays by output name, or a status."""

    def __init__(self, arrays=None, code=stock.OK, message=""):
        self.arrays, self.code, self.message = arrays, code, message

    def __str__(self):
        if self.code != stock.OK:
            said = [line for line in self.message.splitlines() if line and not line.startswith("From /job:")]
            return f"status {self.code}: {said[0][:300] if said else ''}"
        return ", ".join(f"{name} = {protos.dtype_of(a)}{list(a.shape)} {_brief(a)}" for name, a in self.arrays.items())


def _brief(array):
    return " ".join(np.array2string(array, threshold=24).split())


def ask(client, nodes):
    """Runs nodes in a session of their own and fetches all outputs."""
    fed, fetches = draw.fed_values(nodes), draw.fetches(nodes)
    feeds = [
        named_tensor_pb2.NamedTensorProto(name=f"{draw.feed_name(value)}:0", tensor=protos.tensor(value.array))
        for value in fed
    ]
    try:
        session = client.session(draw.graph_of(nodes))
        try:
            tensors = session.run(feeds, fetches, [])
        finally:
            session.close()
    except stock.StockError as error:
        if error.message.startswith(_UNREADABLE):
            return Answer(code=UNREADABLE, message=error.message)
        return Answer(code=error.code, message=error.message)
    return Answer(dict(zip(fetches, map(protos.array, tensors))))


def difference(nodes, expected, actual):
    """Where two answers to a graph part: an output name, `status`, or None if they agree."""
    if "No OpKernel was registered" in expected.message and actual.code == stock.OK:
        # A type that stock has no kernel for and we have: more than stock, not other than stock.
        return None
    if any(undefined.is_arbitrary(node, [value.array for value in node.inputs]) for node in nodes):
        return None
    if expected.code == UNIMPLEMENTED and actual.code in (stock.OK, INVALID_ARGUMENT):
        # A rank that stock's kernel does not go to, and ours does.
        return None
    if expected.code != actual.code:
        return "status"
    if expected.code != stock.OK:
        return None
    for node in nodes:
        inputs = [expected.arrays.get(draw.output_name(value), value.array) for value in node.inputs]
        names = draw.fetches([node])
        theirs, ours = ([answer.arrays[name] for name in names] for answer in (expected, actual))
        if all(map(_alike, theirs, ours)):
            theirs, ours = undefined.in_order(node, theirs), undefined.in_order(node, ours)
        for number, (name, left, right) in enumerate(zip(names, theirs, ours)):
            open_ones = undefined.meaningless(node, inputs, number, left)
            if open_ones is True and _alike(left, right):
                continue
            if not same(left, right, open_ones):
                return name
    return None


def _alike(expected, actual):
    return expected.dtype == actual.dtype and expected.shape == actual.shape


def same(expected, actual, open_ones=False):
    """Whether two tensors agree, up to rounding, but for the elements in the mask `open_ones`."""
    if not _alike(expected, actual):
        return False
    if open_ones is not False:
        expected, actual = expected[~open_ones], actual[~open_ones]
    dtype = protos.dtype_of(expected)
    if dtype not in _TOLERANCE:
        return bool(np.array_equal(expected, actual))
    if expected.size == 0:
        return True
    wide = np.complex128 if dtype.startswith("complex") else np.float64
    with np.errstate(all="ignore"):
        left, right = expected.astype(wide), actual.astype(wide)
        finite = np.isfinite(left)
        if not np.array_equal(finite, np.isfinite(right)):
            return False
        if wide is np.float64 and not np.array_equal(left[~finite], right[~finite], equal_nan=True):
            return False
        if not finite.any():
            return True
        scale = np.maximum(np.abs(left[finite]), np.abs(left[finite]).max() * 0.05)
        return bool(np.all(np.abs(left[finite] - right[finite]) <= _TOLERANCE[dtype] * scale + 1e-30))
