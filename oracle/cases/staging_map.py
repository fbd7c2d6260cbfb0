"""Staging areas with keys."""

import numpy as np


def area(c, name, ordered=False, dtypes=("float", "int32"), **limits):
    """A program with nodes that share one area of two tensors per key."""
    kind = "OrderedMap" if ordered else "Map"
    p = c.program(f"{kind}Stage/{name}")
    shared = {"shared_name": "area", **limits}
    p.placeholder("int64", name="key")
    p.const(np.float32([1, 2]), name="x")
    p.const(np.int32(3), name="y")
    for name, indices in (("both", [0, 1]), ("first", [0]), ("second", [1])):
        p.const(np.int32(indices), name=f"i_{name}")
        values = [v for v, i in (("x", 0), ("y", 1)) if i in indices]
        types = [dtypes[i] for i in indices]
        staged = {"dtypes": list(dtypes), "fake_dtypes": types}
        p.node(f"{kind}Stage", ["key", f"i_{name}", *values], name=f"put_{name}", **staged, **shared)
        p.node(f"{kind}Unstage", ["key", f"i_{name}"], name=f"get_{name}", dtypes=types, **shared)
        p.node(f"{kind}Peek", ["key", f"i_{name}"], name=f"peek_{name}", dtypes=types, **shared)
        p.node(f"{kind}UnstageNoKey", [f"i_{name}"], name=f"any_{name}", dtypes=types, **shared)
    for op, name in (("Size", "size"), ("IncompleteSize", "waiting"), ("Clear", "clear")):
        p.node(f"{kind}{op}", name=name, dtypes=list(dtypes), **shared)
    return p


def cases(c):
    for ordered in (False, True):
        p = area(c, "whole", ordered)
        p.step(target=["put_both"], feed={"key": np.int64(5)})
        p.step(fetch=["size", "waiting"])
        p.step(fetch=["peek_both:0", "peek_both:1"], feed={"key": np.int64(5)})
        p.step(fetch=["get_both:0", "get_both:1"], feed={"key": np.int64(5)})
        p.step(fetch=["size"])
        p = area(c, "parts", ordered)
        p.step(target=["put_second"], feed={"key": np.int64(5)})
        p.step(fetch=["size", "waiting"])
        p.step(target=["put_second"], feed={"key": np.int64(5)}, message="was already initialized")
        p.step(target=["put_first"], feed={"key": np.int64(5)})
        p.step(fetch=["size", "waiting"])
        p.step(fetch=["get_first"], feed={"key": np.int64(5)})
        p.step(fetch=["size"])
        p.step(fetch=["get_first"], feed={"key": np.int64(5)}, message="has already been removed.")
        p.step(fetch=["get_second"], feed={"key": np.int64(5)})
        p.step(fetch=["size"])
        p = area(c, "clear", ordered)
        p.step(target=["put_first"], feed={"key": np.int64(5)})
        p.step(target=["put_both"], feed={"key": np.int64(6)})
        p.step(target=["clear"])
        p.step(fetch=["size", "waiting"])
        p = area(c, "any", ordered)
        p.step(target=["put_both"], feed={"key": np.int64(7)})
        p.step(fetch=["any_both:0", "any_both:1", "any_both:2"])
        p = area(c, "limits", ordered, memory_limit=4)
        message = "Attempted to insert tensors with combined size of "
        p.step(target=["put_first"], feed={"key": np.int64(1)}, message=message)
        p = area(c, "keys", ordered)
        p.step(target=["put_both"], feed={"key": np.zeros(0, np.int64)}, message="key must not be empty")
        p.step(target=["put_both"], feed={"key": np.int64([1, 2])}, message="key must be an int64 scalar")
        p.step(target=["put_both"], feed={"key": np.int64([1])})
        p.step(fetch=["get_both:0"], feed={"key": np.int64([1])}, message="key must be an int64 scalar")
    p = area(c, "order", True)
    for key in (7, -3, 5):
        p.step(target=["put_both"], feed={"key": np.int64(key)})
    for _ in range(3):
        p.step(fetch=["any_both:0"])
    indices(c)


def indices(c):
    for name, given, message in (
        ("unordered", [1, 0], "Indices are not strictly ordered"),
        ("repeated", [1, 1], "Indices are not strictly ordered"),
        ("outside", [0, 2], "was out of bounds"),
    ):
        p = c.program(f"MapStage/{name}")
        p.const(np.int64(1), name="key")
        p.const(np.int32(given), name="indices")
        p.const(np.float32(2), name="x")
        types = {"dtypes": ["float"] * 3, "fake_dtypes": ["float"] * 2}
        p.node("MapStage", ["key", "indices", "x", "x"], name="put", **types)
        p.step(target=["put"], message=message)
