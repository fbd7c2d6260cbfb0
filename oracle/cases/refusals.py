"""Bad arguments, and the sentences that refuse them: programs and TensorFlow's own tests look for these."""

from values import *

import numpy as np
import tensorflow as tf

ROWS = np.float32(np.arange(12).reshape(3, 4))
IMAGE = np.float32(np.arange(48).reshape(1, 4, 4, 3))
VOLUME = np.zeros((1, 4, 4, 4, 2), np.float32)
raw_ops = tf.raw_ops


def floats(value):
    return np.float32(value)


def ints(value):
    return np.int32(value)


def refuse(c, op, cases, **attrs):
    """Cases are (name, inputs) or (name, inputs, attributes); stock's whole sentence counts."""
    for name, inputs, *more in cases:
        given = dict(more[0]) if more else {}
        c.op(op, inputs, name, **{"message": SENTENCE, **attrs, **given})


def splits(c):
    refuse(
        c,
        "Split",
        [
            ("uneven", [ints(0), ROWS], {"num_split": 2}),
            ("axis_too_small", [ints(-3), ROWS], {"num_split": 1}),
            ("axis_too_large", [ints(5), ROWS], {"num_split": 1}),
            ("two_axes", [ints([0, 1]), ROWS], {"num_split": 1}),
            ("no_axis", [ints([]), ROWS], {"num_split": 1}),
            ("scalar", [ints(0), floats(3)], {"num_split": 1}),
            ("no_parts", [ints(0), ROWS], {"num_split": 0}),
        ],
        T="float",
    )
    parts = {
        "negative_part": ([1, -3], 1),
        "negative_part_of_enough": ([-2, 5], 0),
        "axis_too_large": ([1, 2], 7),
        "axis_too_small": ([1, 2], -3),
        "matrix_of_parts": ([[1, 2]], 0),
        "two_axes": ([1, 2], [0, 1]),
        "axis_in_a_vector": ([1, 2], [0]),
        "too_few": ([3], 0),
        "too_little": ([1, 1], 0),
        "too_much": ([5, -1], 0),
        "two_rests": ([-1, -1], 0),
    }
    refuse(
        c,
        "SplitV",
        [(name, [ROWS, np.int64(sizes), ints(axis)]) for name, (sizes, axis) in parts.items()],
        num_split=2,
        T="float",
        Tlen="int64",
    )


def scans(c):
    for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
        axes = {"too_large": 2, "too_small": -3, "vector": [0], "nothing": []}
        refuse(c, op, [(name, [ROWS, ints(axis)]) for name, axis in axes.items()], T="float", Tidx="int32")
        p = c.program(f"{op}/constant_vector")
        p.const(ROWS, name="x")
        p.const(ints([0]), name="axis")
        p.node(op, ["x", "axis"], name="y", T="float", Tidx="int32")
        p.step(fetch=["y"], message=SENTENCE)


