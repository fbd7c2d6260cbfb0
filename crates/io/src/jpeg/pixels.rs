//! From scans to pixels: planes of transformed blocks, brought to one size, and converted to gray or RGB.

use super::header::{Component, Frame, Header, Unreadable};
use super::idct::Transform;
use super::scan::ScanReader;
use super::{Block, DecodeOptions, Image};
use ferroflow_core::device::Threads;
use ferroflow_core::{DType, Result, Shape, Tensor};
use multiversion::multiversion;

/// Colors of the file and of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Colors {
    Gray,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

/// The colors of a file, which are guessed as libjpeg does where no marker says.
fn colors(header: &Header) -> Option<Colors> {
    let ids: Vec<u8> = header.frame.components.iter().map(|c| c.id).collect();
    Some(match (ids.len(), header.adobe) {
        (1, _) => Colors::Gray,
        (3, _) if header.jfif => Colors::YCbCr,
        (3, Some(0)) => Colors::Rgb,
        (3, Some(_)) => Colors::YCbCr,
        (3, None) if ids == *b"RGB" => Colors::Rgb,
        (3, None) => Colors::YCbCr,
        (4, Some(0) | None) => Colors::Cmyk,
        (4, Some(_)) => Colors::Ycck,
        _ => return None,
    })
}

/// One component of the image, as bytes.
struct Plane<'a> {
    pixels: &'a mut [u8],
    stride: usize,
    /// The rows that hold pixels of the image.
    height: usize,
    /// The first column of the part that is wanted, and the width of that part.
    start: usize,
    width: usize,
    spread: Spread,
}

/// The way in which a plane with fewer pixels is brought to the size of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// Each pixel stands for this many, across and down.
    Repeat(usize, usize),
    /// Pixels between two, along rows.
    AcrossTwo,
    /// Pixels between two, along columns.
    DownTwo,
    /// Pixels between four.
    BothTwo,
}

impl Spread {
    /// Whether rows above and below are needed.
    fn has_context(self) -> bool {
        matches!(self, Spread::DownTwo | Spread::BothTwo)
    }
}

/// Blocks that a file cannot have, for want of bits, are only filled in up to this number: a few bytes must not make the
/// decoder ask for much memory unless truncated files are asked for.
const MAX_MISSING_BLOCKS: usize = 1 << 18;

pub(super) fn decode(
    file: &[u8],
    header: &Header,
    options: &DecodeOptions,
    threads: Threads<'_>,
) -> Result<Option<Image>> {
    let Some(plan) = Plan::new(file, header, options) else { return Ok(None) };
    let Plan { from, channels, window, height, unit } = plan;
    let frame = &header.frame;
    let memory = |bytes: usize| threads.device().allocate(DType::Uint8, Shape::vector(bytes));
    let mut parts: Vec<Tensor> =
        frame.components.iter().map(|c| memory(plane_bytes(frame, c, unit))).collect::<Result<_>>()?;
    let mut planes = Vec::new();
    for (component, pixels) in frame.components.iter().zip(&mut parts) {
        let Some(plane) = Plane::new(frame, component, options, unit, &window, pixels.flat_mut()?) else {
            return Ok(None);
        };
        planes.push(plane);
    }
    let needed = if channels == 1 && from == Colors::YCbCr { 1 } else { planes.len() };
    let read = if !frame.progressive && header.scan.components.len() == frame.components.len() {
        read_directly(file, header, options, &mut planes[..], needed, threads)
    } else {
        read_scans(file, header, options, &mut planes, needed, threads)
    };
    let Some(units_read) = read else { return Ok(None) };
    // Rows of which the next ones are missing lack their context.
    let lacking = usize::from(planes[..needed].iter().any(|plane| plane.spread.has_context()));
    let complete = match units_read {
        None => height,
        Some(units) => (units * unit).saturating_sub(lacking) * frame.max_down,
    };
    let rows_read = complete.saturating_sub(window.top).min(window.height);
    let fraction = rows_read as f32 / window.height as f32;
    if fraction < options.acceptable_fraction.min(1.0) {
        return Ok(None);
    }
    let row = window.width * channels;
    let mut pixels = memory(window.height * row)?;
    let (rows, missing) = pixels.flat_mut::<u8>()?.split_at_mut(rows_read * row);
    missing.fill(0);
    let out = Converter {
        planes: &planes[..needed],
        from,
        adobe: header.adobe.is_some(),
        channels,
        window: &window,
    };
    threads.parallel_rows(rows, row, 4, |first, rows| out.fill(first, rows));
    Ok(Some(Image { height: window.height, width: window.width, channels, pixels }))
}

