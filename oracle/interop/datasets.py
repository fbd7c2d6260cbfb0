"""Input pipelines in sessions: files, sound and damaged, iterators of every kind, state between runs, cancelled waits."""

import gzip
import os
import struct
import tempfile
import threading
import zlib

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops.snapshot import legacy_snapshot
from tensorflow.python.data.ops import dataset_ops, from_generator_op

D = tf.data.Dataset


def run(target):
    with tempfile.TemporaryDirectory() as folder:
        for name, part in PARTS.items():
            print(f"-- {name}", flush=True)
            with tf.Graph().as_default():
                part(target, folder)


def drain(sess, nxt, limit=50):
    """Elements until the end, an error or the limit."""
    taken = []
    while len(taken) < limit:
        try:
            taken.append(sess.run(nxt))
        except tf.errors.OutOfRangeError as error:
            taken.append("end" if "End of sequence" in error.message else "out of range")
            break
        except tf.errors.OpError as error:
            taken.append(type(error).__name__)
            if taken[-3:] == taken[-1:] * 3:
                break
    return taken


def all_of(target, dataset, limit=50):
    nxt = v1.data.make_one_shot_iterator(dataset).get_next()
    with session(target) as sess:
        return drain(sess, nxt, limit)


def matching(patterns):
    variant = tf.raw_ops.MatchingFilesDataset(patterns=patterns)
    return dataset_ops._VariantDataset(variant, tf.TensorSpec([], tf.string))


def write_records(path, records, compression=""):
    with tf.io.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    return path


def records(target, folder):
    many = [b"record %d" % i * i for i in range(6)]
    for compression in ("", "GZIP", "ZLIB"):
        paths = [write_records(f"{folder}/r{i}{compression}", many[i::2], compression) for i in range(2)]
        show(f"records {compression}", all_of(target, tf.data.TFRecordDataset(paths, compression)))
    show("in parallel", all_of(target, tf.data.TFRecordDataset(paths, compression, num_parallel_reads=2)))
    show("small buffer", all_of(target, tf.data.TFRecordDataset(f"{folder}/r0", buffer_size=3)))
    show("missing file", all_of(target, tf.data.TFRecordDataset([f"{folder}/nothing", f"{folder}/r0"])))
    show("directory", all_of(target, tf.data.TFRecordDataset(folder)))
    show("wrong compression", all_of(target, tf.data.TFRecordDataset(f"{folder}/r0", "GZIP")))
    show_failure("no compression", lambda: all_of(target, tf.data.TFRecordDataset(f"{folder}/r0", tf.constant("X"))))
    whole = open(f"{folder}/r0", "rb").read()
    for name, contents in (
        ("data", whole[:-6] + b"?" + whole[-5:]),
        ("length", b"\x01" + whole[1:]),
        ("truncated", whole[:-3]),
        ("huge", struct.pack("<Q", 1 << 60) + whole[8:]),
    ):
        with open(f"{folder}/damaged", "wb") as file:
            file.write(contents)
        show(f"damaged {name}", all_of(target, tf.data.TFRecordDataset([f"{folder}/damaged", f"{folder}/r1"])))


def lines(target, folder):
    with open(f"{folder}/a.txt", "wb") as file:
        file.write(b"one\r\ntwo\n\nfour\nno end")
    with gzip.open(f"{folder}/b.gz", "wb") as file:
        file.write(b"zipped\nlines\n")
    with open(f"{folder}/c.z", "wb") as file:
        file.write(zlib.compress(b"more\nlines"))
    with open(f"{folder}/empty.txt", "wb") as file:
        file.write(b"")
    show(
        "lines", all_of(target, tf.data.TextLineDataset([f"{folder}/a.txt", f"{folder}/empty.txt", f"{folder}/a.txt"]))
    )
    show("gzip", all_of(target, tf.data.TextLineDataset(f"{folder}/b.gz", "GZIP")))
    show("zlib", all_of(target, tf.data.TextLineDataset(f"{folder}/c.z", "ZLIB")))
    show("missing", all_of(target, tf.data.TextLineDataset(f"{folder}/nothing")))
    show("skipped", all_of(target, tf.data.TextLineDataset(f"{folder}/a.txt").skip(1).filter(lambda s: s != b"")))
    files = matching(f"{folder}/*.txt")
    show("files", [os.path.basename(name) if isinstance(name, bytes) else name for name in all_of(target, files)])
    read = matching([f"{folder}/*.txt", f"{folder}/a*"]).interleave(
        tf.data.TextLineDataset, cycle_length=2, num_parallel_calls=2
    )
    show("interleaved", all_of(target, read))


