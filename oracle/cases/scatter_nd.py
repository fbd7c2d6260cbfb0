"""Writing elements by index into a new tensor."""

from values import *

import numpy as np


def cases(c):
    c.op("ScatterNd", [[[1], [3]], arr(2), [5]])
    c.op("ScatterNd", [[[1], [1], [0]], pos(3), [3]], "duplicates_add", few=True)
    c.op("ScatterNd", [[[1], [0]], arr(2, 3), [2, 3]], "rows", few=True)
    c.op("ScatterNd", [[[0, 1], [1, 0]], arr(2), [2, 2]], "elements", few=True)
    c.op("ScatterNd", [np.zeros((0, 1)), empty(0), [3]], "nothing", few=True)
    c.op("ScatterNd", [[[0]], arr(1), [0]], "into_nothing", few=True)
    c.op("ScatterNd", [[[5]], arr(1), [3]], "out_of_range", few=True)
    c.op("ScatterNd", [[[-1]], arr(1), [3]], "negative", few=True)
    c.op("ScatterNd", [[[0]], arr(2), [3]], "wrong_updates", few=True)
    c.op("ScatterNd", [[[0]], arr(1), [-3]], "negative_shape", few=True)
    c.op("ScatterNd", [[[0]], arr(1), [[3]]], "shape_not_vector", few=True)
    for op in (
        "TensorScatterUpdate",
        "TensorScatterAdd",
        "TensorScatterSub",
        "TensorScatterMin",
        "TensorScatterMax",
        "ScatterNdNonAliasingAdd",
    ):
        c.op(op, [arr(5), [[1], [3]], arr(2, seed=1)])
        c.op(op, [arr(3, 2), [[1], [0]], arr(2, 2, seed=1)], "rows", few=True)
        c.op(op, [arr(2, 2), [[0, 1], [1, 0]], arr(2, seed=1)], "elements", few=True)
        c.op(op, [arr(3), [[1], [1]], arr(2, seed=1)], "duplicates", few=True)
        c.op(op, [arr(3), np.zeros((0, 1)), empty(0)], "nothing", few=True)
        c.op(op, [arr(3), [[3]], arr(1)], "out_of_range", few=True)
        c.op(op, [arr(3), [[0]], arr(2)], "wrong_updates", few=True)
        c.op(op, [arr(), [[0]], arr(1)], "scalar", few=True)
    c.op("SparseToDense", [[[0, 1], [1, 2]], [2, 3], arr(2), arr(seed=1)], "matrix")
    c.op("SparseToDense", [[1, 3], [5], arr(2), lit(0)], "vector", few=True)
    c.op("SparseToDense", [1, [3], arr(), lit(0)], "scalar", few=True)
    c.op("SparseToDense", [[1, 2], [3], arr(), lit(0)], "one_value", few=True)
    c.op("SparseToDense", [np.zeros((0, 2)), [2, 2], empty(0), lit(1)], "nothing", few=True)
    c.op("SparseToDense", [[3, 1], [5], arr(2), lit(0)], "unsorted", T="float")
    c.op("SparseToDense", [[3, 1], [5], arr(2), lit(0)], "unsorted_unchecked", T="float", validate_indices=False)
    c.op("SparseToDense", [[1, 1], [5], arr(2), lit(0)], "repeated", T="float")
    c.op("SparseToDense", [[1, 5], [5], arr(2), lit(0)], "out_of_range", T="float")
    c.op("SparseToDense", [[1, 5], [5], arr(2), lit(0)], "out_of_range_unchecked", T="float", validate_indices=False)
    c.op("SparseToDense", [[1, 2], [5], arr(3), lit(0)], "wrong_values", T="float")
    c.op("SparseToDense", [[[1, 2]], [5], arr(1), lit(0)], "wrong_depth", T="float")
    # A vector of indices: one tuple for some checks, many tuples for others, and only its first element is used.
    for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMin", "TensorScatterMax"):
        c.op(op, [arr(3, 2), [0], arr(2)], "vector_of_indices", T="float", Tindices="int32")
        c.op(op, [arr(2, 1, 1, 2), [0, 0], arr(1, 2)], "tuple_in_a_vector", T="float", Tindices="int32")
        c.op(op, [arr(2, 2), np.zeros((2, 0)), arr(2, 2, 2)], "empty_tuples", T="float", Tindices="int32")
    # What has no order leaves what is there.
    for op in ("TensorScatterMin", "TensorScatterMax"):
        for dtype in FLOATS:
            there, coming = (half(dtype) for half in special_pairs())
            c.op(
                op,
                [lit(there.reshape(9, 9)), np.arange(9)[:, None], lit(coming.reshape(9, 9))],
                "special",
                T=dtype,
                Tindices="int32",
            )
    c.op("ScatterNd", [[0, 1], arr(2), [3]], "vector_of_indices", T="float", Tindices="int32")
    c.op("ScatterNd", [[1], arr(1, 2), [3, 2]], "vector_of_one_index", T="float", Tindices="int32")
    c.op("ScatterNd", [np.zeros((2, 0)), arr(2, 3), [3]], "empty_tuples", T="float", Tindices="int32")
    c.op("ScatterNdNonAliasingAdd", [arr(3, 2), [0, 0, 1], pos(3, 2)], "vector_of_indices", T="float", Tindices="int32")
    c.op("ScatterNdNonAliasingAdd", [arr(3), 1, pos()], "scalar_index", T="float", Tindices="int32")
    c.op("ScatterNdNonAliasingAdd", [arr(3), np.zeros((2, 0)), pos(2, 3)], "empty_tuples", T="float", Tindices="int32")
