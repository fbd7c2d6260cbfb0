"""Set operations on the rows of dense and sparse tensors."""

from values import *

import numpy as np

INDICES = [[0, 0], [0, 3], [2, 1], [2, 2]]


def cases(c):
    a, b = lit([[3, 1, 3], [5, 9, 10], [2, 2, 2]]), lit([[1, 4], [10, 10], [7, 8]])
    sparse = [INDICES, lit([3, 1, 2, 5]), [3, 4]]
    other = [[[0, 0], [1, 0], [2, 0], [2, 1]], lit([3, 4, 2, 2]), [3, 2]]
    for operation in ("a-b", "b-a", "intersection", "union"):
        o = {"set_operation": operation}
        few = operation != "union"
        c.op("DenseToDenseSetOperation", [a, b], operation, few=few, **o)
        c.op("DenseToSparseSetOperation", [a, *sparse], operation, few=few, **o)
        c.op("SparseToSparseSetOperation", [*sparse, *other], operation, few=few, **o)
    union = {"set_operation": "Union", "T": "int64"}
    none = [np.zeros((0, 2)), empty(0), [3, 4]]
    c.op("DenseToDenseSetOperation", [iota(2, 2, 2), iota(2, 2, 1, start=3)], "rank_3", **union)
    c.op("DenseToDenseSetOperation", [empty(2, 0), iota(2, 2)], "empty", **union)
    c.op("DenseToDenseSetOperation", [iota(2), iota(2)], "rank_1", **union)
    c.op("DenseToDenseSetOperation", [iota(2, 2), iota(3, 2)], "rows_differ", **union)
    c.op("DenseToDenseSetOperation", [a, b], "no_such_operation", set_operation="xor", T="int64")
    c.op("DenseToSparseSetOperation", [a, *none], "empty", **union)
    c.op("DenseToSparseSetOperation", [iota(2, 2), *sparse], "rows_differ", **union)
    unsorted = [INDICES[::-1], lit([3, 1, 2, 5]), [3, 4]]
    c.op(
        "DenseToSparseSetOperation",
        [a, *unsorted],
        "unsorted",
        message="is out of order. Many sparse ops require sorted indices",
        **union,
    )
    c.op("DenseToSparseSetOperation", [a, INDICES, lit([3, 1, 2, 5]), [3, 2]], "out_of_bounds", **union)
    c.op("SparseToSparseSetOperation", [*none, *none], "empty", **union)
    c.op("SparseToSparseSetOperation", [*none, *other], "first_empty", **union)
    c.op("SparseToSparseSetOperation", [*sparse, *other[:2], [4, 2]], "rows_differ", **union)
    cube = [[[0, 1, 0], [1, 0, 3]], lit([4, 5]), [2, 2, 4]]
    c.op("SparseToSparseSetOperation", [*cube, *cube], "rank_3", **union)
    c.op("SparseToSparseSetOperation", [[[0]], lit([1]), [2], [[0]], lit([1]), [2]], "rank_1", **union)

    c.op("SetSize", [INDICES, lit([3, 3, 2, 5]), [3, 4]], "rows")
    c.op("SetSize", none, "empty", T="int64")
    c.op("SetSize", cube, "rank_3", T="string")
    c.op("SetSize", unsorted, "unsorted", T="int64")
    far = [[[0, 7], [2, 1]], lit([1, 1]), [3, 4]]
    c.op("SetSize", far, "out_of_bounds", T="int64")
    c.op("SetSize", far, "out_of_bounds_not_validated", T="int64", validate_indices=False)
    c.op("SetSize", [lit(1), lit([1, 1]), lit(1)], "shape_scalar", T="int64")
    c.op("SetSize", [INDICES, lit([3, 3, 2, 5]), [3, 4, 1]], "rank_differs", T="int64")
