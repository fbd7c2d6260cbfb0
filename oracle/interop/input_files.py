"""Files and readers of the queue era: records of all kinds, damaged ones, and a pipeline with queue runners."""

import gzip
import os
import re
import struct
import tempfile
import zlib

from report import sentence, session, show, v1

import numpy as np
import tensorflow as tf


def run(target):
    with tempfile.TemporaryDirectory() as directory:
        for name, part in PARTS.items():
            print(f"-- {name}", flush=True)
            with tf.Graph().as_default():
                part(target, directory)


def shown(value, directory):
    """A value of strings, without the directory."""
    if isinstance(value, bytes):
        return value.replace(directory.encode(), b"DIR")
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [shown(item, directory) for item in value.ravel().tolist()]
    if isinstance(value, (list, tuple)):
        return [shown(item, directory) for item in value]
    return value


def attempt(label, call, directory):
    try:
        value = call()
    except tf.errors.OpError as error:
        # Queues without a name are numbered within their process.
        said = re.sub(r"'_\d+_", "'", sentence(error).replace(directory, "DIR"))
        print(f"{label}: {type(error).__name__}: {said[:160]}", flush=True)
        return False
    show(label, shown(value, directory))
    return True


def write(directory, name, content):
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(content)
    return path


def records(values, options=None):
    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name, options) as writer:
            for value in values:
                writer.write(value)
        return open(file.name, "rb").read()


def whole_files(target, directory):
    path = os.path.join(directory, "new", "deep", "file")
    name, content = v1.placeholder(tf.string), v1.placeholder(tf.string)
    put, get, find = (
        tf.raw_ops.WriteFile(filename=name, contents=content),
        tf.io.read_file(name),
        tf.io.matching_files(name),
    )
    with session(target) as sess:
        for text in (b"first", b"", b"\x00\xff" * 100000):
            sess.run(put, {name: path, content: text})
            show("read", [len(sess.run(get, {name: path})), sess.run(get, {name: path}) == text])
        write(directory, "other", b"1")
        for pattern in ("*", "new/*/f*", "*/deep/file", "oth[a-e]r", "nothing*", "other"):
            attempt(pattern, lambda: sess.run(find, {name: os.path.join(directory, pattern)}), directory)
        attempt("directory", lambda: sess.run(get, {name: directory}), directory)
        attempt("missing", lambda: sess.run(get, {name: path + "x"}), directory)


def read_all(target, directory, reader, paths, most=6):
    """Reads one by one until the names are used up; says what counts say."""
    queue = v1.FIFOQueue(len(paths), tf.string, shapes=[[]])
    key, value = reader.read(queue)
    keys, values = reader.read_up_to(queue, 2)
    counts = [reader.num_records_produced(), reader.num_work_units_completed()]
    fill, close = queue.enqueue_many([paths]), queue.close()
    with session(target) as sess:
        sess.run(fill)
        sess.run(close)
        for _ in range(most):
            if not attempt("one", lambda: sess.run([key, value]), directory):
                break
        show("counts", sess.run(counts))
        attempt("two", lambda: sess.run([keys, values]), directory)
        attempt("two", lambda: sess.run([keys, values]), directory)
        show("counts", sess.run(counts))
        attempt("state", lambda: sess.run(reader.serialize_state()), directory)
        sess.run(reader.reset())
        show("reset", sess.run(counts))


