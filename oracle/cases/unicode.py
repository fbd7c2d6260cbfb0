"""Strings as characters, and back; runs of words."""

from values import *

import numpy as np


def text(values):
    return convert(values, "string")


def blobs(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


GOOD = ["", "a", "ÄÖ ü", "日本語", "a😀b", "tab\t\x1fend"]
BROKEN = [
    b"a\xffb",
    b"\xc3\x28",
    b"\xe6\x97",
    b"ab\xe6\x97",
    b"\xf0\x9f\x98",
    b"\xed\xa0\x80",
    b"\xc0\x80x",
    b"\xf4\x90\x80\x80",
    b"\xe6\x97\x41\x80\x80",
]
WIDE = "aé日😀"


def cases(c):
    for op in ("UnicodeDecode", "UnicodeDecodeWithOffsets"):
        # Stock ends its process on offsets with short splits.
        for splits in ("int32", "int64") if op == "UnicodeDecode" else ("int64",):
            c.op(op, [text(GOOD)], "good", input_encoding="UTF-8", Tsplits=splits)
        c.op(op, [text([["a", "bc"], ["", "d"]])], "matrix", input_encoding="utf8", Tsplits="int64")
        c.op(op, [text([])], "empty", input_encoding="UTF-8", Tsplits="int64")
        c.op(op, [text(GOOD)], "controls", input_encoding="UTF-8", Tsplits="int64", replace_control_characters=True)
        for errors in ("replace", "ignore", "strict"):
            for at, broken in enumerate(BROKEN):
                c.op(
                    op,
                    [blobs([broken])],
                    f"broken/{errors}_{at}",
                    input_encoding="UTF-8",
                    Tsplits="int64",
                    errors=errors,
                    message=SENTENCE,
                )
        c.op(op, [blobs(BROKEN[:2])], "other", input_encoding="UTF-8", Tsplits="int64", replacement_char=ord("?"))
        for name, data in {
            "UTF-16-BE": WIDE.encode("utf-16-be"),
            "UTF-16-LE": WIDE.encode("utf-16-le"),
            "UTF-16": WIDE.encode("utf-16"),
            "UTF-32-BE": WIDE.encode("utf-32-be"),
            "UTF-32": WIDE.encode("utf-32"),
            "US-ASCII": b"ab\xe9c",
            "ISO-8859-1": "aéü".encode("latin1"),
            "latin1": b"\x80\xff",
            "Shift_JIS": "日本a".encode("shift_jis"),
            "EUC-JP": "日本a".encode("euc_jp"),
            "GB18030": "日本a€".encode("gb18030"),
            "windows-1252": "a€é".encode("cp1252"),
            "KOI8-R": "да".encode("koi8_r"),
            "ISO-8859-5": "да".encode("iso8859_5"),
            "nonsense": b"a",
        }.items():
            c.op(op, [blobs([data])], f"encoding/{name}", input_encoding=name, Tsplits="int64")
        for name, data in {
            "odd": b"\x00a\x00",
            "lone_high": b"\xd8\x00\x00a",
            "lone_low": b"\xdc\x00\x00a",
            "high_at_end": b"\x00a\xd8\x00",
        }.items():
            c.op(op, [blobs([data])], f"utf16/{name}", input_encoding="UTF-16-BE", Tsplits="int64")
        c.op(
            op, [blobs([b"\x00\x11\x00\x00\x00\x00\x00a"])], "utf32_range", input_encoding="UTF-32-BE", Tsplits="int64"
        )
    for encoding in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
        c.op(
            "UnicodeEncode",
            [np.int32([97, 233, 0x65E5, 0x1F600, 98]), [0, 2, 2, 5]],
            encoding,
            output_encoding=encoding,
            Tsplits=("int32", "int64"),
        )
        c.op("UnicodeTranscode", [text(GOOD)], encoding, input_encoding="UTF-8", output_encoding=encoding)
    for errors in ("replace", "ignore", "strict"):
        c.op(
            "UnicodeEncode",
            [np.int32([97, -1, 0xD800, 0x110000, 98]), [0, 5]],
            f"broken/{errors}",
            output_encoding="UTF-8",
            errors=errors,
            Tsplits="int64",
            message=SENTENCE,
        )
        c.op(
            "UnicodeTranscode",
            [blobs(BROKEN)],
            f"broken/{errors}",
            input_encoding="UTF-8",
            output_encoding="UTF-8",
            errors=errors,
            message=SENTENCE,
        )
        c.op(
            "UnicodeTranscode",
            [text(["a\tb"])],
            f"controls/{errors}",
            input_encoding="UTF-8",
            output_encoding="UTF-8",
            errors=errors,
            replace_control_characters=True,
            replacement_char=ord(" "),
            message=SENTENCE,
        )
    for name, splits in {"first": [1, 2], "last": [0, 1], "order": [0, 2, 1, 2], "empty": []}.items():
        c.op(
            "UnicodeEncode",
            [np.int32([97, 98]), np.int64(splits)],
            f"splits_{name}",
            output_encoding="UTF-8",
            Tsplits="int64",
            message=SENTENCE,
        )
    c.op("UnicodeTranscode", [text(["a"])], "nonsense", input_encoding="xyz", output_encoding="UTF-8", message=SENTENCE)
    c.op(
        "UnicodeTranscode",
        [text(["a"])],
        "range",
        input_encoding="UTF-8",
        output_encoding="UTF-8",
        replacement_char=0x110000,
        message=SENTENCE,
    )
    c.op("UnicodeScript", [np.int32([[97, 0x431, 0x65E5, 0x1F600], [-1, 0x10FFFF, 0x110000, 0x300]])])
    c.op("UnicodeScript", [np.int32(range(0, 0x30000, 997))], "many")

    words = text(["a", "bb", "c", "dd", "e"])
    for name, attrs in {
        "two": dict(ngram_widths=[2]),
        "several": dict(ngram_widths=[1, 3]),
        "padded": dict(ngram_widths=[2, 3], pad_width=-1),
        "padded_by_one": dict(ngram_widths=[3], pad_width=1),
        "short": dict(ngram_widths=[4], preserve_short_sequences=True),
        "short_padded": dict(ngram_widths=[9], preserve_short_sequences=True, pad_width=1),
        "none": dict(ngram_widths=[]),
        "zero": dict(ngram_widths=[0]),
    }.items():
        rest = dict(separator="|", left_pad="<", right_pad=">>", pad_width=0, preserve_short_sequences=False)
        c.op(
            "StringNGrams", [words, [0, 3, 3, 5]], name, Tsplits=("int32", "int64"), message=SENTENCE, **(rest | attrs)
        )
    rest = dict(separator=" ", left_pad="", right_pad="", pad_width=0, preserve_short_sequences=False, ngram_widths=[2])
    for name, splits in {"first": [1, 5], "order": [0, 3, 2, 5], "last": [0, 3], "range": [0, 9], "empty": []}.items():
        c.op("StringNGrams", [words, np.int64(splits)], f"splits_{name}", Tsplits="int64", message=SENTENCE, **rest)
    c.op("StringNGrams", [text([]), [0, 0]], "no_words", Tsplits="int64", **rest)
