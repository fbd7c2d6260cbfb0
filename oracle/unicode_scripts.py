"""Writes the scripts of all characters, as stock's library for Unicode knows them, for the kernel of UnicodeScript.

python unicode_scripts.py [--check]
"""

import pathlib
import sys

import environment

import numpy as np
import tensorflow as tf

TABLE = pathlib.Path(__file__).resolve().parents[1] / "crates/ops/src/support/unicode_scripts.txt"


def table():
    """A line per run of characters of one script: the first one, in hexadecimal, and the script's number."""
    scripts = tf.strings.unicode_script(np.arange(0x110000, dtype=np.int32)).numpy()
    starts = np.flatnonzero(np.diff(scripts, prepend=-2))
    return "".join(f"{start:x} {scripts[start]}\n" for start in starts)


def main():
    text = table()
    if "--check" in sys.argv:
        sys.exit(0 if TABLE.read_text() == text else f"{TABLE} is not current")
    TABLE.write_text(text)


if __name__ == "__main__":
    main()
