"""Input pipelines that wait: asked by a signal, the server says which iterator, which stage of it, and for what."""

import os
import pathlib
import re
import signal
import tempfile
import threading

import tasks
from report import v1

import tensorflow as tf
from tensorflow.python.data.ops import from_generator_op

VERDICTS = True
LAYOUTS = ("ours",)

SECONDS = 300

# The longest wait for anything.
WAIT = 60

Dataset = tf.data.Dataset


def orchestrate(layout, binary):
    with (
        tasks.Cluster({"worker": layout["worker"][:1]}, binary) as cluster,
        tempfile.TemporaryDirectory(prefix="with space ") as directory,
    ):
        server = cluster.task("worker", 0)
        client = tasks.Client(use, cluster.target(), server, pathlib.Path(directory))
        for line in client.finish(SECONDS):
            print(line, flush=True)


def pipelines(take, pipe):
    """Pipelines that wait for an element that `take` takes, or for a file, and the path to the stage that does."""
    calls = r", which calls function \S+"
    first, last = (lambda start: start), (lambda end: end)
    generator = from_generator_op._GeneratorDataset(tf.constant(0), first, take, last, tf.TensorSpec([], tf.int32))
    other = v1.data.make_initializable_iterator(Dataset.range(3).map(take), shared_name="other")
    v1.add_to_collection("others", other.initializer)
    numbers = Dataset.range(3)
    return {
        "a function": (numbers.map(take), f"MapDataset{calls}"),
        "a parallel map": (numbers.map(take, num_parallel_calls=2), f"ParallelMapDatasetV2{calls}"),
        "a prefetch": (
            numbers.filter(lambda x: take(x) > 0).batch(2).prefetch(1),
            f"PrefetchDataset of BatchDatasetV2 of FilterDataset{calls}",
        ),
        "a repeated generator": (generator.repeat(), f"RepeatDataset of GeneratorDataset{calls}"),
        "an interleave": (
            numbers.interleave(lambda x: numbers.map(take), cycle_length=2, num_parallel_calls=2),
            f"ParallelInterleaveDatasetV\\d of MapDataset{calls}",
        ),
        "another iterator": (numbers.map(lambda x: other.get_next()), f"MapDataset{calls}"),
        "a file": (
            tf.data.TextLineDataset([str(pipe)]).prefetch(1),
            rf"PrefetchDataset of .*TextLineDataset, which reads {re.escape(str(pipe))}",
        ),
    }


def use(target, server, directory):
    pipe = directory / "pipe"
    os.mkfifo(pipe)
    with tf.Graph().as_default():
        names = list(pipelines(lambda *_: 1, pipe))
    print(f"nobody waits: {'the next element' not in said(server)}", flush=True)
    for name in names:
        with tf.Graph().as_default() as graph:
            queue = v1.FIFOQueue(10, tf.int32, [[]])
            put = queue.enqueue_many([[1] * 4])
            dataset, path = pipelines(lambda *_: queue.dequeue(), pipe)[name]
            iterator = v1.data.make_initializable_iterator(dataset, shared_name=name.replace(" ", "-"))
            element = iterator.get_next()
            with v1.Session(target, graph=graph) as session:
                session.run([iterator.initializer, v1.get_collection("others")])
                release = lambda: session.run(put)
                if name == "a file":
                    release = lambda: os.close(os.open(pipe, os.O_WRONLY))
                waits(server, name, path, lambda: session.run(element), release)


def said(server):
    """The lines that the server logs when it is asked what it does."""
    before = len(server.log.read_text())
    os.kill(server.pid, signal.SIGUSR1)
    report = lambda: re.sub(r"\x1b\[[0-9;]*m", "", server.log.read_text()[before:])
    tasks.until(lambda: "steps under way" in report(), WAIT)
    return report()


def waits(server, name, path, step, release):
    outcome = []

    def run():
        try:
            outcome.append(step())
        except tf.errors.OpError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    told = rf"has waited for the next element of iterator {name.replace(' ', '-')} for \d+ s: it comes from {path}"
    found = tasks.until(lambda: re.search(told, said(server)) is not None, WAIT)
    if not found:
        print(said(server), flush=True)
    release()
    thread.join(WAIT)
    print(f"{name} is waited for, the server says so, and the wait ends: {bool(found and outcome)}", flush=True)
