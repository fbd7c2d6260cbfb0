"""Dataset ops that no program of today makes in a session, by themselves: older versions, other names, raw resources."""

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

v1 = tf.compat.v1
R = tf.raw_ops
D = tf.data.Dataset
NUMBER = tf.TensorSpec([], tf.int64)


def attrs(specs, types="output_types"):
    return {types: [spec.dtype for spec in specs], "output_shapes": [spec.shape for spec in specs]}


def function(f, *specs):
    return tf.function(f, autograph=False).get_concrete_function(*specs)


def taken(c, name, make, specs=(NUMBER,), count=4):
    """Elements of an iterator over a raw dataset."""

    def build():
        spec = specs[0] if len(specs) == 1 else tuple(specs)
        iterator = v1.data.make_initializable_iterator(dataset_ops._VariantDataset(make(), spec))
        nxt = tf.nest.flatten(iterator.get_next())
        return [({}, [], [iterator.initializer])] + [({}, nxt)] * count

    c.traced(name, build)


def raw(c, op, name="", count=4, specs=(NUMBER,), types="output_types", **arguments):
    """A dataset op of a few inputs. Those that are functions are called with the graph that they belong to."""

    def make():
        given = {key: value() if callable(value) else value for key, value in arguments.items()}
        return getattr(R, op)(**given, **attrs(specs, types))

    taken(c, f"{op}/{name or 'plain'}", make, specs, count)


def counted(c, op, make):
    """The number of elements that a dataset says it has, where stock's iterators cannot be made of the op."""
    c.traced(f"{op}/counted", lambda: [({}, [R.DatasetCardinality(input_dataset=make())])])


def numbers(n=4):
    return lambda: D.range(n)._variant_tensor


def passes(c):
    for op in ("ModelDataset", "FinalizeDataset", "NonSerializableDataset", "ExperimentalNonSerializableDataset"):
        raw(c, op, input_dataset=numbers(2), count=3)
    raw(c, "OptimizeDataset", input_dataset=numbers(2), optimizations=np.array([], object), count=3)
    none = np.array([], object)
    raw(
        c,
        "OptimizeDatasetV2",
        input_dataset=numbers(2),
        optimizations_enabled=none,
        optimizations_disabled=none,
        optimizations_default=none,
        count=3,
    )
    for prefix in ("", "Experimental"):
        raw(c, f"{prefix}PrivateThreadPoolDataset", input_dataset=numbers(2), num_threads=2, count=3)
        raw(c, f"{prefix}PrivateThreadPoolDataset", "negative", input_dataset=numbers(2), num_threads=-2, count=1)
        raw(c, f"{prefix}MaxIntraOpParallelismDataset", input_dataset=numbers(2), max_intra_op_parallelism=1, count=3)
        raw(c, f"{prefix}AutoShardDataset", input_dataset=numbers(5), num_workers=1, index=0)
        raw(c, f"{prefix}AutoShardDataset", "index", input_dataset=numbers(5), num_workers=2, index=2, count=1)
        raw(c, f"{prefix}LatencyStatsDataset", input_dataset=numbers(2), tag="t", count=3)
        raw(c, f"{prefix}BytesProducedStatsDataset", input_dataset=numbers(2), tag="t", count=3)
        raw(
            c,
            f"{prefix}ThreadPoolDataset",
            input_dataset=numbers(2),
            thread_pool=lambda prefix=prefix: getattr(R, f"{prefix}ThreadPoolHandle")(num_threads=2, display_name="d"),
            count=3,
        )
        raw(
            c,
            f"{prefix}SetStatsAggregatorDataset",
            input_dataset=numbers(2),
            stats_aggregator=lambda prefix=prefix: getattr(R, f"{prefix}StatsAggregatorHandle")(),
            tag="t",
            counter_prefix="",
            count=3,
        )
        raw(
            c,
            f"{prefix}ChooseFastestDataset",
            input_datasets=lambda: [D.range(3)._variant_tensor, D.range(3)._variant_tensor],
            num_experiments=1,
        )
        raw(c, f"{prefix}AssertNextDataset", input_dataset=numbers(2), transformations=none, count=3)
    raw(c, "AssertPrevDataset", input_dataset=numbers(2), transformations=none, count=3)
    raw(c, "AutoShardDataset", "data", input_dataset=numbers(5), num_workers=2, index=1, auto_shard_policy=2)
    raw(c, "AutoShardDataset", "off", input_dataset=numbers(3), num_workers=2, index=1, auto_shard_policy=-1)


