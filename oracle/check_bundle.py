"""Checkpoints between Ferroflow and stock, both ways.

`check_bundle.py write PREFIX` writes with stock what the `bundle` example of `ferroflow-io` checks;
`check_bundle.py check PREFIX` checks with stock what the example writes.
"""

import sys

import environment

import numpy as np
import tensorflow as tf

TABLE = np.arange(300, dtype=np.float32).reshape(100, 3)
VALUES = {
    "words": np.array([b"ab", b"", b"c" * 300], dtype=object),
    "step": np.int64(7),
    "flags": np.array([True, False]),
    "nothing": np.zeros([0, 3], np.float32),
    **{f"layer_{i:05}/kernel": np.int32(i) for i in range(20_000)},
}


def save(prefix, values, slices):
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=list(values), shape_and_slices=slices, tensors=list(values.values()))


def write(prefix):
    parts = [f"{prefix}_temp/part-{i:05}-of-00002" for i in range(2)]
    save(parts[0], {**VALUES, "table": TABLE[:70]}, [""] * len(VALUES) + ["100 3 0,70:-"])
    save(parts[1], {"table": TABLE[70:]}, ["100 3 70,30:-"])
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)


def check(prefix):
    reader = tf.train.load_checkpoint(prefix)
    for name, value in VALUES.items():
        assert np.array_equal(reader.get_tensor(name), value), name
    assert set(reader.get_variable_to_shape_map()) == {*VALUES, "table"}
    assert np.array_equal(reader.get_tensor("table"), TABLE)
    part = tf.raw_ops.RestoreV2(
        prefix=prefix, tensor_names=["table"], shape_and_slices=["100 3 69,2:1,2"], dtypes=[tf.float32]
    )
    assert np.array_equal(part[0], TABLE[69:71, 1:])
    print(prefix, "agrees")


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
