"""Recipes for sparse and ragged tensors, sets and counts."""

from recipes import Like, recipe

import numpy as np


def _indices(s, shape, most=6):
    """Places of entries, in order and without repetition."""
    count = min(s.small(0, most), int(np.prod(shape)))
    flat = np.sort(s.random.choice(int(np.prod(shape)), count, replace=False)) if count else np.zeros([0], np.int64)
    return np.stack(np.unravel_index(flat, shape), 1).reshape(-1, len(shape))


def _shape(s, rank=None):
    return tuple(s.small(1, 4) for _ in range(rank or s.small(1, 3)))


def _tensor(s, rank=None, shape=None):
    """The three parts of a sparse tensor."""
    shape = shape or _shape(s, rank)
    indices = _indices(s, shape)
    return [indices, Like((len(indices),)), list(shape)]


def _splits(s, rows):
    return np.concatenate([[0], np.cumsum(s.integers(0, 3, (rows,)))]).astype(np.int64)


@recipe("SparseReorder")
def _reorder(s, a):
    indices, values, shape = _tensor(s)
    return [s.random.permutation(indices), values, shape]


@recipe("SparseReshape")
def _reshape(s, a):
    shape = _shape(s)
    size = int(np.prod(shape))
    new = s.pick([[size], [-1], [1, size], [-1, 1], list(reversed(shape))])
    return [_indices(s, shape), list(shape), new]


@recipe("SparseReduceMax", "SparseReduceMaxSparse", "SparseReduceSum", "SparseReduceSumSparse")
def _reduce(s, a):
    parts = _tensor(s)
    rank = len(parts[2])
    axes = s.pick([[0], [rank - 1], [-1], list(range(rank)), []])
    return [*parts, axes]


@recipe("SparseSoftmax")
def _softmax(s, a):
    return _tensor(s, s.small(2, 3))


@recipe("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv")
def _with_dense(s, a):
    parts = _tensor(s)
    return [*parts, Like(s.thinned(tuple(parts[2])))]


@recipe("SparseTensorDenseAdd")
def _dense_add(s, a):
    parts = _tensor(s)
    return [*parts, Like(tuple(parts[2]))]


@recipe("SparseAdd")
def _add(s, a):
    shape = _shape(s)
    threshold = 0
    return [*_tensor(s, shape=shape), *_tensor(s, shape=shape), threshold]


@recipe("SparseSparseMaximum", "SparseSparseMinimum")
def _larger(s, a):
    shape = _shape(s)
    return [*_tensor(s, shape=shape), *_tensor(s, shape=shape)]


@recipe("SparseConcat")
def _concat(s, a):
    shape = _shape(s)
    a["concat_dim"] = s.axis(shape)
    a["N"] = s.small(2, 3)
    parts = []
    for _ in range(a["N"]):
        own = list(shape)
        own[a["concat_dim"]] = s.small(1, 4)
        parts.append(_tensor(s, shape=tuple(own)))
    return [part[i] for i in range(3) for part in parts]


@recipe("SparseSlice")
def _slice(s, a):
    parts = _tensor(s)
    start = [s.small(0, dim - 1) for dim in parts[2]]
    size = [s.small(0, dim) for dim in parts[2]]
    return [*parts, start, size]


@recipe("SparseSplit")
def _split(s, a):
    shape = _shape(s)
    axis = s.axis(shape)
    a["num_split"] = s.small(1, shape[axis])
    return [axis, *_tensor(s, shape=shape)]


@recipe("SparseFillEmptyRows")
def _fill(s, a):
    return [*_tensor(s, 2), Like(())]


@recipe("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad")
def _fill_grad(s, a):
    count = s.small(1, 5)
    return [s.integers(0, count - 1, (s.small(0, count),)), Like((count,))]


@recipe("SparseTensorDenseMatMul")
def _product(s, a):
    rows, inner, columns = (s.small(1, 4) for _ in range(3))
    shape = (inner, rows) if a.get("adjoint_a") else (rows, inner)
    other = (columns, inner) if a.get("adjoint_b") else (inner, columns)
    return [*_tensor(s, shape=shape), Like(other)]


