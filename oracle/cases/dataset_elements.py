"""Datasets by their place, parsed, compressed, sampled and divided: ops that few programs name, but libraries do."""

from cases.datasets import elements, initialized, whole
from values import *

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops import batching
from tensorflow.python.data.ops import dataset_ops, structured_function

v1 = tf.compat.v1
D = tf.data.Dataset
R = tf.raw_ops


def dataset(variant, spec):
    return dataset_ops._VariantDataset(variant, spec)


def number(shape=()):
    return tf.TensorSpec(shape, tf.int64)


ATTRS = {"output_types": [tf.int64], "output_shapes": [[]]}


def compression(c):
    components = lambda: [tf.constant([1.5, -2.0]), tf.constant([[b"a", b""], [b"long" * 9, b"c"]]), tf.constant(7)]

    def there_and_back(values, **changed):
        attrs = {"output_types": [v.dtype for v in values], "output_shapes": [v.shape for v in values]} | changed
        packed = R.CompressElement(components=values)
        return [({}, list(R.UncompressElement(compressed=packed, **attrs)))]

    c.traced("CompressElement/several", lambda: there_and_back(components()))
    c.traced("CompressElement/empty", lambda: there_and_back([tf.zeros([0, 3]), tf.constant([], tf.string)]))
    c.traced("CompressElement/scalar", lambda: there_and_back([tf.constant(True)]))
    c.traced("UncompressElement/types", lambda: there_and_back([tf.constant(1)], output_types=[tf.float32]))
    c.traced("UncompressElement/shapes", lambda: there_and_back([tf.constant([1])], output_shapes=[[2]]))
    c.traced(
        "UncompressElement/count",
        lambda: there_and_back([tf.constant(1)] * 2, output_types=[tf.int32], output_shapes=[[]]),
    )


def batch_sizes(c):
    for name, make in (
        ("batch", lambda: D.range(9).batch(4)),
        ("padded", lambda: D.range(9).padded_batch(3, [])),
        ("later", lambda: D.range(9).batch(2).repeat(2).shuffle(3).prefetch(1).take(1).cache()),
        ("none", lambda: D.range(9)),
        ("mapped", lambda: D.range(9).batch(4).map(lambda x: x)),
        ("zip", lambda: D.zip((D.range(9).batch(4), D.range(9).batch(4)))),
        ("differ", lambda: D.range(9).batch(4).concatenate(D.range(9).batch(2))),
        ("map_and_batch", lambda: D.range(9).apply(tf.data.experimental.map_and_batch(lambda x: x, 5))),
    ):
        compute = lambda make=make: [({}, [R.ComputeBatchSize(input_dataset=make()._variant_tensor)])]
        c.traced(f"ComputeBatchSize/{name}", compute)


