"""Small deterministic tensors for cases, drawn per dtype.

A case names its inputs once, as templates, and is then expanded over dtypes: `arr(2, 3)` is floats with a fraction,
integers of both signs, complex numbers, booleans or strings, as the dtype asks.
"""

import re
import zlib

import environment

import ml_dtypes
import numpy as np
from tensorflow.core.framework import types_pb2

NUMPY = {
    "half": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float": np.float32,
    "double": np.float64,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "string": np.object_,
}

# The dtypes that goldens speak, in the order in which cases are listed.
DTYPES = tuple(NUMPY)
FLOATS = DTYPES[:4]
SIGNED = DTYPES[4:8]
UNSIGNED = DTYPES[8:12]
INTS = SIGNED + UNSIGNED
COMPLEX = ("complex64", "complex128")
REAL = FLOATS + INTS
NUMERIC = REAL + COMPLEX


def enum_of(dtype):
    """`float` -> DT_FLOAT."""
    return types_pb2.DataType.Value("DT_" + dtype.upper())


def name_of(enum):
    """DT_FLOAT -> `float`; None for dtypes that goldens do not speak."""
    name = types_pb2.DataType.Name(enum).removeprefix("DT_").lower()
    return name if name in NUMPY else None


class Template:
    """A tensor whose values depend on the dtype it is asked for."""

    def __init__(self, draw):
        self._draw = draw

    def __call__(self, dtype):
        return self._draw(dtype)


def convert(values, dtype):
    """Literal values as a tensor of `dtype`; numbers are truncated, made positive or printed as the dtype demands."""
    if dtype == "string":
        # Fixed-width numpy strings would lose trailing zero bytes.
        array = np.asarray(values, dtype=object)
        flat = [v if isinstance(v, bytes) else str(v).encode() for v in array.ravel().tolist()]
        result = np.empty(len(flat), dtype=object)
        result[:] = flat
        return result.reshape(array.shape)
    array = np.asarray(values)
    if array.dtype.kind == "c" and dtype not in COMPLEX:
        array = array.real
    if dtype in UNSIGNED and array.dtype.kind in "if":
        array = np.abs(array)
    if dtype in INTS and array.dtype.kind == "f":
        array = np.trunc(array)
    with np.errstate(all="ignore"):
        return array.astype(NUMPY[dtype])


def lit(values):
    """These values, in any dtype."""
    return Template(lambda dtype: convert(values, dtype))


def _draw(shape, seed, low, high, integers):
    def draw(dtype):
        random = np.random.RandomState(zlib.crc32(repr((shape, seed)).encode()))
        if dtype == "string":
            words = ["", "a", "b", "ab", "Abc", "hello", "z z", "é", "0", "-1"]
            return convert([words[i] for i in random.randint(0, len(words), int(np.prod(shape)))], dtype).reshape(shape)
        if dtype == "bool":
            return random.randint(0, 2, shape).astype(np.bool_)
        if dtype in INTS:
            low_int = max(integers[0], 0) if dtype in UNSIGNED else integers[0]
            return random.randint(low_int, integers[1] + 1, shape).astype(NUMPY[dtype])
        values = np.round(random.uniform(low, high, shape), 3)
        if dtype in COMPLEX:
            values = values + 1j * np.round(random.uniform(low, high, shape), 3)
        return np.asarray(values).astype(NUMPY[dtype])

    return Template(draw)


def arr(*shape, seed=0):
    """Values of both signs."""
    return _draw(shape, seed, -3.0, 3.0, (-9, 9))


def pos(*shape, seed=0):
    """Strictly positive values."""
    return _draw(shape, seed, 0.1, 3.0, (1, 9))


def unit(*shape, seed=0):
    """Values inside (-1, 1)."""
    return _draw(shape, seed, -0.99, 0.99, (-1, 1))


def big(*shape, seed=0):
    """Values far from zero, where exponentials saturate and small integers wrap."""
    return _draw(shape, seed, -90.0, 90.0, (-100, 100))


def iota(*shape, start=0):
    """Distinct values counting up."""
    count = int(np.prod(shape))
    return Template(lambda dtype: convert(np.arange(start, start + count).reshape(shape), dtype))


def empty(*shape):
    """No elements (one of the dims is 0)."""
    return Template(lambda dtype: np.zeros(shape, NUMPY[dtype]))


def special_values(dtype):
    """The values at which kernels go wrong."""
    if dtype in INTS:
        info = np.iinfo(NUMPY[dtype])
        low = [info.min, info.min + 1, -7, -1] if info.min < 0 else []
        return np.array(low + [0, 1, 2, 7, info.max - 1, info.max], NUMPY[dtype])
    if dtype == "bool":
        return np.array([False, True])
    if dtype == "string":
        return convert([b"", b"a", b"\x00", b"\xff\xfe", b"a" * 40], dtype)
    if dtype in COMPLEX:
        inf, nan = np.inf, np.nan
        return np.array([0, 1, -1, 1j, -1j, 3 - 4j, complex(inf, 0), complex(0, nan), 1e-30j, 1e3 + 1j], NUMPY[dtype])
    info = ml_dtypes.finfo(NUMPY[dtype])
    values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        np.inf,
        -np.inf,
        np.nan,
        float(info.tiny),
        float(info.max),
        float(-info.max),
    ]
    return np.array(values, NUMPY[dtype])


def special(*shape, seed=0):
    """Any of the special values."""

    def draw(dtype):
        values = special_values(dtype)
        return values[np.random.RandomState(seed).randint(0, len(values), int(np.prod(shape)))].reshape(shape)

    return Template(draw)


def specials(*, only_finite=False):
    """All special values as one vector."""

    def draw(dtype):
        values = special_values(dtype)
        if only_finite and dtype in FLOATS:
            values = values[np.isfinite(values.astype(np.float64))]
        return values

    return Template(draw)


def special_pairs(*, nonzero=False):
    """Two vectors that together hold every pair of special values; `nonzero` keeps integer zeros out of the second."""

    def grid(dtype):
        left = special_values(dtype)
        if dtype in FLOATS:
            left = left[[0, 1, 2, 5, 7, 9, 10, 11, 13]]
        right = left[left != 0] if nonzero and dtype in INTS else left
        return np.repeat(left, len(right)), np.tile(right, len(left))

    return [Template(lambda dtype: grid(dtype)[0]), Template(lambda dtype: grid(dtype)[1])]


# What stock says first, without the dot at its end: a message that programs may look for, whole.
SENTENCE = re.compile(r"(?m)^(?!From /job:)[^\n]+?(?=\.?$)")
