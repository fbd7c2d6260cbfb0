//! Scans: the coefficients of blocks, all at once or, in progressive files, a few bits at a time.

use super::header::{Frame, Header, Scan, Tables};
use super::huffman::{Bits, Codes, extended};
use super::{Block, ZIGZAG};

/// A reader of one scan.
pub(super) struct ScanReader<'a> {
    bits: Bits<'a>,
    codes: Vec<(Option<Codes>, Option<Codes>)>,
    progressive: bool,
    scan: Scan,
    /// The last first coefficient, by component of the scan.
    last: Vec<i32>,
    /// The number of blocks to come that have no more coefficients.
    empty_blocks: u32,
    restart_interval: usize,
    units_to_restart: usize,
    next_restart: u8,
    /// Whether the data up to the next restart is lost; blocks stay as they are.
    lost: bool,
}

impl<'a> ScanReader<'a> {
    pub(super) fn new(file: &'a [u8], header: &Header) -> Option<ScanReader<'a>> {
        let Header { frame, scan, tables, .. } = header;
        Some(ScanReader {
            bits: Bits::new(file, scan.data),
            codes: scan.components.iter().map(|c| codes(frame, scan, tables, c)).collect::<Option<_>>()?,
            progressive: frame.progressive,
            scan: scan.clone(),
            last: vec![0; scan.components.len()],
            empty_blocks: 0,
            restart_interval: tables.restart_interval,
            units_to_restart: tables.restart_interval,
            next_restart: 0,
            lost: false,
        })
    }

    /// Begins a unit: the blocks between which restarts may lie.
    #[inline(always)]
    pub(super) fn begin_unit(&mut self) {
        if self.restart_interval == 0 {
            return;
        }
        if self.units_to_restart == 0 {
            self.lost = !self.bits.restart(self.next_restart);
            self.next_restart = (self.next_restart + 1) % 8;
            self.last.fill(0);
            self.empty_blocks = 0;
            self.units_to_restart = self.restart_interval;
        }
        self.units_to_restart -= 1;
    }

    /// Ends a unit: once data is missing, units stay empty up to the next restart.
    #[inline(always)]
    pub(super) fn end_unit(&mut self) {
        self.lost |= self.bits.is_overrun();
    }

    /// Whether the end of the file was reached, and no marker before it. Stock waits there for more, even if it has the
    /// bits that it needs.
    pub(super) fn is_at_end_of_file(&self) -> bool {
        self.bits.file_ended
    }

    /// The place in the file after the scan.
    pub(super) fn end(&self) -> usize {
        self.bits.end()
    }

    /// Reads a block of the scan's component of this number. Returns whether any coefficient but the first was set.
    #[inline(always)]
    pub(super) fn block(&mut self, number: usize, block: &mut Block) -> bool {
        if self.lost {
            return false;
        }
        if !self.progressive {
            return self.whole_block(number, block);
        }
        match (self.scan.first, self.scan.high) {
            (0, 0) => self.first_bits(number, block),
            (0, _) => self.next_bit(block),
            (_, 0) => self.other_bits(block),
            _ => self.next_other_bits(block),
        }
        true
    }

    #[inline(always)]
    fn first(&mut self, number: usize) -> i32 {
        let Some(codes) = &self.codes[number].0 else { return 0 };
        self.bits.refill();
        let size = u32::from(self.bits.symbol(codes));
        let difference = extended(self.bits.take(size), size);
        self.last[number] = self.last[number].wrapping_add(difference);
        self.last[number]
    }

    fn whole_block(&mut self, number: usize, block: &mut Block) -> bool {
        block[0] = self.first(number) as i16;
        let Some(codes) = &self.codes[number].1 else { return false };
        let (mut at, mut any) = (1usize, false);
        while at < 64 {
            self.bits.refill();
            if let Some((value, zeros)) = self.bits.whole(codes) {
                at += usize::from(zeros);
                block[usize::from(ZIGZAG[at])] = value;
                (at, any) = (at + 1, true);
                continue;
            }
            let symbol = self.bits.symbol(codes);
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size > 0 {
                at += zeros;
                block[usize::from(ZIGZAG[at])] = extended(self.bits.take(size), size) as i16;
                (at, any) = (at + 1, true);
            } else if zeros == 15 {
                at += 16;
            } else {
                break;
            }
        }
        any
    }

    fn first_bits(&mut self, number: usize, block: &mut Block) {
        block[0] = (self.first(number) << self.scan.low) as i16;
    }

    fn next_bit(&mut self, block: &mut Block) {
        if self.bits.bits(1) == 1 {
            block[0] |= 1 << self.scan.low;
        }
    }

    fn other_bits(&mut self, block: &mut Block) {
        if self.empty_blocks > 0 {
            self.empty_blocks -= 1;
            return;
        }
        let Some(codes) = &self.codes[0].1 else { return };
        let mut at = self.scan.first;
        while at <= self.scan.last {
            self.bits.refill();
            let symbol = self.bits.symbol(codes);
            let (zeros, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size > 0 {
                at += zeros;
                let value = extended(self.bits.take(size), size);
                block[usize::from(ZIGZAG[at])] = (value << self.scan.low) as i16;
                at += 1;
            } else if zeros == 15 {
                at += 16;
            } else {
                self.empty_blocks = (1 << zeros) - 1;
                self.empty_blocks += self.bits.take(zeros as u32);
                break;
            }
        }
    }

    /// Another bit of coefficients that are set, and coefficients that are set first in this scan.
    fn next_other_bits(&mut self, block: &mut Block) {
        let (plus, minus) = (1i16 << self.scan.low, -1i16 << self.scan.low);
        let mut at = self.scan.first;
        if self.empty_blocks == 0 {
            let Some(codes) = &self.codes[0].1 else { return };
            while at <= self.scan.last {
                self.bits.refill();
                let symbol = self.bits.symbol(codes);
                let (mut zeros, size) = (i32::from(symbol >> 4), symbol & 15);
                let mut value = 0;
                if size > 0 {
                    // Sizes other than 1 are damage, and taken for it.
                    value = if self.bits.bits(1) == 1 { plus } else { minus };
                } else if zeros != 15 {
                    self.empty_blocks = 1 << zeros;
                    self.empty_blocks += self.bits.bits(zeros as u32);
                    break;
                }
                while at <= self.scan.last {
                    let coefficient = &mut block[usize::from(ZIGZAG[at])];
                    if *coefficient != 0 {
                        refine(&mut self.bits, coefficient, plus, minus);
                    } else {
                        zeros -= 1;
                        if zeros < 0 {
                            break;
                        }
                    }
                    at += 1;
                }
                if value != 0 && at <= 63 {
                    block[usize::from(ZIGZAG[at])] = value;
                }
                at += 1;
            }
        }
        if self.empty_blocks > 0 {
            while at <= self.scan.last {
                let coefficient = &mut block[usize::from(ZIGZAG[at])];
                if *coefficient != 0 {
                    refine(&mut self.bits, coefficient, plus, minus);
                }
                at += 1;
            }
            self.empty_blocks -= 1;
        }
    }
}

fn refine(bits: &mut Bits<'_>, coefficient: &mut i16, plus: i16, minus: i16) {
    if bits.bits(1) == 1 && *coefficient & plus == 0 {
        *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { plus } else { minus });
    }
}

/// The tables that a component of a scan needs.
fn codes(
    frame: &Frame,
    scan: &Scan,
    tables: &Tables,
    (_, first, other): &(usize, usize, usize),
) -> Option<(Option<Codes>, Option<Codes>)> {
    let needs_first = scan.first == 0 && scan.high == 0;
    let needs_other = !frame.progressive || scan.first > 0;
    let get = |tables: &[Option<Codes>; 4], number: usize| tables.get(number)?.clone();
    let first =
        if needs_first { Some(get(&tables.first_codes, *first).filter(Codes::are_first)?) } else { None };
    let other = if needs_other { Some(get(&tables.other_codes, *other)?) } else { None };
    Some((first, other))
}
