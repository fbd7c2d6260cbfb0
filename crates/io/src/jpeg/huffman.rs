//! Huffman codes, and a reader of bits that are packed as scans pack them.

/// Codes of up to this many bits are found with one look.
const LOOK: u32 = 10;

/// A table of codes.
#[derive(Clone)]
pub(super) struct Codes {
    /// By the next bits: the symbol and the length of its code; length 0 if the code is longer.
    short: Box<[(u8, u8); 1 << LOOK]>,
    /// By the next bits, where a code and the bits of its value are short: the value, the number of zeros before it, and
    /// the length of both; length 0 otherwise.
    whole: Box<[(i16, u8, u8); 1 << LOOK]>,
    /// By length of code: the first code that is longer, and what to add to a code to get the place of its symbol.
    limits: [(u32, i32); 18],
    symbols: Box<[u8]>,
}

impl Codes {
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Option<Codes> {
        if symbols.len() > 256 {
            return None;
        }
        let mut codes = Codes {
            short: Box::new([(0, 0); 1 << LOOK]),
            whole: Box::new([(0, 0, 0); 1 << LOOK]),
            limits: [(0, 0); 18],
            symbols: symbols.into(),
        };
        let (mut code, mut number) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = u32::from(counts[length as usize - 1]);
            codes.limits[length as usize] = (code + count, number as i32 - code as i32);
            for _ in 0..count {
                if length <= LOOK {
                    let first = (code << (LOOK - length)) as usize;
                    codes
                        .short
                        .get_mut(first..first + (1 << (LOOK - length)))?
                        .fill((symbols[number], length as u8));
                }
                (code, number) = (code + 1, number + 1);
            }
            // The code of ones only stands for nothing.
            if count > 0 && code >= 1 << length {
                return None;
            }
            code <<= 1;
        }
        codes.limits[17] = (u32::MAX, 0);
        for bits in 0..1usize << LOOK {
            let (symbol, length) = codes.short[bits];
            let (zeros, size) = (symbol >> 4, u32::from(symbol & 15));
            let total = u32::from(length) + size;
            if length > 0 && size > 0 && total <= LOOK {
                let value = (bits >> (LOOK - total)) as u32 & ((1 << size) - 1);
                codes.whole[bits] = (extended(value, size) as i16, zeros, total as u8);
            }
        }
        Some(codes)
    }
}

impl Codes {
    /// Whether all symbols are sizes of first coefficients.
    pub(super) fn are_first(&self) -> bool {
        self.symbols.iter().all(|symbol| *symbol <= 15)
    }
}

/// The value that bits of this size stand for: those that begin with 0 are negative.
#[inline(always)]
pub(super) fn extended(bits: u32, size: u32) -> i32 {
    if size == 0 {
        return 0;
    }
    let value = bits as i32;
    if value < 1 << (size - 1) { value - (1 << size) + 1 } else { value }
}

/// Reads bits up to the next marker; from there on they are zeros.
pub(super) struct Bits<'a> {
    file: &'a [u8],
    place: usize,
    bits: u64,
    count: u32,
    /// The number of bits, of those that are left, that are not in the file.
    padding: u32,
    /// Whether the file ends without a marker, and its end was reached.
    pub(super) file_ended: bool,
}