/// The outline of a result, known before anything is decoded.
struct Plan {
    from: Colors,
    channels: usize,
    window: Window,
    height: usize,
    /// The number of pixels along the side of a block, of components that have all pixels.
    unit: usize,
}

impl Plan {
    /// A plan; none if the file cannot be decoded so.
    fn new(file: &[u8], header: &Header, options: &DecodeOptions) -> Option<Plan> {
        let frame = &header.frame;
        let channels = if options.channels == 0 { frame.components.len().min(3) } else { options.channels };
        let from = colors(header)?;
        match (channels, from) {
            (1, Colors::Gray | Colors::YCbCr | Colors::Rgb) | (3, _) => {}
            _ => return None,
        }
        let unit = 8 / options.ratio;
        let (height, width) = (frame.height.div_ceil(options.ratio), frame.width.div_ceil(options.ratio));
        if height * width * frame.components.len() >= 1 << 29 {
            return None;
        }
        let blocks = frame.components.iter().map(|c| {
            let (across, down) = frame.blocks(c);
            across * down
        });
        let blocks: usize = blocks.sum();
        if blocks > MAX_MISSING_BLOCKS && blocks > file.len() * 8 && !options.try_recover_truncated {
            return None;
        }
        let window = Window::new(options.crop, height, width, unit, frame)?;
        Some(Plan { from, channels, window, height, unit })
    }
}

/// The part of the image that is wanted. Decoding begins at a unit, so that a few columns on its left are decoded, too.
struct Window {
    top: usize,
    height: usize,
    width: usize,
    /// The unit at which decoding begins.
    first_unit: usize,
    /// The number of columns that are decoded.
    decoded: usize,
    cropped: bool,
}

impl Window {
    fn new(
        crop: Option<[i32; 4]>,
        height: usize,
        width: usize,
        unit: usize,
        frame: &Frame,
    ) -> Option<Window> {
        let Some(crop) = crop else {
            return Some(Window { top: 0, height, width, first_unit: 0, decoded: width, cropped: false });
        };
        let [top, left, rows, columns] = crop.map(|x| usize::try_from(x).ok());
        let (top, left, rows, columns) = (top?, left?, rows?, columns?);
        if rows == 0 || columns == 0 || top + rows > height || left + columns > width {
            return None;
        }
        let align = if frame.components.len() == 1 { unit } else { unit * frame.max_across };
        let first_unit = left / align;
        let decoded = columns + left - first_unit * align;
        Some(Window { top, height: rows, width: columns, first_unit, decoded, cropped: true })
    }
}