def fixed(target, folder):
    path = f"{folder}/fixed"
    with open(path, "wb") as file:
        file.write(b"HEAD" + b"".join(b"%03d" % i for i in range(5)) + b"FT")
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(b"HEAD" + b"".join(b"%03d" % i for i in range(5)) + b"FT")
    fixed = lambda *sizes, name=path, **options: tf.data.FixedLengthRecordDataset(name, *sizes, **options)
    show("fixed", all_of(target, fixed(3, 4, 2)))
    show("compressed", all_of(target, fixed(3, 4, 2, name=f"{path}.gz", compression_type="GZIP")))
    show("no multiple", all_of(target, fixed(4, 4, 2)))
    show("too short", all_of(target, fixed(3, 40, 2)))
    show("missing", all_of(target, fixed(3, name=f"{folder}/nothing")))


def to_records(target, folder):
    path = f"{folder}/written"
    write = tf.raw_ops.DatasetToTFRecord(
        input_dataset=D.from_tensor_slices([b"a", b"bc", b""])._variant_tensor, filename=path, compression_type=""
    )
    with session(target) as sess:
        sess.run(write)
    show("written", all_of(target, tf.data.TFRecordDataset(path)))


def csv(target, folder):
    path = f"{folder}/table.csv"
    with open(path, "wb") as file:
        file.write(b'a,b,c\n1,2.5,"x, ""y"""\n,NA,z\r\n3,4,\n4,bad,w\n5,6\n6,7,8,9\n7, 8.5 ,u"v\n8,1e3,"two\nlines"')
    read = lambda *arguments, **options: all_of(target, tf.data.experimental.CsvDataset(path, *arguments, **options))
    defaults = [tf.constant([0], tf.int32), tf.constant([], tf.float32), "none"]
    show("all", read(defaults, header=True, na_value="-"))
    show("defaults", read([np.int64(-1), np.float64(0.5), "none"], header=True, na_value="NA"))
    show("selected", read([tf.string], header=True, select_cols=[2]))
    show("excluded", read([tf.string, tf.string], header=True, exclude_cols=[1]))
    show("semicolons", read([tf.string], field_delim=";", use_quote_delim=False))
    show("missing", all_of(target, tf.data.experimental.CsvDataset(f"{folder}/nothing", [tf.string])))


def checkpoints(target, folder):
    """Iterators that are saved and go on from there, in the same session and in another one."""
    ds = D.range(30).map(lambda x: x * 3).shuffle(7, seed=2).repeat(2).batch(4).prefetch(2)
    iterator = v1.data.make_initializable_iterator(ds)
    nxt = iterator.get_next()
    saver = v1.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
    with session(target) as sess:
        show_failure("not initialized", lambda: saver.save(sess, f"{folder}/it"))
        sess.run(iterator.initializer)
        show("before", [sess.run(nxt) for _ in range(3)])
        saver.save(sess, f"{folder}/it")
        after = [sess.run(nxt) for _ in range(3)]
        saver.restore(sess, f"{folder}/it")
        show("same again", np.array_equal(after, [sess.run(nxt) for _ in range(3)]))
    with session(target) as sess:
        sess.run(iterator.initializer)
        saver.restore(sess, f"{folder}/it")
        show("in another session", np.array_equal(after, [sess.run(nxt) for _ in range(3)]))
        show("to the end", len(drain(sess, nxt)))


