//! Writing of JPEG files: one scan with the standard's tables of codes or with those that fit the image best, or scans
//! that make it clearer step by step.

use super::{Block, ZIGZAG, fdct, progressive};
use ferroflow_core::{Result, ensure};

/// Settings of an encoder.
#[derive(Clone, Debug)]
pub struct EncodeOptions {
    /// From 0, the smallest file, to 100, the best image.
    pub quality: i32,
    /// Finds the codes that fit the image best.
    pub optimize_size: bool,
    /// Writes several scans, of which the first ones give a rough image.
    pub progressive: bool,
    /// Writes one color for four pixels.
    pub chroma_downsampling: bool,
    /// The unit of densities: 1 for inches, 2 for centimeters.
    pub density_unit: u8,
    /// Pixels per unit, across and down.
    pub density: [u16; 2],
    /// XMP metadata; empty for none.
    pub xmp_metadata: Vec<u8>,
}

impl Default for EncodeOptions {
    fn default() -> EncodeOptions {
        EncodeOptions {
            quality: 95,
            optimize_size: false,
            progressive: false,
            chroma_downsampling: true,
            density_unit: 1,
            density: [300, 300],
            xmp_metadata: Vec::new(),
        }
    }
}

/// Encodes an image of one (gray) or three (RGB) bytes per pixel.
pub fn encode(
    height: usize,
    width: usize,
    channels: usize,
    pixels: &[u8],
    options: &EncodeOptions,
) -> Result<Vec<u8>> {
    ensure!(
        (1..=65500).contains(&height) && (1..=65500).contains(&width) && height * width < 1 << 29,
        Internal,
        "JPEG encoding failed: an image of {height}×{width} pixels is too large, or empty"
    );
    ensure!(
        matches!(channels, 1 | 3) && pixels.len() == height * width * channels,
        InvalidArgument,
        "got {} bytes for an image of {height}×{width}×{channels}",
        pixels.len()
    );
    ensure!(
        options.xmp_metadata.len() + XMP.len() <= 65533,
        Internal,
        "JPEG encoding failed: {} bytes of metadata do not fit into a marker",
        options.xmp_metadata.len()
    );
    let tables = [scaled(&LUMINANCE, options.quality), scaled(&CHROMINANCE, options.quality)];
    let planes = planes(height, width, channels, pixels, options.chroma_downsampling);
    let blocks: Vec<Vec<Block>> =
        planes.iter().enumerate().map(|(number, plane)| plane.blocks(&tables[number.min(1)])).collect();
    let units = Units::new(&planes, &blocks);
    let kinds = if channels == 1 { 1 } else { 2 };
    let mut file = vec![0xff, 0xd8];
    marker(&mut file, 0xe0, &[b"JFIF\0\x01\x01", &[options.density_unit][..]].concat(), |data| {
        options.density.iter().for_each(|density| data.extend(density.to_be_bytes()));
        data.extend([0, 0]);
    });
    if !options.xmp_metadata.is_empty() {
        marker(&mut file, 0xe1, XMP, |data| data.extend(&options.xmp_metadata));
    }
    for (number, table) in tables[..kinds].iter().enumerate() {
        marker(&mut file, 0xdb, &[number as u8], |data| {
            data.extend(ZIGZAG[..64].iter().map(|at| table[usize::from(*at)] as u8));
        });
    }
    let frame = if options.progressive { 0xc2 } else { 0xc0 };
    marker(&mut file, frame, &[8], |data| {
        data.extend((height as u16).to_be_bytes());
        data.extend((width as u16).to_be_bytes());
        data.push(channels as u8);
        for (number, plane) in planes.iter().enumerate() {
            data.extend([number as u8 + 1, (plane.samples << 4 | plane.samples) as u8, number.min(1) as u8]);
        }
    });
    if options.progressive {
        progressive::write(&units, &mut file);
    } else {
        units.write_at_once(kinds, options.optimize_size, &mut file);
    }
    file.extend([0xff, 0xd9]);
    Ok(file)
}

/// The name that XMP metadata is found by.
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";

