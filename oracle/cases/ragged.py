"""Ragged ranges, rows of ragged tensors by index, and their sparse form."""

from values import *

import numpy as np


def cases(c):
    for splits in ("int64", "int32"):
        c.op("RaggedRange", [lit([0, 5, 8]), lit([3, 5, 2]), lit([1, 1, -2])], "rows", Tsplits=splits)
    both = {"types": ["float", "int32"], "Tsplits": "int64"}
    c.op("RaggedRange", [lit(0), lit([3, 0, 5]), lit(2)], "scalars", **both)
    c.op("RaggedRange", [lit(2), lit(5), lit(1)], "all_scalars", **both)
    c.op("RaggedRange", [empty(0), empty(0), empty(0)], "empty", **both)
    c.op("RaggedRange", [lit(0.0), lit(1.0), lit(0.3)], "fractions", T="float", Tsplits="int64")
    c.op("RaggedRange", [lit(0), lit(3), lit(0)], "no_step", **both)
    c.op("RaggedRange", [lit([0, 1]), lit([3]), lit(1)], "lengths_differ", **both)
    c.op("RaggedRange", [lit([[0]]), lit(3), lit(1)], "not_a_vector", **both)
    c.op(
        "RaggedRange",
        [0, 2**40, 1],
        "too_long",
        T="int64",
        Tsplits="int32",
        message="Requires ((limit - start) / delta) <= 2147483647",
    )
    c.op("RaggedRange", [0, [2**30, 2**30, 2**30], 1], "too_long_together", T="int64", Tsplits="int32")
    nan = np.array(np.nan, np.float32)
    c.op("RaggedRange", [nan, lit(3), lit(1)], "nan", T="float", Tsplits="int64")

    splits = [0, 2, 2, 5]
    c.op(
        "RaggedGather", [[splits], iota(5), [2, 0, 1, 2]], "rows", few=True, PARAMS_RAGGED_RANK=1, OUTPUT_RAGGED_RANK=1
    )
    one = {"Tvalues": "float", "PARAMS_RAGGED_RANK": 1}
    for kinds in ({"Tindices": "int32", "Tsplits": "int32"}, {"Tindices": "int64", "Tsplits": "int64"}):
        c.op("RaggedGather", [[splits], iota(5, 2), [2, 0]], "wide_values", OUTPUT_RAGGED_RANK=1, **one, **kinds)
    k = {"Tindices": "int64", "Tsplits": "int64"}
    c.op("RaggedGather", [[splits], iota(5), 2], "scalar", OUTPUT_RAGGED_RANK=0, **one, **k)
    c.op("RaggedGather", [[splits], iota(5), [[2, 0], [1, 1]]], "matrix", OUTPUT_RAGGED_RANK=2, **one, **k)
    deep = [[0, 1, 1, 3], [0, 2, 2, 5]]
    two = {"Tvalues": "float", "PARAMS_RAGGED_RANK": 2, "OUTPUT_RAGGED_RANK": 2}
    c.op("RaggedGather", [deep, iota(5), [2, 1, 0, 2]], "two_levels", **two, **k)
    c.op("RaggedGather", [[splits], iota(5), np.zeros(0)], "none", OUTPUT_RAGGED_RANK=1, **one, **k)
    c.op("RaggedGather", [[[0]], empty(0), np.zeros(0)], "of_nothing", OUTPUT_RAGGED_RANK=1, **one, **k)
    c.op(
        "RaggedGather",
        [[splits], iota(5), [3]],
        "out_of_bounds",
        OUTPUT_RAGGED_RANK=1,
        message="indices[0] = 3 is not in [0, 3)",
        **one,
        **k,
    )
    c.op("RaggedGather", [[splits], iota(5), [-1]], "negative", OUTPUT_RAGGED_RANK=1, **one, **k)
    c.op("RaggedGather", [[[0, 2, 1, 5]], iota(5), [0]], "unsorted", OUTPUT_RAGGED_RANK=1, **one, **k)
    c.op("RaggedGather", [[[0, 2, 6]], iota(5), [0]], "past_values", OUTPUT_RAGGED_RANK=1, **one, **k)

    for kind in ("int64", "int32"):
        c.op("RaggedTensorToSparse", [[splits], iota(5)], "rows", few=True, RAGGED_RANK=1, Tsplits=kind)
    s = {"T": "float", "Tsplits": "int64"}
    c.op("RaggedTensorToSparse", [[splits], iota(5, 2)], "wide_values", RAGGED_RANK=1, **s)
    c.op("RaggedTensorToSparse", [deep, iota(5)], "two_levels", RAGGED_RANK=2, **s)
    c.op("RaggedTensorToSparse", [[[0, 0, 2], [0, 0, 3]], iota(3, 1, 2)], "empty_rows", RAGGED_RANK=2, **s)
    c.op("RaggedTensorToSparse", [[[0]], empty(0)], "empty", RAGGED_RANK=1, **s)
    c.op("RaggedTensorToSparse", [[[0, 3]], iota(5)], "bad_end", RAGGED_RANK=1, **s)
    c.op("RaggedTensorToSparse", [[[1, 5]], iota(5)], "bad_begin", RAGGED_RANK=1, **s)
    c.op(
        "RaggedTensorToSparse",
        [[[0, 3, 2, 5]], iota(5)],
        "decreasing",
        RAGGED_RANK=1,
        message="Ragged splits should be non decreasing, but we got 3 followed by 2",
        **s,
    )
    c.op("RaggedTensorToSparse", [[[0, 2], [0, 5]], iota(5)], "levels_differ", RAGGED_RANK=2, **s)
