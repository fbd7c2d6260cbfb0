"""Neural-network ops: bias, activations and their gradients, softmax, cross-entropy, top-k."""

from values import *

import numpy as np

ACTIVATIONS = ["Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Softplus", "Softsign"]
EXACT = {"Relu", "Relu6", "LeakyRelu"}


def activations(c):
    for op in ACTIVATIONS:
        accuracy = "exact" if op in EXACT else "rounding"
        c.op(op, [arr(2, 3)], accuracy=accuracy)
        c.op(op, [specials()], "specials", accuracy=accuracy, types=REAL)
        c.op(op, [big(19)], "wide", accuracy=accuracy, types=FLOATS)
        c.op(op, [arr()], "scalar", few=True, accuracy=accuracy)
        c.op(op, [empty(0, 2)], "empty", few=True, accuracy=accuracy)
        grad = op + "Grad"
        c.op(grad, [arr(2, 3), arr(2, 3, seed=1)], accuracy=accuracy)
        c.op(grad, special_pairs(), "specials", accuracy=accuracy, types=["half", "bfloat16", "float", "int32"])
        c.op(grad, [empty(0), empty(0)], "empty", few=True)
        c.op(grad, [arr(2, 3), arr(3)], "mismatch", few=True)
    for op in ("Elu", "Selu"):
        c.op(
            op,
            [lit([-0.004, -0.0003, -0.02, 0.0003, 0.6, -5.0])],
            "small",
            types=["half", "bfloat16"],
            accuracy="rounding",
        )
    c.op("LeakyRelu", [arr(2, 3)], "alpha", alpha=0.5)
    c.op("LeakyReluGrad", [arr(2, 3), arr(2, 3, seed=1)], "alpha", alpha=0.5)


def bias(c):
    c.op("BiasAdd", [arr(2, 3), arr(3, seed=1)])
    c.op("BiasAdd", [arr(2, 2, 2, 3), arr(3, seed=1)], "rank_4", few=True)
    c.op("BiasAdd", [arr(2, 3, 2, 2), arr(3, seed=1)], "nchw", few=True, data_format="NCHW")
    c.op("BiasAdd", [arr(2, 3, 2), arr(3, seed=1)], "ncw", few=True, data_format="NCHW")
    c.op("BiasAdd", [empty(0, 3), arr(3)], "empty", few=True)
    c.op("BiasAdd", [arr(2, 3), arr(2)], "mismatch", few=True)
    c.op("BiasAdd", [arr(3), arr(3)], "vector", few=True)
    c.op("BiasAdd", [arr(2, 3), arr(1, 3)], "bias_matrix", few=True)
    c.op("BiasAddV1", [arr(2, 3), arr(3, seed=1)])
    c.op("BiasAddGrad", [arr(4, 3)], accuracy="rounding")
    c.op("BiasAddGrad", [arr(2, 2, 2, 3)], "rank_4", few=True, accuracy="rounding")
    c.op("BiasAddGrad", [arr(2, 3, 2, 2)], "nchw", few=True, accuracy="rounding", data_format="NCHW")
    c.op("BiasAddGrad", [empty(0, 3)], "empty", few=True)
    c.op("BiasAddGrad", [arr(3)], "vector", few=True)


