"""Recipes for ops with indices: gather, scatter, segments, counts, searches."""

import values
from recipes import Like, recipe

import numpy as np


def found(s, shape, depth, count):
    """Indices into the first `depth` dimensions of a shape, now and then one that is beyond."""
    rows = (
        np.stack([s.integers(0, max(dim - 1, 0), count) for dim in shape[:depth]], axis=-1)
        if depth
        else np.zeros((*count, 0))
    )
    if rows.size and s.chance(0.03):
        rows.reshape(-1)[0] = s.pick([-1, 99])
    return rows


def spot(s):
    """A shape, how many of its dimensions indices have, and the shape of a batch of them."""
    shape = s.shape(1)
    return shape, s.small(1, len(shape)), s.pick([(1,), (2,), (4,), (2, 3), (7,)])


@recipe("GatherNd")
def _gather_nd(s, a):
    shape, depth, count = spot(s)
    a.pop("bad_indices_policy", None)
    return [Like(shape), found(s, shape, s.small(0, depth), count)]


@recipe("GatherV2")
def _gather(s, a):
    shape = s.shape(1)
    axis = s.axis(shape)
    batch = a["batch_dims"] = s.small(0, axis) if s.chance(0.3) else 0
    count = (*shape[:batch], *s.pick([(), (1,), (3,), (2, 2)]))
    return [Like(shape), s.integers(0, max(shape[axis] - 1, 0), count), axis]


@recipe("ScatterNd")
def _scatter_nd(s, a):
    shape, depth, count = spot(s)
    a.pop("bad_indices_policy", None)
    return [found(s, shape, depth, count), Like((*count, *shape[depth:])), shape]


@recipe("ScatterNdNonAliasingAdd", *(f"TensorScatter{name}" for name in ("Add", "Sub", "Min", "Max", "Update")))
def _tensor_scatter(s, a):
    shape, depth, count = spot(s)
    a.pop("bad_indices_policy", None)
    return [Like(shape), found(s, shape, depth, count), Like((*count, *shape[depth:]))]


@recipe("SparseToDense")
def _sparse_to_dense(s, a):
    shape = s.shape(1)
    places = [place for place in np.ndindex(*shape) if s.chance(0.3)]
    return [np.array(places, int).reshape(len(places), len(shape)), shape, Like(s.pick([(len(places),), ()])), Like(())]


@recipe("DynamicPartition")
def _dynamic_partition(s, a):
    shape = s.shape(1)
    partitions = shape[: s.small(1, len(shape))]
    return [Like(shape), s.integers(0, a["num_partitions"] - 1, partitions)]


@recipe("DynamicStitch", "ParallelDynamicStitch")
def _dynamic_stitch(s, a):
    counts = [s.pick([(), (1,), (3,), (2, 2), (0,)]) for _ in range(a["N"])]
    rest = s.shape()[:2]
    total = sum(int(np.prod(count)) for count in counts)
    order = (
        s.random.permutation(total)
        if s.chance(0.5) or s.op.startswith("Parallel")
        else s.integers(0, max(total - 1, 0), total)
    )
    parts, at = [], 0
    for count in counts:
        size = int(np.prod(count))
        parts.append(order[at : at + size].reshape(count))
        at += size
    return [*parts, *(Like((*count, *rest)) for count in counts)]


@recipe(*(f"Segment{name}" for name in ("Sum", "Mean", "Prod", "Min", "Max")))
def _segment(s, a):
    shape = s.shape(1)
    return [Like(shape), np.sort(s.integers(0, shape[0] + 1, shape[0]))]


@recipe(*(f"UnsortedSegment{name}" for name in ("Sum", "Prod", "Min", "Max", "Join")))
def _unsorted_segment(s, a):
    shape, number = s.shape(1), s.small(1, 6)
    return [Like(shape), s.integers(-1, number - 1, shape[: s.small(1, len(shape))]), number]


def _sparse(s):
    shape, count = s.shape(1), s.small(0, 9)
    return shape, s.integers(0, max(shape[0] - 1, 0), count), np.sort(s.integers(0, 4, count))