def cached(target, folder):
    """Elements in files: written by the first run, read by later ones, and by the other runtime."""
    prefix = f"{folder}/cache/of"
    os.makedirs(f"{folder}/cache")
    source = lambda: D.range(5).map(lambda x: (x * 2, tf.strings.as_string(x)))
    iterator = v1.data.make_initializable_iterator(source().cache(prefix))
    nxt = iterator.get_next()
    with session(target) as sess:
        for run in ("first", "second"):
            sess.run(iterator.initializer)
            show(run, drain(sess, nxt))
    show("files", sorted(os.path.basename(name) for name in os.listdir(f"{folder}/cache")))
    reader = tf.train.load_checkpoint(prefix)
    show("tensors", sorted(reader.get_variable_to_shape_map()))
    show("one of them", reader.get_tensor("      3_1"))
    show("read by stock", [tuple(element) for element in all_of("", source().cache(prefix))[:-1]])
    stock = f"{folder}/cache/stock"
    all_of("", source().cache(stock))
    show("written by stock", all_of(target, source().map(lambda x, y: (x + 100, y)).cache(stock)))
    partial = v1.data.make_initializable_iterator(D.range(5).cache(f"{folder}/cache/partial"))
    part = partial.get_next()
    with session(target) as sess:
        sess.run(partial.initializer)
        show("part", sess.run(part))
        sess.run(partial.initializer)
        show("locked or whole", len(drain(sess, part)) in (2, 4, 6))


def saved(target, folder):
    """Datasets that are saved by one runtime and loaded by the other."""
    source = lambda: D.range(7).map(lambda x: {"n": x, "text": tf.strings.as_string(x), "row": tf.fill([2], x)})
    spec = source().element_spec

    def save_raw(to, path, compression="", shards=1):
        with tf.Graph().as_default(), session(to) as sess:
            shard = tf.function(lambda n, row, text: n % shards).get_concrete_function(
                *[tf.TensorSpec(s.shape, s.dtype) for s in tf.nest.flatten(spec)]
            )
            shard.add_to_graph()
            dataset = source()
            write = tf.raw_ops.SaveDataset(
                input_dataset=dataset._variant_tensor,
                path=path,
                shard_func_other_args=[],
                shard_func=shard,
                compression=compression,
            )
            sess.run(write)

    def load(to, path, compression=""):
        with tf.Graph().as_default():
            reader = tf.function(lambda d: flattened(d, spec)).get_concrete_function(tf.TensorSpec([], tf.variant))
            reader.add_to_graph()
            flat = tf.nest.flatten(spec)
            variant = tf.raw_ops.LoadDataset(
                path=path,
                reader_func_other_args=[],
                output_types=[s.dtype for s in flat],
                output_shapes=[s.shape for s in flat],
                compression=compression,
                reader_func=reader,
            )
            taken = all_of(to, dataset_ops._VariantDataset(variant, spec))
        return [f"{e['n']} {e['text']} {list(e['row'])}" if isinstance(e, dict) else e for e in taken]

    def flattened(shards, spec):
        nested = dataset_ops._VariantDataset(shards, dataset_ops.DatasetSpec(spec))
        return nested.flat_map(lambda d: d)._variant_tensor

    for compression in ("", "GZIP", "SNAPPY"):
        name = compression or "plain"
        save_raw(target, f"{folder}/saved-{name}", compression)
        show(f"loaded {name}", load(target, f"{folder}/saved-{name}", compression))
        show(f"loaded {name} by stock", load("", f"{folder}/saved-{name}", compression))
        save_raw("", f"{folder}/stock-{name}", compression)
        show(f"saved {name} by stock", load(target, f"{folder}/stock-{name}", compression))
    save_raw(target, f"{folder}/sharded", shards=3)
    show("three shards", load(target, f"{folder}/sharded"))
    show("three shards by stock", load("", f"{folder}/sharded"))
    show("missing", load_failure(lambda: load(target, f"{folder}/nothing")))
    for root, _, names in os.walk(f"{folder}/sharded"):
        for name in names:
            if name.endswith(".snapshot"):
                with open(f"{root}/{name}", "r+b") as file:
                    file.truncate(max(0, os.path.getsize(f"{root}/{name}") - 5))
    show("truncated", load_failure(lambda: load(target, f"{folder}/sharded")))


def load_failure(load):
    try:
        return [element for element in load() if not element[0].isdigit()]
    except tf.errors.OpError as error:
        return type(error).__name__


