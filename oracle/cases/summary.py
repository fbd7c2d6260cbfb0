"""Summaries: messages as strings."""

from values import *

import numpy as np


def cases(c):
    c.op("ScalarSummary", [lit("loss"), arr()], "")
    c.op("ScalarSummary", [lit(["a", "b"]), arr(2)], "two", T="float")
    c.op("ScalarSummary", [lit(["a"]), arr()], "one_and_scalar", T="float")
    c.op("ScalarSummary", [lit(["a", "b"]), arr(3)], "mismatch", T="float")
    c.op("ScalarSummary", [lit("a"), arr(3)], "mismatch_scalar", T="float")
    c.op("HistogramSummary", [lit("weights"), arr(20)], "")
    c.op(
        "HistogramSummary", [lit("weights"), lit([0.0, -0.0, 1e-13, -1e-13, 1e25, -1e25, 1.0, 1.1])], "edges", T="float"
    )
    c.op("HistogramSummary", [lit("weights"), lit([1.0, 1e300, -1e300])], "huge", T="double")
    c.op("HistogramSummary", [lit("weights"), empty(0)], "empty", T="float")
    c.op("HistogramSummary", [lit("weights"), lit([1.0, float("nan")])], "nan", T="float")
    c.op("HistogramSummary", [lit("weights"), lit([1.0, float("inf")])], "infinity", T="float")
    c.op("HistogramSummary", [lit(["weights"]), arr(3)], "tag_not_scalar", T="float")
    # Packed images differ byte by byte; the test `files` compares their pixels.
    c.op("ImageSummary", [lit("a"), arr(2, 3, 4)], "rank", T="float")
    c.op("ImageSummary", [lit("a"), arr(1, 2, 3, 2)], "channels", T="float")
    c.op("ImageSummary", [lit(["a", "b"]), arr(1, 2, 3, 1)], "tags", T="float")
    c.op("ImageSummary", [lit("a"), empty(0, 2, 3, 1)], "no_images", T="float")
    c.op("ImageSummary", [lit("a"), empty(1, 0, 3, 1)], "no_rows", T="float")
    c.op("TensorSummary", [arr(2, 3)], "", few=True)
    c.op("TensorSummaryV2", [lit("t"), arr(2, 3), lit("")], "", few=True)
    c.op("TensorSummaryV2", [lit("t"), arr(2), lit(b"\x0a\x03\x0a\x01x")], "plugin", T="float")
    c.op("TensorSummaryV2", [lit("t"), arr(2), lit(b"\xff\xff")], "bad_metadata", T="float")
    c.op(
        "TensorSummaryV2",
        [lit("t"), arr(2), lit(b"\x78\x05\x10\x07\x12\x01a\x0a\x05\x0a\x01x\x18\x07")],
        "unknown_fields",
        T="float",
    )
    unknown = b"\x08\x13\x0a\x0c\x78\x05\x08\x05\x0a\x01a\x4a\x03\x78\x85\x00"
    c.op("MergeSummary", [[lit(unknown)]], "unknown_fields", N=1)
    p = c.program("MergeSummary/several")
    p.const(np.float32(1), name="x")
    for tag in ("a", "b", "a2"):
        p.const(convert(tag.rstrip("2"), "string"), name=f"{tag}/tag")
        p.node("ScalarSummary", [f"{tag}/tag", "x"], name=tag, T="float")
    p.node("MergeSummary", ["a", "b"], name="merged", N=2)
    p.node("MergeSummary", ["a", "a2"], name="duplicate", N=2)
    p.const(convert("\x0f nonsense", "string"), name="nonsense")
    p.node("MergeSummary", ["a", "nonsense"], name="malformed", N=2)
    p.step(fetch=["merged"])
    p.step(fetch=["duplicate"])
    p.step(fetch=["malformed"])
    sound = np.float32([[0, 0.5, -1, 2], [0.25, -0.3, 1e-5, -7]])
    for count in (1, 3):
        c.op("AudioSummary", [lit("a"), sound], f"{count}", sample_rate=8000.4, max_outputs=count)
        c.op("AudioSummaryV2", [lit("a"), sound.reshape(2, 2, 2), np.float32(0.2)], f"{count}", max_outputs=count)
    c.op("AudioSummaryV2", [lit("a"), sound[0], np.float32(1)], "rank", message=SENTENCE)
    c.op("AudioSummaryV2", [lit("a"), sound, np.float32(0)], "rate", message=SENTENCE)
    c.op("AudioSummaryV2", [lit(["a"]), sound, np.float32(1)], "tag", message=SENTENCE)
    c.op("AudioSummaryV2", [lit("a"), sound[:, :0], np.float32(1)], "empty")
