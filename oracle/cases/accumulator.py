"""Accumulators of gradients, dense and sparse: programs that never wait."""

from values import *

import numpy as np

FORMS = (("", "ConditionalAccumulator"), ("Resource", "ResourceConditionalAccumulator"))


def dense(c, name, prefix, op, dtype="float", shape=(2,), **attrs):
    """An accumulator with everything that can be done to it."""
    p = c.program(f"{op}/{name}")
    p.node(op, name="a", dtype=dtype, shape=list(shape) if shape is not None else None, **attrs)
    p.placeholder(dtype, name="g")
    p.placeholder("int64", name="step")
    p.placeholder("int32", name="n")
    p.node(f"{prefix}AccumulatorApplyGradient", ["a", "step", "g"], name="apply", dtype=dtype)
    p.node(f"{prefix}AccumulatorTakeGradient", ["a", "n"], name="take", dtype=dtype)
    p.node(f"{prefix}AccumulatorSetGlobalStep", ["a", "step"], name="set")
    p.node(f"{prefix}AccumulatorNumAccumulated", ["a"], name="count")
    return p


def sparse(c, name, dtype="float", shape=(5, 2), known=True, **attrs):
    p = c.program(f"SparseConditionalAccumulator/{name}")
    p.node(
        "SparseConditionalAccumulator", name="a", dtype=dtype, shape=list(shape) if shape is not None else None, **attrs
    )
    p.placeholder(dtype, name="values")
    p.placeholder("int64", name="indices")
    p.placeholder("int64", name="shape")
    p.placeholder("int64", name="step")
    p.placeholder("int32", name="n")
    inputs = ["a", "step", "indices", "values", "shape"]
    p.node("SparseAccumulatorApplyGradient", inputs, name="apply", dtype=dtype, has_known_shape=known)
    p.node("SparseAccumulatorTakeGradient", ["a", "n"], name="take", dtype=dtype)
    p.node("AccumulatorSetGlobalStep", ["a", "step"], name="set")
    p.node("AccumulatorNumAccumulated", ["a"], name="count")
    return p


def apply(p, value, step=0):
    p.step(target=["apply"], feed={"g": value, "step": np.int64(step)})


def apply_sparse(p, indices, values, shape=(5, 2), step=0):
    feed = {"indices": np.int64(indices), "values": values, "shape": np.int64(shape), "step": np.int64(step)}
    p.step(target=["apply"], feed=feed)


def take(p, n=1):
    p.step(fetch=["take"], feed={"n": np.int32(n)})


def take_sparse(p, n=1):
    p.step(fetch=["take:0", "take:1", "take:2"], feed={"n": np.int32(n)})


def count(p):
    p.step(fetch=["count"])


def dense_cases(c, prefix, op):
    for dtype in c.dtypes(op, "dtype"):
        for reduction in ("MEAN", "SUM"):
            p = dense(c, f"{reduction.lower()}/{dtype}", prefix, op, dtype, (2, 3), reduction_type=reduction)
            for seed in range(3):
                apply(p, arr(2, 3, seed=seed)(dtype))
            count(p)
            take(p, 2)
            count(p)
            for seed in range(2):
                apply(p, arr(2, 3, seed=seed + 7)(dtype), step=1)
            take(p, 2)
    p = dense(c, "stale_gradients_are_dropped", prefix, op)
    apply(p, np.float32([1, 2]), step=0)
    take(p)
    apply(p, np.float32([3, 4]), step=0)
    count(p)
    apply(p, np.float32([5, 6, 7]), step=0)
    apply(p, np.float32([5, 6]), step=1)
    count(p)
    take(p)
    p.step(target=["set"], feed={"step": np.int64(7)})
    apply(p, np.float32([1, 1]), step=6)
    count(p)
    apply(p, np.float32([1, 1]), step=7)
    count(p)
    p.step(target=["set"], feed={"step": np.int64(3)})
    apply(p, np.float32([3, 2]), step=3)
    take(p, 2)
    p = dense(c, "shapes", prefix, op, shape=(-1, 2))
    apply(p, arr(3, 2)("float"))
    apply(p, arr(1, 2)("float"))
    apply(p, arr(3, 3)("float"))
    apply(p, arr(3, 2, seed=4)("float"))
    take(p, 2)
    apply(p, arr(1, 2)("float"), step=1)
    take(p)
    apply(p, arr(2)("float"), step=2)
    p = dense(c, "any_shape", prefix, op, shape=None)
    apply(p, np.float32(3))
    apply(p, np.float32([3]))
    take(p)
    apply(p, np.zeros([0, 2], np.float32), step=1)
    take(p)
    p = dense(c, "bad_arguments", prefix, op)
    apply(p, np.float32([1, 2]))
    take(p, 0)
    take(p, -1)
    count(p)
    # Stock applies the gradient all the same, so nothing is asked afterwards.
    p.step(target=["apply"], feed={"g": np.float32([1, 2]), "step": np.int64([3])})
    p = c.program(f"{op}/shared_name")
    for name, dtype in (("a", "float"), ("b", "float")):
        p.node(op, name=name, dtype=dtype, shape=[2], shared_name="accumulator")
        p.const(np.float32([1, 2]), name=f"{name}/g")
        p.const(np.int64(0), name=f"{name}/step")
        p.node(
            f"{prefix}AccumulatorApplyGradient", [name, f"{name}/step", f"{name}/g"], name=f"{name}/apply", dtype=dtype
        )
        p.node(f"{prefix}AccumulatorNumAccumulated", [name], name=f"{name}/count")
    p.step(target=["a/apply", "b/apply"])
    p.step(fetch=["a/count", "b/count"])