def sources(c):
    number = attrs([NUMBER])
    counted(c, "ExperimentalRandomDataset", lambda: R.ExperimentalRandomDataset(seed=3, seed2=4, **number))
    seeds = lambda again: lambda: R.AnonymousSeedGenerator(seed=5, seed2=6, reshuffle=again).handle
    raw(c, "RandomDatasetV2", seed=3, seed2=4, seed_generator=seeds(False))
    raw(c, "ShuffleDatasetV2", input_dataset=numbers(5), buffer_size=3, seed_generator=seeds(True), count=6)
    shuffle = {"input_dataset": numbers(5), "buffer_size": 3, "seed": 1, "seed2": 2}
    for again in (False, True):
        raw(c, "ShuffleDatasetV3", f"shared={again}", **shuffle, seed_generator=seeds(again), count=6)
        dummy = R.DummySeedGenerator
        raw(
            c,
            "ShuffleDatasetV3",
            f"own={again}",
            **shuffle,
            seed_generator=dummy,
            reshuffle_each_iteration=again,
            count=6,
        )
    taken(
        c,
        "ShuffleAndRepeatDatasetV2/twice",
        lambda: R.ShuffleAndRepeatDatasetV2(
            input_dataset=D.range(4)._variant_tensor,
            buffer_size=3,
            seed=1,
            seed2=2,
            count=2,
            seed_generator=R.DummySeedGenerator(),
            **attrs([NUMBER]),
        ),
        count=9,
    )
    text = [tf.TensorSpec([], tf.string)]
    taken(
        c,
        "ListDataset/pairs",
        lambda: R.ListDataset(tensors=[np.int64(1), "a", np.int64(2), "b"], **attrs([NUMBER, *text])),
        (NUMBER, *text),
        3,
    )
    sparse = lambda: R.SparseTensorSliceDataset(
        indices=np.int64([[0, 1], [0, 2], [2, 0]]), values=np.float32([1, 2, 3]), dense_shape=np.int64([4, 3])
    )
    specs = [tf.TensorSpec([None, 1], tf.int64), tf.TensorSpec([None], tf.float32), tf.TensorSpec([1], tf.int64)]
    taken(c, "SparseTensorSliceDataset/rows", sparse, specs, 5)
    disordered = lambda: R.SparseTensorSliceDataset(
        indices=np.int64([[1, 1], [0, 2]]), values=np.float32([1, 2]), dense_shape=np.int64([4, 3])
    )
    taken(c, "SparseTensorSliceDataset/disordered", disordered, specs, 1)
    missing = {"filenames": "/no/such/file", "buffer_size": 0}
    taken(c, "TFRecordDataset/missing", lambda: R.TFRecordDataset(**missing, compression_type=""), text, 1)
    offset = {"compression_type": "", "byte_offsets": np.int64(0)}
    counted(c, "TFRecordDatasetV2", lambda: R.TFRecordDatasetV2(**missing, **offset))
    taken(c, "TextLineDataset/missing", lambda: R.TextLineDataset(**missing, compression_type=""), text, 1)
    taken(c, "TextLineDataset/compression", lambda: R.TextLineDataset(**missing, compression_type="X"), text, 1)
    fixed = {"header_bytes": 1, "record_bytes": 2, "footer_bytes": 0}
    counted(c, "FixedLengthRecordDataset", lambda: R.FixedLengthRecordDataset(**missing, **fixed))
    taken(
        c,
        "FixedLengthRecordDatasetV2/missing",
        lambda: R.FixedLengthRecordDatasetV2(**missing, **fixed, compression_type=""),
        text,
        1,
    )
    for op in ("CSVDataset", "CSVDatasetV2", "ExperimentalCSVDataset"):
        csv = {"header": False, "field_delim": ",", "use_quote_delim": True, "na_value": "", "record_defaults": [[0]]}
        csv |= {"filenames": "/no/such/file", "compression_type": "", "buffer_size": 1024}
        csv |= {"select_cols": np.int64([]), "output_shapes": [[]]} | (
            {"exclude_cols": np.int64([])} if op.endswith("V2") else {}
        )
        counted(c, op, lambda op=op, csv=csv: getattr(R, op)(**csv))
    for op in ("MatchingFilesDataset", "ExperimentalMatchingFilesDataset"):
        taken(c, f"{op}/none", lambda op=op: getattr(R, op)(patterns="/no/such/file*"), text, 1)