@recipe(*(f"SparseSegment{name}" for name in ("Sum", "Mean", "SqrtN")))
def _sparse_segment(s, a):
    shape, indices, segments = _sparse(s)
    return [Like(shape), indices, segments]


@recipe(*(f"SparseSegment{name}WithNumSegments" for name in ("Sum", "Mean", "SqrtN")))
def _sparse_segment_number(s, a):
    shape, indices, segments = _sparse(s)
    return [Like(shape), indices, segments, s.small(5, 7)]


@recipe(*(f"SparseSegment{name}Grad{version}" for name in ("Sum", "Mean", "SqrtN") for version in ("", "V2")))
def _sparse_segment_grad(s, a):
    _, indices, segments = _sparse(s)
    return [Like((5, *s.shape()[:2])), indices, segments, 9]


@recipe("Bincount")
def _bincount(s, a):
    shape, size = s.shape(), s.small(0, 9)
    return [s.integers(0, 9, shape), size, Like(s.pick([shape, (0,)]))]


@recipe("DenseBincount")
def _dense_bincount(s, a):
    shape = s.pick([(s.small(0, 12),), (s.small(1, 4), s.small(1, 6))])
    return [s.integers(0, 9, shape), s.small(0, 9), Like(s.pick([shape, (0,)]))]


@recipe("RaggedBincount")
def _ragged_bincount(s, a):
    lengths = s.integers(0, 4, s.small(1, 4))
    count = int(lengths.sum())
    return [[0, *np.cumsum(lengths)], s.integers(0, 9, count), s.small(0, 9), Like(s.pick([(count,), (0,)]))]


@recipe("HistogramFixedWidth")
def _histogram(s, a):
    low = s.small(-3, 2)
    return [Like(s.shape()), [low, low + s.small(1, 5)], s.small(1, 9)]


@recipe("LowerBound", "UpperBound")
def _bound(s, a):
    rows = s.small(0, 3)
    return [np.sort(s.integers(0, 9, (rows, s.small(0, 7))), axis=-1), s.integers(-1, 10, (rows, s.small(0, 5)))]


@recipe("TopKV2", "TopK")
def _top_k(s, a):
    shape = s.shape(1)
    count = s.small(0, shape[-1])
    if "k" in a:
        a["k"] = count
        return [Like(shape)]
    return [Like(shape), count]


@recipe("NthElement")
def _nth_element(s, a):
    shape = s.shape(1)
    return [Like(shape), s.small(0, max(shape[-1] - 1, 0))]


@recipe("InTopK", "InTopKV2")
def _in_top_k(s, a):
    rows, classes = s.small(0, 6), s.small(1, 6)
    targets = s.integers(-1, classes, rows)
    if "k" in a:
        a["k"] = s.small(0, classes)
        return [Like((rows, classes)), targets]
    return [Like((rows, classes)), targets, s.small(0, classes)]


@recipe("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_cross_entropy(s, a):
    rows, classes = s.small(0, 6), s.small(1, 12)
    return [Like((rows, classes)), s.integers(0, classes - 1, rows)]


@recipe("SoftmaxCrossEntropyWithLogits")
def _cross_entropy(s, a):
    shape = (s.small(0, 6), s.small(1, 12))
    return [Like(shape), Like(s.pick([shape, shape, (1, shape[1])]), values.pos)]


@recipe("EditDistance")
def _edit_distance(s, a):
    outer = (s.small(1, 2), s.small(1, 3))
    return [part for _ in range(2) for part in _sequences(s, outer)]


def _sequences(s, outer):
    """Sequences of few symbols at each place, as the three parts of a sparse tensor."""
    longest = s.small(1, 5)
    indices = [(*place, i) for place in np.ndindex(*outer) for i in range(s.small(0, longest))]
    return [np.array(indices, int).reshape(len(indices), 3), s.integers(0, 2, len(indices)), (*outer, longest)]