def pools(c):
    sizes = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID", "T": "float"}
    bad = {
        "no_window": {"ksize": [1, 0, 2, 1]},
        "negative_window": {"ksize": [1, -1, 2, 1]},
        "window_over_no_images": {"ksize": [0, 2, 2, 1]},
        "three_sizes": {"ksize": [1, 2, 2]},
        "no_stride": {"strides": [1, 0, 2, 1]},
        "no_stride_along_channels": {"strides": [1, 1, 1, 0]},
        "images": {"ksize": [2, 2, 2, 1]},
        "channels_and_space": {"ksize": [1, 2, 2, 2]},
        "channels_uneven": {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2]},
        "channels": {"ksize": [1, 1, 1, 3], "strides": [1, 1, 1, 3]},
        "too_large": {"ksize": [1, 5, 5, 1]},
    }
    for op, more in (("MaxPool", {}), ("AvgPool", {}), ("MaxPoolWithArgmax", {"Targmax": "int64"})):
        refuse(c, op, [(name, [IMAGE], attrs) for name, attrs in bad.items()], **sizes, **more)
        refuse(c, op, [("rank", [IMAGE[0]])], **(sizes | more | {"message": "tensor_in"}))
    around = {
        "top": [0, 0, 2, 0, 0, 0, 0, 0],
        "bottom": [0, 0, 0, 2, 0, 0, 0, 0],
        "left": [0, 0, 0, 0, 2, 0, 0, 0],
        "right": [0, 0, 0, 0, 0, 2, 0, 0],
    }
    refuse(
        c,
        "MaxPool",
        [(f"padding_at_the_{side}", [IMAGE], {"explicit_paddings": pads}) for side, pads in around.items()],
        **(sizes | {"padding": "EXPLICIT"}),
    )
    small = np.zeros((1, 2, 2, 3), np.float32)
    for op in ("MaxPoolGrad", "MaxPoolGradGrad"):
        gradient = small if op == "MaxPoolGrad" else IMAGE
        wrong = {
            "input": (IMAGE[0], small, gradient),
            "output": (IMAGE, small[0], gradient),
            "gradient": (IMAGE, small, gradient[0]),
        }
        refuse(c, op, [(f"rank_of_{name}", list(inputs)) for name, inputs in wrong.items()], **sizes)
        refuse(
            c,
            op,
            [
                ("strides", [IMAGE, small, gradient], {"strides": [1, 2, 2, 1, 1]}),
                ("channels", [IMAGE, small, gradient], bad["channels"]),
            ],
            **sizes,
        )
    by_input = {
        "no_window": ([1, 0, 2, 1], [1, 2, 2, 1]),
        "three_sizes": ([1, 2, 2], [1, 2, 2, 1]),
        "three_strides": ([1, 2, 2, 1], [1, 2, 2]),
    }
    refuse(
        c,
        "MaxPoolV2",
        [(name, [IMAGE, ints(k), ints(s)]) for name, (k, s) in by_input.items()],
        padding="VALID",
        T="float",
    )
    for op in ("MaxPool3D", "AvgPool3D"):
        cubes = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID", "T": "float"}
        refuse(
            c,
            op,
            [
                ("no_window", [VOLUME], {"ksize": [1, 0, 2, 2, 1]}),
                ("no_stride", [VOLUME], {"strides": [1, 0, 2, 2, 1]}),
                ("images", [VOLUME], {"ksize": [2, 2, 2, 2, 1]}),
                ("channels", [VOLUME], {"ksize": [1, 2, 2, 2, 2]}),
                ("rank", [VOLUME[0]]),
            ],
            **cubes,
        )


def scatters(c):
    cases = {
        "too_large": ([[3]], [1], [3]),
        "negative": ([[-1]], [1], [3]),
        "negative_in_a_tuple": ([[0, -1]], [1], [3, 2]),
        "one_of_two": ([[[0]], [[7]]], [[1], [2]], [3]),
        "outer": ([[0], [1]], [1, 2, 3], [3]),
        "inner": ([[0]], [[1, 2]], [3, 3]),
        "too_deep": ([[0, 0, 0]], [1], [3, 3]),
        "shape_scalar": ([[0]], [1], 3),
        "shape_matrix": ([[0]], [1], [[3]]),
        "negative_shape": ([[0]], [1], [-3]),
        "into_nothing": ([[0]], [1], [0]),
        "index_scalar": (0, 1, [3]),
        "update_scalar": ([[0]], 1, [3]),
        "no_indices": (np.zeros((0, 1)), [1], [3]),
    }
    refuse(
        c,
        "ScatterNd",
        [(name, [ints(i), floats(u), ints(s)]) for name, (i, u, s) in cases.items()],
        T="float",
        Tindices="int32",
    )
    for op in ("TensorScatterUpdate", "TensorScatterAdd"):
        shapes = {
            name: s for name, (_, _, s) in cases.items() if isinstance(s, list) and np.ndim(s) == 1 and min(s) >= 0
        }
        chosen = [
            (name, [np.zeros(shapes[name], np.float32), ints(cases[name][0]), floats(cases[name][1])])
            for name in shapes
        ]
        refuse(c, op, chosen, T="float", Tindices="int32")