def snapshots(target, folder):
    """Snapshots: written by the first run, read by later ones."""
    path = f"{folder}/snapshot"
    random = lambda: D.range(4).map(lambda x: tf.cast(x, tf.float32) + 0.5)

    def run(to, dataset):
        with tf.Graph().as_default():
            return all_of(to, dataset())

    for compression in ("GZIP", None):
        kept = lambda: random().snapshot(path, compression=compression)
        show(f"first {compression}", run(target, kept))
        show(f"second {compression}", run(target, kept))
    shards = lambda: random().snapshot(f"{folder}/shards", shard_func=lambda x: tf.cast(x, tf.int64) % 2)
    show("sharded", run(target, shards))
    show("read again", sorted(map(str, run(target, shards))))
    with tf.Graph().as_default():
        first = lambda: random().apply(legacy_snapshot(f"{folder}/first"))
        show("first version", run(target, first))
        show("first version again", run(target, first))
    across(target, folder, run)


def across(target, folder, run):
    """A snapshot that stock has taken is found again. Functions have no constants, which sessions of stock rewrite."""
    lines = f"{folder}/across.txt"
    with open(lines, "w") as file:
        file.write("one\ntwo\n")
    kinds = {
        "range": lambda: D.range(4),
        "slices": lambda: D.from_tensor_slices(np.arange(3)),
        "text": lambda: D.from_tensor_slices(["1", "2"]).map(tf.strings.to_number),
        "map": lambda: D.range(4).map(lambda x: x + x, num_parallel_calls=2),
        "filter": lambda: D.range(4).filter(lambda x: x + x > x),
        "shuffle": lambda: D.range(4).shuffle(2, seed=3).batch(2).prefetch(1),
        "nested": lambda: D.range(3).flat_map(D.from_tensors).repeat(2),
        "string": lambda: D.from_tensors({"a": ["x"], "b": np.uint32(7)}),
        "lines": lambda: tf.data.TextLineDataset(lines),
        "zip": lambda: D.zip((D.range(3), D.range(3).concatenate(D.range(2)))).take(2).skip(1),
    }
    for name, make in kinds.items():
        path = f"{folder}/across-{name}"
        kept = lambda: make().snapshot(path)
        expected = list(map(str, run("", kept)))
        found = list(map(str, run(target, kept))) == expected
        graphs = os.listdir(path)
        show(f"{name} taken by stock is found", [found, len(graphs), len(os.listdir(f"{path}/{graphs[0]}"))])


def sharded(target, folder):
    """Parts for several workers: whole files where the pipeline reads files."""
    paths = [write_records(f"{folder}/p{i}", [b"%d-%d" % (i, j) for j in range(3)]) for i in range(4)]
    policy = tf.data.experimental.AutoShardPolicy

    def part(make, index, kind, workers=2):
        with tf.Graph().as_default():
            dataset = make()
            variant = tf.raw_ops.AutoShardDataset(
                input_dataset=dataset._variant_tensor,
                num_workers=np.int64(workers),
                index=np.int64(index),
                auto_shard_policy=kind.value,
                num_replicas=1,
                output_types=[tf.string],
                output_shapes=[[]],
            )
            divided = dataset_ops._VariantDataset(variant, tf.TensorSpec([], tf.string))
            iterator = v1.data.make_initializable_iterator(divided)
            nxt = iterator.get_next()
            with session(target) as sess:
                try:
                    sess.run(iterator.initializer)
                except tf.errors.OpError as error:
                    return type(error).__name__
                return drain(sess, nxt)

    pipelines = {
        "records": lambda: tf.data.TFRecordDataset(paths),
        "mapped": lambda: tf.data.TFRecordDataset(paths).map(lambda r: r + b"!").prefetch(1),
        "interleaved": lambda: D.from_tensor_slices(paths).interleave(tf.data.TFRecordDataset, cycle_length=2),
        "shuffled": lambda: D.from_tensor_slices(paths).shuffle(4, seed=1).flat_map(tf.data.TFRecordDataset),
        "joined": lambda: tf.data.TFRecordDataset(paths[:2]).concatenate(tf.data.TFRecordDataset(paths[2:])),
        "numbers": lambda: D.range(5).map(tf.strings.as_string),
    }
    for name, make in pipelines.items():
        others = (policy.FILE, policy.DATA, policy.OFF) if name in ("records", "numbers") else ()
        for kind in (policy.AUTO, *others):
            show(f"{name} {kind.name}", [part(make, index, kind) for index in range(2)])
    show("more workers than files", part(pipelines["records"], 4, policy.FILE, 5))


