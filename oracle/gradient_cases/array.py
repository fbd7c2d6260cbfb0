"""Shapes, slices, joins, gathers and scatters."""

from gradients import any_, fixed, positive

import tensorflow as tf

raw = tf.raw_ops


def cases(c):
    shapes(c)
    slices(c)
    joins(c)
    repeats(c)
    diagonals(c)
    gathers(c)
    scatters(c)
    passes(c)


def shapes(c):
    c.case("Reshape", lambda x: tf.reshape(x, [3, 2]), any_(2, 3))
    c.case("Reshape/empty", lambda x: tf.reshape(x, [3, 0]), any_(0, 3))
    c.case("Reshape/one_unknown", lambda x: tf.reshape(tf.boolean_mask(x, [True, False]), [-1]), any_(2, 3))
    c.case("ExpandDims", lambda x: tf.expand_dims(x, -1), any_(2, 3))
    c.case("Squeeze", tf.squeeze, any_(1, 3, 1))
    c.case("Squeeze/axis", lambda x: tf.squeeze(x, [0]), any_(1, 3, 1))
    c.case("Transpose", lambda x: tf.transpose(x, [2, 0, 1]), any_(2, 3, 2))
    c.case(
        "ConjugateTranspose",
        lambda x: tf.transpose(x, [1, 0], conjugate=True),
        any_(2, 3),
        dtypes=("complex64", "complex128"),
        unknown=False,
    )
    c.case("Reverse", lambda x: raw.Reverse(tensor=x, dims=[True, False]), any_(2, 3))
    c.case("ReverseV2", lambda x: tf.reverse(x, [-1]), any_(2, 3))
    c.case("ReverseSequence", lambda x: tf.reverse_sequence(x, [2, 3], seq_axis=1, batch_axis=0), any_(2, 3, 2))
    c.case("Roll", lambda x: tf.roll(x, [1, -2], [0, 1]), any_(2, 3))
    c.case(
        "SpaceToBatch", lambda x: raw.SpaceToBatch(input=x, paddings=[[1, 0], [0, 1]], block_size=2), any_(1, 3, 3, 1)
    )
    c.case("BatchToSpace", lambda x: raw.BatchToSpace(input=x, crops=[[1, 0], [0, 1]], block_size=2), any_(4, 2, 2, 1))
    c.case("SpaceToBatchND", lambda x: tf.space_to_batch(x, [2], [[1, 0]]), any_(1, 3, 2))
    c.case("BatchToSpaceND", lambda x: tf.batch_to_space(x, [2], [[1, 0]]), any_(2, 2, 2))
    c.case("SpaceToDepth", lambda x: tf.nn.space_to_depth(x, 2), any_(1, 2, 2, 2))
    c.case("DepthToSpace", lambda x: tf.nn.depth_to_space(x, 2), any_(1, 1, 2, 4))


def slices(c):
    c.case("Slice", lambda x: tf.slice(x, [0, 1], [2, 2]), any_(2, 3))
    c.case(
        "Slice/rest",
        lambda x: raw.Slice(input=x, begin=tf.constant([1, 0], tf.int64), size=tf.constant([-1, 2], tf.int64)),
        any_(3, 3),
    )
    c.case("StridedSlice", lambda x: x[:, ::-2], any_(2, 3))
    c.case("StridedSlice/shrink", lambda x: x[1, tf.newaxis, :2], any_(2, 3))
    c.case("StridedSlice/ellipsis", lambda x: x[..., 1:], any_(2, 2, 3))
    c.case("StridedSlice/empty", lambda x: x[2:1], any_(2, 3))
    grad = lambda dy: raw.StridedSliceGrad(shape=[2, 3], begin=[0, 0], end=[2, 3], strides=[1, 2], dy=dy)
    c.case("StridedSliceGrad", grad, any_(2, 2))
    update = lambda x, v: raw.TensorStridedSliceUpdate(input=x, begin=[0, 1], end=[2, 3], strides=[1, 1], value=v)
    c.case("TensorStridedSliceUpdate", update, any_(2, 3), any_(2, 2))
    c.case("TensorStridedSliceUpdate/repeated", update, any_(2, 3), any_(2, 1))
    c.case("Pad", lambda x: tf.pad(x, [[1, 0], [0, 2]]), any_(2, 3))
    c.case(
        "PadV2",
        lambda x: raw.PadV2(
            input=x, paddings=tf.constant([[1, 0], [0, 2]], tf.int64), constant_values=tf.constant(3, x.dtype)
        ),
        any_(2, 3),
    )
    for mode in ("REFLECT", "SYMMETRIC"):
        c.case(f"MirrorPad/{mode}", lambda x, mode=mode: tf.pad(x, [[1, 0], [1, 1]], mode), any_(2, 3))
        c.case(
            f"MirrorPadGrad/{mode}",
            lambda x, mode=mode: raw.MirrorPadGrad(input=x, paddings=[[1, 0], [1, 1]], mode=mode),
            any_(3, 5),
        )


