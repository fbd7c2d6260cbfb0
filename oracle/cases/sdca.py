"""Dual coordinate ascent. Examples are visited in random order, so those of one case share no features."""

from values import *

import numpy as np

LOSSES = ("logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss")


def optimize(
    c,
    label,
    loss="squared_loss",
    sparse=(),
    dense=(),
    weights=(1.0,),
    labels=(1.0,),
    state=None,
    version=2,
    adaptive=False,
    message="",
    partitions=1,
    l1=0.0,
    l2=1.0,
):
    """`sparse` has (examples, features, values or None, indices, weights) per group, `dense` (features, weights)."""
    p = c.program(f"SdcaOptimizer{'V2' if version == 2 else ''}/{label}")
    with_values = [group[2] for group in sparse if group[2] is not None]
    inputs = [p.const(np.int64(group[0])) for group in sparse]
    inputs += [p.const(np.int64(group[1])) for group in sparse]
    inputs += [p.const(np.float32(values)) for values in with_values]
    inputs += [p.const(np.float32(group[0])) for group in dense]
    inputs += [p.const(np.float32(weights)), p.const(np.float32(labels))]
    inputs += [p.const(np.int64(group[3])) for group in sparse]
    inputs += [p.const(np.float32(group[4])) for group in sparse]
    inputs += [p.const(np.float32(group[1])) for group in dense]
    inputs += [p.const(np.zeros([len(weights), 4], np.float32) if state is None else np.float32(state))]
    attrs = {"adaptive" if version == 2 else "adaptative": adaptive}
    p.node(
        "SdcaOptimizerV2" if version == 2 else "SdcaOptimizer",
        inputs,
        name="s",
        loss_type=loss,
        num_sparse_features=len(sparse),
        num_sparse_features_with_values=len(with_values),
        num_dense_features=len(dense),
        l1=l1,
        l2=l2,
        num_loss_partitions=partitions,
        num_inner_iterations=1,
        **attrs,
    )
    p.step(fetch=[f"s:{i}" for i in range(1 + len(sparse) + len(dense))], message=message)


def shrink(c, label, l1, l2):
    p = c.program(f"SdcaShrinkL1/{label}")
    for name, value in (("a", [0.5, -2.0, 0.0, 1.5]), ("b", [[-0.25, 3.0]])):
        p.const(np.float32(value), name=f"{name}0")
        p.node("VariableV2", name=name, dtype="float", shape=list(np.shape(value)))
        p.node("Assign", [name, f"{name}0"], name=f"{name}1", T="float")
    p.node("SdcaShrinkL1", ["a", "b"], name="s", num_features=2, l1=l1, l2=l2)
    p.step(target=["a1", "b1"])
    p.step(target=["s"])
    p.step(fetch=["a", "b"])


def cases(c):
    texts = ["", "a", "abc", "x" * 7, "x" * 8, "x" * 15, "x" * 16, "x" * 17, "é" * 9, "0123456789" * 4]
    texts += ["y" * 127, "y" * 128, "y" * 144, "0123456789abcdef" * 9, "z" * 300, "q" * 1000]
    c.op("SdcaFprint", [texts])
    c.op("SdcaFprint", [np.array([], object)], "empty")
    c.op("SdcaFprint", ["a"], "scalar", message="Input must be a vector")

    shrink(c, "some", 1.0, 1.0)
    shrink(c, "none", 0.0, 2.0)

    c.accuracy("rounding")
    group = ([0, 0, 1], [7, 3, 5], [0.5, -2.0, 1.5], [3, 5, 7, 9], [0.1, -0.2, 0.3, 0.0])
    ones = ([0, 1, 1], [2, 0, 1], None, [0, 1, 2], [0.5, 0.25, -0.5])
    table = ([[1.0, 0.0, 2.0, 0.0], [0.0, -1.5, 0.0, 0.0]], [0.1, 0.2, -0.3, 0.4])
    two = {"weights": (1.0, 2.0), "labels": (1.0, 0.0)}
    state = [[0.3, 1.0, 2.0, 1.0], [-0.2, 0.5, 0.25, 2.0]]
    for loss in LOSSES:
        optimize(c, f"sparse/{loss}", loss, sparse=[group], **two)
        optimize(c, f"ones/{loss}", loss, sparse=[ones], **two)
        optimize(c, f"dense/{loss}", loss, dense=[table], **two)
        optimize(c, f"state/{loss}", loss, sparse=[group, ones], dense=[table], state=state, l1=0.1, l2=0.5, **two)
        optimize(c, f"partitions/{loss}", loss, sparse=[group], dense=[table], partitions=3, version=1, **two)
        optimize(c, f"adaptive/{loss}", loss, sparse=[(*([0, 0], [7, 3], [0.5, -2.0]), *group[3:])], adaptive=True)
        optimize(c, f"bad_label/{loss}", loss, sparse=[group], weights=(1.0, 1.0), labels=(1.0, -3.0))
    optimize(c, "no_examples", sparse=[([], [], [], [1], [0.5])], weights=(), labels=())
    optimize(c, "no_features", message="Requires at least one feature to train.")
    optimize(c, "labels", sparse=[group], weights=(1.0, 1.0), message="Expected 2 example labels but got 1")
    optimize(
        c,
        "unknown",
        sparse=[([0], [4], None, [1], [0.5])],
        message="Found sparse feature indices out of valid range: 4",
    )
    optimize(c, "duplicate", sparse=[([0, 0], [1, 1], None, [1], [0.5])], message="Duplicate index in sparse vector.")
    optimize(c, "wide", dense=[([[1.0, 2.0]], [1.0])], message="More dense features than we have parameters for: 2")
    optimize(c, "vector", dense=[([1.0, 2.0], [1.0])], message="Dense features at index 0 must be rank 2 but is rank 1")
    optimize(
        c, "state_rank", sparse=[group], state=[1.0], message="example_state_data must be rank 2 but is rank 1", **two
    )
    optimize(c, "state_shape", sparse=[group], state=[[1.0] * 4], message="Expected shape [2,4]", **two)
    optimize(c, "unequal", sparse=[([0, 0], [1], None, [1], [0.5])], message="Found mismatched example_indices")