impl Plane<'_> {
    fn new<'a>(
        frame: &Frame,
        component: &Component,
        options: &DecodeOptions,
        unit: usize,
        window: &Window,
        pixels: &'a mut [u8],
    ) -> Option<Plane<'a>> {
        let size = block_size(frame, component, unit);
        let across_units = if frame.components.len() == 1 { 1 } else { component.across };
        let (blocks, _) = padded_blocks(frame, component);
        let scaled =
            |pixels: usize, samples: usize, most: usize| (pixels * samples * size).div_ceil(most * 8);
        let whole_width = scaled(frame.width, component.across, frame.max_across);
        let height = scaled(frame.height, component.down, frame.max_down);
        let width = if window.cropped {
            (window.decoded * component.across).div_ceil(frame.max_across)
        } else {
            whole_width
        };
        let (across, down) = (component.across * size / unit, component.down * size / unit);
        let fancy = options.fancy_upscaling && unit > 1;
        let wide = whole_width > 2 && !(window.cropped && width < 2);
        let spread = match (frame.max_across, frame.max_down) {
            (h, v) if h == across && v == down => Spread::Repeat(1, 1),
            (h, v) if h == 2 * across && v == down && fancy && wide => Spread::AcrossTwo,
            (h, v) if h == across && v == 2 * down && fancy => Spread::DownTwo,
            (h, v) if h == 2 * across && v == 2 * down && fancy && wide => Spread::BothTwo,
            (h, v) if h % across == 0 && v % down == 0 => Spread::Repeat(h / across, v / down),
            _ => return None,
        };
        let start = window.first_unit * across_units * size;
        Some(Plane { pixels, stride: blocks * size, height, start, width, spread })
    }
}

/// The number of bytes of a component's plane.
fn plane_bytes(frame: &Frame, component: &Component, unit: usize) -> usize {
    let (across, down) = padded_blocks(frame, component);
    let size = block_size(frame, component, unit);
    across * down * size * size
}

/// The number of blocks that interleaved scans have of a component, across and down.
fn padded_blocks(frame: &Frame, component: &Component) -> (usize, usize) {
    if frame.components.len() == 1 {
        return frame.blocks(component);
    }
    let (across, down) = frame.units();
    (across * component.across, down * component.down)
}

/// The number of pixels along the side of a transformed block. Components with fewer pixels are transformed to more, if
/// that saves bringing them to size afterwards.
fn block_size(frame: &Frame, component: &Component, unit: usize) -> usize {
    let mut size = unit;
    let fits = |size: usize, samples: usize, most: usize| (most * unit).is_multiple_of(samples * size * 2);
    while size < 8
        && fits(size, component.across, frame.max_across)
        && fits(size, component.down, frame.max_down)
    {
        size *= 2;
    }
    size
}

fn transform(header: &Header, number: usize, options: &DecodeOptions) -> Option<Transform> {
    let (frame, unit) = (&header.frame, 8 / options.ratio);
    let component = &frame.components[number];
    let size = block_size(frame, component, unit);
    let table = header.tables.quantization[component.table].as_ref()?;
    Some(Transform::new(table, size, options.accurate_dct))
}

/// Images of at least this many blocks are transformed on another thread than the one that reads.
const BLOCKS_TO_SHARE: usize = 1024;

