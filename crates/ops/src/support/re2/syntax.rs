//! RE2's syntax, read as RE2 reads it and written in the syntax of the `regex` crate. What RE2 refuses is refused in its
//! words.
//!
//! Every piece is written out by itself, with its own flags, so that nothing is left to how the two languages treat flags,
//! escapes and brackets. Left out are halves of surrogate pairs in texts, which RE2 takes for characters.

use std::fmt::Write;

/// An error in a pattern.
pub(super) type Refusal = String;

/// RE2's message for a pattern that takes too much memory.
pub(super) const TOO_LARGE: &str = "pattern too large - compile failed";

/// The depth to which groups and repetitions may be nested; RE2 has no such limit, but compiling goes down once per
/// level here.
pub(super) const MOST_NESTED: u32 = 500;

/// Writes a pattern in the syntax of the `regex` crate.
pub(super) fn translate(pattern: &[u8]) -> Result<String, Refusal> {
    let mut reader =
        Reader { pattern, at: 0, flags: Flags::default(), groups: vec![Group::new("", Flags::default())] };
    let mut repetition = None;
    while reader.at < pattern.len() {
        repetition = reader.token(repetition)?;
    }
    match reader.groups.pop() {
        Some(whole) if reader.groups.is_empty() => Ok(whole.finish().text),
        _ => Err(refusal("missing )", pattern)),
    }
}

fn refusal(what: &str, argument: &[u8]) -> Refusal {
    format!("{what}: {}", String::from_utf8_lossy(argument))
}

/// The first character of a text, as a number, and how many bytes it takes.
pub(super) fn first_character(text: &[u8]) -> Option<(u32, usize)> {
    let head = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(head) {
        Ok(valid) => valid,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
    };
    valid.chars().next().map(|c| (c as u32, c.len_utf8()))
}

#[derive(Clone, Copy, Default)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_all: bool,
    lazy: bool,
}

/// Something that a repetition can follow.
struct Item {
    text: String,
    /// The number of copies that the nested counts in it ask for.
    copies: u32,
    /// The number of groups and repetitions nested in it.
    depth: u32,
}

impl Item {
    fn new(text: String) -> Item {
        Item { text, copies: 1, depth: 0 }
    }

    /// The item within something else.
    fn within(self, text: String) -> Result<Item, Refusal> {
        let depth = self.depth + 1;
        if depth > MOST_NESTED { Err(TOO_LARGE.to_owned()) } else { Ok(Item { text, depth, ..self }) }
    }
}

/// The part of a pattern read since a parenthesis was opened.
struct Group {
    /// Its beginning in the other syntax.
    opening: &'static str,
    /// The flags from before it.
    flags: Flags,
    /// The alternatives that are complete, each with a bar behind it.
    alternatives: Item,
    items: Vec<Item>,
}

impl Group {
    fn new(opening: &'static str, flags: Flags) -> Group {
        Group { opening, flags, alternatives: Item::new(String::new()), items: Vec::new() }
    }

    fn end_alternative(&mut self) {
        for item in self.items.drain(..) {
            self.alternatives.text.push_str(&item.text);
            self.alternatives.copies = self.alternatives.copies.max(item.copies);
            self.alternatives.depth = self.alternatives.depth.max(item.depth);
        }
    }

    fn finish(mut self) -> Item {
        self.end_alternative();
        self.alternatives
    }
}