def feedable(target, folder):
    handle = v1.placeholder(tf.string, [])
    nxt = v1.data.Iterator.from_string_handle(handle, tf.int64, tf.TensorShape([])).get_next()
    first = v1.data.make_one_shot_iterator(D.range(3))
    second = v1.data.make_initializable_iterator(D.range(10, 12).repeat())
    with session(target) as sess:
        handles = sess.run([first.string_handle(), second.string_handle()])
        show_failure("not initialized", lambda: sess.run(nxt, {handle: handles[1]}))
        sess.run(second.initializer)
        show("in turn", [sess.run(nxt, {handle: handles[i % 2]}) for i in range(6)])
        show_failure("end of one", lambda: sess.run(nxt, {handle: handles[0]}))
        show("the other", sess.run(nxt, {handle: handles[1]}))
        show_failure("nonsense", lambda: sess.run(nxt, {handle: b"nonsense"}))


def shared(target, folder):
    """An iterator with a shared name is seen by other sessions; one without is not, and ends with its session."""
    named = v1.data.make_initializable_iterator(D.range(100), shared_name="numbers")
    own = v1.data.make_initializable_iterator(D.range(100))
    nexts = [named.get_next(), own.get_next()]
    with session(target) as one, session(target) as two:
        one.run([named.initializer, own.initializer])
        show("one", [one.run(nexts), one.run(nexts)])
        show("two", two.run(nexts[0]))
        show_failure("not shared", lambda: two.run(nexts[1]))
    with session(target) as three:
        show("later", three.run(nexts[0]))


def extended(target, folder):
    """A pipeline goes on while the graph grows and its first plan is long gone."""
    nxt = v1.data.make_one_shot_iterator(D.range(100).map(lambda x: x * 2).batch(2)).get_next()
    with session(target) as sess:
        show("first", sess.run(nxt))
        for i in range(5):
            other = nxt + tf.constant(i, tf.int64)
            show(f"grown {i}", sess.run(other))
        again = D.range(4).map(lambda x: x + 1)
        show("another", sess.run(v1.data.make_one_shot_iterator(again).get_next()))
        show("on", sess.run(nxt))


def waiting(target, folder):
    """A pipeline that waits is cancelled with the step that asked."""
    queue = tf.queue.FIFOQueue(10, tf.int64, ())
    value = v1.placeholder(tf.int64, ())
    put = queue.enqueue(value)
    iterator = v1.data.make_initializable_iterator(D.range(100).map(lambda x: x * 100 + queue.dequeue()))
    nxt = iterator.get_next()
    with session(target) as sess:
        sess.run(iterator.initializer)
        sess.run(put, {value: 1})
        show("there", sess.run(nxt))
        show_failure("deadline", lambda: sess.run(nxt, options=v1.RunOptions(timeout_in_ms=200)))
        sess.run(iterator.initializer)
        taken = []
        thread = threading.Thread(target=lambda: taken.append(sess.run(nxt)))
        thread.start()
        sess.run(put, {value: 2})
        thread.join()
        show("woken", taken)


def generator(target, folder):
    """Raw generator functions: state, elements, end."""

    def start(n):
        return n

    def following(n):
        v = counter.assign_add(1)
        with tf.control_dependencies([tf.debugging.Assert(v < 100, [v])]):
            return tf.cond(v <= n, lambda: v * 10, queue.dequeue)

    counter = v1.get_variable("c", [], tf.int64, v1.zeros_initializer(), use_resource=True)
    queue = tf.queue.FIFOQueue(1, tf.int64, ())
    close = queue.close()
    ds = from_generator_op._GeneratorDataset(
        np.int64(3), start, following, lambda n: tf.constant(0, tf.int64), tf.TensorSpec([], tf.int64)
    )
    iterator = v1.data.make_initializable_iterator(ds)
    nxt = iterator.get_next()
    with session(target) as sess:
        sess.run([counter.initializer, iterator.initializer, close])
        show("generated", drain(sess, nxt))


