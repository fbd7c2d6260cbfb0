"""Input pipelines of eager programs: made, iterated and dropped on another task."""

import gc

from report import show, show_failure

import tensorflow as tf
from operations import FIRST, SECOND, recovered

D = tf.data.Dataset


def run(_):
    for part in (iterated, in_functions, state, failures, reduced, optionals):
        print(f"-- {part.__name__}", flush=True)
        with tf.device(FIRST):
            part()


def values(dataset, limit=20):
    return [tf.nest.map_structure(lambda x: x.numpy(), element) for element, _ in zip(dataset, range(limit))]


def iterated():
    show("range", values(D.range(4)))
    show("mapped", values(D.range(5).map(lambda x: (x, x * x)).batch(2)))
    show("filtered", values(D.range(10).filter(lambda x: x % 3 == 0).prefetch(2)))
    show("shuffled", values(D.range(10).shuffle(4, seed=3)))
    tf.random.set_seed(5)
    shuffled = D.range(6).shuffle(6, seed=7)
    show("reshuffled", [values(shuffled), values(shuffled)])
    cached = D.range(3).map(lambda x: x + 1).cache()
    show("cached", [values(cached), values(cached)])
    show("interleaved", values(D.range(3).interleave(lambda x: D.range(x + 1), num_parallel_calls=2)))
    show("cardinality", D.range(7).batch(2).cardinality().numpy())
    iterator = iter(D.range(2))
    show("next", [next(iterator).numpy(), next(iterator).numpy()])
    show_failure("end", iterator.get_next)


def in_functions():
    @tf.function
    def total(dataset):
        sum = tf.constant(0, tf.int64)
        for x in dataset:
            sum += x
        return sum

    show("over a dataset", total(D.range(10).map(lambda x: x + 1)).numpy())

    @tf.function
    def made_inside(n):
        sum = tf.constant(0, tf.int64)
        for x in D.range(n).map(lambda x: x * 2):
            sum += x
        return sum

    show("made inside", [made_inside(tf.constant(n, tf.int64)).numpy() for n in (0, 3, 5)])

    @tf.function
    def two(iterator):
        return next(iterator), next(iterator)

    iterator = iter(D.range(10))
    show("two at a time", [tf.nest.map_structure(lambda x: x.numpy(), two(iterator)) for _ in range(3)])


def state():
    v = tf.Variable(10, dtype=tf.int64)
    dataset = D.range(4).map(lambda x: x + v)
    show("variable", values(dataset))
    v.assign(20)
    show("later", values(dataset))
    iterator = iter(dataset)
    show("first", next(iterator).numpy())
    del dataset
    gc.collect()
    show("functions removed", [x.numpy() for x in iterator])
    with tf.device(SECOND):
        show("another task", values(D.range(3)))


def failures():
    bad = D.from_tensor_slices([1, 0, 2]).map(lambda x: 6 // x)
    iterator = iter(bad)
    show("before", next(iterator).numpy())
    show_failure("failing element", lambda: next(iterator))
    show("after", next(iterator).numpy())
    show_failure("batch size", lambda: values(D.range(3).batch(tf.constant(0, tf.int64))))
    show("recovered", recovered(lambda: D.range(1).get_single_element()))


def reduced():
    show("reduce", D.range(5).reduce(tf.constant(0, tf.int64), lambda s, x: s + x).numpy())
    show("single", D.range(1).get_single_element().numpy())


def optionals():
    iterator = iter(D.range(1))
    for _ in range(2):
        optional = iterator.get_next_as_optional()
        show("optional", bool(optional.has_value().numpy()))