struct Reader<'a> {
    pattern: &'a [u8],
    at: usize,
    flags: Flags,
    /// The groups that are open, the whole pattern first.
    groups: Vec<Group>,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.pattern[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.pattern.get(self.at).copied()
    }

    fn since(&self, start: usize) -> &'a [u8] {
        &self.pattern[start..self.at]
    }

    /// Takes the byte if it comes next.
    fn takes(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += found as usize;
        found
    }

    fn character(&mut self) -> Result<u32, Refusal> {
        let (character, length) = first_character(self.rest()).ok_or("invalid UTF-8")?;
        self.at += length;
        Ok(character)
    }

    fn group(&mut self) -> &mut Group {
        self.groups.last_mut().expect("the whole pattern's group stays")
    }

    fn push(&mut self, text: impl Into<String>) {
        self.group().items.push(Item::new(text.into()));
    }

    /// Pushes what case matters to.
    fn push_folded(&mut self, text: String) {
        let text = if self.flags.fold_case { format!("(?i:{text})") } else { text };
        self.push(text);
    }

    fn push_literal(&mut self, character: u32) {
        match char::from_u32(character) {
            Some(c) => self.push_folded(regex::escape(c.encode_utf8(&mut [0; 4]))),
            // Half of a surrogate pair, which only an escape can name: the three bytes of its encoding.
            None => {
                let bytes =
                    [0xE0 | (character >> 12), 0x80 | ((character >> 6) & 0x3F), 0x80 | (character & 0x3F)];
                self.push(format!(r"(?-u:\x{:X}\x{:X}\x{:X})", bytes[0], bytes[1], bytes[2]));
            }
        }
    }

    /// Reads what comes next. Takes and returns where a repetition begins, if the last thing read was one.
    fn token(&mut self, previous: Option<usize>) -> Result<Option<usize>, Refusal> {
        let start = self.at;
        match self.pattern[start] {
            b'(' if self.rest().get(1) == Some(&b'?') => self.extension()?,
            b'(' => {
                self.at += 1;
                self.open("(")?;
            }
            b'|' => {
                self.at += 1;
                let group = self.group();
                group.end_alternative();
                group.alternatives.text.push('|');
            }
            b')' => {
                self.at += 1;
                self.close()?;
            }
            b'^' => {
                self.at += 1;
                self.push(if self.flags.multi_line { "(?m:^)" } else { r"\A" });
            }
            b'$' => {
                self.at += 1;
                self.push(if self.flags.multi_line { "(?m:$)" } else { r"\z" });
            }
            b'.' => {
                self.at += 1;
                self.push(if self.flags.dot_all { "(?s:.)" } else { "." });
            }
            b'[' => {
                let class = self.class()?;
                self.push_folded(class);
            }
            operator @ (b'*' | b'+' | b'?') => {
                self.at += 1;
                self.repeat(start, previous, Count::Operator(operator))?;
                return Ok(Some(start));
            }
            b'{' => match self.count() {
                Some(count) => {
                    self.repeat(start, previous, count)?;
                    return Ok(Some(start));
                }
                None => {
                    self.at += 1;
                    self.push_literal(b'{' as u32);
                }
            },
            b'\\' => self.backslash()?,
            _ => {
                let character = self.character()?;
                self.push_literal(character);
            }
        }
        Ok(None)
    }

    fn open(&mut self, opening: &'static str) -> Result<(), Refusal> {
        if self.groups.len() as u32 > MOST_NESTED {
            return Err(TOO_LARGE.to_owned());
        }
        self.groups.push(Group::new(opening, self.flags));
        Ok(())
    }

    fn close(&mut self) -> Result<(), Refusal> {
        if self.groups.len() == 1 {
            return Err(refusal("unexpected )", self.pattern));
        }
        if let Some(group) = self.groups.pop() {
            self.flags = group.flags;
            let opening = group.opening;
            let alternatives = group.finish();
            let text = format!("{opening}{})", alternatives.text);
            self.group().items.push(alternatives.within(text)?);
        }
        Ok(())
    }

    /// Parses a group that begins with `(?`: flags, and groups with a name or without a number.
    fn extension(&mut self) -> Result<(), Refusal> {
        let start = self.at;
        self.at += 2;
        if self.rest().starts_with(b"P<") && self.rest().len() > 2 {
            return self.named_group(start);
        }
        let (mut flags, mut negated, mut seen) = (self.flags, false, false);
        loop {
            if self.at == self.pattern.len() {
                return Err(refusal("invalid perl operator", self.since(start)));
            }
            let c = char::from_u32(self.character()?);
            let flag = match c {
                Some('i') => &mut flags.fold_case,
                Some('m') => &mut flags.multi_line,
                Some('s') => &mut flags.dot_all,
                Some('U') => &mut flags.lazy,
                Some('-') if !negated => {
                    (negated, seen) = (true, false);
                    continue;
                }
                Some(':' | ')') if !negated || seen => {
                    if c == Some(':') {
                        self.open("(?:")?;
                    }
                    self.flags = flags;
                    return Ok(());
                }
                _ => return Err(refusal("invalid perl operator", self.since(start))),
            };
            (*flag, seen) = (!negated, true);
        }
    }

    fn named_group(&mut self, start: usize) -> Result<(), Refusal> {
        let invalid = |argument| Err(refusal("invalid named capture group", argument));
        let begin = start + b"(?P<".len();
        let Some(length) = self.pattern[begin..].iter().position(|byte| *byte == b'>') else {
            std::str::from_utf8(&self.pattern[start..]).map_err(|_| "invalid UTF-8")?;
            return invalid(&self.pattern[start..]);
        };
        let name = std::str::from_utf8(&self.pattern[begin..begin + length]).map_err(|_| "invalid UTF-8")?;
        self.at = begin + length + 1;
        if !is_group_name(name) {
            return invalid(self.since(start));
        }
        self.open("(")
    }

    /// Reads `{n}`, `{n,}` or `{n,m}`; anything else is no count.
    fn count(&mut self) -> Option<Count> {
        // Longer ones have numbers that are too long.
        const LONGEST: usize = "123456789,123456789}".len();
        let text = &self.rest()[1..];
        let end = text.iter().take(LONGEST).position(|byte| *byte == b'}')?;
        let text = std::str::from_utf8(&text[..end]).ok()?;
        let count = match text.split_once(',') {
            None => {
                let count = number(text)?;
                Count::Range(count, Some(count))
            }
            Some((least, "")) => Count::Range(number(least)?, None),
            Some((least, most)) => Count::Range(number(least)?, Some(number(most)?)),
        };
        self.at += text.len() + 2;
        Some(count)
    }

    /// Repeats the last item. The operator begins at `start`, the one before it, if nothing was between, at `previous`.
    fn repeat(&mut self, start: usize, previous: Option<usize>, count: Count) -> Result<(), Refusal> {
        /// The most copies that a pattern may ask for.
        const MOST: u32 = 1000;
        let lazy = self.takes(b'?') != self.flags.lazy;
        let operator = self.since(start);
        if let Some(previous) = previous {
            return Err(refusal("bad repetition operator", self.since(previous)));
        }
        let size = || refusal("invalid repetition size", operator);
        if let Count::Range(least, most) = count
            && (least > MOST || most.is_some_and(|most| most > MOST || most < least))
        {
            return Err(size());
        }
        let items = &mut self.group().items;
        let Some(mut item) = items.pop() else {
            return Err(refusal("no argument for repetition operator", operator));
        };
        let mut text = format!("(?:{})", item.text);
        match count {
            Count::Operator(operator) => text.push(operator as char),
            Count::Range(least, most) => {
                item.copies *= most.unwrap_or(least).max(1);
                if item.copies > MOST && most.unwrap_or(least) >= 2 {
                    return Err(size());
                }
                match most {
                    Some(most) => write!(text, "{{{least},{most}}}"),
                    None => write!(text, "{{{least},}}"),
                }
                .expect("a string takes what is written");
            }
        }
        if lazy {
            text.push('?');
        }
        items.push(item.within(text)?);
        Ok(())
    }

    /// Reads what begins with a backslash outside brackets.
    fn backslash(&mut self) -> Result<(), Refusal> {
        let simple = match self.rest().get(1) {
            Some(b'b') => r"(?-u:\b)",
            Some(b'B') => r"(?-u:\B)",
            Some(b'A') => r"\A",
            Some(b'z') => r"\z",
            Some(b'C') => "(?s-u:.)",
            Some(b'Q') => {
                self.at += 2;
                while self.at < self.pattern.len() {
                    if self.rest().starts_with(br"\E") {
                        self.at += 2;
                        break;
                    }
                    let character = self.character()?;
                    self.push_literal(character);
                }
                return Ok(());
            }
            Some(b'p' | b'P') => {
                let class = self.unicode_class()?;
                self.push_folded(class);
                return Ok(());
            }
            Some(letter) => match perl_class(*letter) {
                Some(class) => {
                    self.at += 2;
                    self.push_folded(class.to_owned());
                    return Ok(());
                }
                None => {
                    let character = self.escape()?;
                    self.push_literal(character);
                    return Ok(());
                }
            },
            None => return Err(r"trailing \".to_owned()),
        };
        self.at += 2;
        self.push(simple);
        Ok(())
    }

    /// Reads an escaped character.
    fn escape(&mut self) -> Result<u32, Refusal> {
        let start = self.at;
        self.at += 1;
        if self.at == self.pattern.len() {
            return Err(r"trailing \".to_owned());
        }
        let character = self.character()?;
        let value = match char::from_u32(character) {
            Some('1'..='7') if !matches!(self.peek(), Some(b'0'..=b'7')) => None,
            Some('0'..='7') => {
                let mut code = character - '0' as u32;
                for _ in 0..2 {
                    if let Some(digit @ b'0'..=b'7') = self.peek() {
                        self.at += 1;
                        code = code * 8 + (digit - b'0') as u32;
                    }
                }
                Some(code)
            }
            Some('x') => self.hexadecimal()?,
            Some('n') => Some('\n' as u32),
            Some('r') => Some('\r' as u32),
            Some('t') => Some('\t' as u32),
            Some('a') => Some(0x07),
            Some('f') => Some(0x0C),
            Some('v') => Some(0x0B),
            Some(c) if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(character),
            _ => None,
        };
        value.ok_or_else(|| refusal("invalid escape sequence", self.since(start)))
    }

    /// Reads two digits, or any number of them in braces; none if there are others.
    fn hexadecimal(&mut self) -> Result<Option<u32>, Refusal> {
        let digit = |character| char::from_u32(character).and_then(|c| c.to_digit(16));
        if self.at == self.pattern.len() {
            return Ok(None);
        }
        let first = self.character()?;
        if first != '{' as u32 {
            if self.at == self.pattern.len() {
                return Ok(None);
            }
            let second = self.character()?;
            return Ok(digit(first).zip(digit(second)).map(|(first, second)| first * 16 + second));
        }
        let mut code = None;
        let mut character = self.character()?;
        while let Some(value) = digit(character) {
            let sum = code.unwrap_or(0) * 16 + value;
            if sum > char::MAX as u32 || self.at == self.pattern.len() {
                return Ok(None);
            }
            code = Some(sum);
            character = self.character()?;
        }
        Ok(code.filter(|_| character == '}' as u32))
    }

    /// Reads `\pN` or `\p{Greek}`.
    fn unicode_class(&mut self) -> Result<String, Refusal> {
        let start = self.at;
        let mut negated = self.pattern[start + 1] == b'P';
        self.at += 2;
        let invalid = |argument| refusal("invalid character class range", argument);
        if self.at == self.pattern.len() {
            return Err(invalid(self.since(start)));
        }
        let begin = self.at;
        let mut name = match self.character()? {
            brace if brace == '{' as u32 => {
                let Some(length) = self.rest().iter().position(|byte| *byte == b'}') else {
                    std::str::from_utf8(self.rest()).map_err(|_| "invalid UTF-8")?;
                    return Err(invalid(&self.pattern[start..]));
                };
                self.at += length + 1;
                &self.pattern[begin + 1..self.at - 1]
            }
            _ => self.since(begin),
        };
        if let Some(rest) = name.strip_prefix(b"^") {
            (name, negated) = (rest, !negated);
        }
        let name = std::str::from_utf8(name).map_err(|_| "invalid UTF-8")?;
        let class = match name {
            "Any" => r"\x{0}-\x{10FFFF}",
            // Without what is assigned to nothing.
            "C" => r"\p{Cc}\p{Cf}\p{Co}",
            "Cs" => NOTHING,
            _ if UNICODE_CLASSES.split_ascii_whitespace().any(|known| known == name) => {
                return Ok(format!(r"\{}{{{name}}}", if negated { 'P' } else { 'p' }));
            }
            _ => return Err(invalid(self.since(start))),
        };
        Ok(format!("[{}{class}]", if negated { "^" } else { "" }))
    }

    /// Reads a class in brackets.
    fn class(&mut self) -> Result<String, Refusal> {
        let start = self.at;
        self.at += 1;
        let mut class = "[".to_owned();
        if self.takes(b'^') {
            class.push('^');
        }
        // The other language has no classes without members.
        class.push_str(NOTHING);
        // A bracket that comes first stands for itself.
        let mut first = true;
        while first || self.peek() != Some(b']') {
            first = false;
            match self.rest() {
                [] => return Err(refusal("missing ]", &self.pattern[start..])),
                [b'[', b':', ..] if self.named_class(&mut class)? => {}
                [b'\\', b'p' | b'P', _, ..] => class.push_str(&self.unicode_class()?),
                [b'\\', letter, ..] if perl_class(*letter).is_some() => {
                    self.at += 2;
                    class.extend(perl_class(*letter));
                }
                _ => self.range(&mut class, start)?,
            }
        }
        self.at += 1;
        class.push(']');
        Ok(class)
    }

    /// Reads a class such as `[:alpha:]`, if one comes next.
    fn named_class(&mut self, class: &mut String) -> Result<bool, Refusal> {
        const NAMES: &str =
            "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit";
        let rest = self.rest();
        let Some(length) = rest[2..].windows(2).position(|pair| pair == b":]") else { return Ok(false) };
        let (whole, name) = (&rest[..length + 4], &rest[2..length + 2]);
        let name = std::str::from_utf8(name).unwrap_or_default();
        let plain = name.strip_prefix('^').unwrap_or(name);
        if !NAMES.split(' ').any(|known| known == plain) {
            return Err(refusal("invalid character class range", whole));
        }
        self.at += whole.len();
        write!(class, "[:{name}:]").expect("a string takes what is written");
        Ok(true)
    }

    /// Reads a character or a range of them, in a class that begins at `start`.
    fn range(&mut self, class: &mut String, start: usize) -> Result<(), Refusal> {
        let begin = self.at;
        let low = self.class_character(start)?;
        let mut high = low;
        if let [b'-', next, ..] = self.rest()
            && *next != b']'
        {
            self.at += 1;
            high = self.class_character(start)?;
            if high < low {
                return Err(refusal("invalid character class range", self.since(begin)));
            }
        }
        // Halves of surrogate pairs are no characters in the other language.
        let low = if char::from_u32(low).is_none() { 0xE000 } else { low };
        let high = if char::from_u32(high).is_none() { 0xD7FF } else { high };
        if low <= high {
            write!(class, r"\x{{{low:X}}}-\x{{{high:X}}}").expect("a string takes what is written");
        }
        Ok(())
    }

    fn class_character(&mut self, start: usize) -> Result<u32, Refusal> {
        match self.peek() {
            None => Err(refusal("missing ]", &self.pattern[start..])),
            Some(b'\\') => self.escape(),
            Some(_) => self.character(),
        }
    }
}

#[derive(Clone, Copy)]
enum Count {
    /// `*`, `+` or `?`.
    Operator(u8),
    Range(u32, Option<u32>),
}

/// A number as counts have it: without leading zeros, and not too long.
fn number(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
    let short = digits.len() <= 9 && (digits.len() == 1 || !digits.starts_with('0'));
    if plain && short { digits.parse().ok() } else { None }
}

/// A class without members, which can be one of several in brackets.
const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

/// A class that a letter behind a backslash stands for. All are ASCII.
fn perl_class(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'd' => "[0-9]",
        b'D' => "[^0-9]",
        b's' => r"[\t\n\f\r ]",
        b'S' => r"[^\t\n\f\r ]",
        b'w' => "[0-9A-Za-z_]",
        b'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}

/// Whether a group can have this name.
fn is_group_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_ascii() {
        return !name.is_empty() && name.chars().all(plain);
    }
    regex::Regex::new(r"^[\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]+$").is_ok_and(|names| names.is_match(name))
}

/// The categories and scripts that RE2 knows, in its spelling, but for those that are no classes of the other language.
const UNICODE_CLASSES: &str = "
    Cc Cf Co L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki
    Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee
    Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan
    Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi
    Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited
    Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
    Khitan_Small_Script Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani
    Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui
    Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari
    New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian
    Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong
    Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian
    Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le
    Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai
    Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square
";
