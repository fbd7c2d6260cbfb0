"""Uses a session in every way that programs do, and prints the answers: the same lines with stock's servers and Ferroflow's."""

import threading

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def build():
    """A graph with something of everything."""
    x = v1.placeholder(tf.float32, [None, 2], name="x")
    words = v1.placeholder(tf.string, [None], name="words")
    w = v1.get_variable("w", initializer=[[1.0], [2.0]], use_resource=True)
    old = v1.get_variable("old", initializer=[5.0], use_resource=False)
    # Without a shared name, it belongs to the session.
    queue = tf.queue.FIFOQueue(3, [tf.int32], [[]], name="queue")
    number = v1.placeholder(tf.int32, [], name="number")
    return {
        "x": x,
        "words": words,
        "product": tf.matmul(x, w, name="product"),
        "loud": tf.strings.join([words, "!"], name="loud"),
        "types": [tf.cast(x, kind) for kind in (tf.bfloat16, tf.float16, tf.int64, tf.uint8, tf.bool, tf.complex64)],
        "scalar": tf.reduce_sum(x, name="scalar"),
        "text": tf.constant("ä"),
        "grow": v1.assign_add(w, tf.ones([2, 1])),
        "new": w,
        "old": old,
        "number": number,
        "put": queue.enqueue([3], name="put"),
        "put_number": queue.enqueue([number]),
        "take": queue.dequeue(name="take"),
        "size": queue.size(),
        "bad": tf.gather([1, 2], number, name="bad"),
        "loop": tf.while_loop(lambda i: i < number, lambda i: i + 1, [0], name="loop"),
        "random": tf.random.uniform([], seed=7),
        "initialize": v1.global_variables_initializer(),
    }


def told(error):
    """The type of an error, its code, and the operation that failed."""
    return type(error).__name__, error.error_code, error.op.name if error.op is not None else None


def use(target):
    """Prints the answers of a session."""
    graph = tf.Graph()
    with graph.as_default():
        g = build()
    session = v1.Session(target, graph=graph)
    session.run(g["initialize"])
    feed = {g["x"]: [[3, 4]], g["words"]: ["ä", b"\xff"]}
    product, types, loud = session.run([g["product"], g["types"], g["loud"]], feed)
    product += 1
    print("product", product.tolist(), product.dtype, product.flags.writeable)
    print("types", [(str(value.dtype), value.tolist()) for value in types])
    print("loud", loud.tolist(), loud.dtype)
    scalar, text = session.run((g["scalar"], g["text"]), feed)
    print("scalar", type(scalar).__name__, scalar, type(text).__name__, text)
    print("empty", session.run(g["product"], {g["x"]: np.empty([0, 2])}).shape, session.run([]))
    print("nothing", session.run({"a": g["grow"].op, "b": [g["grow"]]}))
    kept = session.run(g["old"])
    kept += 1
    print("variables", session.run([g["new"], g["old"]]), kept)
    # The same random stream, with and without metadata.
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, timeout_in_ms=60000)
    first = session.run([g["random"], g["product"]], feed)[0]
    second = session.run([g["random"], g["product"]], feed, options=options, run_metadata=metadata)[0]
    third = session.run([g["random"], g["product"]], feed, options=v1.RunOptions(timeout_in_ms=60000))[0]
    print("random", first, second, third, len(metadata.step_stats.dev_stats) > 0)
    # The same queue, however its steps are run.
    put = session.make_callable(g["put"])
    put()
    session.run(g["put"])
    print("queue", session.run(g["size"]), session.make_callable(g["take"])(), session.run(g["take"]))
    print("callable", session.make_callable(g["product"], [g["x"]])([[1, 1]]).tolist())
    setup = session.partial_run_setup([g["product"], g["scalar"]], [g["x"]])
    print("partial", session.partial_run(setup, g["product"], {g["x"]: [[1, 2]]}).tolist())
    print("partial", session.partial_run(setup, g["scalar"]))
    with graph.as_default():
        more = g["product"] * 2
    print("more", session.run(more, feed).tolist())
    print("loop", session.run(g["loop"], {g["number"]: 5}))
    for fetch, values, options in (
        (g["bad"], {g["number"]: 7}, None),
        (g["take"], {}, v1.RunOptions(timeout_in_ms=100)),
        (g["product"], {}, None),
    ):
        try:
            session.run(fetch, values, options=options)
        except tf.errors.OpError as error:
            print("error", *told(error))
    ends = []

    def wait():
        try:
            session.run(g["take"])
        except tf.errors.OpError as error:
            ends.append(type(error).__name__)

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(3):
        session.run(g["put_number"], {g["number"]: number})
    while session.run(g["size"]) or sum(thread.is_alive() for thread in threads) > 1:
        pass
    route = getattr(session, "_ferroflow_route", None)
    print("direct", route is not None and route.is_open())
    session.close()
    for thread in threads:
        thread.join()
    print("closed", ends)
    try:
        session.run(g["take"])
    except RuntimeError as error:
        print("closed", error)