@recipe("SparseSliceGrad")
def _slice_grad(s, a):
    shape = _shape(s)
    before = _indices(s, shape)
    start = [s.small(0, 1) for _ in shape]
    kept = before[np.all(before >= start, axis=1)] if len(before) else before
    return [Like((len(kept),)), before, start, kept - start if len(kept) else kept]


@recipe("SparseBincount")
def _bincount(s, a):
    shape = _shape(s, s.small(1, 2))
    indices = _indices(s, shape)
    return [indices, s.integers(0, 5, (len(indices),)), list(shape), s.small(0, 6), Like((s.pick([0, len(indices)]),))]


@recipe("SparseCountSparseOutput")
def _count(s, a):
    a["minlength"], a["maxlength"] = s.pick([-1, 3]), s.pick([-1, 4])
    shape = _shape(s, s.small(1, 2))
    indices = _indices(s, shape)
    return [indices, s.integers(0, 5, (len(indices),)), list(shape), Like((s.pick([0, len(indices)]),))]


@recipe("DenseCountSparseOutput")
def _dense_count(s, a):
    a["minlength"], a["maxlength"] = s.pick([-1, 3]), s.pick([-1, 4])
    shape = _shape(s, s.small(1, 2))
    return [s.integers(0, 5, shape), Like(shape) if s.chance(0.5) else Like((0,))]


@recipe("RaggedCountSparseOutput")
def _ragged_count(s, a):
    a["minlength"], a["maxlength"] = s.pick([-1, 3]), s.pick([-1, 4])
    splits = _splits(s, s.small(1, 4))
    return [splits, s.integers(0, 5, (splits[-1],)), Like((s.pick([0, splits[-1]]),))]


@recipe("DenseToDenseSetOperation")
def _sets(s, a):
    a["set_operation"] = s.pick([b"a-b", b"b-a", b"intersection", b"union"])
    outer = _shape(s, s.small(1, 2))
    pair = [s.integers(0, 4, (*outer, s.small(1, 4))) for _ in range(2)]
    return pair if a["T"] != "string" else [np.char.add("w", each.astype(str)).astype(object) for each in pair]


@recipe("SetSize")
def _set_size(s, a):
    indices, _, shape = _tensor(s, 2)
    entries = s.integers(0, 3, (len(indices),))
    return [indices, entries if a["T"] != "string" else [f"w{entry}" for entry in entries], shape]


@recipe("RaggedRange")
def _ragged_range(s, a):
    count = s.small(1, 4)
    shape = (count,)
    return [s.integers(-3, 3, shape), s.integers(-5, 6, shape), s.pick([1, 2, -1])]


@recipe("RaggedGather")
def _ragged_gather(s, a):
    a["PARAMS_RAGGED_RANK"] = 1
    a["OUTPUT_RAGGED_RANK"] = 1
    rows = s.small(1, 4)
    splits = _splits(s, rows)
    return [splits, Like((splits[-1],)), s.integers(0, rows - 1, (s.small(0, 4),))]


@recipe("RaggedTensorToSparse")
def _ragged_to_sparse(s, a):
    a["RAGGED_RANK"] = 1
    splits = _splits(s, s.small(1, 4))
    return [splits, Like((splits[-1],))]


@recipe("RaggedTensorToTensor")
def _ragged_to_tensor(s, a):
    a["num_row_partition_tensors"] = 1
    a["row_partition_types"] = ["ROW_SPLITS"]
    splits = _splits(s, s.small(1, 4))
    shape = s.pick([[-1, -1], [-1, 3], [2, -1], [3, 2], -1])
    return [shape, Like((splits[-1],)), Like(()), splits]


@recipe("RaggedFillEmptyRows")
def _ragged_fill(s, a):
    rows = s.small(1, 4)
    ids = np.sort(s.integers(0, rows - 1, (s.small(0, 5),)))
    return [ids, Like((len(ids),)), rows, Like(())]
