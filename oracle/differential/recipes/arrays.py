"""Recipes for ops that move elements: shapes, slices, diagonals, blocks."""

from recipes import Like, recipe

import numpy as np


@recipe("Fill")
def _fill(s, a):
    return [s.shape(), Like(())]


@recipe("Range")
def _range(s, a):
    if s.chance(0.5):
        return [s.small(-3, 3), s.small(3, 12), s.small(1, 4)]
    return [s.small(3, 12), s.small(-3, 3), -s.small(1, 4)]


@recipe("LinSpace")
def _lin_space(s, a):
    return [Like(()), Like(()), s.small(1, 20)]


@recipe("OneHot")
def _one_hot(s, a):
    shape = s.shape()
    a["axis"] = s.small(-1, len(shape))
    depth = s.small(0, 5)
    return [s.integers(-1, depth, shape), depth, Like(()), Like(())]


@recipe("BroadcastTo")
def _broadcast_to(s, a):
    shape = s.shape()
    return [Like(s.thinned(shape)), shape]


@recipe("BroadcastGradientArgs")
def _broadcast_gradient_args(s, a):
    shape = s.shape()
    return [s.thinned(shape), s.thinned(shape)]


@recipe("EnsureShape")
def _ensure_shape(s, a):
    shape = s.shape()
    a["shape"] = [-1 if s.chance(0.3) else dim for dim in shape]
    return [Like(shape)]


@recipe("Concat")
def _concat(s, a):
    axis, parts = _parts(s, a["N"])
    return [axis, *map(Like, parts)]


@recipe("ConcatV2")
def _concat_v2(s, a):
    axis, parts = _parts(s, a["N"])
    return [*map(Like, parts), axis]


@recipe("ConcatOffset")
def _concat_offset(s, a):
    axis, parts = _parts(s, a["N"])
    return [axis, *parts]


def _parts(s, count):
    """An axis, and shapes that differ along it alone."""
    shape = s.shape(1)
    axis = s.axis(shape)
    parts = [list(shape) for _ in range(count)]
    for part in parts:
        part[axis] = s.small(0, 4)
    return axis, parts


@recipe("Split")
def _split(s, a):
    shape = list(s.shape(1))
    axis = s.axis(shape)
    shape[axis] = a["num_split"] * s.small(0, 3)
    return [axis, Like(shape)]


@recipe("SplitV")
def _split_v(s, a):
    shape = list(s.shape(1))
    axis = s.axis(shape)
    sizes = [s.small(0, 3) for _ in range(a["num_split"])]
    shape[axis] = sum(sizes)
    if s.chance(0.3):
        sizes[s.small(0, len(sizes) - 1)] = -1
    return [Like(shape), sizes, axis]


@recipe("Unpack")
def _unpack(s, a):
    shape = s.shape(1)
    a["axis"] = s.axis(shape)
    a["num"] = shape[a["axis"]]
    return [Like(shape)]


@recipe("Reverse")
def _reverse(s, a):
    shape = s.shape()
    return [Like(shape), s.integers(0, 1, len(shape))]


@recipe("ReverseV2")
def _reverse_v2(s, a):
    shape = s.shape()
    axes = [axis - len(shape) if s.chance(0.3) else axis for axis in range(len(shape)) if s.chance(0.5)]
    return [Like(shape), axes]


@recipe("ReverseSequence")
def _reverse_sequence(s, a):
    shape = s.shape(2)
    a["batch_dim"], a["seq_dim"] = (int(axis) for axis in s.random.permutation(len(shape))[:2])
    return [Like(shape), s.integers(0, shape[a["seq_dim"]], shape[a["batch_dim"]])]


@recipe("Roll")
def _roll(s, a):
    shape, count = s.shape(1), s.small(1, 2)
    return [
        Like(shape),
        *s.pick([(s.integers(-9, 9, count), s.integers(0, len(shape) - 1, count)), (s.small(-9, 9), s.axis(shape))]),
    ]


