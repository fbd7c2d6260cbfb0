"""A client of stock's that stays while tasks come and go.

    python ask.py TARGET

For every line of its input it opens a session at the target, unless one is open, adds one to a variable of the parameter server, and
prints its value; or the name of the error, after which the session is closed.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import environment

import tensorflow as tf

v1 = tf.compat.v1


def main():
    target = sys.argv[1]
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        counter = v1.get_variable("counter", initializer=0, use_resource=True)
        add = counter.assign_add(1, read_value=True)
        missing = v1.report_uninitialized_variables()
        session = None
        for _ in sys.stdin:
            try:
                session = session or v1.Session(target)
                if len(session.run(missing)):
                    session.run(counter.initializer)
                print(session.run(add), flush=True)
            except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
                session.close()
                session = None
                print(type(error).__name__, flush=True)
        if session:
            session.close()


if __name__ == "__main__":
    main()
