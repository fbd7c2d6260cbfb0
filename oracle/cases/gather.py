"""Reading rows and elements by index."""

from values import *

import numpy as np


def cases(c):
    c.op("GatherV2", [arr(3, 2), [2, 0, 2], 0], batch_dims=0)
    c.op("GatherV2", [arr(2, 3), [2, 0], 1], "axis_1", few=True)
    c.op("GatherV2", [arr(2, 3), [[2, 0], [1, 1]], -1], "negative_axis", few=True)
    c.op("GatherV2", [arr(3, 2), 1, 0], "scalar_index", few=True)
    c.op("GatherV2", [arr(3, 2), np.zeros((0,)), 0], "no_indices", few=True)
    c.op("GatherV2", [empty(3, 0), [0, 1], 0], "empty_rows", few=True)
    c.op("GatherV2", [empty(0, 2), np.zeros((0,)), 0], "empty_params", few=True)
    c.op("GatherV2", [empty(0, 2), [0], 0], "index_into_nothing", few=True)
    c.op("GatherV2", [arr(2, 3), [[0, 2], [1, 1]], 1], "batch", few=True, batch_dims=1)
    c.op("GatherV2", [arr(2, 2, 3), [[0, 2], [1, 1]], 2], "batch_then_axis", few=True, batch_dims=1)
    c.op("GatherV2", [arr(2, 2, 2), [[[0], [1]], [[1], [0]]], 2], "batch_2", few=True, batch_dims=2)
    c.op("GatherV2", [arr(2, 3), [[0, 2], [1, 1]], 1], "negative_batch", few=True, batch_dims=-1)
    c.op("GatherV2", [arr(1, 2, 1, 2, 2), [1, 0], 3], "rank_5", few=True)
    c.op("GatherV2", [arr(3), [7], 0], "out_of_range", few=True, message="indices[0] = 7 is not in [0, 3)")
    c.op(
        "GatherV2",
        [arr(3), [[0, 1], [2, -1]], 0],
        "negative_index",
        few=True,
        message="indices[1,1] = -1 is not in [0, 3)",
    )
    c.op("GatherV2", [arr(), [0], 0], "scalar_params", few=True)
    c.op("GatherV2", [arr(3), [0], 1], "axis_out_of_range", few=True)
    c.op("GatherV2", [arr(3), [0], -2], "axis_out_of_range_below", few=True)
    c.op("GatherV2", [arr(3), [0], [0]], "axis_is_vector", few=True)
    c.op("GatherV2", [arr(2, 3), [[0], [1], [2]], 1], "batch_mismatch", few=True, batch_dims=1)
    c.op("GatherV2", [arr(2, 3), [0], 1], "batch_too_large", few=True, batch_dims=2)
    c.op("Gather", [arr(3, 2), [2, 0]])
    c.op("Gather", [arr(3, 2), [3]], "out_of_range", few=True)
    c.op("Gather", [arr(3), [[0], [2]]], "matrix_of_indices", few=True)

    c.op("GatherNd", [arr(2, 3), [[1, 2], [0, 0]]])
    c.op("GatherNd", [arr(2, 3), [[1], [0]]], "rows", few=True)
    c.op("GatherNd", [arr(2, 3), [1, 2]], "one", few=True)
    c.op("GatherNd", [arr(2, 3), np.zeros((2, 0))], "whole", few=True)
    c.op("GatherNd", [arr(2, 2, 3), [[[1, 0]], [[0, 1]]]], "nested", few=True)
    c.op("GatherNd", [arr(2, 3), np.zeros((0, 2))], "no_indices", few=True)
    c.op("GatherNd", [empty(0, 2), np.zeros((0, 1))], "empty", few=True)
    c.op("GatherNd", [empty(0, 2), [[0]]], "index_into_nothing", few=True)
    c.op("GatherNd", [arr(2, 3), [[1, 3]]], "out_of_range", few=True)
    c.op("GatherNd", [arr(2, 3), [[-1, 0]]], "negative", few=True)
    c.op("GatherNd", [arr(2, 3), [[0, 0, 0]]], "too_deep", few=True)
    c.op("GatherNd", [arr(2, 3), 0], "scalar_indices", few=True)
    c.op("GatherNd", [arr(), [[0]]], "scalar_params", few=True)
    # Nobody looks at indices when the result is empty.
    c.op("Gather", [empty(3, 0), [5]], "nothing_to_read", Tparams="float", Tindices="int32")
    c.op("GatherV2", [empty(0, 3), [7], 1], "nothing_to_read", Tparams="float", Tindices="int32", Taxis="int32")
    c.op("GatherV2", [empty(0, 3), [7], 0], "nothing_to_read_from", Tparams="float", Tindices="int32", Taxis="int32")