def joins(c):
    c.case("ConcatV2", lambda x, y: tf.concat([x, y * 2, x], -1), any_(2, 3), any_(2, 1))
    c.case("ConcatV2/first", lambda x, y: tf.concat([x, y], 0), any_(2, 3), any_(0, 3))
    c.case("ConcatV2/many", lambda x: tf.concat([x * float(i) for i in range(18)], 1), any_(2, 1))
    c.case("Concat", lambda x, y: raw.Concat(concat_dim=1, values=[x, y]), any_(2, 3), any_(2, 1))
    rows = lambda x, y: tf.gather(tf.concat([x, y], 0), [0, 3, 2, 0])
    c.case("ConcatV2/rows", rows, any_(2, 3), any_(2, 3))
    c.case("ConcatV2/rows_of_columns", lambda x, y: tf.gather(tf.concat([x, y], 1), [1, 1, 0]), any_(2, 3), any_(2, 1))
    c.case("Pack", lambda x, y: tf.stack([x, y, x], 1), any_(2, 3), any_(2, 3))
    c.case(
        "Unpack", lambda x: raw.Unpack(value=x, num=3, axis=1)[0] * raw.Unpack(value=x, num=3, axis=1)[2], any_(2, 3)
    )
    c.case("Unpack/all", lambda x: list(raw.Unpack(value=x, num=2)), any_(2, 3))
    c.case("Split", lambda x: raw.Split(axis=1, value=x, num_split=3)[1], any_(2, 3))
    c.case("Split/one", lambda x: raw.Split(axis=1, value=x, num_split=1)[0], any_(2, 3))
    c.case("SplitV", lambda x: raw.SplitV(value=x, size_splits=[1, 2], axis=1, num_split=2)[1], any_(2, 3))


def repeats(c):
    c.case("Tile", lambda x: tf.tile(x, [2, 3]), any_(2, 3))
    c.case("Tile/int64", lambda x: tf.tile(x, tf.constant([1, 2], tf.int64)), any_(2, 3))
    c.case("BroadcastTo", lambda x: tf.broadcast_to(x, [4, 2, 3]), any_(2, 1))
    c.case("BroadcastTo/int64", lambda x: tf.broadcast_to(x, tf.constant([2, 3], tf.int64)), any_())
    c.case("Fill", lambda x: raw.Fill(dims=[2, 3], value=x), any_())