/// Reads the only scan of an image block by block. Returns the number of rows of units, if not all were read.
fn read_directly(
    file: &[u8],
    header: &Header,
    options: &DecodeOptions,
    planes: &mut [Plane<'_>],
    needed: usize,
    threads: Threads<'_>,
) -> Option<Option<usize>> {
    let frame = &header.frame;
    let mut reader = ScanReader::new(file, header)?;
    let transforms: Vec<Transform> =
        (0..planes.len()).map(|number| transform(header, number, options)).collect::<Option<_>>()?;
    let single = frame.components.len() == 1;
    let (units_across, units_down) = if single { frame.blocks(&frame.components[0]) } else { frame.units() };
    // In the order of the file: a component's number, and how many of its blocks a unit has across and down.
    let parts: Vec<(usize, usize, usize)> = header
        .scan
        .components
        .iter()
        .map(|(number, _, _)| {
            let component = &frame.components[*number];
            if single { (*number, 1, 1) } else { (*number, component.across, component.down) }
        })
        .collect();
    let blocks_of_unit: usize = parts.iter().map(|(_, across, down)| across * down).sum();
    let shared = threads.count() > 1 && blocks_of_unit * units_across * units_down >= BLOCKS_TO_SHARE;
    let mut bands: Vec<_> = planes[..needed]
        .iter_mut()
        .zip(&transforms)
        .zip(&frame.components)
        .map(|((plane, transform), component)| {
            let rows = if single { 1 } else { component.down } * transform.size;
            (plane.stride, plane.pixels.chunks_mut(rows * plane.stride))
        })
        .collect();
    // One row of units: its blocks, and the rows of planes that they are for.
    let put = |blocks: &[(Block, bool)], rows: &mut [(usize, &mut [u8])]| {
        for (column, blocks) in blocks.chunks_exact(blocks_of_unit).enumerate() {
            let mut blocks = blocks.iter();
            for (number, across, down) in &parts {
                for (part, (block, any)) in blocks.by_ref().take(across * down).enumerate() {
                    let Some((stride, rows)) = rows.get_mut(*number) else { continue };
                    let size = transforms[*number].size;
                    let (x, y) = (column * across + part % across, part / across);
                    transforms[*number].put(block, !any, &mut rows[(y * *stride + x) * size..], *stride);
                }
            }
        }
    };
    let ended = threads.pool().in_place_scope(|scope| {
        let mut blocks: Vec<(Block, bool)> = Vec::new();
        for row in 0..units_down {
            blocks.clear();
            blocks.resize(blocks_of_unit * units_across, ([0; 64], false));
            for unit in blocks.chunks_exact_mut(blocks_of_unit) {
                reader.begin_unit();
                let mut blocks = unit.iter_mut();
                for (place, (_, across, down)) in parts.iter().enumerate() {
                    for (block, any) in blocks.by_ref().take(across * down) {
                        *any = reader.block(place, block);
                    }
                }
                reader.end_unit();
            }
            let mut rows: Vec<(usize, &mut [u8])> =
                bands.iter_mut().filter_map(|(stride, rows)| Some((*stride, rows.next()?))).collect();
            if shared {
                let (blocks, put) = (std::mem::take(&mut blocks), &put);
                scope.spawn(move |_| put(&blocks, &mut rows));
            } else {
                put(&blocks, &mut rows);
            }
            if reader.is_at_end_of_file() && !options.try_recover_truncated {
                return Some(if single { row / frame.components[0].down } else { row });
            }
        }
        None
    });
    if ended.is_some() {
        return Some(ended);
    }
    // The image must end after its only scan.
    match header.clone().next(file, reader.end()) {
        Ok(false) => Some(None),
        Err(Unreadable::FileEnds) if options.try_recover_truncated => Some(None),
        _ => None,
    }
}

/// Reads all scans into memory, then transforms the blocks.
fn read_scans(
    file: &[u8],
    header: &Header,
    options: &DecodeOptions,
    planes: &mut [Plane<'_>],
    needed: usize,
    threads: Threads<'_>,
) -> Option<Option<usize>> {
    let mut header = header.clone();
    let frame = header.frame.clone();
    let sizes: Vec<(usize, usize)> = frame.components.iter().map(|c| padded_blocks(&frame, c)).collect();
    let mut blocks: Vec<Vec<Block>> =
        sizes.iter().map(|(across, down)| vec![[0; 64]; across * down]).collect();
    let mut transforms: Vec<Option<Transform>> = planes.iter().map(|_| None).collect();
    loop {
        for (number, _, _) in &header.scan.components {
            if transforms[*number].is_none() {
                transforms[*number] = Some(transform(&header, *number, options)?);
            }
        }
        let end = read_scan(file, &header, &frame, &sizes, &mut blocks, options.try_recover_truncated)?;
        match header.next(file, end) {
            Ok(true) => {}
            Ok(false) => break,
            Err(Unreadable::FileEnds) if options.try_recover_truncated => break,
            Err(_) => return None,
        }
    }
    for (number, plane) in planes.iter_mut().enumerate().take(needed) {
        let Some(transform) = &transforms[number] else { return None };
        let (across, down) = sizes[number];
        let (blocks, stride) = (&blocks[number], plane.stride);
        let pixels = &mut plane.pixels[..down * transform.size * stride];
        threads.parallel_rows(pixels, transform.size * stride, 2, |first, rows| {
            for (row, out) in rows.chunks_mut(transform.size * stride).enumerate() {
                for (column, block) in blocks[(first + row) * across..][..across].iter().enumerate() {
                    let only_first = block[1..].iter().all(|coefficient| *coefficient == 0);
                    transform.put(block, only_first, &mut out[column * transform.size..], stride);
                }
            }
        });
    }
    Some(None)
}

/// Reads one scan and returns the place after it.
fn read_scan(
    file: &[u8],
    header: &Header,
    frame: &Frame,
    sizes: &[(usize, usize)],
    blocks: &mut [Vec<Block>],
    recover: bool,
) -> Option<usize> {
    let mut reader = ScanReader::new(file, header)?;
    if let [(number, _, _)] = header.scan.components[..] {
        let (across, down) = frame.blocks(&frame.components[number]);
        for row in 0..down {
            for block in &mut blocks[number][row * sizes[number].0..][..across] {
                reader.begin_unit();
                reader.block(0, block);
                reader.end_unit();
            }
            if reader.is_at_end_of_file() {
                return recover.then(|| reader.end());
            }
        }
        return Some(reader.end());
    }
    let (units_across, units_down) = frame.units();
    for row in 0..units_down {
        for column in 0..units_across {
            reader.begin_unit();
            for (place, (number, _, _)) in header.scan.components.iter().enumerate() {
                let component = &frame.components[*number];
                for part in 0..component.across * component.down {
                    let x = column * component.across + part % component.across;
                    let y = row * component.down + part / component.across;
                    reader.block(place, &mut blocks[*number][y * sizes[*number].0 + x]);
                }
            }
            reader.end_unit();
        }
        if reader.is_at_end_of_file() {
            return recover.then(|| reader.end());
        }
    }
    Some(reader.end())
}

/// Makes rows of pixels from planes.
struct Converter<'a> {
    planes: &'a [Plane<'a>],
    from: Colors,
    adobe: bool,
    channels: usize,
    window: &'a Window,
}

