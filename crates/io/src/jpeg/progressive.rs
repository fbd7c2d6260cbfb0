//! Writing of JPEG files in scans that make an image clearer step by step, with the scans that libjpeg chooses.

use super::encode::{BitWriter, Table, Units, coded, marker};
use super::{Block, ZIGZAG};

/// A scan: which coefficients, and which of their bits.
struct Scan {
    /// The component, or all of them.
    component: Option<usize>,
    /// The first and the last coefficient; 0 and 0 for the first ones of the blocks.
    band: [usize; 2],
    /// The lowest bit of the scan before; 0 if there was none.
    high: u32,
    /// The lowest bit of this scan.
    low: u32,
}

const fn first(high: u32, low: u32) -> Scan {
    Scan { component: None, band: [0, 0], high, low }
}

const fn others(component: usize, band: [usize; 2], high: u32, low: u32) -> Scan {
    Scan { component: Some(component), band, high, low }
}

const COLOR: [Scan; 10] = [
    first(0, 1),
    others(0, [1, 5], 0, 2),
    others(2, [1, 63], 0, 1),
    others(1, [1, 63], 0, 1),
    others(0, [6, 63], 0, 2),
    others(0, [1, 63], 2, 1),
    first(1, 0),
    others(2, [1, 63], 1, 0),
    others(1, [1, 63], 1, 0),
    others(0, [1, 63], 1, 0),
];

const GRAY: [Scan; 6] = [
    first(0, 1),
    others(0, [1, 5], 0, 2),
    others(0, [6, 63], 0, 2),
    others(0, [1, 63], 2, 1),
    first(1, 0),
    others(0, [1, 63], 1, 0),
];

/// A symbol, if there is one, and the bits after it, for components of a kind.
struct Token {
    kind: usize,
    symbol: Option<u8>,
    bits: u32,
    size: u32,
}

/// Writes all scans, each with the codes that fit it best.
pub(super) fn write(units: &Units<'_>, file: &mut Vec<u8>) {
    let scans: &[Scan] = if units.components() == 1 { &GRAY } else { &COLOR };
    for scan in scans {
        let mut counts = [[0u32; 257]; 2];
        scan.each(units, &mut |token| {
            if let Some(symbol) = token.symbol {
                counts[token.kind][usize::from(symbol)] += 1;
            }
        });
        let class = usize::from(scan.band[1] > 0);
        let mut codes = [Vec::new(), Vec::new()];
        for kind in scan.kinds(units.components()) {
            let table = Table::best(&counts[kind]);
            marker(file, 0xc4, &[(class << 4 | kind) as u8], |data| table.describe(data));
            codes[kind] = table.codes();
        }
        scan.header(units.components(), file);
        let mut writer = BitWriter::default();
        scan.each(units, &mut |token| {
            if let Some(symbol) = token.symbol {
                let (code, length) = codes[token.kind][usize::from(symbol)];
                writer.put(code, length, file);
            }
            writer.put(token.bits, token.size, file);
        });
        writer.finish(file);
    }
}

impl Scan {
    /// The kinds of components whose codes the scan needs: later bits of first coefficients have none.
    fn kinds(&self, components: usize) -> Vec<usize> {
        match self.component {
            Some(component) => vec![component.min(1)],
            None if self.high > 0 => Vec::new(),
            None => (0..components.min(2)).collect(),
        }
    }

    fn header(&self, components: usize, file: &mut Vec<u8>) {
        let range = self.component.map_or(0..components, |component| component..component + 1);
        marker(file, 0xda, &[range.len() as u8], |data| {
            for component in range {
                let kind = component.min(1) as u8;
                let tables = match (self.component, self.high) {
                    (Some(_), _) => kind,
                    (None, 0) => kind << 4,
                    (None, _) => 0,
                };
                data.extend([component as u8 + 1, tables]);
            }
            data.extend([self.band[0] as u8, self.band[1] as u8, (self.high << 4 | self.low) as u8]);
        });
    }