def diagonals(c):
    c.case("Diag", lambda x: raw.Diag(diagonal=x), any_(3))
    c.case("DiagPart", lambda x: raw.DiagPart(input=x), any_(3, 3))
    c.case("MatrixBandPart", lambda x: raw.MatrixBandPart(input=x, num_lower=1, num_upper=0), any_(2, 3, 3))
    c.case("MatrixDiag", lambda x: raw.MatrixDiag(diagonal=x), any_(2, 3))
    c.case("MatrixDiagPart", lambda x: raw.MatrixDiagPart(input=x), any_(2, 3, 3))
    c.case("MatrixDiagPart/wide", lambda x: raw.MatrixDiagPart(input=x), any_(2, 3))
    c.case("MatrixSetDiag", lambda x, d: raw.MatrixSetDiag(input=x, diagonal=d), any_(2, 3, 2), any_(2, 2))
    c.case(
        "MatrixDiagV2",
        lambda x: raw.MatrixDiagV2(diagonal=x, k=1, num_rows=-1, num_cols=-1, padding_value=tf.constant(0, x.dtype)),
        any_(3),
    )
    c.case(
        "MatrixDiagPartV2",
        lambda x: raw.MatrixDiagPartV2(input=x, k=1, padding_value=tf.constant(0, x.dtype)),
        any_(3, 4),
    )
    c.case("MatrixSetDiagV2", lambda x, d: raw.MatrixSetDiagV2(input=x, diagonal=d, k=-1), any_(3, 3), any_(2))
    for align in ("LEFT_RIGHT", "RIGHT_LEFT"):
        diag = lambda x, a=align: raw.MatrixDiagV3(
            diagonal=x, k=[-1, 1], num_rows=3, num_cols=3, padding_value=tf.constant(0, x.dtype), align=a
        )
        c.case(f"MatrixDiagV3/{align}", diag, any_(3, 3))
        part = lambda x, a=align: raw.MatrixDiagPartV3(
            input=x, k=[-1, 1], padding_value=tf.constant(0, x.dtype), align=a
        )
        c.case(f"MatrixDiagPartV3/{align}", part, any_(3, 3))
        c.case(
            f"MatrixSetDiagV3/{align}",
            lambda x, d, a=align: raw.MatrixSetDiagV3(input=x, diagonal=d, k=[-1, 1], align=a),
            any_(3, 3),
            any_(3, 3),
        )


def gathers(c):
    c.case("Gather", lambda x: raw.Gather(params=x, indices=[[1, 1], [0, 2]]), any_(3, 2))
    c.case("GatherV2", lambda x: tf.gather(x, [1, 1, 0]), any_(3, 2))
    c.case("GatherV2/scalar", lambda x: tf.gather(x, 1), any_(3, 2))
    c.case("GatherV2/empty", lambda x: tf.gather(x, tf.zeros([0], tf.int32)), any_(3, 2))
    c.case("GatherV2/int64", lambda x: tf.gather(x, tf.constant([[0], [2]], tf.int64)), any_(3, 2))
    c.case("GatherV2/axis", lambda x: tf.gather(x, [[2, 0], [0, 0]], axis=1), any_(2, 3, 2))
    c.case("GatherV2/last_axis", lambda x: raw.GatherV2(params=x, indices=[1, 0, 1], axis=1), any_(3, 2))
    c.case("GatherV2/batch", lambda x: tf.gather(x, [[2, 0], [0, 0]], axis=1, batch_dims=1), any_(2, 3, 2))
    c.case("GatherV2/batch_inner", lambda x: tf.gather(x, [[1, 0, 1], [0, 0, 1]], axis=2, batch_dims=1), any_(2, 3, 2))
    c.case("GatherV2/batches", lambda x: tf.gather(x, [[[1, 0]], [[0, 0]]], axis=2, batch_dims=2), any_(2, 1, 2))
    c.case(
        "GatherV2/negative_batch",
        lambda x: raw.GatherV2(params=x, indices=[[2, 0], [0, 0]], axis=1, batch_dims=-1),
        any_(2, 3),
    )
    c.case("GatherV2/twice", lambda x: tf.gather(x, [0, 2]) * tf.gather(x, [1, 2]), any_(3, 2))
    c.case("GatherV2/and_whole", lambda x: [tf.gather(x, [0, 2]), x * x], any_(3, 2))
    c.case("GatherNd", lambda x: tf.gather_nd(x, [[0, 1], [1, 2], [0, 1]]), any_(2, 3))
    c.case("GatherNd/rows", lambda x: tf.gather_nd(x, [[0], [0]]), any_(2, 3))
    c.case("GatherNd/slices", lambda x: tf.gather_nd(x, [[[0], [1]]]), any_(2, 3))
    c.case("DynamicPartition", lambda x: tf.dynamic_partition(x, [1, 0, 1], 3)[1] * 3.0, any_(3, 2), dtypes=("float",))
    c.case("DynamicPartition/all", lambda x: tf.dynamic_partition(x, [[1, 0, 1], [2, 0, 1]], 3), any_(2, 3))
    c.case("DynamicStitch", lambda x, y: tf.dynamic_stitch([[0, 2], [1]], [x, y]), any_(2, 2), any_(1, 2))
    c.case(
        "DynamicStitch/twice",
        lambda x, y: raw.ParallelDynamicStitch(indices=[[0, 2], [1]], data=[x, y]),
        any_(2),
        any_(1),
    )


