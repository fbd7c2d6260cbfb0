"""Fingerprints of rows."""

from values import *


def cases(c):
    c.op("Fingerprint", [arr(2, 3), "farmhash64"], "rows")
    c.op("Fingerprint", [iota(9, 9), "farmhash64"], "long_rows", T="float")
    c.op(
        "Fingerprint", [convert(["a", "", "a longer text of some words"], "string"), "farmhash64"], "texts", T="string"
    )
    c.op("Fingerprint", [empty(0, 2), "farmhash64"], "empty", types=["float", "string"])
    c.op("Fingerprint", [empty(2, 0), "farmhash64"], "empty_rows", T="float")
    c.op("Fingerprint", [arr(2), "md5"], "no_such_method", T="float")
    c.op("Fingerprint", [arr(), "farmhash64"], "scalar", T="float")
