"""Datasets: what a pipeline's iterator gives, element by element. Those of files are in interop/datasets.py."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
D = tf.data.Dataset


def elements(c, name, make, count=1, **options):
    """The first `count` elements of the dataset that `make` describes."""

    def build():
        nxt = v1.data.make_one_shot_iterator(make()).get_next()
        nxt = tf.nest.map_structure(lambda x: x if isinstance(x, tf.Tensor) else tf.constant(0), nxt)
        return [({}, tf.nest.flatten(nxt))] * count

    c.traced(name, build, **options)


def whole(c, name, make, size=64, **options):
    """All elements of a dataset of equal shapes, as one batch, and its end."""
    elements(c, name, lambda: make().batch(size), 2, **options)


def sources(c):
    for dtype in (tf.int64, tf.int32, tf.float32, tf.float64, tf.uint8):
        whole(c, f"RangeDataset/{dtype.name}", lambda dtype=dtype: D.range(3, 10, 2, output_type=dtype))
    whole(c, "RangeDataset/down", lambda: D.range(10, -1, -3))
    elements(c, "RangeDataset/empty", lambda: D.range(5, 5))
    elements(c, "TensorDataset/nested", lambda: D.from_tensors({"a": [1.0, 2.0], "b": ([b"x"], 3)}), 2)
    elements(c, "TensorSliceDataset/types", lambda: D.from_tensor_slices(([1, 2, 3], [[b"a"], [b"b"], [b"c"]])), 4)
    elements(c, "TensorSliceDataset/empty", lambda: D.from_tensor_slices(np.zeros([0, 2], np.float32)))
    for seeds in ((5, None), (7, 8)):
        whole(c, f"RandomDataset/{seeds}", lambda seeds=seeds: D.random(seeds[0]).take(9), seed=seeds[1])
    p = c.program("TensorSliceDataset/scalar")
    p.const(np.float32(1), name="x")
    p.node("TensorSliceDataset", ["x"], name="d", Toutput_types=["float"], output_shapes=[[]])
    p.node("DatasetCardinality", ["d"], name="n")
    p.step(fetch=["n"])
    p = c.program("RangeDataset/no_step")
    for name, value in (("a", 0), ("b", 5), ("s", 0)):
        p.const(np.int64(value), name=name)
    p.node("RangeDataset", ["a", "b", "s"], name="d", output_types=["int64"], output_shapes=[[]])
    p.node("DatasetCardinality", ["d"], name="n")
    p.step(fetch=["n"])
    whole(c, "ZipDataset/shortest", lambda: D.zip((D.range(5), D.range(10, 13))))
    whole(c, "ConcatenateDataset/two", lambda: D.range(3).concatenate(D.range(7, 9)))
    choice = [0, 1, 1, 2, 0, 2, 2, 1]
    for stop in (False, True):
        whole(
            c,
            f"DirectedInterleaveDataset/stop={stop}",
            lambda stop=stop: D.choose_from_datasets(
                [D.range(2), D.range(10, 12), D.range(20, 29)], D.from_tensor_slices(np.int64(choice)), stop
            ),
        )
    whole(
        c,
        "DirectedInterleaveDataset/weights",
        lambda: D.sample_from_datasets([D.range(20), D.range(100, 120)], [0.3, 0.7], seed=3).take(20),
        seed=4,
    )
    whole(c, "DirectedInterleaveDataset/out_of_range", lambda: D.choose_from_datasets([D.range(2)], D.range(3)))


def maps(c):
    whole(c, "MapDataset/captures", lambda: D.range(6).map(lambda x, k=tf.constant(3, tf.int64): x * k))
    elements(c, "MapDataset/strings", lambda: D.from_tensor_slices([b"a", b"b"]).map(lambda s: (s + b"!", 1)), 3)
    for parallel in (1, 3, tf.data.AUTOTUNE):
        whole(
            c,
            f"ParallelMapDatasetV2/{parallel}",
            lambda parallel=parallel: D.range(9).map(lambda x: x * x, num_parallel_calls=parallel),
        )
    elements(
        c,
        "MapDataset/error_and_on",
        lambda: D.from_tensor_slices([1, 0, 2]).map(lambda x: 10 // x),
        4,
    )
    elements(
        c,
        "ParallelMapDatasetV2/error_and_on",
        lambda: D.from_tensor_slices([1, 0, 2]).map(lambda x: 10 // x, num_parallel_calls=2),
        4,
    )

    def variable():
        v = v1.get_variable("v", [], tf.int64, v1.zeros_initializer(), use_resource=True)
        ds = D.range(3).map(lambda x: x + v.read_value())
        iterator = v1.data.make_initializable_iterator(ds)
        nxt = iterator.get_next()
        add = v.assign_add(10).op
        return [
            ({}, [], [v.initializer]),
            ({}, [], [iterator.initializer]),
            ({}, [nxt]),
            ({}, [nxt]),
            ({}, [nxt]),
            ({}, [nxt]),
            # Stock works ahead: an iterator may see a change late.
            ({}, [], [add]),
            ({}, [], [iterator.initializer]),
            ({}, [nxt]),
        ]

    c.traced("MapDataset/variable", variable)
    whole(
        c,
        "MapDataset/random",
        lambda: D.range(4).map(lambda x: tf.random.uniform([], seed=3)).repeat(2),
        seed=1,
    )
    whole(c, "FilterDataset/odd", lambda: D.range(10).filter(lambda x: x % 2 == 1))
    whole(c, "FilterDataset/captured", lambda: D.range(10).filter(lambda x, k=tf.constant(7, tf.int64): x < k))
    elements(c, "FilterDataset/none", lambda: D.range(300).filter(lambda x: x < 0))
    whole(c, "TakeWhileDataset/first", lambda: D.range(10).take_while(lambda x: x < 4))
    whole(c, "ScanDataset/sums", lambda: D.range(6).scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s * x)))
    whole(c, "UniqueDataset/numbers", lambda: D.from_tensor_slices([1, 2, 1, 3, 2]).unique())
    whole(c, "UniqueDataset/strings", lambda: D.from_tensor_slices([b"a", b"b", b"a"]).unique())
    whole(
        c,
        "IgnoreErrorsDataset/some",
        lambda: D.from_tensor_slices([1, 0, 2, 0, 5]).map(lambda x: 10 // x).ignore_errors(),
    )


def limits(c):
    for count in (0, 3, 100, -1):
        whole(c, f"TakeDataset/{count}", lambda count=count: D.range(6).take(count))
    for count in (0, 4, 100, -1):
        whole(c, f"SkipDataset/{count}", lambda count=count: D.range(6).skip(count))
    for count in (0, 2):
        whole(c, f"RepeatDataset/{count}", lambda count=count: D.range(3).repeat(count))
    whole(c, "RepeatDataset/forever", lambda: D.range(3).repeat().take(8))
    elements(c, "RepeatDataset/empty_forever", lambda: D.range(0).repeat())
    whole(c, "ShardDataset/middle", lambda: D.range(10).shard(3, 1))
    elements(c, "ShardDataset/index", lambda: D.range(10).shard(tf.constant(3, tf.int64), tf.constant(3, tf.int64)))
    for count in (3, 5):
        assertion = lambda count=count: D.range(4).apply(tf.data.experimental.assert_cardinality(count))
        elements(c, f"AssertCardinalityDataset/{count}", assertion, 5)


def batches(c):
    for drop in (False, True):
        elements(c, f"BatchDatasetV2/drop={drop}", lambda drop=drop: D.range(5).batch(2, drop_remainder=drop), 4)
    elements(c, "ParallelBatchDataset/plain", lambda: D.range(5).batch(2, num_parallel_calls=2), 4)
    elements(
        c,
        "BatchDatasetV2/shapes_differ",
        lambda: D.range(1, 4).map(lambda x: tf.fill([x], x)).batch(2),
        2,
    )
    elements(c, "BatchDatasetV2/strings", lambda: D.from_tensor_slices([[b"a", b"b"], [b"c", b"d"]]).batch(3))
    elements(c, "BatchDatasetV2/zero", lambda: D.range(5).batch(tf.constant(0, tf.int64)))
    ragged = lambda: D.range(1, 6).map(lambda x: tf.fill([x, 2], x))
    elements(c, "PaddedBatchDatasetV2/grown", lambda: ragged().padded_batch(2), 4)
    elements(
        c,
        "PaddedBatchDatasetV2/value",
        lambda: ragged().padded_batch(2, [7, 3], tf.constant(-1, tf.int64), drop_remainder=True),
        3,
    )
    elements(c, "PaddedBatchDatasetV2/too_small", lambda: ragged().padded_batch(3, [2, 2]))
    elements(
        c,
        "PaddedBatchDatasetV2/strings",
        lambda: D.from_tensor_slices([1, 3]).map(lambda n: tf.fill([n], "x")).padded_batch(2, padding_values="-"),
    )
    elements(
        c,
        "MapAndBatchDataset/plain",
        lambda: D.range(7).apply(tf.data.experimental.map_and_batch(lambda x: (x, x * 2), 3, num_parallel_calls=2)),
        4,
    )
    whole(c, "UnbatchDataset/rows", lambda: D.from_tensors(([1, 2, 3], [b"a", b"b", b"c"])).unbatch())
    elements(c, "RebatchDatasetV2/three", lambda: D.range(8).batch(4).rebatch(3), 4)
    elements(c, "RebatchDatasetV2/cycle", lambda: D.range(9).batch(4).rebatch([2, 1], drop_remainder=True), 7)
    window = lambda **options: lambda: D.range(7).window(**options).flat_map(lambda w: w.batch(3))
    for name, options in (
        ("plain", {"size": 3}),
        ("shift", {"size": 3, "shift": 1}),
        ("stride", {"size": 2, "shift": 3, "stride": 2}),
        ("gap", {"size": 2, "shift": 4}),
        ("drop", {"size": 3, "shift": 2, "drop_remainder": True}),
    ):
        elements(c, f"WindowDataset/{name}", window(**options), 8 if name == "shift" else 5)
    elements(
        c,
        "GroupByWindowDataset/parity",
        lambda: D.range(9).group_by_window(lambda x: x % 2, lambda k, ds: ds.batch(3), window_size=3),
        5,
    )
    elements(
        c,
        "GroupByWindowDataset/buckets",
        lambda: D.range(1, 9).map(lambda x: tf.fill([x], x)).bucket_by_sequence_length(tf.size, [3, 6], [2, 2, 2]),
        5,
    )
    reducer = tf.data.experimental.Reducer(lambda _: np.int64(0), lambda s, x: s + x, lambda s: s)
    elements(
        c,
        "GroupByReducerDataset/sums",
        lambda: D.range(10).apply(tf.data.experimental.group_by_reducer(lambda x: x % 3, reducer)),
        4,
    )


def interleaves(c):
    whole(c, "FlatMapDataset/ranges", lambda: D.range(4).flat_map(D.range))
    elements(c, "FlatMapDataset/empty", lambda: D.range(3).flat_map(lambda x: D.range(0)))
    lengths = [3, 1, 0, 5, 2, 4]
    inner = lambda n: D.range(n).map(lambda x: x + 10 * tf.cast(n, tf.int64))
    for cycle, block in ((1, 1), (2, 1), (3, 2), (9, 3)):
        whole(
            c,
            f"InterleaveDataset/{cycle}x{block}",
            lambda cycle=cycle, block=block: D.from_tensor_slices(np.int64(lengths)).interleave(inner, cycle, block),
        )
    for parallel in (2, tf.data.AUTOTUNE):
        whole(
            c,
            f"ParallelInterleaveDatasetV4/{parallel}",
            lambda parallel=parallel: D.from_tensor_slices(np.int64(lengths)).interleave(inner, 3, 2, parallel),
        )
    whole(
        c,
        "LegacyParallelInterleaveDatasetV2/in_order",
        lambda: D.from_tensor_slices(np.int64(lengths)).apply(
            tf.data.experimental.parallel_interleave(inner, 2, 1, sloppy=False)
        ),
    )
    whole(
        c,
        "FlatMapDataset/nested_functions",
        lambda: D.range(3).flat_map(lambda x: D.range(3).filter(lambda y: y <= x).map(lambda y: x * 10 + y)),
    )


def orders(c):
    for name, buffer, options in (
        ("small", 3, {"seed": 5}),
        ("large", 100, {"seed": 5}),
        ("one", 1, {"seed": 5}),
        ("same_again", 4, {"seed": 5, "reshuffle_each_iteration": False}),
    ):
        whole(c, f"ShuffleDataset/{name}", lambda b=buffer, o=options: D.range(12).shuffle(b, **o).repeat(2))
    whole(c, "ShuffleDataset/graph_seed", lambda: D.range(10).shuffle(4), seed=9)
    whole(c, "ShuffleDataset/whole", lambda: D.range(10).shuffle(D.range(10).cardinality(), seed=2))

    def again():
        iterator = v1.data.make_initializable_iterator(D.range(8).shuffle(5, seed=3).batch(8))
        nxt = iterator.get_next()
        return [step for _ in range(2) for step in (({}, [], [iterator.initializer]), ({}, [nxt]))]

    c.traced("ShuffleDataset/initialized_again", again)
    whole(
        c,
        "ShuffleAndRepeatDataset/twice",
        lambda: D.range(5).apply(tf.data.experimental.shuffle_and_repeat(3, 3, seed=7)),
    )
    elements(c, "ShuffleDataset/no_buffer", lambda: D.range(5).shuffle(tf.constant(0, tf.int64)))
    whole(c, "PrefetchDataset/some", lambda: D.range(20).prefetch(3))
    whole(c, "PrefetchDataset/tuned", lambda: D.range(20).map(lambda x: x + 1).prefetch(tf.data.AUTOTUNE))
    whole(
        c,
        "CacheDataset/memory",
        lambda: D.range(4).map(lambda x: tf.random.uniform([], seed=2)).cache().repeat(3),
        seed=1,
    )
    options = tf.data.Options()
    options.deterministic = True
    options.threading.private_threadpool_size = 2
    whole(c, "OptionsDataset/passed", lambda: D.range(4).with_options(options))
    whole(c, "AutoShardDataset/off", lambda: D.range(4).apply(lambda d: d))


def consumers(c):
    c.traced(
        "ReduceDataset/sum",
        lambda: [({}, [D.range(10).reduce(np.int64(0), lambda s, x: s + x)])],
    )
    c.traced(
        "ReduceDataset/empty",
        lambda: [({}, [D.range(0).reduce(np.float32(1), lambda s, x: s + tf.cast(x, tf.float32))])],
    )
    c.traced(
        "ReduceDataset/tuple",
        lambda: [({}, list(D.range(4).batch(2).reduce((np.int64(0), b""), lambda s, x: (s[0] + x[0], s[1] + b"."))))],
    )
    for count in (0, 1, 2):
        c.traced(
            f"DatasetToSingleElement/{count}",
            lambda count=count: [({}, [D.range(count).get_single_element()])],
        )
    for name, make in (
        ("finite", lambda: D.range(10).batch(3)),
        ("dropped", lambda: D.range(10).batch(3, drop_remainder=True)),
        ("infinite", lambda: D.range(3).repeat()),
        ("unknown", lambda: D.range(3).filter(lambda x: x > 1)),
        ("map", lambda: D.range(7).map(lambda x: x).skip(2).take(3)),
        ("zip", lambda: D.zip((D.range(3), D.range(2).repeat()))),
        ("window", lambda: D.range(10).window(3, 2)),
        ("concatenate", lambda: D.range(3).concatenate(D.range(4)).shard(2, 0)),
        ("shuffle", lambda: D.range(3).shuffle(2).repeat(4).prefetch(1).cache()),
        ("endless_groups", lambda: D.range(3).repeat().group_by_window(lambda x: x % 2, lambda k, d: d.batch(2), 2)),
    ):
        c.traced(f"DatasetCardinality/{name}", lambda make=make: [({}, [make().cardinality()])])


def through_graph(dataset, **options):
    """A dataset that is written as a graph and made again of it."""
    options = options or {"external_state_policy": 1}
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor, **options)
    return tf.data.experimental.from_variant(tf.raw_ops.DatasetFromGraph(graph_def=text), dataset.element_spec)


def graphs(c):
    made = lambda name, make, **options: initialized(c, f"DatasetFromGraph/{name}", make, **options)
    made("map", lambda: through_graph(D.range(7).map(lambda x: x * 2).shuffle(3, seed=3).batch(2)))
    made("captures", lambda: through_graph(D.range(4).map(lambda x, k=tf.constant(3, tf.int64): x * k)))
    made("cache", lambda: through_graph(D.range(3).cache().repeat(2)))
    made("random", lambda: through_graph(D.range(3).map(lambda x: tf.random.uniform([], seed=1))), seed=1)
    made("nested", lambda: through_graph(D.range(4).interleave(D.range, cycle_length=2).filter(lambda x: x < 2)))
    made("strings", lambda: through_graph(D.from_tensor_slices([b"a", b"b"]).map(lambda x: x + b"!").prefetch(1)))
    shared = lambda base: base.concatenate(base).concatenate(base)
    made("used_twice", lambda: through_graph(shared(D.range(2).map(lambda x: x + 1))))
    made("twice", lambda: through_graph(through_graph(D.range(3).map(lambda x: -x))))
    made("options", lambda: through_graph(D.range(2).with_options(tf.data.Options())))
    strict = {"external_state_policy": 2}
    made("strict", lambda: through_graph(D.range(3).flat_map(D.range), **strict))
    made("stateful", lambda: through_graph(D.range(3).map(lambda x: tf.random.uniform([])), **strict))
    made("devices", lambda: through_graph(D.range(3).map(lambda x: x + 1), strip_device_assignment=True))

    def first_version(dataset):
        text = tf.raw_ops.DatasetToGraph(input_dataset=dataset._variant_tensor)
        return tf.data.experimental.from_variant(tf.raw_ops.DatasetFromGraph(graph_def=text), dataset.element_spec)

    made("first_version", lambda: first_version(D.range(5).map(lambda x: x * x).batch(2)))

    def refused():
        options = tf.data.Options()
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.FAIL
        dataset = D.range(3).map(lambda x: tf.random.uniform([])).with_options(options)
        return [({}, [tf.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor)])]

    c.traced("DatasetToGraphV2/refused_by_option", refused)
    for name, text in (("nonsense", b"nonsense"), ("empty", b"")):
        p = c.program(f"DatasetFromGraph/{name}")
        p.const(np.array(text, object), name="text")
        p.node("DatasetFromGraph", ["text"], name="d")
        p.node("DatasetCardinality", ["d"], name="n")
        p.step(fetch=["n"])


def initialized(c, name, make, count=4, **options):
    """The first elements of a dataset that only an iterator with an initializer may have."""

    def build():
        iterator = v1.data.make_initializable_iterator(make())
        nxt = tf.nest.flatten(iterator.get_next())
        return [({}, [], [iterator.initializer])] + [({}, nxt)] * count

    c.traced(name, build, **options)


def cases(c):
    sources(c)
    maps(c)
    limits(c)
    batches(c)
    interleaves(c)
    orders(c)
    consumers(c)
    graphs(c)
