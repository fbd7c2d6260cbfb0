"""Writes the checkpoints in testdata that only stock can write: those of the first format.

python oracle/checkpoints.py
"""

import pathlib

import environment

import numpy as np
import tensorflow as tf

DIRECTORY = pathlib.Path(__file__).parent.parent / "testdata" / "checkpoints"


def save(shard, values, slices):
    filename = str(DIRECTORY / f"v1-{shard:05}-of-00002")
    tf.raw_ops.SaveSlices(
        filename=filename, tensor_names=list(values), shapes_and_slices=slices, data=list(values.values())
    )


def main():
    DIRECTORY.mkdir(exist_ok=True)
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    words = np.array([b"a", b"", b"ccc"], dtype=object)
    save(0, {"table": table[:2], "step": np.int64(7)}, ["5 3 0,2:-", ""])
    save(1, {"table": table[2:], "words": words}, ["5 3 2,3:-", ""])


if __name__ == "__main__":
    main()