impl<'a> Bits<'a> {
    pub(super) fn new(file: &'a [u8], place: usize) -> Bits<'a> {
        Bits { file, place, bits: 0, count: 0, padding: 0, file_ended: false }
    }

    /// Whether bits were read that the file does not have.
    #[inline(always)]
    pub(super) fn is_overrun(&self) -> bool {
        self.count < self.padding
    }

    /// Makes at least 32 bits available.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        if self.count > 32 {
            return;
        }
        if let Some(bytes) = self.file.get(self.place..self.place + 4)
            && self.padding == 0
        {
            let word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            if !has_marker_byte(word) {
                self.bits |= u64::from(word) << (32 - self.count);
                self.count += 32;
                self.place += 4;
                return;
            }
        }
        self.refill_slowly();
    }

    #[cold]
    fn refill_slowly(&mut self) {
        while self.count <= 56 {
            let byte = match self.file.get(self.place) {
                Some(0xff) => {
                    let after = self.file[self.place..].iter().position(|byte| *byte != 0xff);
                    match after.map(|after| (after, self.file[self.place + after])) {
                        Some((after, 0)) => {
                            self.place += after + 1;
                            Some(0xff)
                        }
                        Some(_) => None,
                        None => {
                            self.file_ended = true;
                            None
                        }
                    }
                }
                Some(byte) => {
                    self.place += 1;
                    Some(*byte)
                }
                None => {
                    self.file_ended = true;
                    None
                }
            };
            match byte {
                Some(byte) => self.bits |= u64::from(byte) << (56 - self.count),
                None => self.padding += 8,
            }
            self.count += 8;
        }
    }

    #[inline(always)]
    fn skip(&mut self, count: u32) {
        self.bits <<= count;
        self.count = self.count.wrapping_sub(count);
    }

    /// The next bits, at most 16; enough must be available.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        let bits = if count == 0 { 0 } else { (self.bits >> (64 - count)) as u32 };
        self.skip(count);
        bits
    }

    /// The next bits, at most 16.
    #[inline(always)]
    pub(super) fn bits(&mut self, count: u32) -> u32 {
        self.refill();
        self.take(count)
    }

    /// The next symbol; at least 16 bits must be available. A code that nothing stands for is symbol 0, as in stock.
    #[inline(always)]
    pub(super) fn symbol(&mut self, codes: &Codes) -> u8 {
        let (symbol, length) = codes.short[(self.bits >> (64 - LOOK)) as usize];
        if length > 0 {
            self.skip(u32::from(length));
            return symbol;
        }
        self.long_symbol(codes)
    }

    #[inline(never)]
    fn long_symbol(&mut self, codes: &Codes) -> u8 {
        for length in LOOK + 1..=16 {
            let code = (self.bits >> (64 - length)) as u32;
            let (limit, offset) = codes.limits[length as usize];
            if code < limit && code as i32 + offset >= 0 {
                self.skip(length);
                return codes.symbols.get((code as i32 + offset) as usize).copied().unwrap_or(0);
            }
        }
        // Stock notices only after another bit.
        self.skip(17);
        0
    }

    /// The next coefficient and the number of zeros before it, if both are short.
    #[inline(always)]
    pub(super) fn whole(&mut self, codes: &Codes) -> Option<(i16, u8)> {
        let (value, zeros, length) = codes.whole[(self.bits >> (64 - LOOK)) as usize];
        if length == 0 {
            return None;
        }
        self.skip(u32::from(length));
        Some((value, zeros))
    }

    /// The place in the file where the data ends that was read: at a marker, or where a marker is to be looked for.
    pub(super) fn end(&self) -> usize {
        self.place
    }

    /// Forgets bits up to the next marker and reads on after it if it is the restart marker of this number, or stands for
    /// one. Returns whether data follows.
    pub(super) fn restart(&mut self, number: u8) -> bool {
        (self.bits, self.count, self.padding) = (0, 0, 0);
        loop {
            let mut after = self.place;
            let Some(marker) = super::header::next_marker(self.file, &mut after) else {
                self.place = self.file.len();
                self.file_ended = true;
                return false;
            };
            let is_restart = (0xd0..=0xd7).contains(&marker);
            let ahead = marker.wrapping_sub(0xd0 + number) & 7;
            match () {
                // Not a marker that can be here: look further.
                () if marker < 0xc0 => self.place = after,
                // The end of the scan, or one of the next restarts: what lies between is lost.
                () if !is_restart || ahead == 1 || ahead == 2 => {
                    self.place = after - 2;
                    return false;
                }
                // An earlier restart: look further.
                () if ahead == 6 || ahead == 7 => self.place = after,
                () => {
                    self.place = after;
                    return true;
                }
            }
        }
    }
}

/// Whether one of the bytes of a word is 0xff.
#[inline(always)]
fn has_marker_byte(word: u32) -> bool {
    let inverse = !word;
    inverse.wrapping_sub(0x0101_0101) & !inverse & 0x8080_8080 != 0
}
