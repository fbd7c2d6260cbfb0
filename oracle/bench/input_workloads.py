"""Workloads of input: pipelines, images, sparse features."""

import pathlib
import tempfile
import time

from workloads import Workload, _kernel, _session, _uniform

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

# Files of the pipelines; it goes with this process.
_directory = tempfile.TemporaryDirectory(prefix="ferroflow-bench-")


def _path(name):
    return str(pathlib.Path(_directory.name) / name)


def _pipeline(build, count):
    """Elements per second: one step takes `count` elements out of the dataset that `build` makes."""

    def open_on(target):
        with tf.Graph().as_default() as graph:
            dataset = build().take(count)
            taken = dataset.reduce(np.int64(0), lambda n, *_: n + 1)
        call = _session(target, graph, False).make_callable(taken)
        assert call() == count, "the pipeline ends early"

        def sample():
            start = time.perf_counter()
            call()
            return count / (time.perf_counter() - start)

        return sample

    return open_on


def _records():
    """16 files of examples."""
    paths = [_path(f"examples-{i}") for i in range(16)]
    if not pathlib.Path(paths[-1]).exists():
        draws = np.random.RandomState(3)
        floats = lambda values: tf.train.Feature(float_list=tf.train.FloatList(value=values))
        integers = lambda values: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for path in paths:
            with tf.io.TFRecordWriter(path) as writer:
                for _ in range(2000):
                    features = {
                        "x": floats(draws.rand(32)),
                        "ids": integers(draws.randint(0, 1000, draws.randint(1, 8))),
                        "label": integers([draws.randint(10)]),
                    }
                    writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return paths


_FEATURES = {
    "x": tf.io.FixedLenFeature([32], tf.float32),
    "ids": tf.io.VarLenFeature(tf.int64),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def _range_map_batch():
    return tf.data.Dataset.range(1 << 40).map(lambda x: x * 2 + 1).batch(32)


def _parsed():
    records = tf.data.TFRecordDataset(_records()).repeat()
    return records.batch(128).map(lambda batch: tf.io.parse_example(batch, _FEATURES))


def _shuffled():
    return tf.data.Dataset.range(1 << 40).shuffle(1_000_000, seed=1)


def _interleaved():
    names = tf.data.Dataset.from_tensor_slices(_records())
    return names.interleave(tf.data.TFRecordDataset, cycle_length=16, block_length=4).repeat()


def _heavy():
    weights = _uniform(256, 256) / 256
    heavy = lambda x: tf.linalg.matmul(tf.linalg.matmul(tf.fill([64, 256], tf.cast(x, tf.float32)), weights), weights)
    return tf.data.Dataset.range(1 << 40).map(heavy, num_parallel_calls=2)


def _image_files():
    """Pictures of 640 by 480 pixels, smooth with some noise."""
    paths = [_path(f"picture-{i}.jpeg") for i in range(4)]
    if not pathlib.Path(paths[-1]).exists():
        y, x = np.mgrid[0:480, 0:640]
        for seed, path in enumerate(paths):
            noise = np.random.RandomState(seed).randint(0, 20, (480, 640, 3))
            picture = np.stack([x * 255 / 640, y * 255 / 480, (x + y) % 255], 2) * 0.9 + noise
            with tf.Graph().as_default(), v1.Session() as session:
                encoded = session.run(tf.io.encode_jpeg(picture.astype(np.uint8), quality=90))
            pathlib.Path(path).write_bytes(encoded)
    return paths


def _pictures():
    paths = tf.constant(_image_files())

    def decode(number):
        # Which file depends on the element: stock folds what does not.
        file = tf.io.read_file(tf.gather(paths, number % 4))
        return tf.image.resize(tf.io.decode_jpeg(file, channels=3), [224, 224])

    return tf.data.Dataset.range(1 << 40).map(decode)


def _kernels():
    raw = tf.raw_ops
    batch, columns = 4096, 4
    draws = np.random.RandomState(6)
    indices = np.stack([np.repeat(np.arange(batch), 2), np.tile([0, 1], batch)], 1).astype(np.int64)
    values = [draws.randint(0, 1000, 2 * batch) for _ in range(columns)]

    def cross(read, repeats):
        columns_read = read[1:]
        calls = []
        for number in range(repeats):
            calls.append(
                raw.SparseCrossHashed(
                    indices=[read[0]] * columns,
                    values=columns_read,
                    shapes=[tf.constant([batch, 2], tf.int64)] * columns,
                    dense_inputs=[],
                    num_buckets=100_000,
                    strong_hash=False,
                    salt=[number, 1],
                )[1]
            )
        return calls

    yield "sparse cross of 4 features, 4096 rows", cross, [indices, *(v.astype(np.int64) for v in values)], 2
    resize = lambda read, _: [tf.image.resize(x, [224, 224]) for x in read]
    yield "resize 8×480×640×3 to 224×224", resize, [_uniform(8, 480, 640, 3)] * 2, 2


def all_workloads():
    """The rows about input, in the order of the table."""
    for name, build, count, least in (
        ("pipeline: range, map, batch of 32", _range_map_batch, 4000, 3),
        ("pipeline: records, batch of 128, parse", _parsed, 100, 1.2),
        ("pipeline: shuffle of 1M", _shuffled, 200_000, 3),
        ("pipeline: interleave of 16 files", _interleaved, 30_000, 3),
        ("pipeline: parallel map of a heavy function", _heavy, 400, 1.2),
        ("pipeline: JPEG decode and resize", _pictures, 60, 1.2),
    ):
        yield Workload(name, "elements/s", _pipeline(build, count), rate=True, least_ratio=least, rounds=5)
    for name, build, inputs, repeats in _kernels():
        yield Workload(name, "µs", _kernel(build, inputs, repeats), least_ratio=0.9, rounds=5)
