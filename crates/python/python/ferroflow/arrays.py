"""Tensors as numpy arrays, in both directions."""

from __future__ import annotations

from typing import Any, List, Tuple, Union

from ferroflow import _ferroflow

# Names that numpy has, by those of TensorFlow that differ.
_NUMPY_NAMES = {"float": "float32", "double": "float64", "half": "float16"}

# Types that numpy has only with the package ml_dtypes.
_EXTENDED = ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz")

GivenTensor = Tuple[str, List[int], Union[bytes, List[bytes]]]


def _numpy_type(dtype: str) -> Any:
    import numpy

    if dtype in _EXTENDED:
        try:
            import ml_dtypes
        except ImportError:
            return None
        return numpy.dtype(getattr(ml_dtypes, dtype))
    try:
        return numpy.dtype(_NUMPY_NAMES.get(dtype, dtype))
    except TypeError:
        return None


def to_numpy(memory: _ferroflow.TensorMemory) -> Any:
    """Makes an array of a tensor, without a copy unless its elements are strings."""
    import numpy

    if memory.dtype == "string":
        array = numpy.empty(memory.shape, dtype=object)
        array.reshape(-1)[:] = memory.strings()
        return array[()] if array.ndim == 0 else array
    array = numpy.asarray(memory)
    wanted = _numpy_type(memory.dtype)
    if wanted is not None and wanted != array.dtype:
        array = array.view(wanted)
    # A scalar, as sessions of TensorFlow return it.
    return array[()] if array.ndim == 0 else array


def to_tensor(value: Any, dtype: str | None = None) -> GivenTensor:
    """Describes a value as the module in Rust takes it; without a type, the value's own is kept."""
    import numpy

    if dtype == "string":
        return _strings(value)
    wanted = None if dtype is None else _numpy_type(dtype)
    array = numpy.asarray(value, dtype=wanted)
    if dtype is None:
        if array.dtype.kind in "OSU":
            return _strings(value)
        dtype = array.dtype.name
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return dtype, list(array.shape), array.tobytes()


def _strings(value: Any) -> GivenTensor:
    import numpy

    array = numpy.asarray(value, dtype=object)
    texts = [text.encode() if isinstance(text, str) else bytes(text) for text in array.reshape(-1)]
    return "string", list(array.shape), texts
