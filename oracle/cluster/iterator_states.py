"""Checkpoints of iterators between runtimes: what stock saved is restored by our server at the same element, and what
our server saved is restored by stock."""

import itertools
import pathlib
import tempfile

import tasks
from report import v1

import numpy as np
import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours",)

SECONDS = 300

Dataset = tf.data.Dataset


def orchestrate(layout, binary):
    with (
        tasks.Cluster({"worker": layout["worker"][:1]}, binary) as cluster,
        tempfile.TemporaryDirectory(prefix="with space ") as directory,
    ):
        client = tasks.Client(use, cluster.target(), pathlib.Path(directory))
        for line in client.finish(SECONDS):
            print(line, flush=True)


def pipelines(directory):
    """Functions that make datasets, by what they are about."""
    lines, records = directory / "lines.txt", str(directory / "records")
    if not lines.exists():
        lines.write_text("".join(f"line {i}\n" for i in range(9)))
        with tf.io.TFRecordWriter(records) as writer:
            for i in range(9):
                writer.write(b"record %d" % i)
    numbers = lambda: Dataset.range(10)
    double = lambda x: x * 2
    usual = lambda: numbers().shuffle(4, seed=5).map(double, num_parallel_calls=2).batch(3).repeat(2).prefetch(2)
    return {
        "a range": numbers,
        "a range with steps": lambda: Dataset.range(20, 3, -4),
        "slices": lambda: Dataset.from_tensor_slices({"a": np.arange(6), "b": np.ones([6, 2], np.float32)}),
        "a tensor, repeated": lambda: Dataset.from_tensors([1, 2]).repeat(4),
        "a map": lambda: numbers().map(double),
        "a parallel map": lambda: numbers().map(double, num_parallel_calls=3),
        "a map of state": lambda: numbers().map(lambda x: x + tf.cast(tf.timestamp() > 0, tf.int64)),
        "a shuffle": lambda: numbers().shuffle(4, seed=5),
        "a shuffle of all": lambda: numbers().shuffle(100, seed=5),
        "a shuffle, repeated": lambda: numbers().shuffle(4, seed=5).repeat(3),
        "a fixed shuffle, repeated": lambda: numbers().shuffle(4, seed=5, reshuffle_each_iteration=False).repeat(2),
        "batches": lambda: numbers().batch(4),
        "whole batches": lambda: numbers().map(double).batch(4, drop_remainder=True),
        "mapped batches": lambda: numbers().map(double).batch(4),
        "batches, mapped": lambda: numbers().batch(4).map(double),
        "a prefetch": lambda: numbers().prefetch(3),
        "a tuned prefetch": lambda: numbers().batch(2).prefetch(tf.data.AUTOTUNE),
        "a part": lambda: numbers().take(8).skip(3).shard(2, 1),
        "no part": lambda: numbers().take(-1).skip(0).repeat(1).shard(1, 0),
        "a filter": lambda: numbers().filter(lambda x: x % 3 > 0),
        "a zip": lambda: Dataset.zip((numbers(), Dataset.range(3).concatenate(Dataset.range(40, 44)))),
        "a flat map": lambda: Dataset.range(4).flat_map(lambda x: Dataset.range(x, x + 3)),
        "lines": lambda: tf.data.TextLineDataset([str(lines), str(lines)]),
        "records": lambda: tf.data.TFRecordDataset([records, records]).batch(2),
        "the usual": usual,
        "the usual, endless": lambda: numbers().repeat().shuffle(7, seed=1).batch(4).map(double).prefetch(1).take(9),
    }


class Run:
    """An iterator over a dataset in one of the runtimes."""

    def __init__(self, make, target):
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(11)
            iterator = v1.data.make_initializable_iterator(make())
            saveable = tf.data.experimental.make_saveable_from_iterator(iterator)
            self.saver = v1.train.Saver({"iterator": saveable})
            self.element, self.start = iterator.get_next(), iterator.initializer
        self.session = v1.Session(target, graph=self.graph)
        self.session.run(self.start)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session.close()

    def take(self, count):
        taken = []
        for _ in itertools.count() if count is None else range(count):
            try:
                taken.append(
                    tf.nest.map_structure(lambda part: np.asarray(part).tolist(), self.session.run(self.element))
                )
            except tf.errors.OutOfRangeError:
                break
        return taken

    def save(self, path):
        with self.graph.as_default():
            return self.saver.save(self.session, str(path), write_meta_graph=False)

    def restore(self, path):
        with self.graph.as_default():
            self.saver.restore(self.session, path)


def refused(target, directory):
    """A stage whose state is not exchanged: ours restores its own, and says which stage it is if stock's comes."""
    make = lambda: Dataset.range(3).interleave(lambda x: Dataset.range(x, x + 3), cycle_length=2, num_parallel_calls=2)
    path = directory / "of an interleave"
    with Run(make, target) as before, Run(make, target) as after:
        expected = before.take(4)
        after.restore(before.save(path))
        rest = after.take(None) == before.take(None)
    with Run(make, "") as before, Run(make, target) as after:
        before.take(len(expected))
        saved = before.save(path)
        try:
            after.restore(saved)
            said = "nothing"
        except tf.errors.UnimplementedError as error:
            said = error.message
    named = "the state of a ParallelInterleaveDatasetV4 cannot be exchanged with stock TensorFlow" in said
    print(
        f"a stage without an exchangeable state, {said if not named else 'named'}, restored here: {named and rest}",
        flush=True,
    )


def use(target, directory):
    refused(target, directory)
    numbers = itertools.count()
    for name, make in pipelines(directory).items():
        with Run(make, "") as stock:
            expected = stock.take(None)
        with Run(make, target) as ours:
            same = ours.take(None) == expected
        outcome = {"elements": same}
        # The last count is one more than there are: the end was seen.
        for count in sorted({0, 1, 2, len(expected) // 2, len(expected) - 1, len(expected), len(expected) + 1}):
            for kind, source, reader in [("to ours", "", target), ("to stock", target, "")]:
                if kind == "to stock" and not same:
                    continue
                path = directory / f"state{next(numbers)}"
                try:
                    with Run(make, source) as before:
                        before.take(count)
                        saved = before.save(path)
                    with Run(make, reader) as after:
                        after.take(1)
                        after.restore(saved)
                        rest = after.take(None)
                    outcome[f"{kind} after {count}"] = rest == expected[count:] or (rest, expected[count:])
                except tf.errors.OpError as error:
                    outcome[f"{kind} after {count}"] = error.message.split("\n")[0]
        failed = {kind: what for kind, what in outcome.items() if what is not True}
        print(f"{name}{f', {failed}' if failed else ''}: {not failed}", flush=True)
