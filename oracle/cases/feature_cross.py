"""Crosses of features, as texts and as hashes."""

from values import *

import numpy as np


def ints(values):
    return np.array(values, np.int64)


def texts(values):
    return convert(values, "string")


A = [[0, 0], [0, 1], [2, 0], [3, 0]]
B = [[0, 0], [1, 0], [2, 0], [2, 1]]
LONG = ["a", "a text of more than sixteen bytes", "", "é" * 40]


def cases(c):
    shapes = [[4, 2], [4, 2]]
    columns = {
        "texts": [texts(LONG), texts(["x", "y", "z", "w" * 70])],
        "ints": [ints([1, -5, 2**40 + 3, 7]), ints([0, 4, 5, -(2**62)])],
        "mixed": [texts(LONG), ints([1, 2, 3, -4])],
    }
    dense = {
        "texts": [texts([["p", "q"]] * 4)],
        "ints": [ints([[3, -4]] * 4)],
        "mixed": [ints([[9]] * 4), texts([["r"]] * 4)],
    }
    for name, values in columns.items():
        for with_dense in (False, True):
            label = f"{name}{'_dense' if with_dense else ''}"
            inputs = [[A, B], values, shapes, dense[name] if with_dense else []]
            c.op("SparseCrossV2", [*inputs, "_Y_"], label)
            for buckets, strong in ((0, False), (1000, False), (0, True)):
                # Stock reads wild memory for the strong hash of dense integers.
                if strong and with_dense and name != "texts":
                    continue
                inputs_hashed = [*inputs, buckets, strong, [137, 173]]
                c.op("SparseCrossHashed", inputs_hashed, f"{label}_{buckets}{'_strong' if strong else ''}")
            hashed = {"hashed_output": True, "out_type": "int64", "internal_type": "int64"}
            for buckets in (0, 100):
                c.op("SparseCross", inputs, f"{label}_{buckets}", num_buckets=buckets, hash_key=956888297470, **hashed)
            plain = {"hashed_output": False, "num_buckets": 0, "hash_key": 0, "out_type": "string"}
            c.op(
                "SparseCross", inputs, f"{label}_text", internal_type="string" if name == "texts" else "int64", **plain
            )
    c.op("SparseCross", [[A], [ints([1, 2, 3, 4])], [[4, 2]], []], "ints_as_texts", internal_type="string", **plain)
    c.op(
        "SparseCross",
        [[A], [texts(LONG)], [[4, 2]], []],
        "text_hash",
        hashed_output=True,
        num_buckets=10,
        hash_key=1,
        out_type="int64",
        internal_type="string",
    )
    c.op("SparseCrossV2", [[], [], [], [texts([["a"], ["b"]])], "_"], "dense_only")
    c.op("SparseCrossV2", [[], [], [], [], "_"], "nothing")
    c.op("SparseCrossV2", [[np.zeros((0, 2))], [texts([])], [[3, 0]], [texts([["a"]] * 3)], "_"], "empty_rows")
    c.op(
        "SparseCrossV2",
        [[A, B], columns["texts"], [[4, 2], [3, 2]], [], "_"],
        "batches_differ",
        message="Expected batch size 4 got 3",
    )
    c.op("SparseCrossV2", [[A], [texts(LONG)], [[4, 2]], [texts([["a"]] * 3)], "_"], "dense_batch_differs")
    c.op("SparseCrossV2", [[[[0]]], [texts(["a"])], [[4, 2]], [], "_"], "not_a_matrix")
    c.op("SparseCrossV2", [[A], [texts(["a"])], [[4, 2]], [], "_"], "counts_differ")
    c.op("SparseCrossV2", [[A], [texts(LONG)], [[4, 2, 1]], [], "_"], "rank_3")
    c.op(
        "SparseCrossHashed",
        [[A], [texts(LONG)], [[4, 2]], [], 0, True, [1, 2, 3]],
        "long_salt",
        message='Input "salt" must have length 2',
    )

    def ragged(name, values, splits, sparse=((), (), ()), dense=(), order="", out="int64", out_splits="int64", **attrs):
        attrs = {"hashed_output": out == "int64", "num_buckets": 0, "hash_key": 956888297470} | attrs
        inputs = [list(values), list(splits), *[list(part) for part in sparse], list(dense)]
        c.op(
            "RaggedCross", inputs, name, input_order=order, out_values_type=out, out_row_splits_type=out_splits, **attrs
        )

    splits = ints([0, 2, 2, 3, 4])
    for out in ("int64", "string"):
        ragged("texts", [texts(LONG), texts(LONG)], [splits, splits], order="RR", out=out)
        ragged("mixed", [ints([1, 2, 3, -4])], [splits], ([B], [texts(LONG)], [[4, 2]]), dense["mixed"], "RDSD", out)
    ragged("buckets", [texts(LONG)], [splits], order="R", num_buckets=10)
    narrow = splits.astype(np.int32)
    ragged("int32_splits", [texts(LONG)], [narrow], order="R", out_splits="int32")
    ragged("sparse_only", [], [], ([A], [ints([1, 2, 3, 4])], [[4, 2]]), order="S")
    ragged("nothing", [], [])
    ragged("batches_differ", [texts(LONG), texts(["a"])], [splits, ints([0, 1])], order="RR")
    ragged("bad_splits", [texts(LONG)], [ints([0, 2, 1, 3, 4])], order="R")
    ragged("short_order", [texts(LONG)], [splits], order="")
    ragged("bad_order", [texts(LONG)], [splits], order="X")
