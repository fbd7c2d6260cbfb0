"""Recipes for strings: numbers, patterns, encodings, messages."""

import base64

import protos
import values
from recipes import Like, recipe

import numpy as np
from tensorflow.core.framework import summary_pb2

_NUMBERS = (
    b"0",
    b"-1",
    b"3.5",
    b"1e3",
    b" 7",
    b"7 ",
    b"+2",
    b"-0",
    b"1e40",
    b"1e400",
    b"inf",
    b"-nan",
    b"0x1p3",
    b"2147483648",
    b"-9223372036854775809",
    b".5",
    b"5.",
)
_PATTERNS = (
    b"a",
    b"a*",
    b"[a-c]+",
    b"(a)(b)?",
    b"^h",
    b"o$",
    b".",
    b"",
    b"\\d+",
    b"(?i)abc",
    b"\\s",
    b"l{2}",
    b"a|b",
    b"(h)(.*)o",
    b"\xc3\xa9",
    b"\\w\\W?",
)
_REWRITES = (b"", b"x", b"\\0\\0", b"<\\1>", b"\\\\", b"\\2")


def _words(s, shape):
    return s.chosen(
        [
            b"",
            b"a",
            b"ab",
            b"Abc",
            b"hello",
            b"z z",
            "é".encode(),
            b"a,b,,c",
            b" x  y ",
            b"aXbXc",
            b"12 ab",
            "日本".encode(),
        ],
        shape,
    )


@recipe("StringToNumber")
def _string_to_number(s, a):
    # One at a time: a single word that is no number refuses all.
    return [s.chosen(_NUMBERS, () if s.chance(0.7) else (2,))]


@recipe("RegexFullMatch")
def _regex_full_match(s, a):
    return [_words(s, s.shape()), s.pick(_PATTERNS)]


@recipe("RegexReplace")
def _regex_replace(s, a):
    return [_words(s, s.shape()), s.pick(_PATTERNS), s.pick(_REWRITES)]


@recipe("StaticRegexFullMatch", "StaticRegexReplace")
def _static_regex(s, a):
    a["pattern"] = s.pick(_PATTERNS)
    if "rewrite" in a:
        a["rewrite"] = s.pick(_REWRITES)
    return [_words(s, s.shape())]


@recipe("StringSplit")
def _string_split(s, a):
    return [_words(s, (s.small(0, 4),)), s.pick([b"", b" ", b",", b"aX", b"X"])]


@recipe("StringSplitV2")
def _string_split_v2(s, a):
    return [_words(s, (s.small(0, 4),)), s.pick([b"", b" ", b",", b"aX", b"X"])]


@recipe("Substr")
def _substr(s, a):
    shape = s.shape()
    if s.chance(0.5):
        return [_words(s, shape), 0, s.small(0, 4)]
    return [s.chosen([b"hello", b"12 ab", "日本語".encode()], shape), s.integers(-3, 3, shape), s.integers(0, 3, shape)]


@recipe("DecodeBase64")
def _decode(s, a):
    plain = _words(s, s.shape())
    coded = [base64.urlsafe_b64encode(word).rstrip(b"=" if s.chance(0.5) else b"") for word in plain.ravel()]
    return [values.convert(coded, "string").reshape(plain.shape)]


@recipe("ParseTensor")
def _parse_tensor(s, a):
    array = s.array(a["out_type"], s.shape())
    return [protos.tensor(array).SerializeToString()]


@recipe("StringFormat")
def _string_format(s, a):
    a["T"] = [s.pick(values.DTYPES) for _ in range(s.small(0, 2))]
    a["template"], a["placeholder"] = s.pick([(b"{}", b"{}"), (b"%s", b"%s"), (b"a %s b", b"%s")])
    a["template"] = b" ".join([a["template"]] * len(a["T"])) + b"."
    a["summarize"] = s.small(-1, 4)
    return [Like(s.shape()) for _ in a["T"]]


@recipe("AsString")
def _as_string(s, a):
    is_float = a["T"] in values.FLOATS + values.COMPLEX
    a["precision"] = s.pick([-1, 0, 2, 9]) if is_float else -1
    a["scientific"] = is_float and s.chance(0.3)
    a["shortest"] = is_float and not a["scientific"] and s.chance(0.3)
    a["width"] = s.pick([-1, 0, 3, 12])
    a["fill"] = s.pick([b"", b" ", b"0", b"-", b"+"])
    return [Like(s.shape())]


@recipe("StringJoin")
def _string_join(s, a):
    a["separator"] = s.pick([b"", b",", b"--"])
    shape = s.shape()
    return [_words(s, s.pick([shape, shape, ()])) for _ in range(a["N"])]


@recipe("ShardedFilename")
def _sharded_filename(s, a):
    return [_words(s, ()), s.small(0, 9), s.small(1, 99999)]


@recipe("ShardedFilespec")
def _sharded_filespec(s, a):
    return [_words(s, ()), s.small(1, 9)]


@recipe("StringToHashBucketStrong")
def _strong_hash(s, a):
    a["key"] = [s.small(0, 1 << 30), s.small(0, 1 << 30)]
    a["num_buckets"] = s.pick([1, 10, 1000])
    return [_words(s, s.shape())]


@recipe("StringToHashBucket", "StringToHashBucketFast")
def _hash(s, a):
    a["num_buckets"] = s.pick([1, 10, 1000])
    return [_words(s, s.shape())]


@recipe("ReduceJoin")
def _reduce_join(s, a):
    shape = s.shape()
    a["separator"] = s.pick([b"", b",", b"--"])
    return [_words(s, shape), [axis for axis in range(len(shape)) if s.chance(0.5)]]


@recipe("ScalarSummary")
def _scalar_summary(s, a):
    shape = s.pick([(), (2,), (s.small(1, 3), 2)])
    return [_words(s, shape), Like(shape)]


@recipe("HistogramSummary")
def _histogram_summary(s, a):
    return [_words(s, ()), Like(s.shape())]


@recipe("TensorSummaryV2")
def _tensor_summary(s, a):
    metadata = summary_pb2.SummaryMetadata(display_name=s.pick(["", "x"]))
    return [_words(s, ()), Like(s.shape()), metadata.SerializeToString()]


@recipe("MergeSummary")
def _merge_summary(s, a):
    def one(i):
        value = summary_pb2.Summary.Value(tag=s.pick([f"a{i}", f"b{i}", "same"]), simple_value=float(s.small(-3, 3)))
        return summary_pb2.Summary(value=[value]).SerializeToString()

    return [np.array(one(i), object) for i in range(a["N"])]