def functions(c):
    double = lambda: function(lambda x: x * 2, NUMBER)
    odd = lambda: function(lambda x: x % 2 == 1, NUMBER)
    small = lambda: function(lambda x: x < 2, NUMBER)
    ranges = lambda: function(lambda x: D.range(x)._variant_tensor, NUMBER)
    for sloppy in (False, True):
        raw(
            c,
            "ParallelMapDataset",
            f"sloppy={sloppy}",
            input_dataset=numbers(1),
            other_arguments=[],
            num_parallel_calls=2,
            f=double,
            sloppy=sloppy,
            count=2,
        )
    counted(
        c,
        "ParallelFilterDataset",
        lambda: R.ParallelFilterDataset(
            input_dataset=numbers(6)(), other_arguments=[], num_parallel_calls=2, predicate=odd(), **attrs([NUMBER])
        ),
    )
    raw(c, "ExperimentalTakeWhileDataset", input_dataset=numbers(), other_arguments=[], predicate=small)
    raw(
        c,
        "ExperimentalScanDataset",
        input_dataset=numbers(),
        initial_state=lambda: [tf.constant(1, tf.int64)],
        other_arguments=[],
        f=lambda: function(lambda s, x: (s + x, s * x), NUMBER, NUMBER),
    )
    for op in ("ParallelInterleaveDatasetV2", "ParallelInterleaveDatasetV3"):
        raw(
            c,
            op,
            input_dataset=numbers(),
            other_arguments=[],
            cycle_length=2,
            block_length=1,
            num_parallel_calls=2,
            f=ranges,
            count=7,
        )
    for op in ("ParallelInterleaveDataset", "ExperimentalParallelInterleaveDataset"):
        raw(
            c,
            op,
            input_dataset=numbers(),
            other_arguments=[],
            cycle_length=2,
            block_length=1,
            sloppy=False,
            buffer_output_elements=2,
            prefetch_input_elements=1,
            f=ranges,
            count=7,
        )
    batch = [tf.TensorSpec([None], tf.int64)]
    raw(
        c,
        "ExperimentalMapAndBatchDataset",
        input_dataset=numbers(5),
        other_arguments=[],
        batch_size=2,
        num_parallel_calls=2,
        drop_remainder=False,
        f=double,
        specs=batch,
    )
    groups = {
        "input_dataset": numbers(5),
        "key_func_other_arguments": [],
        "reduce_func_other_arguments": [],
        "window_size_func_other_arguments": [],
        "key_func": lambda: function(lambda x: x % 2, NUMBER),
        "reduce_func": lambda: function(
            lambda key, d: dataset_ops._VariantDataset(d, NUMBER).batch(2)._variant_tensor,
            NUMBER,
            tf.TensorSpec([], tf.variant),
        ),
        "window_size_func": lambda: function(lambda key: tf.constant(2, tf.int64), NUMBER),
    }
    raw(c, "ExperimentalGroupByWindowDataset", **groups, specs=batch)
    groups["window_size_func"] = lambda: function(lambda key: key, NUMBER)
    raw(c, "GroupByWindowDataset", "no_window", **groups, specs=batch, count=1)
    raw(
        c,
        "GroupByReducerDataset",
        input_dataset=numbers(7),
        key_func_other_arguments=[],
        init_func_other_arguments=[],
        reduce_func_other_arguments=[],
        finalize_func_other_arguments=[],
        key_func=lambda: function(lambda x: x % 3, NUMBER),
        init_func=lambda: function(lambda key: key * 100, NUMBER),
        reduce_func=lambda: function(lambda s, x: s + x, NUMBER, NUMBER),
        finalize_func=lambda: function(lambda s: -s, NUMBER),
    )

    def generator():
        left = v1.get_variable("left", [], tf.int64, v1.constant_initializer(3), use_resource=True)

        def following(state):
            v = left.assign_sub(1)
            with tf.control_dependencies([R.CheckNumerics(tensor=1.0 / tf.cast(v + 1, tf.float32), message="x")]):
                return state + v

        make = function(following, NUMBER)
        variant = R.GeneratorDataset(
            init_func_other_args=[],
            next_func_other_args=make.captured_inputs,
            finalize_func_other_args=[],
            init_func=function(lambda: tf.constant(10, tf.int64)),
            next_func=make,
            finalize_func=function(lambda state: state, NUMBER),
            **attrs([NUMBER]),
        )
        iterator = v1.data.make_initializable_iterator(dataset_ops._VariantDataset(variant, NUMBER))
        nxt = iterator.get_next()
        return [({}, [], [left.initializer]), ({}, [], [iterator.initializer])] + [({}, [nxt])] * 4

    c.traced("GeneratorDataset/fails", generator)

    def remote():
        f = function(lambda x: x + 1, NUMBER)
        return [({}, R.RemoteCall(target="/cpu:0", args=[tf.constant(2, tf.int64)], Tout=[tf.int64], f=f))]

    c.traced("RemoteCall/here", remote)