def readers(target, directory):
    lines = write(directory, "lines", b"head\none\r\ntwo\n\nlast")
    short = write(directory, "short", b"only\n")
    fixed = write(directory, "fixed", b"HHaaaabbbbccccFF")
    three = [b"first", b"", b"third" * 100]
    plain = write(directory, "plain", records(three))
    zipped = write(directory, "zipped", records(three, "GZIP"))
    deflated = write(directory, "deflated", records(three, "ZLIB"))
    missing = os.path.join(directory, "missing")
    for name, make, paths in [
        ("lines", v1.TextLineReader, [lines, short]),
        ("headers", lambda: v1.TextLineReader(skip_header_lines=2), [lines, short]),
        ("lines missing", v1.TextLineReader, [missing, short]),
        ("fixed", lambda: v1.FixedLengthRecordReader(4, 2, 2), [fixed]),
        ("fixed hop", lambda: v1.FixedLengthRecordReader(4, 2, 2, 2), [fixed]),
        ("fixed long hop", lambda: v1.FixedLengthRecordReader(2, 0, 0, 5), [fixed]),
        ("fixed header", lambda: v1.FixedLengthRecordReader(4, 200), [fixed]),
        (
            "fixed zip",
            lambda: v1.FixedLengthRecordReader(4, 2, 2, encoding="GZIP"),
            [write(directory, "fz", gzip.compress(b"HHaaaabbbbFF"))],
        ),
        (
            "fixed zlib",
            lambda: v1.FixedLengthRecordReader(4, 2, 2, encoding="ZLIB"),
            [write(directory, "fl", zlib.compress(b"HHaaaabbbbFF"))],
        ),
        ("records", v1.TFRecordReader, [plain]),
        ("records gzip", lambda: v1.TFRecordReader(options=tf.io.TFRecordOptions("GZIP")), [zipped]),
        ("records zlib", lambda: v1.TFRecordReader(options=tf.io.TFRecordOptions("ZLIB")), [deflated]),
        ("whole", v1.WholeFileReader, [short, fixed]),
        ("identity", v1.IdentityReader, ["a", "b", "c"]),
    ]:
        print(f"- {name}", flush=True)
        with tf.Graph().as_default():
            read_all(target, directory, make(), paths)


def damaged(target, directory):
    """Records that are cut, changed, or were none."""
    good = records([b"first", b"second"])
    huge = struct.pack("<Q", 2**40)
    for name, content in {
        "cut data": good[:-6],
        "cut sum": good[:-1],
        "changed data": good[:14] + b"X" + good[15:],
        "changed length": b"\x06" + good[1:],
        "second changed": good[:-6] + b"X" + good[-5:],
        "huge": huge + b"\0\0\0\0",
        "text": b"this is only text, and no record at all",
    }.items():
        print(f"- {name}", flush=True)
        with tf.Graph().as_default():
            read_all(target, directory, v1.TFRecordReader(), [write(directory, "damaged", content)], most=3)


def pipeline(target, directory):
    """Names, lines, columns, batches: as programs of the queue era read their data."""
    paths = [
        write(directory, f"part{n}", "".join(f"{n * 10 + i},{i / 2},w{i}\n" for i in range(10)).encode())
        for n in range(3)
    ]
    names = v1.train.string_input_producer(paths, num_epochs=2, shuffle=False)
    _, line = v1.TextLineReader().read(names)
    number, half, word = tf.io.decode_csv(line, [[0], [0.0], [""]])
    batch = v1.train.shuffle_batch([number, half, word], 7, 30, 10, seed=3, allow_smaller_final_batch=True)
    with session(target) as sess:
        sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(sess, coordinator)
        seen = []
        try:
            while not coordinator.should_stop():
                seen.append(sess.run(batch))
        except tf.errors.OutOfRangeError:
            show("ended", True)
        finally:
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=60)
        show("batches", [len(numbers) for numbers, _, _ in seen])
        numbers, halves, words = (np.concatenate(parts) for parts in zip(*seen))
        order = np.argsort(numbers, kind="stable")
        show("numbers", numbers[order])
        show("halves", halves[order])
        show("words", words[order])


def examples(target, directory):
    """Records parsed on the server."""

    def example(n):
        feature = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=[n, n / 2])),
            "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=range(n))),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    path = write(directory, "examples", records([example(n) for n in range(6)]))
    queue = v1.FIFOQueue(1, tf.string, shapes=[[]])
    _, serialized = v1.TFRecordReader().read_up_to(queue, 4)
    parsed = tf.io.parse_example(
        serialized, {"x": tf.io.FixedLenFeature([2], tf.float32), "ids": tf.io.VarLenFeature(tf.int64)}
    )
    fill, close = queue.enqueue(path), queue.close()
    with session(target) as sess:
        sess.run(fill)
        sess.run(close)
        for _ in range(2):
            values = sess.run(parsed)
            show("parsed", [values["x"], values["ids"].indices, values["ids"].values, values["ids"].dense_shape])