pub(super) fn marker(file: &mut Vec<u8>, marker: u8, start: &[u8], rest: impl FnOnce(&mut Vec<u8>)) {
    let at = file.len();
    file.extend([0xff, marker, 0, 0]);
    file.extend(start);
    rest(file);
    let length = (file.len() - at - 2) as u16;
    file[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// The table of a quality, from that of quality 50.
fn scaled(table: &[u8; 64], quality: i32) -> [u16; 64] {
    let quality = quality.clamp(1, 100);
    let scale = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
    table.map(|value| ((i32::from(value) * scale + 50) / 100).clamp(1, 255) as u16)
}

/// A component whose sides are multiples of a block's.
struct Plane {
    pixels: Vec<u8>,
    /// Blocks across and down.
    across: usize,
    down: usize,
    /// Blocks of a unit, in each direction.
    samples: usize,
}

impl Plane {
    fn blocks(&self, quantization: &[u16; 64]) -> Vec<Block> {
        let stride = self.across * 8;
        let block = |number: usize| {
            let (row, column) = (number / self.across, number % self.across);
            let mut pixels = [0; 64];
            for (line, pixels) in pixels.chunks_mut(8).enumerate() {
                pixels.copy_from_slice(&self.pixels[(row * 8 + line) * stride + column * 8..][..8]);
            }
            fdct::transform(&pixels, quantization)
        };
        (0..self.across * self.down).map(block).collect()
    }
}

/// A number in 16 bits.
const fn fix(x: f64) -> i32 {
    (x * 65536.0 + 0.5) as i32
}

fn to_ycc(pixel: &[u8]) -> [u8; 3] {
    let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(i32::from);
    const HALF: i32 = 1 << 15;
    const CENTER: i32 = (128 << 16) + HALF - 1;
    [
        (fix(0.29900) * r + fix(0.58700) * g + fix(0.11400) * b + HALF) >> 16,
        (-fix(0.16874) * r - fix(0.33126) * g + fix(0.50000) * b + CENTER) >> 16,
        (fix(0.50000) * r - fix(0.41869) * g - fix(0.08131) * b + CENTER) >> 16,
    ]
    .map(|x| x as u8)
}

/// The components, each padded by its last row and column.
fn planes(height: usize, width: usize, channels: usize, pixels: &[u8], downsampled: bool) -> Vec<Plane> {
    if channels == 1 {
        return vec![plane(height, width, 1, &|y, x| pixels[y * width + x.min(width - 1)])];
    }
    let ycc: Vec<[u8; 3]> = pixels.chunks_exact(3).map(to_ycc).collect();
    let samples = if downsampled { 2 } else { 1 };
    let at = |y: usize, x: usize, number: usize| ycc[y.min(height - 1) * width + x.min(width - 1)][number];
    let mut planes = vec![plane(height, width, samples, &|y, x| at(y, x, 0))];
    for number in 1..3 {
        planes.push(match samples {
            1 => plane(height, width, 1, &|y, x| at(y, x, number)),
            _ => plane(height.div_ceil(2), width.div_ceil(2), 1, &|y, x| {
                let corners = [(0, 0), (0, 1), (1, 0), (1, 1)];
                let sum: u32 =
                    corners.iter().map(|(dy, dx)| u32::from(at(2 * y + dy, 2 * x + dx, number))).sum();
                // The remainder is rounded up and down in turns.
                ((sum + 1 + (x as u32 & 1)) >> 2) as u8
            }),
        });
    }
    planes
}

fn plane(height: usize, width: usize, samples: usize, at: &dyn Fn(usize, usize) -> u8) -> Plane {
    let (across, down) = (width.div_ceil(8), height.div_ceil(8));
    let mut pixels = Vec::with_capacity(across * down * 64);
    for y in 0..down * 8 {
        // Columns are padded before colors are merged, rows afterwards.
        pixels.extend((0..across * 8).map(|x| at(y.min(height - 1), x)));
    }
    Plane { pixels, across, down, samples }
}

/// The blocks of all components, in the order of the file.
pub(super) struct Units<'a> {
    planes: &'a [Plane],
    blocks: &'a [Vec<Block>],
}

/// A symbol of codes of first (0) or other (1) coefficients, and bits after it.
pub(super) struct Coded {
    class: usize,
    pub(super) symbol: u8,
    pub(super) bits: u32,
    pub(super) size: u32,
}

impl<'a> Units<'a> {
    fn new(planes: &'a [Plane], blocks: &'a [Vec<Block>]) -> Units<'a> {
        Units { planes, blocks }
    }

    pub(super) fn components(&self) -> usize {
        self.planes.len()
    }

    /// The blocks of one component, without those outside the image.
    pub(super) fn blocks_of(&self, component: usize) -> &[Block] {
        &self.blocks[component]
    }

    /// Calls `see` for every block with the component it belongs to, unit by unit.
    pub(super) fn each_block(&self, see: &mut dyn FnMut(usize, &Block)) {
        let samples = self.planes[0].samples;
        let (across, down) = (self.planes[0].across.div_ceil(samples), self.planes[0].down.div_ceil(samples));
        for unit in 0..across * down {
            let (row, column) = (unit / across, unit % across);
            for (number, (plane, blocks)) in self.planes.iter().zip(self.blocks).enumerate() {
                let mut before = 0;
                for part in 0..plane.samples * plane.samples {
                    let (y, x) = (
                        row * plane.samples + part / plane.samples,
                        column * plane.samples + part % plane.samples,
                    );
                    // Blocks outside the image are even, and as the one before them.
                    let block = if y < plane.down && x < plane.across {
                        blocks[y * plane.across + x]
                    } else {
                        let mut even = [0; 64];
                        even[0] = before;
                        even
                    };
                    before = block[0];
                    see(number, &block);
                }
            }
        }
    }

    /// Calls `put` for every symbol of a single scan, with the kind of component it belongs to.
    fn each(&self, put: &mut dyn FnMut(usize, Coded)) {
        let mut last = [0i32; 3];
        self.each_block(&mut |number, block| {
            let kind = number.min(1);
            let difference = i32::from(block[0]) - last[number];
            last[number] = i32::from(block[0]);
            put(kind, coded(0, 0, difference));
            other_symbols(block, &mut |coded| put(kind, coded));
        });
    }

    fn best_codes(&self, kinds: usize) -> Vec<[Table; 2]> {
        let mut counts = vec![[[0u32; 257]; 2]; kinds];
        self.each(&mut |kind, coded| counts[kind][coded.class][usize::from(coded.symbol)] += 1);
        counts.iter().map(|counts| [0, 1].map(|class| Table::best(&counts[class]))).collect()
    }

    /// Writes everything in one scan.
    fn write_at_once(&self, kinds: usize, optimize: bool, file: &mut Vec<u8>) {
        let tables: Vec<[Table; 2]> = if optimize {
            self.best_codes(kinds)
        } else {
            STANDARD_CODES[..kinds].iter().map(|[first, other]| [first.into(), other.into()]).collect()
        };
        for (number, tables) in tables.iter().enumerate() {
            for (class, table) in tables.iter().enumerate() {
                marker(file, 0xc4, &[(class << 4 | number) as u8], |data| table.describe(data));
            }
        }
        let channels = self.planes.len();
        marker(file, 0xda, &[channels as u8], |data| {
            (0..channels).for_each(|number| data.extend([number as u8 + 1, [0, 0x11][number.min(1)]]));
            data.extend([0, 63, 0]);
        });
        let codes: Vec<[Vec<(u32, u32)>; 2]> =
            tables.iter().map(|tables| [0, 1].map(|class| tables[class].codes())).collect();
        let mut writer = BitWriter::default();
        self.each(&mut |kind, coded| {
            let (code, length) = codes[kind][coded.class][usize::from(coded.symbol)];
            writer.put(code, length, file);
            writer.put(coded.bits, coded.size, file);
        });
        writer.finish(file);
    }
}

