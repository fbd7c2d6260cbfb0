//! Text in the encodings that programs name, character by character with the bytes that each takes, as stock's library
//! for Unicode reads it; and the scripts of characters.

use encoding_rs::{DecoderResult, Encoding};
use std::sync::OnceLock;

/// The number of a character's script; −1 for what is no character.
pub(crate) fn script(character: i32) -> i32 {
    static RUNS: OnceLock<Vec<(i32, i32)>> = OnceLock::new();
    // Written by oracle/unicode_scripts.py.
    let runs = RUNS.get_or_init(|| {
        let run = |line: &str| {
            let (start, script) = line.split_once(' ')?;
            Some((i32::from_str_radix(start, 16).ok()?, script.parse().ok()?))
        };
        include_str!("unicode_scripts.txt").lines().filter_map(run).collect()
    });
    if !(0..=0x10_ffff).contains(&character) {
        return -1;
    }
    let after = runs.partition_point(|(start, _)| *start <= character);
    runs[after - 1].1
}

/// An encoding of strings that are read.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    Utf8,
    /// Of two or four bytes; the order of bytes, or that of a mark at the start.
    Wide {
        bytes: usize,
        big_endian: Option<bool>,
    },
    Ascii,
    Latin1,
    Other(&'static Encoding),
}

impl Source {
    /// The encoding of a name, in which case, hyphens and underscores do not matter.
    pub(crate) fn named(name: &str) -> Option<Source> {
        let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let wide = |bytes, big_endian| Some(Source::Wide { bytes, big_endian });
        match plain.to_ascii_lowercase().as_str() {
            "utf8" => Some(Source::Utf8),
            "utf16" => wide(2, None),
            "utf16be" => wide(2, Some(true)),
            "utf16le" => wide(2, Some(false)),
            "utf32" => wide(4, None),
            "utf32be" => wide(4, Some(true)),
            "utf32le" => wide(4, Some(false)),
            "usascii" | "ascii" | "ansix341968" | "iso646us" => Some(Source::Ascii),
            "iso88591" | "latin1" | "l1" | "ibm819" | "cp819" => Some(Source::Latin1),
            other => {
                // Its names have hyphens where ours have none left.
                let known = ENCODINGS.iter().find(|(plain, _)| *plain == other);
                known.map(|(_, encoding)| Source::Other(encoding))
            }
        }
    }

    /// Calls `each` with every character (none if its bytes have no meaning) and the number of its bytes.
    pub(crate) fn read(self, text: &[u8], each: &mut dyn FnMut(Option<char>, usize)) {
        match self {
            Source::Utf8 => read_utf8(text, each),
            Source::Ascii => {
                for byte in text.iter() {
                    each(byte.is_ascii().then_some(char::from(*byte)), 1);
                }
            }
            Source::Latin1 => text.iter().for_each(|byte| each(Some(char::from(*byte)), 1)),
            Source::Wide { bytes, big_endian } => read_wide(text, bytes, big_endian, each),
            Source::Other(encoding) => read_other(text, encoding, each),
        }
    }
}

/// Other encodings that stock's library has, by their plain names.
static ENCODINGS: &[(&str, &Encoding)] = &[
    ("shiftjis", encoding_rs::SHIFT_JIS),
    ("sjis", encoding_rs::SHIFT_JIS),
    ("eucjp", encoding_rs::EUC_JP),
    ("euckr", encoding_rs::EUC_KR),
    ("gb18030", encoding_rs::GB18030),
    ("gbk", encoding_rs::GBK),
    ("big5", encoding_rs::BIG5),
    ("koi8r", encoding_rs::KOI8_R),
    ("koi8u", encoding_rs::KOI8_U),
    ("iso88592", encoding_rs::ISO_8859_2),
    ("iso88593", encoding_rs::ISO_8859_3),
    ("iso88594", encoding_rs::ISO_8859_4),
    ("iso88595", encoding_rs::ISO_8859_5),
    ("iso88596", encoding_rs::ISO_8859_6),
    ("iso88597", encoding_rs::ISO_8859_7),
    ("iso88598", encoding_rs::ISO_8859_8),
    ("iso885910", encoding_rs::ISO_8859_10),
    ("iso885913", encoding_rs::ISO_8859_13),
    ("iso885914", encoding_rs::ISO_8859_14),
    ("iso885915", encoding_rs::ISO_8859_15),
    ("windows1250", encoding_rs::WINDOWS_1250),
    ("windows1251", encoding_rs::WINDOWS_1251),
    ("windows1252", encoding_rs::WINDOWS_1252),
    ("windows1253", encoding_rs::WINDOWS_1253),
    ("windows1254", encoding_rs::WINDOWS_1254),
    ("windows1255", encoding_rs::WINDOWS_1255),
    ("windows1256", encoding_rs::WINDOWS_1256),
    ("windows1257", encoding_rs::WINDOWS_1257),
    ("windows1258", encoding_rs::WINDOWS_1258),
];