def losses(c):
    for op in ("Softmax", "LogSoftmax"):
        c.op(op, [arr(2, 3)], accuracy="rounding")
        c.op(op, [arr(4)], "vector", few=True, accuracy="rounding")
        c.op(op, [arr(2, 2, 3)], "rank_3", few=True, accuracy="rounding")
        c.op(op, [lit([[1000.0, 1001.0], [-1000.0, -1001.0]])], "large", few=True, accuracy="rounding")
        c.op(
            op,
            [lit([[float("inf"), 1.0], [float("nan"), 1.0], [-float("inf"), 1.0], [-float("inf"), -float("inf")]])],
            "not_finite",
            types=FLOATS,
            accuracy="rounding",
        )
        c.op(op, [empty(0, 3)], "empty", few=True)
        c.op(op, [empty(2, 0)], "no_classes", few=True)
        c.op(op, [arr()], "scalar", few=True)
        c.op(op, [arr(2, 1)], "one_class", few=True, accuracy="rounding")
        c.op(op, [arr(3, 19)], "wide", types=FLOATS, accuracy="rounding")
    xent = "SoftmaxCrossEntropyWithLogits"
    c.op(xent, [arr(2, 3), lit([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])], accuracy="rounding")
    c.op(xent, [arr(2, 3), lit([[0.2, 0.3, 0.5]])], "broadcast_labels", few=True, accuracy="rounding")
    c.op(xent, [arr(1, 3), lit([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])], "broadcast_logits", few=True, accuracy="rounding")
    c.op(xent, [lit([[1000.0, 0.0]]), lit([[0.0, 1.0]])], "large", few=True, accuracy="rounding")
    c.op(
        xent,
        [arr(3, 3), lit([[60000.0, 0.0, 0.0], [0.0, -60000.0, 1.0], [60000.0, -60000.0, 0.0]])],
        "large_labels",
        few=True,
        accuracy="rounding",
    )
    c.op(xent, [empty(0, 3), empty(0, 3)], "empty", few=True)
    c.op(xent, [arr(2, 3), arr(2, 2)], "mismatch", few=True)
    c.op(xent, [arr(3), arr(3)], "vectors", few=True)
    sparse = "Sparse" + xent
    c.op(sparse, [arr(2, 3), [2, 0]], accuracy="rounding")
    c.op(sparse, [lit([[1000.0, 0.0], [0.0, 0.0]]), [1, 1]], "large", few=True, accuracy="rounding")
    c.op(sparse, [empty(0, 3), np.zeros(0)], "empty", few=True)
    c.op(sparse, [arr(2, 3), [0, 3]], "label_out_of_range", few=True)
    c.op(sparse, [arr(2, 3), [-1, 0]], "negative_label", few=True)
    c.op(sparse, [arr(2, 3), [0]], "mismatch", few=True)
    c.op(sparse, [arr(3), [0]], "vector", few=True)
    c.op(sparse, [arr(2, 3), [[0], [1]]], "labels_matrix", few=True)
    c.op("L2Loss", [arr(2, 3)], accuracy="rounding")
    c.op("L2Loss", [arr()], "scalar", few=True, accuracy="rounding")
    c.op("L2Loss", [empty(0)], "empty", few=True, accuracy="rounding")


def top_k(c):
    values = lit([[3, 1, 4, 1], [5, 9, 2, 6]])
    for k in (0, 1, 3):
        c.op("ApproxTopK", [arr(2, 4)], f"k_{k}", k=k)
    c.op("ApproxTopK", [arr(2, 4)], "too_many", T="float", k=5)
    c.op("TopKV2", [values, 2])
    c.op("TopKV2", [values, 2], "sorted", T="float", sorted=True)
    c.op("TopKV2", [lit([1, 3, 3, 3, 2]), 3], "ties", few=True)
    c.op("TopKV2", [values, 1], "one", few=True)
    c.op("TopKV2", [values, 4], "all", few=True)
    c.op("TopKV2", [values, 0], "none", few=True)
    c.op("TopKV2", [arr(2, 2, 3), 2], "rank_3", few=True)
    c.op("TopKV2", [empty(0, 3), 2], "empty", few=True)
    c.op("TopKV2", [lit([1.0, float("nan"), 2.0]), 3], "nan", types=["float"])
    c.op("TopKV2", [values, 5], "too_many", few=True)
    c.op("TopKV2", [values, -1], "negative", few=True)
    c.op("TopKV2", [lit(1), 1], "scalar", few=True)
    c.op("TopKV2", [values, [1]], "k_vector", few=True)
    predictions = lit([[0.1, 0.3, 0.2], [0.5, 0.5, 0.1], [float("nan"), 1.0, 0.0]])
    c.op("InTopKV2", [predictions, [1, 1, 1], 1])
    c.op("InTopKV2", [predictions, [2, 1, 0], 2], "two", T="int32")
    c.op("InTopKV2", [predictions, [3, -1, 0], 2], "label_out_of_range", T="int32")
    c.op("InTopKV2", [predictions, [0, 0], 2], "mismatch", T="int32")
    c.op("InTopKV2", [predictions, [0, 0, 0], 0], "zero", T="int32")
    c.op("InTopK", [predictions, [1, 1, 1]], k=1)
    c.op("InTopK", [[0.1], [0]], "vector", T="int32", k=1)
    c.op("NthElement", [values, 1])
    c.op("NthElement", [values, 1], "reverse", few=True, reverse=True)
    c.op("NthElement", [values, 4], "out_of_range", few=True)


def cases(c):
    c.op(
        "SoftplusGrad",
        [lit([65504.0, np.inf, 1.0, 2.0]), lit([-18.0, -12.0, -10.0, 12.0])],
        "overflow",
        types=["half", "bfloat16", "float"],
        accuracy="rounding",
    )
    activations(c)
    bias(c)
    losses(c)
    top_k(c)