/// Bits that do not fill a byte yet.
#[derive(Default)]
pub(super) struct BitWriter {
    bits: u64,
    count: u32,
}

impl BitWriter {
    pub(super) fn put(&mut self, value: u32, size: u32, file: &mut Vec<u8>) {
        self.bits = self.bits << size | u64::from(value);
        self.count += size;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.bits >> self.count) as u8;
            file.push(byte);
            if byte == 0xff {
                file.push(0);
            }
        }
    }

    /// Fills the last byte with ones.
    pub(super) fn finish(mut self, file: &mut Vec<u8>) {
        self.put(0x7f, 7, file);
    }
}

/// A value after some zeros.
pub(super) fn coded(class: usize, zeros: u8, value: i32) -> Coded {
    let size = 32 - value.unsigned_abs().leading_zeros();
    let bits = if value < 0 { value - 1 } else { value } as u32 & ((1u32 << size) - 1);
    Coded { class, symbol: zeros << 4 | size as u8, bits, size }
}

fn other_symbols(block: &Block, put: &mut dyn FnMut(Coded)) {
    let mut zeros = 0u8;
    for at in &ZIGZAG[1..64] {
        let value = i32::from(block[usize::from(*at)]);
        if value == 0 {
            zeros += 1;
            continue;
        }
        while zeros > 15 {
            put(Coded { class: 1, symbol: 0xf0, bits: 0, size: 0 });
            zeros -= 16;
        }
        put(coded(1, zeros, value));
        zeros = 0;
    }
    if zeros > 0 {
        put(Coded { class: 1, symbol: 0, bits: 0, size: 0 });
    }
}