fn read_utf8(mut text: &[u8], each: &mut dyn FnMut(Option<char>, usize)) {
    while !text.is_empty() {
        let (valid, rest) = match std::str::from_utf8(text) {
            Ok(valid) => (valid, None),
            Err(error) => {
                let (valid, rest) = text.split_at(error.valid_up_to());
                let valid = std::str::from_utf8(valid).unwrap_or_default();
                (valid, Some((error.error_len().unwrap_or(rest.len()), rest)))
            }
        };
        for character in valid.chars() {
            each(Some(character), character.len_utf8());
        }
        let Some((broken, rest)) = rest else { return };
        each(None, broken);
        text = &rest[broken..];
    }
}

fn read_wide(text: &[u8], bytes: usize, big_endian: Option<bool>, each: &mut dyn FnMut(Option<char>, usize)) {
    let unit = |bytes: &[u8], big: bool| {
        let fold = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
        if big { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
    };
    // A mark says the order of bytes and is no character.
    let mark = text.get(..bytes).filter(|_| big_endian.is_none());
    let (big, mut rest, mut skipped) = match (big_endian, mark) {
        (Some(big), _) => (big, text, 0),
        (None, Some(first)) if unit(first, true) == 0xfeff => (true, &text[bytes..], bytes),
        (None, Some(first)) if unit(first, false) == 0xfeff => (false, &text[bytes..], bytes),
        (None, _) => (true, text, 0),
    };
    while !rest.is_empty() {
        let Some((first, after)) = rest.split_at_checked(bytes) else {
            return each(None, rest.len() + skipped);
        };
        let value = unit(first, big);
        let second = after.get(..bytes).map(|second| unit(second, big));
        let (character, taken) = match (bytes, value, second) {
            (2, 0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
                (char::from_u32(0x1_0000 + ((value - 0xd800) << 10) + (low - 0xdc00)), 4)
            }
            _ => (char::from_u32(value), bytes),
        };
        each(character, taken + skipped);
        skipped = 0;
        rest = &rest[taken..];
    }
}

fn read_other(text: &[u8], encoding: &'static Encoding, each: &mut dyn FnMut(Option<char>, usize)) {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut out = [0u8; 16];
    let mut taken = 0;
    let mut at = 0;
    while at <= text.len() {
        let last = at == text.len();
        let byte = if last { &[][..] } else { &text[at..at + 1] };
        let (result, read, written) = decoder.decode_to_utf8_without_replacement(byte, &mut out, last);
        taken += read;
        at += read.max(usize::from(last));
        let decoded = std::str::from_utf8(&out[..written]).unwrap_or_default();
        for character in decoded.chars() {
            each(Some(character), std::mem::take(&mut taken));
        }
        if let DecoderResult::Malformed(..) = result {
            each(None, std::mem::take(&mut taken));
        }
    }
}

/// An encoding of strings that are written.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Utf8,
    Utf16,
    Utf32,
}

impl Target {
    /// One of the three that ops declare.
    pub(crate) fn named(name: &str) -> Option<Target> {
        match name {
            "UTF-8" => Some(Target::Utf8),
            "UTF-16-BE" => Some(Target::Utf16),
            "UTF-32-BE" => Some(Target::Utf32),
            _ => None,
        }
    }

    /// Appends a character.
    pub(crate) fn push(self, character: char, out: &mut Vec<u8>) {
        match self {
            Target::Utf8 => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Target::Utf16 => {
                let mut units = [0; 2];
                let units = character.encode_utf16(&mut units);
                for unit in units.iter() {
                    out.extend_from_slice(&unit.to_be_bytes());
                }
            }
            Target::Utf32 => out.extend_from_slice(&u32::from(character).to_be_bytes()),
        }
    }
}