def segments(c):
    sorted_cases = {
        "not_sorted": [0, 2, 1],
        "negative": [-1, 0, 0],
        "short": [0, 1],
        "matrix": [[0, 1, 1]],
        "scalar": 0,
        "down": [1, 0, 0],
        "all_negative": [-1, -1, -1],
    }
    for op in ("SegmentSum", "SegmentMean", "SegmentMax"):
        refuse(c, op, [(name, [ROWS, ints(ids)]) for name, ids in sorted_cases.items()], T="float", Tindices="int32")
    counted = {
        "too_large": ([0, 1, 9], 3),
        "short": ([0, 1], 3),
        "negative_count": ([0, 1, 2], -1),
        "count_vector": ([0, 1, 2], [3]),
        "ids_matrix": ([[0, 1], [2, 0]], 3),
        "no_segments": ([0, 1, 2], 0),
    }
    for op in ("UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"):
        refuse(
            c,
            op,
            [(name, [ROWS, ints(ids), ints(count)]) for name, (ids, count) in counted.items()],
            T="float",
            Tindices="int32",
            Tnumsegments="int32",
        )
    refuse(
        c,
        "UnsortedSegmentJoin",
        [
            (name, [lit(["a", "b", "c"]), ints(ids), ints(count)])
            for name, (ids, count) in counted.items()
            if name in ("too_large", "negative_count")
        ],
        Tindices="int32",
        Tnumsegments="int32",
    )
    sparse = {
        "index_too_large": ([0, 5], [0, 1]),
        "index_negative": ([0, -1], [0, 1]),
        "not_sorted": ([0, 1, 2], [0, 2, 1]),
        "segment_negative": ([0, 1], [-1, 0]),
        "lengths": ([0, 1, 2], [0, 1]),
        "indices_matrix": ([[0, 1]], [0, 1]),
        "segments_matrix": ([0, 1], [[0, 1]]),
    }
    counts = {
        "segment_too_large": ([0, 1], [0, 5], 3),
        "negative_count": ([0, 1], [0, 1], -1),
        "count_vector": ([0, 1], [0, 1], [2]),
        "too_few": ([0, 1], [0, 1], 1),
        "segment_negative": ([0, 1], [-1, 0], 3),
    }
    rows = {
        "index_too_large": ([0, 5, 1], [0, 1, 2], 3),
        "index_negative": ([0, -5, 1], [0, 1, 2], 3),
        "segment_too_large": ([0, 1, 2], [0, 1, 5], 3),
        "segment_negative": ([0, 1, 2], [-1, 0, 1], 3),
        "rows_vector": ([0, 1, 2], [0, 1, 2], [3]),
        "negative_rows": ([0, 1, 2], [0, 1, 2], -1),
        "lengths": ([0, 1], [0, 1, 2], 3),
    }
    types = {"T": "float", "Tidx": "int32", "Tsegmentids": "int32"}
    for op in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"):
        refuse(c, op, [(name, [ROWS, ints(i), ints(s)]) for name, (i, s) in sparse.items()], **types)
        refuse(
            c,
            op + "WithNumSegments",
            [(name, [ROWS, ints(i), ints(s), ints(n)]) for name, (i, s, n) in counts.items()],
            **types,
            Tnumsegments="int32",
        )
        refuse(c, op + "Grad", [(name, [ROWS, ints(i), ints(s), ints(n)]) for name, (i, s, n) in rows.items()], **types)


