"""Tensor maps."""

from values import *

import numpy as np


def build(c, name, key="int32", value="float"):
    """A map with two entries, and constants for a third."""
    p = c.program(f"TensorMap/{name}")
    previous = p.node("EmptyTensorMap", name="empty")
    for i in range(3):
        p.const(convert(i, key), name=f"k{i}")
        p.const(arr(2, seed=i)(value), name=f"v{i}")
        if i < 2:
            types = {"key_dtype": key, "value_dtype": value}
            previous = p.node("TensorMapInsert", [previous, f"k{i}", f"v{i}"], name=f"m{i}", **types)
    return p


def cases(c):
    for key, value in (("int32", "float"), ("string", "int64"), ("double", "string"), ("bool", "float")):
        p = build(c, f"{key}_{value}", key, value)
        types = {"key_dtype": key, "value_dtype": value}
        p.node("TensorMapSize", ["m1"], name="size")
        p.node("TensorMapSize", ["m0"], name="size0")
        p.node("TensorMapLookup", ["m1", "k0"], name="found", **types)
        p.node("TensorMapHasKey", ["m1", "k1"], name="has", key_dtype=key)
        p.node("TensorMapHasKey", ["m0", "k1"], name="has_not", key_dtype=key)
        p.node("TensorMapInsert", ["m1", "k0", "v2"], name="replaced", **types)
        p.node("TensorMapLookup", ["replaced", "k0"], name="found_again", **types)
        p.node("TensorMapErase", ["m1", "k0"], name="erased", **types)
        p.node("TensorMapHasKey", ["erased", "k0"], name="has_no_more", key_dtype=key)
        p.node("TensorMapStackKeys", ["erased"], name="keys", key_dtype=key)
        p.step(fetch=["size", "size0", "found", "has", "has_not", "found_again", "has_no_more", "keys"])
    p = build(c, "errors")
    types = {"key_dtype": "int32", "value_dtype": "float"}
    p.node("TensorMapLookup", ["m1", "k2"], name="missing", **types)
    p.node("TensorMapErase", ["m1", "k2"], name="not_there", **types)
    p.node("TensorMapLookup", ["m1", "k0"], name="type", key_dtype="int32", value_dtype="double")
    p.node("TensorMapStackKeys", ["empty"], name="none", key_dtype="int32")
    p.node("TensorMapStackKeys", ["m1"], name="key_type", key_dtype="int64")
    p.step(fetch=["missing"], message="Trying to lookup non-existent key. Could not find key")
    p.step(fetch=["not_there"], message="Trying to erase non-existent item. Could not find key")
    p.step(fetch=["type"], message="Output 0 of type float does not match declared output type double")
    p.step(fetch=["none"], message="TensorMapStackKeys cannot be called on empty map.")
    p.step(fetch=["key_type"], message="Key does not match requested dtype.")
    p = c.program("TensorMap/not_a_map")
    p.const(np.int32([]), name="shape")
    p.const(np.int32(0), name="count")
    p.node("TensorListReserve", ["shape", "count"], name="list", element_dtype="float", shape_type="int32")
    p.node("TensorMapSize", ["list"], name="size")
    p.step(fetch=["size"], message="Input handle is not a map.")
