"""A shuffle of numbers without a list of them."""

from values import *

import numpy as np


def cases(c):
    key = np.array([1, 2, 3], np.int32)
    for most in (1, 5, 100, 65535, 65536, 1000000):
        inputs = [np.arange(min(most, 6), dtype=np.int64), key, np.int64(most)]
        c.op("RandomIndexShuffle", inputs, f"up_to_{most}", dtype="int64", Tseed="int32")
    large = np.array([0, 1, 2**40, 2**62], np.int64)
    c.op("RandomIndexShuffle", [large, key, np.int64(2**62 + 5)], "large", dtype="int64", Tseed="int32")
    for dtype in ("int32", "uint32", "int64", "uint64"):
        for seeds in ("int32", "uint32", "int64", "uint64"):
            few = dtype == "int32" or seeds == "int32"
            if few:
                c.op("RandomIndexShuffle", [lit(7), lit([41, 42, 43]), lit(20)], "one", dtype=dtype, Tseed=seeds)
    keys = lit([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    both = {"dtype": "int32", "Tseed": "int32"}
    c.op("RandomIndexShuffle", [lit([1, 2, 3]), keys, lit([10, 20, 30])], "vectors", **both)
    c.op("RandomIndexShuffle", [lit(3), keys, lit(10)], "keys", **both)
    for rounds in (6, 8):
        c.op("RandomIndexShuffle", [lit([1, 2, 3]), lit([1, 2, 3]), lit(10)], f"rounds_{rounds}", rounds=rounds, **both)
    c.op("RandomIndexShuffle", [lit(0), lit([1, 2, 3]), lit(0)], "nothing", **both)
    c.op("RandomIndexShuffle", [lit(-1), lit([1, 2, 3]), lit(5)], "negative", **both)
    c.op("RandomIndexShuffle", [lit(6), lit([1, 2, 3]), lit(5)], "beyond", **both)
    c.op("RandomIndexShuffle", [lit(6), lit([1, 2]), lit(5)], "key", **both)
    c.op("RandomIndexShuffle", [lit([[6]]), lit([1, 2, 3]), lit(7)], "rank", **both)