def diagonals(c):
    matrices = np.zeros((2, 3, 4), np.float32)
    wrong = {"length": np.ones((2, 4)), "batch": np.ones((3, 3)), "rank": np.ones(3), "scalar": 1}
    refuse(
        c,
        "MatrixSetDiag",
        [(name, [matrices, floats(d)]) for name, d in wrong.items()] + [("vector", [floats([1]), floats([1])])],
        T="float",
    )
    bands = {
        "too_high": (np.ones((2, 3)), 5),
        "too_low": (np.ones((2, 3)), -4),
        "upper_too_high": (np.ones((2, 3)), [0, 9]),
        "order": (np.ones((2, 2, 3)), [1, 0]),
        "three_ends": (np.ones((2, 3)), [0, 1, 2]),
        "no_ends": (np.ones((2, 3)), []),
        "ends_matrix": (np.ones((2, 3)), [[0]]),
        "length": (np.ones((2, 4)), 0),
        "count": (np.ones((2, 3, 3)), [0, 1]),
        "one_for_two": (np.ones((2, 3)), [0, 1]),
        "batch": (np.ones((3, 2, 3)), [0, 1]),
    }
    for op in ("MatrixSetDiagV2", "MatrixSetDiagV3"):
        refuse(c, op, [(name, [matrices, floats(d), ints(k)]) for name, (d, k) in bands.items()], T="float")


def texts(c):
    good = tf.make_tensor_proto(np.float32([1, 2, 3, 4]))
    longer, negative, typeless = (tf.make_tensor_proto(np.float32([1, 2, 3, 4])) for _ in range(3))
    longer.tensor_shape.dim[0].size, negative.tensor_shape.dim[0].size, typeless.dtype = 7, -7, 0
    c.op("ParseTensor", [lit(b"\xff\xfe nonsense")], "nonsense", out_type="float", message=SENTENCE)
    c.op("ParseTensor", [lit(good.SerializeToString()[:-3])], "cut_off", out_type="float", message=SENTENCE)
    c.op("ParseTensor", [lit(good.SerializeToString())], "other_type", out_type="int32", message=SENTENCE)
    c.op("ParseTensor", [lit([good.SerializeToString()])], "vector", out_type="float", message=SENTENCE)
    for name, proto in (("too_few_values", longer), ("negative_size", negative), ("no_type", typeless)):
        c.op(
            "ParseTensor",
            [lit(proto.SerializeToString())],
            name,
            out_type="float",
            message="Cannot parse tensor from proto",
        )