impl Converter<'_> {
    fn fill(&self, first: usize, out: &mut [u8]) {
        let length = self.planes.iter().map(Plane::spread_width).max().unwrap_or(0).max(self.window.decoded);
        let mut spread: Vec<Vec<u8>> = self.planes.iter().map(|_| vec![0; length]).collect();
        let mut sums = vec![0; length];
        let mut converted = vec![0; self.window.decoded * self.channels];
        let skipped = (self.window.decoded - self.window.width) * self.channels;
        for (number, out) in out.chunks_mut(self.window.width * self.channels).enumerate() {
            let y = self.window.top + first + number;
            let mut parts: [&[u8]; 4] = [&[]; 4];
            for ((part, plane), spread) in parts.iter_mut().zip(self.planes).zip(&mut spread) {
                *part = &plane.row(y, &mut sums, spread)[..self.window.decoded];
            }
            if skipped == 0 {
                self.convert(&parts, out);
            } else {
                self.convert(&parts, &mut converted);
                out.copy_from_slice(&converted[skipped..]);
            }
        }
    }

    fn convert(&self, parts: &[&[u8]; 4], out: &mut [u8]) {
        let [first, second, third, fourth] = *parts;
        match (self.channels, self.from) {
            (1, Colors::Rgb) => {
                let colors = first.iter().zip(second).zip(third);
                out.iter_mut().zip(colors).for_each(|(out, ((r, g), b))| *out = gray(*r, *g, *b));
            }
            (1, _) => out.copy_from_slice(first),
            (_, Colors::Gray) => {
                out.as_chunks_mut::<3>().0.iter_mut().zip(first).for_each(|(out, y)| *out = [*y; 3]);
            }
            (_, Colors::YCbCr) => from_ycc(first, second, third, out),
            (_, Colors::Rgb) => {
                let pixels = out.as_chunks_mut::<3>().0.iter_mut();
                for (out, ((r, g), b)) in pixels.zip(first.iter().zip(second).zip(third)) {
                    *out = [*r, *g, *b];
                }
            }
            (_, Colors::Cmyk | Colors::Ycck) => {
                let (mut inks, mut rgb) = (out.to_vec(), vec![0; out.len()]);
                if self.from == Colors::Ycck {
                    from_ycc(first, second, third, &mut rgb);
                    inks.iter_mut().zip(&rgb).for_each(|(ink, color)| *ink = 255 - color);
                } else {
                    let pixels = inks.as_chunks_mut::<3>().0.iter_mut();
                    for (ink, ((c, m), y)) in pixels.zip(first.iter().zip(second).zip(third)) {
                        *ink = [*c, *m, *y];
                    }
                }
                let pixels = out.as_chunks_mut::<3>().0.iter_mut().zip(inks.as_chunks::<3>().0);
                for ((out, inks), black) in pixels.zip(fourth) {
                    *out = inks.map(|ink| mixed(ink, *black, self.adobe));
                }
            }
        }
    }
}

