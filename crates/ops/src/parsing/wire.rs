//! A cursor over the wire format that accepts what stock's accepts: a length that reaches past the end of the enclosing
//! message is cut there, where the standard parser would refuse it.

/// The tag of a length-delimited field of a small number.
pub(super) const fn delimited(number: u8) -> u8 {
    number << 3 | 2
}

/// The tag of a varint field of a small number.
const fn varint(number: u8) -> u8 {
    number << 3
}

/// The tag of a four-byte field of a small number.
const fn fixed32(number: u8) -> u8 {
    number << 3 | 5
}

/// The bytes of a message that have not been read yet.
#[derive(Clone, Copy)]
pub(super) struct Wire<'a>(pub(super) &'a [u8]);

impl<'a> Wire<'a> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        if *first < 0x80 {
            self.0 = rest;
            return Some(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (at, byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if *byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Some(value);
            }
        }
        None
    }

    /// A length; higher bits than stock reads are dropped.
    #[inline]
    fn length(&mut self) -> Option<usize> {
        self.varint().map(|length| length as u32 as usize)
    }

    /// Reads a one-byte tag if it is this one.
    #[inline]
    pub(super) fn expect(&mut self, tag: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == tag => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// A field's content, after its tag: as much of it as there is.
    #[inline]
    pub(super) fn limited(&mut self) -> Option<Wire<'a>> {
        let length = self.length()?;
        let (inner, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        Some(Wire(inner))
    }

    /// A field's content, after its tag: all of it.
    #[inline]
    pub(super) fn whole(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        let (inner, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(inner)
    }

    /// Passes over a field of any number; false if it is not a field.
    pub(super) fn skip_field(&mut self) -> bool {
        // What is no tag counts as the number zero.
        let tag = self.varint().unwrap_or(0);
        match tag & 7 {
            0 => self.varint().is_some(),
            1 => self.0.split_off(..8).is_some(),
            2 => self.limited().is_some(),
            5 => self.0.split_off(..4).is_some(),
            _ => false,
        }
    }
}

/// Reads an int64 list, without its tag; false if it is none. What follows a packed run is ignored, as in stock.
#[inline]
pub(super) fn ints(list: &[u8], mut push: impl FnMut(i64)) -> bool {
    let Some(mut list) = Wire(list).limited() else { return false };
    if list.is_empty() {
        return true;
    }
    if list.expect(delimited(1)) {
        let Some(mut packed) = list.limited() else { return false };
        while !packed.is_empty() {
            let Some(value) = packed.varint() else { return false };
            push(value as i64);
        }
        return true;
    }
    while !list.is_empty() {
        if !list.expect(varint(1)) {
            return false;
        }
        let Some(value) = list.varint() else { return false };
        push(value as i64);
    }
    true
}

/// The values of a float list, where they stand.
pub(super) struct Floats<'a> {
    bytes: &'a [u8],
    /// Bytes from one value to the next, of which the last four are the value.
    stride: usize,
}

impl<'a> Floats<'a> {
    /// Reads a float list, without its tag. `exact` refuses packed runs that end within a value and cuts those that are
    /// too short, else it is the other way round.
    #[inline]
    pub(super) fn read(list: &'a [u8], exact: bool) -> Option<Floats<'a>> {
        let mut list = Wire(list).limited()?;
        if list.is_empty() {
            return Some(Floats { bytes: &[], stride: 4 });
        }
        if list.expect(delimited(1)) {
            let bytes = if exact { list.limited()?.0 } else { list.whole()? };
            if exact && !bytes.len().is_multiple_of(4) {
                return None;
            }
            return Some(Floats { bytes: &bytes[..bytes.len() & !3], stride: 4 });
        }
        let values = list.0.chunks_exact(5);
        let whole = values.remainder().is_empty() && values.clone().all(|value| value[0] == fixed32(1));
        whole.then_some(Floats { bytes: list.0, stride: 5 })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() / self.stride
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = f32> + 'a {
        let skip = self.stride - 4;
        self.bytes.chunks_exact(self.stride).map(move |value| {
            f32::from_le_bytes([value[skip], value[skip + 1], value[skip + 2], value[skip + 3]])
        })
    }
}

/// Reads a bytes list, without its tag, as long as `push` takes its values; false if it is none or it did not.
#[inline]
pub(super) fn texts<'a>(list: &'a [u8], mut push: impl FnMut(&'a [u8]) -> bool) -> bool {
    let Some(mut list) = Wire(list).limited() else { return false };
    while !list.is_empty() {
        if !list.expect(delimited(1)) {
            return false;
        }
        let Some(value) = list.whole() else { return false };
        if !push(value) {
            return false;
        }
    }
    true
}