def lists(c):
    shape = ints([2])
    pairs = np.float32([[1, 2], [3, 4]])
    reserve = lambda shape=(2,), count=3: raw_ops.TensorListReserve(
        element_shape=ints(shape), num_elements=count, element_dtype=tf.float32
    )
    length = lambda handle: raw_ops.TensorListLength(input_handle=handle)
    listed = lambda: raw_ops.TensorListFromTensor(tensor=pairs, element_shape=shape)
    split = lambda: raw_ops.TensorListSplit(tensor=pairs, element_shape=ints([-1, 2]), lengths=np.int64([1, 1]))
    get = {"index": 0, "element_shape": shape, "element_dtype": tf.float32}

    def case(name, build, dtype, values):
        def traced():
            x = tf.compat.v1.placeholder(dtype)
            y = build(x)
            return [
                ({x: convert(value, {tf.float32: "float", tf.int32: "int32", tf.int64: "int64"}[dtype])}, [y])
                for value in values
            ]

        c.traced(name, traced, message=SENTENCE)

    case(
        "TensorListReserve/count",
        lambda n: length(raw_ops.TensorListReserve(element_shape=shape, num_elements=n, element_dtype=tf.float32)),
        tf.int32,
        [-1, [1]],
    )
    case(
        "TensorListReserve/shape",
        lambda s: length(raw_ops.TensorListReserve(element_shape=s, num_elements=1, element_dtype=tf.float32)),
        tf.int32,
        [-2, 3, [2, -3], [[2]]],
    )
    case(
        "EmptyTensorList/limit",
        lambda n: length(raw_ops.EmptyTensorList(element_shape=shape, max_num_elements=n, element_dtype=tf.float32)),
        tf.int32,
        [[1]],
    )
    case(
        "TensorListPushBack/shape",
        lambda x: length(raw_ops.TensorListPushBack(input_handle=reserve(count=0), tensor=x)),
        tf.float32,
        [[1, 2, 3], 1],
    )
    case(
        "TensorListPopBack/unset",
        lambda s: raw_ops.TensorListPopBack(input_handle=reserve([-1], 1), element_shape=s, element_dtype=tf.float32)[
            1
        ],
        tf.int32,
        [-1, [2, 2]],
    )
    case(
        "TensorListPopBack/empty",
        lambda s: raw_ops.TensorListPopBack(input_handle=reserve(count=0), element_shape=s, element_dtype=tf.float32)[
            1
        ],
        tf.int32,
        [-1],
    )
    case(
        "TensorListGetItem/index",
        lambda i: raw_ops.TensorListGetItem(input_handle=listed(), **(get | {"index": i})),
        tf.int32,
        [2, -1, [0]],
    )
    case(
        "TensorListGetItem/unset",
        lambda s: raw_ops.TensorListGetItem(input_handle=reserve(-1), **(get | {"element_shape": s})),
        tf.int32,
        [-1, [-1]],
    )
    case(
        "TensorListSetItem/index",
        lambda i: length(raw_ops.TensorListSetItem(input_handle=reserve(), index=i, item=[1.0, 2.0])),
        tf.int32,
        [3, -1],
    )
    case(
        "TensorListSetItem/shape",
        lambda x: length(raw_ops.TensorListSetItem(input_handle=reserve(), index=0, item=x)),
        tf.float32,
        [[1, 2, 3], 1],
    )
    case(
        "TensorListResize/size",
        lambda n: length(raw_ops.TensorListResize(input_handle=reserve(), size=n)),
        tf.int32,
        [-1, [1]],
    )
    case(
        "TensorListStack/shape",
        lambda s: raw_ops.TensorListStack(input_handle=listed(), element_shape=s, element_dtype=tf.float32),
        tf.int32,
        [[3], [2, 2]],
    )
    case(
        "TensorListStack/count",
        lambda s: raw_ops.TensorListStack(
            input_handle=listed(), element_shape=s, element_dtype=tf.float32, num_elements=3
        ),
        tf.int32,
        [[2]],
    )
    case(
        "TensorListStack/unset",
        lambda s: raw_ops.TensorListStack(input_handle=reserve(-1), element_shape=s, element_dtype=tf.float32),
        tf.int32,
        [-1],
    )
    case(
        "TensorListGather/indices",
        lambda i: raw_ops.TensorListGather(
            input_handle=listed(), indices=i, element_shape=shape, element_dtype=tf.float32
        ),
        tf.int32,
        [[2], [-1]],
    )
    case(
        "TensorListFromTensor/tensor",
        lambda x: length(raw_ops.TensorListFromTensor(tensor=x, element_shape=shape)),
        tf.float32,
        [1, [1, 2], [[1, 2, 3]]],
    )
    case(
        "TensorListFromTensor/shape",
        lambda s: length(raw_ops.TensorListFromTensor(tensor=pairs, element_shape=s)),
        tf.int32,
        [[3], [[2]]],
    )
    case(
        "TensorListScatter/indices",
        lambda i: length(raw_ops.TensorListScatter(tensor=pairs, indices=i, element_shape=shape)),
        tf.int32,
        [[0, -1], [0], [0, 1, 2]],
    )
    case(
        "TensorListScatterV2/count",
        lambda n: length(
            raw_ops.TensorListScatterV2(tensor=pairs, indices=[0, 1], element_shape=shape, num_elements=n)
        ),
        tf.int32,
        [1, 0, -2, [2]],
    )
    case(
        "TensorListScatterIntoExistingList/row",
        lambda x: length(raw_ops.TensorListScatterIntoExistingList(input_handle=reserve(), tensor=x, indices=[0])),
        tf.float32,
        [1, [[1, 2, 3]]],
    )
    case(
        "TensorListSplit/lengths",
        lambda n: length(raw_ops.TensorListSplit(tensor=pairs, element_shape=ints([-1, 2]), lengths=n)),
        tf.int64,
        [[1], [3], [-1, 3], 1],
    )
    case(
        "TensorListSplit/shape",
        lambda s: length(raw_ops.TensorListSplit(tensor=pairs, element_shape=s, lengths=np.int64([1, 1]))),
        tf.int32,
        [[], [1, 3]],
    )
    case(
        "TensorListConcatV2/shape",
        lambda s: raw_ops.TensorListConcatV2(
            input_handle=split(), element_shape=s, leading_dims=np.int64([]), element_dtype=tf.float32
        )[0],
        tf.int32,
        [[], [-1, 3], [2, 2]],
    )
    case(
        "TensorListConcatV2/unset",
        lambda n: raw_ops.TensorListConcatV2(
            input_handle=reserve([3, 2], 2), element_shape=ints([-1, 2]), leading_dims=n, element_dtype=tf.float32
        )[0],
        tf.int64,
        [[], [1], [1, 2]],
    )
    case(
        "TensorListPushBackBatch/rows",
        lambda x: length(raw_ops.TensorListPushBackBatch(input_handles=tf.stack([reserve([], 0)] * 2), tensor=x)[0]),
        tf.float32,
        [1, [1], [[1], [2]]],
    )