def places(c):
    def at(make, indices):
        source = make()
        spec = tf.nest.flatten(source.element_spec)
        attrs = {"output_types": [s.dtype for s in spec], "output_shapes": [s.shape for s in spec]}
        get = lambda i: R.GetElementAtIndex(dataset=source._variant_tensor, index=i, **attrs)
        return [({}, list(get(tf.constant(i, tf.int64)))) for i in indices]

    for name, make, indices in (
        ("range", lambda: D.range(3, 20, 4), [0, 4, 5, -1]),
        ("slices", lambda: D.from_tensor_slices(([1.0, 2.0], [b"a", b"b"])), [1, 2]),
        ("map", lambda: D.range(5).map(lambda x, k=tf.constant(3, tf.int64): x * k), [4, 0]),
        ("parallel_map", lambda: D.range(5).map(lambda x: x + 1, num_parallel_calls=2), [3]),
        ("batch", lambda: D.range(5).batch(2), [2, 1, 3]),
        ("batch_dropped", lambda: D.range(5).batch(2, drop_remainder=True), [1, 2]),
        ("take_skip", lambda: D.range(9).skip(2).take(3), [0, 2, 3]),
        ("shard", lambda: D.range(9).shard(4, 1), [0, 1, 2]),
        ("concatenate", lambda: D.range(2).concatenate(D.range(10, 12)), [1, 2, 3, 4]),
        ("zip", lambda: D.zip((D.range(3), D.range(10, 14))), [2, 3]),
        ("prefetch", lambda: D.range(3).prefetch(1), [2]),
        ("filter", lambda: D.range(3).filter(lambda x: x > 0), [0]),
    ):
        c.traced(f"GetElementAtIndex/{name}", lambda make=make, indices=indices: at(make, indices))

    def shuffled(source, reshuffle=False):
        seeds = R.AnonymousSeedGenerator(seed=5, seed2=6, reshuffle=reshuffle).handle
        attrs = {"output_types": [tf.int64], "output_shapes": [[]], "reshuffle_each_iteration": reshuffle}
        variant = R.GlobalShuffleDataset(
            input_dataset=source._variant_tensor, seed=np.int64(5), seed2=np.int64(6), seed_generator=seeds, **attrs
        )
        return dataset(variant, number())

    made = lambda name, make, count=4: initialized(c, f"GlobalShuffleDataset/{name}", make, count)
    made("range", lambda: shuffled(D.range(3)))
    made("reshuffled", lambda: shuffled(D.range(4), True).repeat(2), 9)
    made("mapped", lambda: shuffled(D.range(10, 14).map(lambda x: x * 2).prefetch(1)), 5)
    made("one", lambda: shuffled(D.range(1)), 2)
    made("endless", lambda: shuffled(D.range(3).repeat()), 1)
    made("empty", lambda: shuffled(D.range(0)), 1)
    made("filter", lambda: shuffled(D.range(3).filter(lambda x: x > 0)), 1)

    def weighted(sources, weights):
        variant = R.WeightedFlatMapDataset(
            input_datasets=[s._variant_tensor for s in sources],
            weights=[tf.constant(w, tf.float64) for w in weights],
            **ATTRS,
        )
        return dataset(variant, number())

    flat = lambda name, make, count: initialized(c, f"WeightedFlatMapDataset/{name}", make, count)
    flat("halves", lambda: weighted([D.range(4), D.range(10, 20)], [0.5, 0.5]), 9)
    flat("quarter", lambda: weighted([D.range(8), D.range(10, 13)], [0.75, 0.25]), 12)
    flat("zero", lambda: weighted([D.range(8), D.range(10, 13)], [0.75, 0.0]), 1)
    flat("endless", lambda: weighted([D.range(8), D.range(3).repeat()], [0.75, 0.5]), 1)


def parsed(c):
    def example(**features):
        lists = {
            int: lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=v)),
            float: lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v)),
            bytes: lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=v)),
        }
        feature = {name: lists[type(values[0])](values) for name, values in features.items() if values}
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)

    records = [example(n=[i], x=[0.5 * i, 1.0], s=[b"w"] * i, r=list(range(i))) for i in range(5)]
    features = {
        "n": tf.io.FixedLenFeature([], tf.int64),
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "missing": tf.io.FixedLenFeature([1], tf.string, b"none"),
        "s": tf.io.VarLenFeature(tf.string),
        "r": tf.io.RaggedFeature(tf.int64),
    }

    def flat(element):
        element["s"] = tf.sparse.to_dense(element["s"])
        element["r"] = element["r"].to_tensor()
        return element

    def parse(wanted, parallel=1, **options):
        read = D.from_tensor_slices(records).batch(2)
        return read.apply(tf.data.experimental.parse_example_dataset(wanted, parallel, **options)).map(flat)

    elements(c, "ParseExampleDatasetV2/all", lambda: parse(features), 4)
    elements(c, "ParseExampleDatasetV2/parallel", lambda: parse(features, 3), 4)
    elements(c, "ParseExampleDatasetV2/tuned", lambda: parse(features, -1), 4)
    elements(c, "ParseExampleDatasetV2/sloppy", lambda: parse(features, 1, deterministic=False), 4)
    required = features | {"gone": tf.io.FixedLenFeature([], tf.int64)}
    elements(c, "ParseExampleDatasetV2/required", lambda: parse(required), 1)
    nonsense = lambda: D.from_tensors([b"nonsense"]).apply(
        tf.data.experimental.parse_example_dataset({"n": features["n"]})
    )
    elements(c, "ParseExampleDatasetV2/nonsense", nonsense, 1)
    for op in ("ParseExampleDataset", "ExperimentalParseExampleDataset"):
        plain = lambda op=op, calls=2: dataset(
            getattr(R, op)(
                input_dataset=D.from_tensor_slices(records).batch(3)._variant_tensor,
                num_parallel_calls=np.int64(calls),
                dense_defaults=[tf.constant([], tf.int64)],
                sparse_keys=[],
                dense_keys=["n"],
                sparse_types=[],
                dense_shapes=[[]],
                output_types=[tf.int64],
                output_shapes=[[None]],
            ),
            number([None]),
        )
        elements(c, f"{op}/plain", plain, 3)
        elements(c, f"{op}/no_calls", lambda plain=plain: plain(calls=0), 1)

    rows = lambda: D.range(1, 5).map(lambda n: tf.fill([n % 3], n))
    dense = lambda size, row: (
        lambda: (
            rows().apply(tf.data.experimental.dense_to_ragged_batch(2))
            if size is None
            else rows()
            .apply(batching.dense_to_sparse_batch(size, row))
            .map(lambda s: (s.indices, s.values, s.dense_shape))
        )
    )
    elements(c, "DenseToSparseBatchDataset/grown", dense(2, [None]), 3)
    elements(c, "DenseToSparseBatchDataset/fixed", dense(3, [4]), 3)
    elements(c, "DenseToSparseBatchDataset/too_small", dense(3, [1]), 2)
    matrices = lambda: (
        D.range(1, 4)
        .map(lambda n: tf.fill([n, 2], tf.strings.as_string(n)))
        .apply(batching.dense_to_sparse_batch(2, [None, 2]))
        .map(lambda s: (s.indices, s.values, s.dense_shape))
    )
    elements(c, "DenseToSparseBatchDataset/strings", matrices, 3)

    def experimental():
        known = rows().apply(batching.dense_to_sparse_batch(2, [None]))
        made = R.ExperimentalDenseToSparseBatchDataset(
            input_dataset=rows()._variant_tensor, batch_size=2, row_shape=[-1], **known._flat_structure
        )
        return dataset(made, known.element_spec).map(lambda s: (s.indices, s.values, s.dense_shape))

    elements(c, "ExperimentalDenseToSparseBatchDataset/grown", experimental, 3)