/// A table of codes: how many of each length, and their symbols in order.
#[derive(Clone)]
pub(super) struct Table {
    counts: [u8; 16],
    symbols: Vec<u8>,
}

impl From<&(&[u8; 16], &[u8])> for Table {
    fn from((counts, symbols): &(&[u8; 16], &[u8])) -> Table {
        Table { counts: **counts, symbols: symbols.to_vec() }
    }
}

impl Table {
    /// Appends the table as files have it.
    pub(super) fn describe(&self, data: &mut Vec<u8>) {
        data.extend(self.counts);
        data.extend(&self.symbols);
    }

    /// Code and length by symbol.
    pub(super) fn codes(&self) -> Vec<(u32, u32)> {
        let mut codes = vec![(0, 0); 256];
        let (mut code, mut symbols) = (0, self.symbols.iter());
        for (length, count) in (1..).zip(self.counts) {
            for symbol in symbols.by_ref().take(usize::from(count)) {
                codes[usize::from(*symbol)] = (code, length);
                code += 1;
            }
            code <<= 1;
        }
        codes
    }

    /// The codes that make a text with these counts of symbols shortest, found as the standard's annex K describes: no code
    /// is longer than 16 bits, none is made of ones only.
    pub(super) fn best(counts: &[u32; 257]) -> Table {
        let mut counts = *counts;
        counts[256] = 1;
        let (mut lengths, mut next) = ([0usize; 257], [None; 257]);
        loop {
            let least = |counts: &[u32; 257], but: Option<usize>| {
                let candidates = (0..257).filter(|at| counts[*at] > 0 && Some(*at) != but);
                // Of equal counts the last.
                candidates.min_by_key(|at| (counts[*at], 256 - at))
            };
            let Some(first) = least(&counts, None) else { break };
            let Some(second) = least(&counts, Some(first)) else { break };
            counts[first] += counts[second];
            counts[second] = 0;
            let mut at = first;
            lengths[at] += 1;
            while let Some(after) = next[at] {
                at = after;
                lengths[at] += 1;
            }
            next[at] = Some(second);
            at = second;
            lengths[at] += 1;
            while let Some(after) = next[at] {
                at = after;
                lengths[at] += 1;
            }
        }
        let mut bits = [0u32; 258];
        lengths.iter().filter(|length| **length > 0).for_each(|length| bits[*length] += 1);
        for length in (17..bits.len()).rev() {
            while bits[length] > 0 {
                let mut shorter = length - 2;
                while bits[shorter] == 0 {
                    shorter -= 1;
                }
                bits[length] -= 2;
                bits[length - 1] += 1;
                bits[shorter + 1] += 2;
                bits[shorter] -= 1;
            }
        }
        // The code of ones only is the longest one.
        if let Some(longest) = (1..=16).rev().find(|length| bits[*length] > 0) {
            bits[longest] -= 1;
        }
        let mut symbols = Vec::new();
        for length in 1..bits.len() {
            symbols.extend((0..256).filter(|symbol| lengths[*symbol] == length).map(|symbol| symbol as u8));
        }
        Table { counts: std::array::from_fn(|at| bits[at + 1] as u8), symbols }
    }
}

/// The standard's tables for brightness and for colors, row by row.
const LUMINANCE: [u8; 64] = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17,
    22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78,
    87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
];
const CHROMINANCE: [u8; 64] = [
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99, 47, 66,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
];

/// The standard's codes of first and of other coefficients, for brightness and for colors.
const STANDARD_CODES: [[(&[u8; 16], &[u8]); 2]; 2] = [
    [
        (&[0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (
            &[0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7d],
            &[
                0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61,
                0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52,
                0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x25,
                0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45,
                0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64,
                0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83,
                0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
                0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6,
                0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3,
                0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8,
                0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
            ],
        ),
    ],
    [
        (&[0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (
            &[0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 0x77],
            &[
                0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61,
                0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33,
                0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1, 0x17, 0x18,
                0x19, 0x1a, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44,
                0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63,
                0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a,
                0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97,
                0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4,
                0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca,
                0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7,
                0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
            ],
        ),
    ],
];