def batches(c):
    batch = [tf.TensorSpec([None], tf.int64)]
    counted(c, "BatchDataset", lambda: R.BatchDataset(input_dataset=numbers(5)(), batch_size=2, **attrs(batch)))
    counted(
        c,
        "PaddedBatchDataset",
        lambda: R.PaddedBatchDataset(
            input_dataset=D.range(4).map(lambda x: tf.fill([x], x))._variant_tensor,
            batch_size=3,
            padded_shapes=[np.int64([-1])],
            padding_values=[np.int64(9)],
            output_shapes=[tf.TensorShape([None, None])],
        ),
    )
    for prefix in ("", "Experimental"):
        raw(
            c,
            f"{prefix}SlidingWindowDataset",
            input_dataset=numbers(6),
            window_size=3,
            window_shift=2,
            window_stride=1,
            specs=batch,
        )
        raw(
            c,
            f"{prefix}RebatchDataset",
            input_dataset=lambda: D.range(7).batch(4)._variant_tensor,
            num_replicas=2,
            specs=batch,
            count=5,
        )
    raw(c, "ExperimentalUnbatchDataset", input_dataset=lambda: D.range(3).batch(2)._variant_tensor)
    raw(c, "ExperimentalUniqueDataset", input_dataset=lambda: D.range(2).repeat(2)._variant_tensor)
    failing = lambda: D.from_tensor_slices(np.int64([1, 0, 2])).map(lambda x: 4 // x)._variant_tensor
    raw(c, "ExperimentalIgnoreErrorsDataset", input_dataset=failing)
    raw(
        c,
        "ExperimentalDirectedInterleaveDataset",
        selector_input_dataset=lambda: D.from_tensor_slices(np.int64([0, 1, 1]))._variant_tensor,
        data_input_datasets=lambda: [D.range(3)._variant_tensor, D.range(10, 13)._variant_tensor],
    )


def resources(c):
    def cache(handle):
        return lambda: R.CacheDatasetV2(
            input_dataset=D.range(3)._variant_tensor, filename="", cache=handle(), **attrs([NUMBER])
        )

    taken(c, "CacheDatasetV2/own", cache(R.DummyMemoryCache))
    taken(c, "CacheDatasetV2/shared", cache(lambda: R.AnonymousMemoryCache().handle))

    def deleted(make, delete):
        def build():
            made = make()
            return [({}, [], [delete(handle=made.handle, deleter=made.deleter)])]

        return build

    number = attrs([NUMBER])
    c.traced("DeleteIterator/made", deleted(lambda: R.AnonymousIteratorV2(**number), R.DeleteIterator))

    def iterated(make, get="IteratorGetNext"):
        """Made, initialized and used within one step: nothing else keeps an anonymous iterator."""

        def build():
            handle = make()
            with tf.control_dependencies([R.MakeIterator(dataset=D.range(5, 9)._variant_tensor, iterator=handle)]):
                first = getattr(R, get)(iterator=handle, **number)
            with tf.control_dependencies(first):
                second = getattr(R, get)(iterator=handle, **number)
            return [({}, [first, second])]

        return build

    c.traced("AnonymousIterator/used", iterated(lambda: R.AnonymousIterator(**number)))
    c.traced("AnonymousIteratorV2/used", iterated(lambda: R.AnonymousIteratorV2(**number).handle))
    c.traced("AnonymousIteratorV3/used", iterated(lambda: R.AnonymousIteratorV3(**number)))
    named = lambda: R.Iterator(shared_name="", container="", **number)
    c.traced("Iterator/used", iterated(named, "IteratorGetNextSync"))

    def strings():
        iterator = R.IteratorV2(shared_name="", container="", **number)
        start = R.MakeIterator(dataset=D.range(5, 9)._variant_tensor, iterator=iterator)
        text = R.IteratorToStringHandle(resource_handle=iterator)
        found = R.IteratorFromStringHandle(string_handle=text, output_types=[tf.int64])
        return [({}, [], [start]), ({}, R.IteratorGetNext(iterator=found, **number))]

    c.traced("IteratorFromStringHandle/found", strings)
    for op in ("IteratorGetDevice", "ExperimentalIteratorGetDevice"):
        get = lambda op=op: getattr(R, op)(resource=R.AnonymousIteratorV3(**number))
        c.traced(f"{op}/length", lambda get=get: [({}, [tf.strings.length(get()) > 0])])

    def dealt(make, by_string):
        def build():
            iterator = make()
            start = R.MultiDeviceIteratorInit(
                dataset=D.range(5)._variant_tensor, multi_device_iterator=iterator, max_buffer_size=2
            )
            found = iterator
            if by_string:
                text = R.MultiDeviceIteratorToStringHandle(multi_device_iterator=iterator)
                found = R.MultiDeviceIteratorFromStringHandle(string_handle=text, output_types=[tf.int64])
            elements, before = [], [start]
            for shard in (1, 0, 0, 1, 0):
                with tf.control_dependencies(before):
                    before = R.MultiDeviceIteratorGetNextFromShard(
                        multi_device_iterator=found, shard_num=shard, incarnation_id=start, **number
                    )
                elements += before
            return [({}, elements)]

        return build

    devices = {"devices": ["/cpu:0", "/cpu:0"], **number}
    named = lambda: R.MultiDeviceIterator(shared_name="", container="", **devices)
    c.traced("MultiDeviceIterator/dealt", dealt(named, True))
    anonymous = lambda: R.AnonymousMultiDeviceIterator(**devices).handle
    c.traced("AnonymousMultiDeviceIterator/dealt", dealt(anonymous, False))

    def third():
        iterator = R.AnonymousMultiDeviceIteratorV3(**devices)
        start = R.MultiDeviceIteratorInit(
            dataset=D.range(2)._variant_tensor, multi_device_iterator=iterator, max_buffer_size=2
        )
        nxt = lambda shard, incarnation: R.MultiDeviceIteratorGetNextFromShard(
            multi_device_iterator=iterator, shard_num=shard, incarnation_id=incarnation, **number
        )
        return [({}, [nxt(0, start), nxt(1, start)]), ({}, nxt(0, start + 1))]

    c.traced("AnonymousMultiDeviceIteratorV3/dealt", third)

    def deletes():
        made = R.AnonymousMultiDeviceIterator(**devices)
        return [
            (
                {},
                [],
                [R.DeleteMultiDeviceIterator(multi_device_iterator=made.handle, iterators=[], deleter=made.deleter)],
            )
        ]

    c.traced("DeleteMultiDeviceIterator/made", deletes)

    def wrapped():
        variant = R.UnwrapDatasetVariant(input_handle=R.WrapDatasetVariant(input_handle=D.range(3)._variant_tensor))
        return [({}, [R.DatasetCardinality(input_dataset=variant)])]

    c.traced("UnwrapDatasetVariant/again", wrapped)
    not_wrapped = lambda: R.DatasetCardinality(
        input_dataset=R.UnwrapDatasetVariant(input_handle=D.range(3)._variant_tensor)
    )
    c.traced("UnwrapDatasetVariant/not_wrapped", lambda: [({}, [not_wrapped()])])
    count = lambda: R.ExperimentalDatasetCardinality(input_dataset=D.range(3)._variant_tensor)
    c.traced("ExperimentalDatasetCardinality/three", lambda: [({}, [count()])])
    options = tf.data.Options()
    options.deterministic = False
    get = lambda: R.GetOptions(input_dataset=D.range(3).with_options(options)._variant_tensor)
    c.traced("GetOptions/one", lambda: [({}, [get()])])
    for op in ("DatasetToTFRecord", "ExperimentalDatasetToTFRecord"):
        write = lambda op=op: getattr(R, op)(
            input_dataset=D.from_tensors("x")._variant_tensor, filename="/no/such/folder/file", compression_type=""
        )
        c.traced(f"{op}/nowhere", lambda write=write: [({}, [], [write()])])


def cases(c):
    passes(c)
    sources(c)
    functions(c)
    batches(c)
    resources(c)
