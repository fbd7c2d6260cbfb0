"""A stock client asks servers under memory limits for more than they have.

    python limits.py NAME=TARGET=MEGABYTES ...

Prints one line per server and trial: what became of it. A server that dies or hangs shows as UNAVAILABLE or
DEADLINE_EXCEEDED.
"""

import os
import sys

import environment

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
SECONDS = 120


def outcome(sess, fetch, feeds=None):
    """The code with which a step ends."""
    try:
        sess.run(fetch, feeds, options=v1.RunOptions(timeout_in_ms=SECONDS * 1000))
        return "OK"
    except tf.errors.OpError as error:
        names = {value: name for name, value in vars(tf.errors).items() if name.isupper() and isinstance(value, int)}
        return names.get(error.error_code, str(error.error_code))


def in_session(target, build, feeds=None):
    with tf.Graph().as_default():
        fetch, feeds = build()
        with v1.Session(target) as sess:
            return outcome(sess, fetch, feeds)


def too_much(bytes_of_server):
    count = int(bytes_of_server * 2) // 4
    large = np.zeros(int(bytes_of_server * 0.95) // 4, np.float32)

    def random():
        return v1.random_uniform([count])[0], None

    def fill():
        size = v1.placeholder_with_default(count, [])
        return tf.fill([size], 1.0)[0], None

    def constant():
        return tf.constant(7, tf.int8, [int(bytes_of_server * 0.95)])[0], None

    def feed():
        x = v1.placeholder(tf.float32, [None])
        return x[0], {x: large}

    def tile():
        size = v1.placeholder_with_default(count // 1024, [])
        return tf.tile(tf.ones([1024]), [size])[0], None

    return {"random": random, "fill": fill, "constant": constant, "feed": feed, "tile": tile}


def variables_that_add_up(target, bytes_of_server):
    """Variables of a sixteenth each, until one is refused."""
    with tf.Graph().as_default():
        size = v1.placeholder_with_default(int(bytes_of_server / 16) // 4, [])
        updates = []
        for i in range(32):
            variable = v1.get_variable(f"v{i}", shape=None, initializer=0.0, validate_shape=False, use_resource=False)
            updates.append(v1.assign(variable, tf.fill([size], float(i)), validate_shape=False).op)
        small = tf.constant(6) * 7
        with v1.Session(target) as sess:
            fitted, code = 0, "OK"
            for update in updates:
                code = outcome(sess, update)
                if code != "OK":
                    break
                fitted += 1
            return f"{'some' if 3 <= fitted < 20 else fitted} fit, then {code}; {sess.run(small)}"


def main():
    for argument in sys.argv[1:]:
        name, target, megabytes = argument.split("=")
        size = float(megabytes) * (1 << 20)
        for trial, build in too_much(size).items():
            print(name, trial, in_session(target, build), flush=True)
        print(name, "variables", variables_that_add_up(target, size), flush=True)
        v1.Session.reset(target)
        half = int(size / 4) // 4
        print(name, "afterwards", in_session(target, lambda: (tf.fill([half], 1.0)[0], None)), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