def scatters(c):
    indices = [[1], [0]]
    c.case("ScatterNd", lambda x: tf.scatter_nd(indices, x, [3, 2]), any_(2, 2))
    c.case("TensorScatterUpdate", lambda x, y: tf.tensor_scatter_nd_update(x, indices, y), any_(3, 2), any_(2, 2))
    c.case("TensorScatterAdd", lambda x, y: tf.tensor_scatter_nd_add(x, [[1], [1]], y), any_(3, 2), any_(2, 2))
    c.case("TensorScatterSub", lambda x, y: tf.tensor_scatter_nd_sub(x, [[1], [1]], y), any_(3, 2), any_(2, 2))
    c.case("TensorScatterMax", lambda x, y: tf.tensor_scatter_nd_max(x, indices, y), any_(3, 2), any_(2, 2))
    c.case("TensorScatterMin", lambda x, y: tf.tensor_scatter_nd_min(x, indices, y), any_(3, 2), any_(2, 2))
    c.case(
        "TensorScatterMax/ties",
        lambda x, y: tf.tensor_scatter_nd_max(x, [[1], [1]], y),
        fixed([1.0, 2.0]),
        fixed([2.0, 2.0]),
        unsmooth=True,
    )
    c.case(
        "ScatterNdNonAliasingAdd",
        lambda x, y: raw.ScatterNdNonAliasingAdd(input=x, indices=indices, updates=y),
        any_(3, 2),
        any_(2, 2),
    )
    dense = lambda x, d: raw.SparseToDense(
        sparse_indices=[[0, 1], [1, 0]], output_shape=[2, 2], sparse_values=x, default_value=d
    )
    c.case("SparseToDense", dense, any_(2), any_())


def passes(c):
    c.case("Identity", tf.identity, any_(3))
    c.case("Identity/rows", lambda x: tf.gather(tf.identity(x), [0, 0]), any_(3, 2))
    c.case("IdentityN", lambda x, y: tf.identity_n([x, y])[1], any_(3), any_(3))
    c.case("StopGradient", lambda x: x * tf.stop_gradient(x), any_(3), unsmooth=True)
    c.case("StopGradient/all", tf.stop_gradient, any_(3), unsmooth=True)
    c.case("CheckNumerics", lambda x: tf.debugging.check_numerics(x, "bad"), any_(3))
    c.case("CheckNumericsV2", lambda x: raw.CheckNumericsV2(tensor=x, message="bad"), any_(3))
    c.case("EnsureShape", lambda x: tf.ensure_shape(x, [None, 3]), any_(2, 3))
    c.case("PlaceholderWithDefault", lambda x: tf.compat.v1.placeholder_with_default(x, [3]), any_(3))
    c.case("ZerosLike", lambda x: tf.zeros_like(x) + x, any_(3))
    c.case("OneHot", lambda x: x * tf.one_hot([1, 0], 3, dtype=x.dtype), positive(2, 3))
