"""The output of scenarios: lines that must be the same whichever server ran it."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def text(value):
    """A value as text, types included."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {text(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(text(item) for item in value) + "]"
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return f"{array.dtype}{list(array.shape)} {array.tolist()}"
    return repr(value)


def show(label, value):
    """Prints a labeled value."""
    print(f"{label}: {text(value)}", flush=True)


def show_failure(label, call):
    """Prints how `call` fails: the class of its error, which training loops act on."""
    try:
        value = call()
    except (tf.errors.OpError, ValueError, TypeError, RuntimeError) as error:
        print(f"{label}: {type(error).__name__}", flush=True)
    else:
        print(f"{label}: no failure but {text(value)}", flush=True)


def sentence(error):
    """The server's words, without the place in the program that the client adds."""
    lines = error.message.split("\n")
    ends = [at for at, line in enumerate(lines) if line.startswith("\t [[")]
    said = [line for line in lines[: ends[0] if ends else None] if line and not line.startswith("From /job:")]
    return said[-1] if said else ""


def session(target, graph=None, **options):
    """A session on the server; `options` are fields of its configuration."""
    return v1.Session(target, graph=graph, config=v1.ConfigProto(**options))
