"""Checkpoints of stock, and what `ferroflow ckpt` makes of them.

`exports.py write DIRECTORY` saves with stock the checkpoints that the test `exports` lists and exports;
`exports.py check DIRECTORY` compares the lists, and the arrays as other programs read them, with what stock reads.
"""

import json
import os
import sys

import environment

import numpy as np
import safetensors.numpy
import tensorflow as tf

NAMES = ["graph", "objects", "first"]
"""Checkpoints: of a graph with partitioned variables, of objects, and in the first format."""

TYPES = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int32",
    "int64",
    "bool",
    "complex64",
    "complex128",
]


def variables():
    """Variables of every type that exports have, empty and scalar ones, one without such a type, and one in parts."""
    v1 = tf.compat.v1
    for name in TYPES:
        values = np.arange(6).reshape(2, 3) - 2
        v1.get_variable(f"types/{name}", initializer=tf.cast(values, name))
    v1.get_variable("empty", initializer=tf.zeros([0, 4]))
    v1.get_variable("scalar", initializer=tf.constant(7))
    v1.get_variable("odd", initializer=tf.constant([0.0, np.nan, np.inf, 3.0]))
    v1.get_variable("words", initializer=tf.constant(["a", "bc"]))
    v1.get_variable("parts", [10, 2], partitioner=v1.fixed_size_partitioner(3), initializer=v1.initializers.ones())


def write(directory):
    v1 = tf.compat.v1
    for name in [*NAMES, "changed"]:
        os.mkdir(f"{directory}/{name}")
    with tf.Graph().as_default(), v1.Session() as session:
        variables()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, f"{directory}/graph/model.ckpt", global_step=5)
        changed = [v for v in v1.global_variables() if v.op.name in ("scalar", "types/float32")]
        for variable in changed:
            session.run(v1.assign_add(variable, tf.ones_like(variable)))
        v1.train.Saver().save(session, f"{directory}/changed/model.ckpt", write_meta_graph=False)
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("w", initializer=tf.constant([[1.0, 2.0]]))
        v1.get_variable("n", initializer=tf.constant(3, tf.int64))
        session.run(v1.global_variables_initializer())
        v1.train.Saver(write_version=1).save(session, f"{directory}/first/model.ckpt")
    model = tf.Module()
    model.kernel = tf.Variable([[0.5, -0.5]])
    model.step = tf.Variable(3, dtype=tf.int64)
    tf.train.CheckpointManager(tf.train.Checkpoint(model=model), f"{directory}/objects", 2).save()


def check(directory):
    for name in NAMES:
        prefix = tf.train.latest_checkpoint(f"{directory}/{name}")
        reader = tf.train.load_checkpoint(prefix)
        listed = json.load(open(f"{directory}/{name}.json"))
        assert listed["checkpoint"] == prefix, listed["checkpoint"]
        found = {entry["name"]: (entry["type"], entry["shape"]) for entry in listed["tensors"]}
        kinds = reader.get_variable_to_dtype_map()
        shapes = reader.get_variable_to_shape_map()
        expected = {key: (kind.name, shapes[key]) for key, kind in kinds.items()}
        assert found == expected, (found, expected)
        assert list(found) == sorted(found)
        compare(reader, np.load(f"{directory}/{name}.npz"), kinds, {tf.string, tf.bfloat16})
        arrays = safetensors.numpy.load_file(f"{directory}/{name}.safetensors")
        compare(reader, arrays, kinds, {tf.string, tf.complex128})


def compare(reader, arrays, kinds, left_out):
    assert set(arrays) == {key for key, kind in kinds.items() if kind not in left_out}, set(arrays)
    for key in arrays:
        expected = reader.get_tensor(key)
        array = arrays[key]
        assert array.dtype == expected.dtype and array.shape == expected.shape, (key, array.dtype, array.shape)
        assert array.tobytes() == expected.tobytes(), key


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