/// The color of an ink and black. Adobe's programs store them inverted.
fn mixed(ink: u8, black: u8, inverted: bool) -> u8 {
    let (ink, black) = (u32::from(ink), u32::from(black));
    (if inverted { black * ink / 255 } else { (255 - black) * (255 - ink) / 255 }) as u8
}

/// A number in 16 bits.
const fn fix(x: f64) -> i32 {
    (x * 65536.0 + 0.5) as i32
}

fn gray(r: u8, g: u8, b: u8) -> u8 {
    let sum = fix(0.29900) * i32::from(r) + fix(0.58700) * i32::from(g) + fix(0.11400) * i32::from(b);
    ((sum + (1 << 15)) >> 16) as u8
}

/// Pixels that are converted at once, so that the arithmetic is done in vectors.
const LANES: usize = 32;

#[multiversion(targets("x86_64+avx2"))]
fn from_ycc(y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    let (ys, y_rest) = y.as_chunks::<LANES>();
    let ((cbs, cb_rest), (crs, cr_rest)) = (cb.as_chunks::<LANES>(), cr.as_chunks::<LANES>());
    let (outs, out_rest) = out.as_chunks_mut::<{ 3 * LANES }>();
    for (((y, cb), cr), out) in ys.iter().zip(cbs).zip(crs).zip(outs) {
        convert(y, cb, cr, out);
    }
    if !y_rest.is_empty() {
        let filled = |rest: &[u8]| {
            let mut lanes = [0; LANES];
            lanes[..rest.len()].copy_from_slice(rest);
            lanes
        };
        let mut pixels = [0; 3 * LANES];
        convert(&filled(y_rest), &filled(cb_rest), &filled(cr_rest), &mut pixels);
        out_rest.copy_from_slice(&pixels[..out_rest.len()]);
    }
}

/// Factors above one half are written as what they differ from whole numbers by: products of 16 bits are the fast ones.
#[inline(always)]
fn convert(y: &[u8; LANES], cb: &[u8; LANES], cr: &[u8; LANES], out: &mut [u8; 3 * LANES]) {
    const HALF: i32 = 1 << 15;
    const RED: i32 = fix(1.40200) - (1 << 16);
    const GREEN: i32 = (1 << 16) - fix(0.71414);
    const BLUE: i32 = fix(1.77200) - (2 << 16);
    let product = |x: i16, factor: i32| i32::from(x) * i32::from(factor as i16);
    let mut colors = [[0u8; LANES]; 3];
    for lane in 0..LANES {
        let y = i16::from(y[lane]);
        let (cb, cr) = (i16::from(cb[lane]) - 128, i16::from(cr[lane]) - 128);
        let red = y + cr + ((product(cr, RED) + HALF) >> 16) as i16;
        let green = y - cr + ((product(cr, GREEN) - product(cb, fix(0.34414)) + HALF) >> 16) as i16;
        let blue = y + 2 * cb + ((product(cb, BLUE) + HALF) >> 16) as i16;
        let byte = |x: i16| x.clamp(0, 255) as u8;
        (colors[0][lane], colors[1][lane], colors[2][lane]) = (byte(red), byte(green), byte(blue));
    }
    for lane in 0..LANES {
        out[3 * lane] = colors[0][lane];
        out[3 * lane + 1] = colors[1][lane];
        out[3 * lane + 2] = colors[2][lane];
    }
}