def others(c):
    for rate in (0.0, 0.5, 1.0):
        sample = lambda rate=rate: dataset(
            R.SamplingDataset(
                input_dataset=D.range(20)._variant_tensor,
                rate=np.float32(rate),
                seed=np.int64(3),
                seed2=np.int64(4),
                **ATTRS,
            ),
            number(),
        )
        whole(c, f"SamplingDataset/{rate}", sample)
    for op in ("SleepDataset", "ExperimentalSleepDataset"):
        sleep = lambda op=op: dataset(
            getattr(R, op)(input_dataset=D.range(3)._variant_tensor, sleep_microseconds=np.int64(10), **ATTRS), number()
        )
        elements(c, f"{op}/short", sleep, 4)
    window = lambda: dataset(R.WindowOp(inputs=[tf.constant(v, tf.int64) for v in (3, 4, 5)], **ATTRS), number())
    initialized(c, "WindowOp/three", window, 4)

    def branches():
        source = D.range(6)
        double = structured_function.StructuredFunctionWrapper(
            lambda d: dataset_ops._VariantDataset(d, number()).map(lambda x: x * 2)._variant_tensor,
            "branch",
            input_structure=tf.TensorSpec([], tf.variant),
            add_to_graph=True,
        )
        variant = R.ChooseFastestBranchDataset(
            input_dataset=source._variant_tensor,
            ratio_numerator=np.int64(1),
            ratio_denominator=np.int64(1),
            other_arguments=[],
            num_elements_per_branch=1,
            branches=[double.function, double.function],
            other_arguments_lengths=[0, 0],
            **ATTRS,
        )
        return dataset(variant, number())

    initialized(c, "ChooseFastestBranchDataset/same", branches, 7)

    def flat_map(index, count):
        rows = structured_function.StructuredFunctionWrapper(
            lambda x: tf.range(x * 10, x * 10 + 3), "rows", input_structure=number(), add_to_graph=True
        )
        place = structured_function.StructuredFunctionWrapper(
            index, "place", input_structure=number(), add_to_graph=True
        )
        variant = R.IndexFlatMapDataset(
            input_dataset=D.range(3)._variant_tensor,
            map_func_other_args=[],
            index_map_func_other_args=[],
            output_cardinality=np.int64(count),
            map_func=rows.function,
            index_map_func=place.function,
            **ATTRS,
        )
        return dataset(variant, number())

    initialized(c, "IndexFlatMapDataset/rows", lambda: flat_map(lambda i: (i // 3, i % 3), 9), 10)

    # Stock aborts if the pairs are batched, of other types, or not pairs.
    def table(pairs):
        made = R.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="from_dataset")
        fill = R.InitializeTableFromDataset(table_handle=made, dataset=pairs()._variant_tensor)
        find = R.LookupTableFindV2(
            table_handle=made, keys=tf.constant(["a", "c", "z"]), default_value=tf.constant(-1, tf.int64)
        )
        return [({}, [], [fill]), ({}, [find, R.LookupTableSizeV2(table_handle=made)])]

    pairs = lambda keys, values: lambda: D.from_tensor_slices((keys, np.array(values, np.int64)))
    c.traced("InitializeTableFromDataset/pairs", lambda: table(pairs([b"a", b"b", b"c"], [1, 2, 3])))
    c.traced("InitializeTableFromDataset/empty", lambda: table(lambda: pairs([b"a"], [1])().take(0)))
    c.traced("InitializeTableFromDataset/twice", lambda: table(pairs([b"a", b"a"], [1, 1])))
    c.traced("InitializeTableFromDataset/conflict", lambda: table(pairs([b"a", b"a"], [1, 2])))


def statistics(c):
    def measured(kind, count=3):
        aggregator = R.StatsAggregatorHandle(shared_name="stats")
        made = getattr(R, kind)(input_dataset=D.range(count)._variant_tensor, tag="size", **ATTRS)
        made = R.SetStatsAggregatorDataset(
            input_dataset=made, stats_aggregator=aggregator, tag="t", counter_prefix="", **ATTRS
        )
        iterator = v1.data.make_initializable_iterator(dataset(made, number()))
        nxt = iterator.get_next()
        summary = R.StatsAggregatorSummary(iterator=aggregator)
        return iterator.initializer, nxt, summary

    def produced():
        start, nxt, summary = measured("BytesProducedStatsDataset")
        # All of them: stock works ahead.
        return [({}, [], [start])] + [({}, [nxt])] * 4 + [({}, [summary])]

    c.traced("StatsAggregatorSummary/bytes", produced)
    c.traced("StatsAggregatorSummary/none", lambda: [({}, [measured("LatencyStatsDataset")[2]])])

    summary = lambda: [({}, [R.ExperimentalStatsAggregatorSummary(iterator=R.ExperimentalStatsAggregatorHandle())])]
    c.traced("ExperimentalStatsAggregatorSummary/none", summary)

    def unwritten():
        writer = R.SummaryWriter(shared_name="nowhere")
        write = R.StatsAggregatorSetSummaryWriter(stats_aggregator=R.StatsAggregatorHandleV2(), summary=writer)
        return [({}, [], [write])]

    c.traced("StatsAggregatorSetSummaryWriter/no_writer", unwritten)

    def model():
        options = tf.data.Options()
        options.autotune.enabled = False
        iterator = v1.data.make_initializable_iterator(D.range(3).with_options(options))
        get = R.IteratorGetModelProto(iterator=iterator._iterator_resource)
        return [({}, [get]), ({}, [], [iterator.initializer]), ({}, [get])]

    c.traced("IteratorGetModelProto/none", model)
    c.traced("DummyIterationCounter/made", lambda: [({}, [], [R.DummyIterationCounter().op])])


def fingerprints(c):
    """Numbers that name the directories of snapshots."""
    for name, make in (
        ("range", lambda: D.range(3)),
        ("shuffled", lambda: D.range(3).shuffle(2, seed=1).batch(2)),
        ("map", lambda: D.range(3).map(lambda x: x * 2)),
        ("slices", lambda: D.from_tensor_slices([b"a", b"b"]).repeat(2)),
        ("nested", lambda: D.range(3).flat_map(lambda x: D.range(x).filter(lambda y: y < 2))),
    ):
        hashed = lambda make=make: [({}, [R.DatasetFingerprint(input_dataset=make()._variant_tensor)])]
        c.traced(f"DatasetFingerprint/{name}", hashed)


def shards(c):
    def sharded(make, workers, index, policy):
        variant = R.AutoShardDataset(
            input_dataset=make()._variant_tensor,
            num_workers=np.int64(workers),
            index=np.int64(index),
            auto_shard_policy=policy,
            num_replicas=1,
            **ATTRS,
        )
        return dataset(variant, number())

    made = lambda name, make, *part, count=4: initialized(
        c, f"AutoShardDataset/{name}", lambda: sharded(make, *part), count
    )
    made("auto", lambda: D.range(5), 2, 1, 0)
    made("file_of_none", lambda: D.range(5), 2, 1, 1, count=1)
    made("data", lambda: D.range(5).prefetch(1), 2, 0, 2)
    made("too_few", lambda: D.range(2), 3, 2, 2, count=2)
    made("hint", lambda: D.range(6).shard(-1, 0).map(lambda x: x * 10), 3, 1, 3, count=3)
    made("hint_alone", lambda: D.range(3).shard(-1, 0), 2, 0, -1)
    made("cardinality", lambda: D.range(4).apply(tf.data.experimental.assert_cardinality(4)), 2, 1, 0, count=3)


def cases(c):
    compression(c)
    batch_sizes(c)
    places(c)
    parsed(c)
    others(c)
    statistics(c)
    fingerprints(c)
    shards(c)
