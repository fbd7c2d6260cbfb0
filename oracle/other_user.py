"""A stock client of another user of this machine.

    python other_user.py USER TARGET...

Becomes the user, which only root can, and prints what becomes of a session at each target.
"""

import os
import sys

import environment

import tensorflow as tf

v1 = tf.compat.v1


def attempt(name, run):
    try:
        print(name, run(), flush=True)
    except tf.errors.OpError as error:
        print(name, type(error).__name__, " ".join(error.message.split()), flush=True)


def in_session(target):
    with tf.Graph().as_default(), v1.Session(target) as sess:
        return sess.run(tf.constant(6) * 7, options=v1.RunOptions(timeout_in_ms=30000))


def main():
    user, *targets = sys.argv[1:]
    # What is loaded late must be loaded while it can be read.
    with tf.Graph().as_default(), v1.Session() as sess:
        sess.run(tf.constant(6) * 7)
    os.setresgid(int(user), int(user), int(user))
    os.setresuid(int(user), int(user), int(user))
    for number, target in enumerate(targets):
        attempt(f"session {number}", lambda: in_session(target))


if __name__ == "__main__":
    main()
    os._exit(0)