@recipe("Slice")
def _slice(s, a):
    shape = s.shape()
    begin = [s.small(0, dim // 2) for dim in shape]
    size = [-1 if s.chance(0.2) else s.small(0, dim - start) for dim, start in zip(shape, begin)]
    return [Like(shape), begin, size]


def strides(s, a):
    """A shape, the three vectors of a strided slice of it, and the shape of the slice; masks are set."""
    shape = s.shape(1)
    begin, end, strides, picks = [], [], [], []
    masks = {f"{name}_mask": 0 for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    axes, at = list(shape[: s.small(1, len(shape))]), 0
    while axes or s.chance(0.15):
        bit = 1 << at
        at += 1
        if s.chance(0.1) or not axes:
            masks["new_axis_mask"] |= bit
            picks.append(None)
            row = (0, 0, 1)
        elif s.chance(0.1) and not masks["ellipsis_mask"] and len(axes) + len(shape) > 1:
            masks["ellipsis_mask"] |= bit
            picks.append(Ellipsis)
            # It stands for at least one axis more than there are specifications.
            axes.pop()
            row = (0, 0, 1)
        else:
            dim = axes.pop(0)
            first, last, step = s.small(-dim - 1, dim + 1), s.small(-dim - 1, dim + 1), s.pick([1, 1, 2, 3, -1, -2])
            row = (first, last, step)
            if dim and s.chance(0.2):
                masks["shrink_axis_mask"] |= bit
                row = (s.small(-dim, dim - 1), last, 1)
                picks.append(int(row[0]))
            else:
                masks["begin_mask"] |= bit * s.chance(0.2)
                masks["end_mask"] |= bit * s.chance(0.2)
                picks.append(
                    slice(None if masks["begin_mask"] & bit else first, None if masks["end_mask"] & bit else last, step)
                )
        for values, value in zip((begin, end, strides), row):
            values.append(value)
    a.update(masks)
    try:
        result = np.empty(shape, bool)[tuple(picks)].shape
    except IndexError:
        result = shape
    return shape, [begin, end, strides], result


@recipe("StridedSlice")
def _strided_slice(s, a):
    shape, vectors, _ = strides(s, a)
    return [Like(shape), *vectors]


@recipe("StridedSliceGrad")
def _strided_slice_grad(s, a):
    shape, vectors, result = strides(s, a)
    return [shape, *vectors, Like(result)]


@recipe("TensorStridedSliceUpdate")
def _strided_slice_update(s, a):
    shape, vectors, result = strides(s, a)
    return [Like(shape), *vectors, Like(result)]


@recipe("Pad", "PadV2", "MirrorPad")
def _pad(s, a):
    shape = s.shape()
    paddings = s.integers(0, 2, (len(shape), 2)) if s.chance(0.8) else s.integers(0, 9, (len(shape), 2))
    if "mode" in a:
        paddings = np.minimum(paddings, np.array(shape, int).reshape(-1, 1) - (a["mode"] == b"REFLECT")).clip(0)
    return [Like(shape), paddings] + [Like(())] * (s.op == "PadV2")


@recipe("MirrorPadGrad")
def _mirror_pad_grad(s, a):
    shape = s.shape()
    paddings = np.minimum(
        s.integers(0, 2, (len(shape), 2)), np.array(shape, int).reshape(-1, 1) - (a["mode"] == b"REFLECT")
    ).clip(0)
    return [Like([dim + int(pair.sum()) for dim, pair in zip(shape, paddings)]), paddings]


@recipe("DiagPart")
def _diag_part(s, a):
    shape = s.shape(1)[:2]
    return [Like((*shape, *shape))]


def _band(s, rows, columns):
    """A diagonal, or a band of them, of a matrix: the value of `k`, and the shape of its diagonals."""
    low = s.small(1 - rows, columns - 1) if rows and columns else 0
    if s.chance(0.5):
        return s.pick([low, [low], [low, low]]), (_length(rows, columns, low, low),)
    high = s.small(low, max(columns - 1, low))
    width = _length(rows, columns, low, high)
    return [low, high], (high - low + 1, width) if high > low else (width,)


def _length(rows, columns, low, high):
    return max(min(rows + min(high, 0), columns - max(low, 0)), 0)


def _matrix(s):
    return [s.small(0, 2) for _ in range(s.small(0, 2))], s.small(1, 6), s.small(1, 6)


@recipe("MatrixDiagPartV2", "MatrixDiagPartV3")
def _matrix_diag_part(s, a):
    outer, rows, columns = _matrix(s)
    return [Like((*outer, rows, columns)), _band(s, rows, columns)[0], Like(())]


@recipe("MatrixDiagV2", "MatrixDiagV3")
def _matrix_diag(s, a):
    outer, rows, columns = _matrix(s)
    k, shape = _band(s, rows, columns)
    size = s.pick([(rows, columns), (rows, columns), (-1, -1), (rows, -1), (-1, columns)])
    return [Like((*outer, *shape)), k, *size, Like(())]


@recipe("MatrixSetDiag")
def _matrix_set_diag(s, a):
    outer, rows, columns = _matrix(s)
    return [Like((*outer, rows, columns)), Like((*outer, min(rows, columns)))]


@recipe("MatrixSetDiagV2", "MatrixSetDiagV3")
def _matrix_set_diags(s, a):
    outer, rows, columns = _matrix(s)
    k, shape = _band(s, rows, columns)
    return [Like((*outer, rows, columns)), Like((*outer, *shape)), k]


@recipe("SpaceToDepth", "DepthToSpace")
def _depth(s, a):
    block = a["block_size"] = s.small(2, 3)
    a["data_format"] = b"NHWC" if s.chance(0.9) else b"NCHW"
    batch, height, width, depth = (s.small(1, 3) for _ in range(4))
    if s.op == "SpaceToDepth":
        return [Like((batch, height * block, width * block, depth))]
    return [Like((batch, height, width, depth * block * block))]


@recipe("SpaceToBatch", "SpaceToBatchND")
def _space_to_batch(s, a):
    is_plain = s.op == "SpaceToBatch"
    blocks = [s.small(2, 3)] * 2 if is_plain else [s.small(1, 3) for _ in range(s.small(1, 3))]
    paddings = s.integers(0, 2, (len(blocks), 2))
    spatial = []
    for block, (before, after) in zip(blocks, paddings):
        total = block * s.small(1, 4)
        while total < before + after:
            total += block
        spatial.append(total - before - after)
    shape = (s.small(0, 2), *spatial, *([s.small(1, 3)] if is_plain else s.shape()[:2]))
    if is_plain:
        a["block_size"] = blocks[0]
        return [Like(shape), paddings]
    return [Like(shape), blocks, paddings]


@recipe("BatchToSpace", "BatchToSpaceND")
def _batch_to_space(s, a):
    is_plain = s.op == "BatchToSpace"
    blocks = [s.small(2, 3)] * 2 if is_plain else [s.small(1, 3) for _ in range(s.small(1, 3))]
    crops = s.integers(0, 2, (len(blocks), 2))
    spatial = [-(-int(pair.sum()) // block) + s.small(0, 3) for block, pair in zip(blocks, crops)]
    shape = (int(np.prod(blocks)) * s.small(1, 2), *spatial, *([s.small(1, 3)] if is_plain else s.shape()[:2]))
    if is_plain:
        a["block_size"] = blocks[0]
        return [Like(shape), crops]
    return [Like(shape), blocks, crops]


@recipe("InvertPermutation")
def _invert_permutation(s, a):
    return [s.random.permutation(s.small(0, 9))]


@recipe("Unique", "UniqueWithCounts")
def _unique(s, a):
    return [Like((s.small(0, 30),))]


@recipe("UniqueV2", "UniqueWithCountsV2")
def _unique_along(s, a):
    if s.chance(0.4):
        return [Like((s.small(0, 30),)), []]
    shape = s.shape(1)
    return [Like(shape), [s.axis(shape)]]


@recipe("ListDiff")
def _list_diff(s, a):
    return [Like((s.small(0, 12),)), Like((s.small(0, 12),))]


@recipe("Select")
def _select(s, a):
    shape = s.shape()
    condition = s.pick([shape, shape, (), shape[:1]])
    return [Like(condition), Like(shape), Like(shape)]


@recipe("ClipByValue")
def _clip(s, a):
    shape = s.shape()
    return [Like(shape), Like(s.pick([shape, ()])), Like(s.pick([shape, ()]))]


@recipe("Cross")
def _cross(s, a):
    shape = (*s.shape(), 3)
    return [Like(shape), Like(shape)]
