"""Matching and replacing by regular expressions: what RE2 accepts, how it reads it, and what it says of the rest."""

import re
import urllib.parse

from values import *

WORDS = ["", "a", "Hello World", " padded\t", "ÄÖ ü", "12", "a,b,,c"]
TEXTS = [
    "",
    "a",
    "aa",
    "ab",
    "b",
    "A",
    "aB",
    "ABc",
    "a\n",
    "\n",
    "a\nb",
    "ä",
    "aä",
    "Ω",
    "\u212a",
    "k",
    "ſ",
    b"\xff",
    b"a\xffb",
    "{",
    "a{",
]
TEXTS += [
    "a{,2}",
    "a{2",
    "-",
    "z",
    "1",
    "_",
    "[",
    "]",
    "a]",
    b"\0",
    "a.b",
    "\t",
    "\v",
    " ",
    "a&&",
    "\u2028",
    "😀",
    "\b",
    "abaä-b",
]

REPETITIONS = r"""
???? a????? a** a*?? a?? a??? a{2}{3} a{2}* a*{2} a+?+ (a*)* (?:a*)* * +a ? {2} a|* (*) (|*) ^* $* \b* \b+ (?i)* a(?i)* a*(?i)*
a*\Q\E* \Q\E* a{1001} a{1000} a{2,1} a{,2} a{2,} a{ a{2 a{2, a{x} a{01} a{0} a{0,0} (a{100}){11} (a{100}){10} ((a{0,10}){10,}){11}
((a{0,10}){10,}){10} a{999999999999} a{1,99999999999} a*? a+?b a??b a{1,2}?b a{2}? [a-z]{2,3}? a{2}?? (?:a|b)*?c (a|)+ (|a)* (|a)+
(?U)a* (?U)a*? \pL{1000} .{1000} (.{100}){10} [[:alpha:]]{1000}
"""
ESCAPES = r"""
\ a\ [\ \C \C+ a\C \Qa.b\E \Qa.b \E \Qab\E* \Q[\E] \1 (a)\1 \12 \0 \08 \101 \777 \8 \x41 \x4 \x \x{ \x{41} \x{} \x{110000} \x{10FFFF}
\x{d800} \x{4 \x{4g} \x{g \xg1 \a \f \v \t \n \r \b \B \e \c \h \R \X \q \_ \- \@ \ä \G \< \> \K \y \u0041 \A \z \Z a\z a\Z \Aa a\A
"""
CLASSES = r"""
[[:word:]] [[:alpha:]] [[:^alpha:]] [[:foo:]] [[:alpha] [:alpha:] [[:alpha:]-z] [[:ALPHA:]] [[:ascii:]] [[:blank:]] [[:punct:]]
[[:space:]] [[=a=]] [[.a.]] [] []a] [^] [^]a] [a [a- [a-z [z-a] [a-] [-a] [a-b-c] [a--] [--a] [a\-z] [\d-z] [a-\d] [\w] [^\w]
[\W\w] [^\W\w] [\b] [\B] [\A] [\Qa] [\C] [\x41-\x43] [\x{ [\101] [\1] [a&&b] [a~~b] [a--b] [[a] [a[b] [a]] ] } { a} [^a] [^\n] \D \S \W \s
[\s] \d . (?s). (?-s).
\pN \pZ \p{Greek} \p{greek} \p{^Greek} \P{^Greek} \PN \p{Letter} \p{Lu \p \p{} \p{^} \pX \p{Any} \P{Any} \pC \p{Cc} \p{Cn} \p{Yi} [\pN]
[\p{Greek}a] [^\pN] [\p] [\p \p{L}+
"""
GROUPS = r"""
( ) a) ((a) () (|) a| |a || (?:) (?) (?)a (?P<n>a) (?<n>a) (?P<n>a)(?P<n>b) (?P<>a) (?P<n-1>a) (?P<n (?P< (?P=n) (?P>n) (?'n'a) (?P<ä>a)
(?P<€>a) (?P<1>a) (?i)ABC (?i:AB)c (?-i)a (?i-)a (?-)a (?--i)a (?x)a (?im)a (?=a) (?!a) (?<=a) (?<!a) (?>a) (?#c) (? (?i (?i:
(?i)(?-i)A ((?i)a)b (?i:a|B)c a(?i)b|c (?i)\p{Lu} (?i)\P{Lu} (?i)[^\p{Lu}] (?i)[\P{Lu}] (?i)[a-k] (?i)k (?i)\u212a (?i)s (?i)[^k]
(?i)\w (?i)[[:lower:]] (?m)^a$ (?m)a$ ^a$ a$ (?m)^ (?m)$ \ba\b a\Bb (a)|(b) (a+)(b+)?
"""
REPLACED = (
    r"a \b \B a* a*? (?m)^ (?m)$ ^ $ \C \W \pL . .* (?s).* [^a] (a)|(b) (a+)(b*) x* (?i)a a| |a (|a)+ \z".split()
    + ["", "a$|^", "(?:ä)?"]
)
REWRITES = ["", "<\\0>", "\\2\\1", "\\q", "x\\qy", "x\\", "x\\q\\9", "\\9", "\\\\"]


def text(values):
    return convert(values, "string")


def label(pattern):
    """A pattern as the name of a case."""
    return urllib.parse.quote(pattern, safe="") or "empty"


def cases(c):
    refused = re.compile("Invalid pattern: .*, error: [^\n]*", re.DOTALL)
    for pattern in ("a", ".*o W.*", "^$", "[0-9]+", "(?i)HELLO.*", "a|b", "\\s+padded\\s", "(unclosed", "a**"):
        c.op("StaticRegexFullMatch", [text(WORDS)], label(pattern), pattern=pattern)
        c.op("RegexFullMatch", [text(WORDS), pattern], "words_" + label(pattern))
    for pattern, rewrite in (
        ("l+", "L"),
        ("(\\w)(\\w)", "\\2\\1"),
        ("^", "_"),
        ("", "-"),
        ("x", "\\1"),
        ("(unclosed", ""),
        ("a**", ""),
    ):
        for all_of in (True, False):
            name = label(pattern) if all_of else label(pattern) + "_first"
            c.op("StaticRegexReplace", [text(WORDS)], name, pattern=pattern, rewrite=rewrite, replace_global=all_of)
            c.op("RegexReplace", [text(WORDS), pattern, rewrite], "words_" + name, replace_global=all_of)
    for pattern in (REPETITIONS + ESCAPES + CLASSES + GROUPS).split() + [
        "",
        "a b",
        "\\ ",
        "(?P<n a>a)",
        "(" * 300 + "a" + ")" * 300,
    ]:
        pattern = pattern.replace("\\u212a", "\u212a")
        name = label(pattern) if len(pattern) < 100 else "nested"
        c.op("RegexFullMatch", [text(TEXTS), pattern], name, message=refused)
    for pattern in REPLACED:
        for all_of in (True, False):
            name = label(pattern) if all_of else label(pattern) + "_first"
            c.op("RegexReplace", [text(TEXTS), pattern, "<\\0>"], name, replace_global=all_of)
    for rewrite in REWRITES:
        for pattern in ("a", "(a)|(b)", "", "z"):
            for all_of in (True, False):
                name = f"rewrite_{label(rewrite)}_{label(pattern)}" + ("" if all_of else "_first")
                c.op("RegexReplace", [text(["aba", "xx", ""]), pattern, rewrite], name, replace_global=all_of)
    c.op("RegexFullMatch", [text(WORDS), text(["a"])], "pattern_not_scalar")
    c.op("RegexReplace", [text(WORDS), text("a"), text(["b"])], "rewrite_not_scalar")
