"""Moving blocks of space into the batch or into the depth, and back."""

from values import *


def cases(c):
    c.op("SpaceToBatchND", [arr(1, 4, 2), [2], [[0, 0]]])
    c.op("SpaceToBatchND", [arr(2, 4, 6, 2), [2, 3], [[0, 0], [0, 0]]], "two", T="float")
    c.op("SpaceToBatchND", [arr(2, 3, 4, 2), [2, 3], [[1, 0], [0, 2]]], "padded", T="float")
    c.op("SpaceToBatchND", [arr(1, 4), [1], [[0, 0]]], "blocks_of_one", T="float")
    c.op("SpaceToBatchND", [arr(1, 4), [3], [[0, 0]]], "not_divisible", T="float")
    c.op("SpaceToBatchND", [arr(1, 4), [0], [[0, 0]]], "zero_block", T="float")
    c.op("SpaceToBatchND", [arr(1, 4), [2], [[-1, 1]]], "negative", T="float")
    c.op("SpaceToBatchND", [arr(1, 4), [2, 2], [[0, 0], [0, 0]]], "rank_too_small", T="float")
    c.op("SpaceToBatchND", [arr(1, 4), [2], [[0, 0], [0, 0]]], "wrong_paddings", T="float")
    c.op("BatchToSpaceND", [arr(4, 2, 2), [2], [[0, 0]]])
    c.op("BatchToSpaceND", [arr(6, 2, 2, 2), [2, 3], [[0, 0], [0, 0]]], "two", T="float")
    c.op("BatchToSpaceND", [arr(6, 2, 2, 2), [2, 3], [[1, 0], [0, 2]]], "cropped", T="float")
    c.op("BatchToSpaceND", [arr(3, 4), [2], [[0, 0]]], "not_divisible", T="float")
    c.op("BatchToSpaceND", [arr(4, 1), [2], [[2, 1]]], "cropped_away", T="float")
    c.op("BatchToSpaceND", [arr(4, 1), [2], [[-1, 1]]], "negative", T="float")
    c.op("SpaceToBatch", [arr(1, 4, 2, 2), [[0, 0], [1, 1]]], block_size=2)
    c.op("SpaceToBatch", [arr(1, 4), [[0, 0], [0, 0]]], "wrong_rank", T="float", block_size=2)
    c.op("BatchToSpace", [arr(4, 2, 2, 2), [[0, 0], [1, 0]]], block_size=2)
    c.op("BatchToSpace", [arr(3, 2, 2, 2), [[0, 0], [1, 0]]], "not_divisible", T="float", block_size=2)
    c.op("SpaceToDepth", [arr(2, 4, 2, 3)], block_size=2)
    c.op("SpaceToDepth", [arr(1, 6, 3, 2)], "three", T="float", block_size=3)
    c.op("SpaceToDepth", [arr(1, 3, 2, 2)], "not_divisible", T="float", block_size=2)
    c.op("SpaceToDepth", [arr(3, 2, 2)], "wrong_rank", T="float", block_size=2)
    c.op("DepthToSpace", [arr(2, 2, 3, 8)], block_size=2)
    c.op("DepthToSpace", [arr(1, 1, 2, 9)], "three", T="float", block_size=3)
    c.op("DepthToSpace", [arr(1, 2, 2, 2)], "not_divisible", T="float", block_size=2)
    c.op("SpaceToDepth", [arr(1, 2, 4, 4)], "channels_first", T="float", block_size=2, data_format="NCHW")
    c.op("DepthToSpace", [arr(1, 4, 2, 2)], "channels_first", T="float", block_size=2, data_format="NCHW")
