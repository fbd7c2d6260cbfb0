"""Candidate samplers: classes drawn by seeds over several steps, and how often each was to be expected."""

import numpy as np

TRUE = np.int64([[0, 5], [3, 1], [9, 5]])


def sampler(c, op, label, classes=TRUE, steps=2, accuracy=None, message="", **attrs):
    """A program that samples several times; the stream, and what was learned, goes on from step to step."""
    p = c.program(f"{op}/{label}", accuracy=accuracy)
    p.const(classes, name="classes")
    defaults = {"num_true": 2, "num_sampled": 4, "unique": True, "seed": 7, "seed2": 11}
    if op != "AllCandidateSampler":
        defaults["range_max"] = 10
    p.node(op, ["classes"], name="y", **(defaults | attrs))
    for _ in range(steps):
        p.step(fetch=["y:0", "y:1", "y:2"], message=message)


def cases(c):
    plain = (
        "UniformCandidateSampler",
        "LogUniformCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "ThreadUnsafeUnigramCandidateSampler",
    )
    for op in plain:
        sampler(c, op, "unique", steps=3)
        sampler(c, op, "repeated", unique=False, num_sampled=12, steps=3)
        sampler(c, op, "everything", num_sampled=10)
        sampler(c, op, "power_of_two", np.int64([[1], [7]]), num_true=1, range_max=8, num_sampled=5)
        sampler(c, op, "one_class", np.int64([[0]]), num_true=1, range_max=1, num_sampled=1, unique=False)
        sampler(c, op, "wide", np.int64([[1], [70000]]), num_true=1, range_max=100003, num_sampled=16)
        sampler(c, op, "no_rows", np.zeros((0, 2), np.int64))
        sampler(c, op, "unseeded", accuracy="random", seed=0, seed2=0, steps=1)
    op = "UniformCandidateSampler"
    sampler(c, op, "wider_than_32_bits", np.int64([[2**40]]), num_true=1, range_max=2**41 + 5, num_sampled=8)
    for op in ("UniformCandidateSampler", "AllCandidateSampler"):
        sampler(c, op, "vector", np.int64([1, 2]), steps=1, message="must be ")
        sampler(c, op, "columns", np.int64([[1]]), steps=1, message="true_classes must have num_true columns")
        sampler(c, op, "outside", np.int64([[1, 10]]), steps=1, message="`true_candidate` out of range [0, ")
        sampler(c, op, "negative", np.int64([[1, -1]]), steps=1, message="`true_candidate` out of range [0, ")
    sampler(c, "UniformCandidateSampler", "too_few", num_sampled=11, steps=1, message="Sampler's range is too small.")
    sampler(c, "AllCandidateSampler", "all", num_sampled=10)
    sampler(c, "AllCandidateSampler", "repeated", num_sampled=10, unique=False)
    fixed(c)
    hits(c)


def fixed(c):
    op = "FixedUnigramCandidateSampler"
    weights = [5.0, 1.0, 0.5, 3.0, 2.5, 0.1, 7.0, 1.0, 1.0, 2.0]
    sampler(c, op, "unique", unigrams=weights, steps=3)
    sampler(c, op, "repeated", unigrams=weights, unique=False, num_sampled=12, steps=3)
    sampler(c, op, "equal", unigrams=[1.0] * 10)
    sampler(c, op, "distortion", unigrams=weights, distortion=0.75)
    sampler(c, op, "flat", unigrams=weights, distortion=0.0)
    sampler(c, op, "reserved", unigrams=weights[:8], num_reserved_ids=2)
    row = np.int64([[0, 2]])
    sampler(c, op, "first_shard", row, unigrams=weights, num_shards=3, shard=0, range_max=4, num_sampled=3)
    sampler(c, op, "last_shard", row, unigrams=weights, num_shards=3, shard=2, range_max=3, num_sampled=3)
    shard = {"num_reserved_ids": 3, "num_shards": 2, "shard": 1, "num_sampled": 2}
    sampler(c, op, "reserved_shard", row, unigrams=weights[:7], range_max=5, **shard)
    sampler(c, op, "no_such_shard", row, unigrams=weights, num_shards=2, shard=2, steps=1, message="weights size")
    sampler(c, op, "wrong_size", unigrams=weights[:4], steps=1, message="range is 10 must be equal to weights size  4")
    sampler(c, op, "much_reserved", unigrams=[1.0], num_reserved_ids=12, steps=1, message="must be equal to weights")
    sampler(c, op, "neither", steps=1, message="Must provide either vocab_file or unigrams.")
    both = "Must only provide one of vocab_file and unigrams."
    sampler(c, op, "both", unigrams=weights, vocab_file="/nowhere/words", steps=1, message=both)
    sampler(c, op, "no_file", vocab_file="/nowhere/words", steps=1, message="/nowhere/words")


def hits(c):
    op = "ComputeAccidentalHits"
    c.op(op, [TRUE, np.int64([5, 2, 3, 0])], "some", num_true=2)
    c.op(op, [TRUE, np.int64([5, 2, 5])], "repeated", num_true=2)
    c.op(op, [TRUE, np.int64([4])], "none", num_true=2)
    c.op(op, [np.zeros((0, 2), np.int64), np.int64([4])], "no_rows", num_true=2)
    c.op(op, [TRUE, np.zeros(0, np.int64)], "no_candidates", num_true=2)
    c.op(op, [np.int64([[1]]), np.int64([4])], "columns", num_true=2)
    c.op(op, [np.int64([[1, 2]]), np.int64([[4]])], "matrix", num_true=2)