def areas(c):
    p = c.program("Stage/types")
    shared = {"shared_name": "area"}
    p.placeholder("float", name="x")
    p.placeholder("int32", name="i")
    p.node("Stage", ["x"], name="put", dtypes=["float"], **shared)
    p.node("Unstage", name="take_int", dtypes=["int32"], **shared)
    p.node("Unstage", name="take_two", dtypes=["float", "int32"], **shared)
    p.node("StagePeek", ["i"], name="peek_two", dtypes=["float", "int32"], **shared)
    p.node("StageSize", name="size", dtypes=["float"], **shared)
    for fetch in ("take_int", "take_two"):
        p.step(target=["put"], feed={"x": floats([1, 2])})
        p.step(fetch=[fetch], message=SENTENCE)
        p.step(fetch=["size"])
    p.step(target=["put"], feed={"x": floats([1, 2])})
    p.step(fetch=["peek_two"], feed={"i": ints(0)}, message=SENTENCE)
    p.step(fetch=["peek_two"], feed={"i": ints([0])}, message=SENTENCE)
    p.step(fetch=["size"])
    p = c.program("Stage/limit")
    p.placeholder("float", name="x")
    p.node("Stage", ["x"], name="put", dtypes=["float"], memory_limit=16, **shared)
    p.step(target=["put"], feed={"x": floats(range(5))}, message=SENTENCE)
    p.step(target=["put"], feed={"x": floats(range(4))})


def promises(c):
    p = c.program("GuaranteeConst/handle")
    p.node("VarHandleOp", name="v", dtype="float", shape=[])
    p.const(floats(1), name="one")
    p.node("AssignVariableOp", ["v", "one"], name="set", dtype="float")
    p.node("GuaranteeConst", ["v"], name="promise", T="resource")
    p.node("ReadVariableOp", ["promise"], name="read", dtype="float")
    p.node("ReadVariableOp", ["v"], name="value", dtype="float")
    p.node("GuaranteeConst", ["value"], name="value_promise", T="float")
    p.step(target=["set"])
    p.step(fetch=["read"], message=SENTENCE)
    p.step(target=["promise"], message=SENTENCE)
    p.step(fetch=["value_promise"])


def shapes_known(c):
    """Mistakes that shapes show before anything runs, but that stock leaves to the kernels."""
    cases = {
        "GatherV2": (
            {"params": ROWS[:2], "indices": ints([[0], [0], [1]]), "axis": ints(1)},
            {"Tparams": "float", "Tindices": "int32", "Taxis": "int32", "batch_dims": 1},
        ),
        "UpperBound": ({"sorted": ROWS[:1], "values": ROWS[:2]}, {"T": "float", "out_type": "int32"}),
        "UniqueWithCounts": ({"x": floats(1)}, {"T": "float", "out_idx": "int32"}),
    }
    for op, (inputs, attrs) in cases.items():
        p = c.program(f"{op}/constants")
        for name, value in inputs.items():
            p.const(value, name=name)
        p.node(op, list(inputs), name="y", **attrs)
        p.step(fetch=["y"], message=SENTENCE)


def cases(c):
    for group in (splits, scans, pools, scatters, segments, diagonals, texts, lists, areas, promises, shapes_known):
        group(c)