impl Plane<'_> {
    /// The width of a row once it has the size of the image's.
    fn spread_width(&self) -> usize {
        match self.spread {
            Spread::Repeat(across, _) => self.width * across,
            Spread::AcrossTwo | Spread::BothTwo => self.width * 2,
            Spread::DownTwo => self.width,
        }
    }

    fn stored(&self, row: usize) -> &[u8] {
        let row = row.min(self.height.saturating_sub(1));
        &self.pixels[row * self.stride + self.start..(row + 1) * self.stride]
    }

    /// A row of the size of the image's, in the plane itself or in `out`.
    fn row<'a>(&'a self, y: usize, sums: &mut [u16], out: &'a mut [u8]) -> &'a [u8] {
        match self.spread {
            Spread::Repeat(1, down) => return self.stored(y / down),
            Spread::Repeat(across, down) => {
                let row = &self.stored(y / down)[..self.width];
                out.chunks_mut(across).zip(row).for_each(|(out, x)| out.fill(*x));
            }
            Spread::AcrossTwo => across_two(&self.stored(y)[..self.width], out),
            Spread::DownTwo => {
                let (near, far) = (self.stored(y / 2), self.neighbor(y));
                let bias = if y.is_multiple_of(2) { 1 } else { 2 };
                for ((out, near), far) in out.iter_mut().zip(near).zip(far) {
                    *out = ((3 * u16::from(*near) + u16::from(*far) + bias) >> 2) as u8;
                }
            }
            Spread::BothTwo => {
                let (near, far) = (&self.stored(y / 2)[..self.width], &self.neighbor(y)[..self.width]);
                both_two(near, far, sums, out);
            }
        }
        out
    }

    /// The row that is second nearest to one of the image.
    fn neighbor(&self, y: usize) -> &[u8] {
        self.stored(if y.is_multiple_of(2) { (y / 2).saturating_sub(1) } else { y / 2 + 1 })
    }
}

fn across_two(row: &[u8], out: &mut [u8]) {
    let last = row.len() - 1;
    let (out, _) = out.as_chunks_mut::<2>();
    let pair = |before: u8, here: u8, after: u8| {
        let here = 3 * u16::from(here);
        [((here + u16::from(before) + 1) >> 2) as u8, ((here + u16::from(after) + 2) >> 2) as u8]
    };
    // Pixels at an edge have themselves as neighbors.
    let middle = row.iter().zip(&row[1..]).zip(row.get(2..).unwrap_or_default());
    for (out, ((before, here), after)) in out[1..].iter_mut().zip(middle) {
        *out = pair(*before, *here, *after);
    }
    out[0] = pair(row[0], row[0], row[last.min(1)]);
    out[last] = pair(row[last.saturating_sub(1)], row[last], row[last]);
}

/// Sums of both rows come first, in `sums`.
#[multiversion(targets("x86_64+avx2"))]
fn both_two(near: &[u8], far: &[u8], sums: &mut [u16], out: &mut [u8]) {
    let last = near.len() - 1;
    let sums = &mut sums[..near.len()];
    for ((sum, near), far) in sums.iter_mut().zip(near).zip(far) {
        *sum = 3 * u16::from(*near) + u16::from(*far);
    }
    let (out, _) = out.as_chunks_mut::<2>();
    let pair = |before: u16, here: u16, after: u16| {
        [((3 * here + before + 8) >> 4) as u8, ((3 * here + after + 7) >> 4) as u8]
    };
    let middle = sums.iter().zip(&sums[1..]).zip(sums.get(2..).unwrap_or_default());
    for (out, ((before, here), after)) in out[1..].iter_mut().zip(middle) {
        *out = pair(*before, *here, *after);
    }
    out[0] = pair(sums[0], sums[0], sums[last.min(1)]);
    out[last] = pair(sums[last.saturating_sub(1)], sums[last], sums[last]);
}
