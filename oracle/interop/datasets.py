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


PARTS = {
    "records": records,
    "lines": lines,
    "fixed": fixed,
    "to_records": to_records,
    "csv": csv,
    "checkpoints": checkpoints,
    "feedable": feedable,
    "shared": shared,
    "extended": extended,
    "waiting": waiting,
    "generator": generator,
    "training": training,
}