    fn each(&self, units: &Units<'_>, put: &mut dyn FnMut(Token)) {
        let Some(component) = self.component else {
            let mut last = [0i32; 3];
            units.each_block(&mut |number, block| {
                let value = i32::from(block[0]) >> self.low;
                let kind = number.min(1);
                if self.high > 0 {
                    return put(Token { kind, symbol: None, bits: value as u32 & 1, size: 1 });
                }
                let coded = coded(0, 0, value - last[number]);
                last[number] = value;
                put(Token { kind, symbol: Some(coded.symbol), bits: coded.bits, size: coded.size });
            });
            return;
        };
        let mut run = EndRun { kind: component.min(1), blocks: 0, corrections: Vec::new() };
        for block in units.blocks_of(component) {
            if self.high == 0 { self.early(block, &mut run, put) } else { self.later(block, &mut run, put) }
        }
        run.flush(put);
    }

    /// The coefficients of the band, as far as this scan and those before it know them.
    fn values<'a>(&'a self, block: &'a Block) -> impl DoubleEndedIterator<Item = (usize, u32, bool)> + 'a {
        (self.band[0]..=self.band[1]).map(|at| {
            let value = i32::from(block[usize::from(ZIGZAG[at])]);
            (at, value.unsigned_abs() >> self.low, value < 0)
        })
    }

    /// Coefficients of which nothing is known yet.
    fn early(&self, block: &Block, run: &mut EndRun, put: &mut dyn FnMut(Token)) {
        let mut zeros = 0u8;
        for (_, value, negative) in self.values(block) {
            if value == 0 {
                zeros += 1;
                continue;
            }
            run.flush(put);
            while zeros > 15 {
                put(Token { kind: run.kind, symbol: Some(0xf0), bits: 0, size: 0 });
                zeros -= 16;
            }
            let coded = coded(1, zeros, if negative { -(value as i32) } else { value as i32 });
            put(Token { kind: run.kind, symbol: Some(coded.symbol), bits: coded.bits, size: coded.size });
            zeros = 0;
        }
        if zeros > 0 {
            run.end_block(Vec::new(), put);
        }
    }

    /// One more bit of coefficients that are known, and those that were zero so far.
    fn later(&self, block: &Block, run: &mut EndRun, put: &mut dyn FnMut(Token)) {
        let last_new = self.values(block).rfind(|(_, value, _)| *value == 1).map_or(0, |(at, ..)| at);
        let (mut zeros, mut corrections) = (0u8, Vec::new());
        let correct = |corrections: &mut Vec<u32>, put: &mut dyn FnMut(Token)| {
            corrections.drain(..).for_each(|bits| put(Token { kind: 0, symbol: None, bits, size: 1 }));
        };
        for (at, value, negative) in self.values(block) {
            if value == 0 {
                zeros += 1;
                continue;
            }
            while zeros > 15 && at <= last_new {
                run.flush(put);
                put(Token { kind: run.kind, symbol: Some(0xf0), bits: 0, size: 0 });
                zeros -= 16;
                correct(&mut corrections, put);
            }
            if value > 1 {
                corrections.push(value & 1);
                continue;
            }
            run.flush(put);
            put(Token { kind: run.kind, symbol: Some(zeros << 4 | 1), bits: u32::from(!negative), size: 1 });
            correct(&mut corrections, put);
            zeros = 0;
        }
        if zeros > 0 || !corrections.is_empty() {
            run.end_block(corrections, put);
        }
    }
}

/// Blocks in a row that have no more coefficients of their own, and the bits that correct those they have.
struct EndRun {
    kind: usize,
    blocks: u32,
    corrections: Vec<u32>,
}

impl EndRun {
    /// The longest run that a symbol stands for.
    const LONGEST: u32 = 0x7fff;
    /// libjpeg's room for corrections, less than a block's.
    const CORRECTIONS: usize = 1000 - 64 + 1;

    fn end_block(&mut self, corrections: Vec<u32>, put: &mut dyn FnMut(Token)) {
        self.blocks += 1;
        self.corrections.extend(corrections);
        if self.blocks == EndRun::LONGEST || self.corrections.len() > EndRun::CORRECTIONS {
            self.flush(put);
        }
    }

    fn flush(&mut self, put: &mut dyn FnMut(Token)) {
        if self.blocks == 0 {
            return;
        }
        let size = self.blocks.ilog2();
        let bits = self.blocks & ((1 << size) - 1);
        put(Token { kind: self.kind, symbol: Some((size << 4) as u8), bits, size });
        self.blocks = 0;
        for bits in self.corrections.drain(..) {
            put(Token { kind: self.kind, symbol: None, bits, size: 1 });
        }
    }
}