def training(target, folder):
    """Records that are parsed, shuffled, batched and learned from."""
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(64, 3)).astype(np.float32)
    ys = xs @ np.float32([1, -2, 3])
    paths = [
        write_records(
            f"{folder}/t{i}", [" ".join(f"{v:.6f}" for v in (*x, y)).encode() for x, y in zip(xs[i::2], ys[i::2])]
        )
        for i in range(2)
    ]
    ds = (
        D.from_tensor_slices(paths)
        .interleave(tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .map(lambda r: tf.strings.to_number(v1.string_split([r]).values), num_parallel_calls=tf.data.AUTOTUNE)
        .map(lambda row: (tf.ensure_shape(row, [4])[:3], row[3]))
        .shuffle(16, seed=4)
        .repeat(4)
        .batch(8, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
    x, y = v1.data.make_one_shot_iterator(ds).get_next()
    w = v1.get_variable("w", [3], tf.float32, v1.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean((tf.linalg.matvec(x, w) - y) ** 2)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    with session(target) as sess:
        sess.run(v1.global_variables_initializer())
        losses = []
        try:
            while True:
                losses.append(sess.run([loss, train])[0])
        except tf.errors.OutOfRangeError:
            pass
        show("steps", len(losses))
        show("losses", [f"{loss:.4f}" for loss in losses[::6]])
        show("weights", [f"{weight:.4f}" for weight in sess.run(w)])


def embeddings(target, folder):
    """Examples in records: parsed, shuffled, batched, and a classifier with an embedding that learns from them."""
    rng = np.random.default_rng(3)
    int64s = lambda values: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    floats = lambda values: tf.train.Feature(float_list=tf.train.FloatList(value=values))

    def example():
        words = rng.integers(0, 20, rng.integers(1, 5))
        feature = {"words": int64s(words), "weight": floats([rng.random()]), "label": int64s([int(words.sum() % 2)])}
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    paths = [write_records(f"{folder}/e{i}", [example() for _ in range(24)], "GZIP") for i in range(3)]
    features = {
        "words": tf.io.RaggedFeature(tf.int64),
        "weight": tf.io.FixedLenFeature([], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    batches = (
        D.from_tensor_slices(paths)
        .shuffle(3, seed=8)
        .interleave(lambda path: tf.data.TFRecordDataset(path, "GZIP"), cycle_length=2, num_parallel_calls=2)
        .shuffle(20, seed=9)
        .repeat(2)
        .batch(8, drop_remainder=True)
        .map(lambda records: tf.io.parse_example(records, features), num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
    batch = v1.data.make_one_shot_iterator(batches).get_next()
    start = tf.constant(rng.normal(size=(20, 4)), tf.float32)
    table = v1.get_variable("table", initializer=start, use_resource=True)
    output = v1.get_variable("output", initializer=tf.constant([0.1, -0.2, 0.3, -0.4]), use_resource=True)
    words = batch["words"]
    sums = tf.math.segment_sum(tf.gather(table, words.values), words.value_rowids())
    logits = tf.linalg.matvec(sums, output) * batch["weight"]
    labels = tf.cast(batch["label"], tf.float32)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
    train = v1.train.AdagradOptimizer(0.5).minimize(loss)
    with session(target) as sess:
        sess.run(v1.global_variables_initializer())
        losses = [f"{result[0]:.4f}" for result in drain(sess, [loss, train], 18)[:-1]]
        show("losses", losses)
        show("table", [f"{value:.4f}" for value in sess.run(table)[:, 0]])


PARTS = {
    "records": records,
    "lines": lines,
    "fixed": fixed,
    "to_records": to_records,
    "csv": csv,
    "checkpoints": checkpoints,
    "cached": cached,
    "saved": saved,
    "snapshots": snapshots,
    "sharded": sharded,
    "feedable": feedable,
    "shared": shared,
    "extended": extended,
    "waiting": waiting,
    "generator": generator,
    "training": training,
    "embeddings": embeddings,
}