def sparse_cases(c):
    for dtype in c.dtypes("SparseConditionalAccumulator", "dtype"):
        for reduction in ("MEAN", "SUM"):
            p = sparse(c, f"{reduction.lower()}/{dtype}", dtype, reduction_type=reduction)
            apply_sparse(p, [0, 2, 4], arr(3, 2)(dtype))
            apply_sparse(p, [1, 2], arr(2, 2, seed=5)(dtype))
            apply_sparse(p, [2, 4], arr(2, 2, seed=6)(dtype))
            count(p)
            take_sparse(p, 3)
            count(p)
            apply_sparse(p, [3], arr(1, 2)(dtype), step=1)
            take_sparse(p)
    p = sparse(c, "unordered_and_repeated")
    apply_sparse(p, [3, 1, 1], arr(3, 2)("float"))
    apply_sparse(p, [1, 3, 0], arr(3, 2, seed=5)("float"))
    take_sparse(p, 2)
    p = sparse(c, "stale_gradients_are_dropped")
    apply_sparse(p, [0], arr(1, 2)("float"))
    take_sparse(p)
    apply_sparse(p, [0], arr(1, 2)("float"))
    count(p)
    apply_sparse(p, [9], arr(1, 2)("float"))
    p.step(target=["set"], feed={"step": np.int64(4)})
    apply_sparse(p, [0], arr(1, 2)("float"), step=3)
    apply_sparse(p, [1], arr(1, 2)("float"), step=4)
    take_sparse(p)
    p = sparse(c, "nothing")
    apply_sparse(p, [], np.zeros([0, 2], np.float32))
    apply_sparse(p, [2], arr(1, 2)("float"))
    take_sparse(p, 2)
    p = sparse(c, "unknown_shape", known=False)
    apply_sparse(p, [1, 2], arr(2, 2)("float"), shape=[])
    apply_sparse(p, [1, 5], arr(2, 2)("float"), shape=[])
    apply_sparse(p, [1, 4], arr(2, 2)("float"), shape=[])
    take_sparse(p, 2)
    p = sparse(c, "any_shape", shape=None)
    apply_sparse(p, [1, 2], arr(2, 2)("float"))
    apply_sparse(p, [1, 700], arr(2, 2)("float"))
    take_sparse(p, 2)
    p = sparse(c, "partial_shape", shape=(-1, 2))
    apply_sparse(p, [1, 2], arr(2, 2)("float"))
    apply_sparse(p, [1, 2], arr(2, 3)("float"))
    take_sparse(p)
    apply_sparse(p, [1, 2], arr(2, 3)("float"), step=1)
    p = sparse(c, "vectors", shape=(7,))
    apply_sparse(p, [1, 2], arr(2)("float"), shape=[7])
    apply_sparse(p, [2, 6], arr(2)("float"), shape=[7])
    take_sparse(p, 2)
    p = sparse(c, "higher_rank", shape=(5, 2, 2))
    apply_sparse(p, [1, 2], arr(2, 2, 2)("float"), shape=[5, 2, 2])
    apply_sparse(p, [2], arr(1, 2, 2)("float"), shape=[5, 2, 2])
    take_sparse(p, 2)
    p = sparse(c, "mismatches")
    apply_sparse(p, [1], arr(1, 3)("float"))
    apply_sparse(p, [5], arr(1, 2)("float"))
    apply_sparse(p, [1, 2], arr(1, 2)("float"))
    apply_sparse(p, [[1]], arr(1, 2)("float"))
    apply_sparse(p, 1, arr(1, 2)("float"))
    apply_sparse(p, [1], np.float32(1))
    apply_sparse(p, [1], arr(1)("float"))
    apply_sparse(p, [1], arr(1, 2)("float"), shape=[5])
    apply_sparse(p, [1], arr(1, 2)("float"), shape=[5, 3])
    apply_sparse(p, [1], arr(1, 2)("float"), shape=[5, 2, 9])
    count(p)
    apply_sparse(p, [1], arr(1, 2, 1)("float"))
    take_sparse(p, 0)


def cases(c):
    for prefix, op in FORMS:
        dense_cases(c, prefix, op)
    sparse_cases(c)