def shuffled_records(target, directory):
    """`RecordInput`: the order of an epoch that fits into half of the buffer, and damaged and missing files."""
    for n in range(5):
        write(directory, f"shuffled{n}", records([f"{n}-{i}".encode() for i in range(4 + 9 * n)]))
    pattern = os.path.join(directory, "shuffled")
    total = sum(4 + 9 * n for n in range(5))

    def read(label, steps=1, **attrs):
        # One by one: what a pattern matches, stock takes in the order of the directory.
        every = ",".join(f"{pattern}{n}" for n in range(5))
        attrs = {"file_pattern": every, "batch_size": total, "file_parallelism": 1, "file_buffer_size": 1000} | attrs
        with tf.Graph().as_default():
            batch = tf.raw_ops.RecordInput(**attrs)
            with session(target) as sess:
                for _ in range(steps):
                    attempt(label, lambda: sess.run(batch), directory)

    read("all")
    read("seed", file_random_seed=7)
    read("shift", file_shuffle_shift_ratio=0.5)
    read("two patterns", file_pattern=f"{pattern}1,{pattern}3", batch_size=44)
    read("one file", file_pattern=f"{pattern}2", batch_size=11, steps=2)
    read("nothing", batch_size=0)
    zipped = write(directory, "zipped_records", records([b"a", b"b"], "ZLIB"))
    read("zlib", file_pattern=zipped, batch_size=2, compression_type="ZLIB")
    read("missing", file_pattern=os.path.join(directory, "nowhere*"), batch_size=1)
    damaged = write(directory, "damaged_records", records([b"first", b"second"])[:-3])
    with tf.Graph().as_default(), session(target) as sess:
        batch = tf.raw_ops.RecordInput(file_pattern=damaged, batch_size=2, file_parallelism=1)
        for _ in range(2):
            try:
                sess.run(batch)
            except tf.errors.OpError as error:
                show("damaged", type(error).__name__)
    for attrs in ({"file_parallelism": -1}, {"batch_size": -1}):
        read("refused", **attrs)
    # All threads together: the same records, in any order.
    with tf.Graph().as_default(), session(target) as sess:
        batch = tf.raw_ops.RecordInput(file_pattern=f"{pattern}*", batch_size=total, file_buffer_size=1000)
        show("together", sorted(sess.run(batch).tolist()))
        show("second epoch", sorted(sess.run(batch).tolist()) == sorted(sess.run(batch).tolist()))


def dumps(target, directory):
    """Tensors that a graph writes to files as it runs."""
    where = os.path.join(directory, "dump", "deep")
    definition = v1.GraphDef()
    definition.versions.producer = v1.get_default_graph().as_graph_def().versions.producer
    for name, enabled in (("data", True), ("quiet", False)):
        node = definition.node.add(op="DumpTensor", name=name, input=["given"])
        node.attr["T"].type = tf.float32.as_datatype_enum
        node.attr["enabled"].b = enabled
        texts = {"log_dir_path": where, "file_name": name, "func_name": "f", "node_name": "n"}
        for attr, text in texts.items():
            node.attr[attr].s = text.encode()
    definition.node.add(op="Placeholder", name="given").attr["dtype"].type = tf.float32.as_datatype_enum
    tf.import_graph_def(definition, name="")
    with session(target) as sess:
        for n in range(3):
            sess.run(["data", "quiet"], {"given:0": np.full([n, 2], n)})
        show("files", sorted(os.listdir(where)))
        show("unit", open(os.path.join(where, "quant_unit.pb"), "rb").read())


PARTS = {
    "whole_files": whole_files,
    "readers": readers,
    "damaged": damaged,
    "pipeline": pipeline,
    "examples": examples,
    "shuffled_records": shuffled_records,
    "dumps": dumps,
}
