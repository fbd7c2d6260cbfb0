//! Reading of PNG files, with the conversions that stock asks libpng for.

use ferroflow_core::{Result, ensure, status};
use png::{BitDepth, ColorType, Decoder, Limits, Transformations};
use std::io::Cursor;

/// A decoded image: samples by row, pixel and channel.
#[derive(Debug)]
pub struct PngPixels {
    /// The number of rows.
    pub height: usize,
    /// The number of pixels in a row.
    pub width: usize,
    /// The number of samples in a pixel.
    pub channels: usize,
    /// The samples: 8 bits of them, or 16 if that was asked for.
    pub samples: Vec<u16>,
}

/// Deflate makes at most this many bytes of one.
const MAX_RATIO: usize = 1040;

fn decoder(file: &[u8]) -> Decoder<Cursor<&[u8]>> {
    let mut decoder = Decoder::new(Cursor::new(file));
    decoder.set_limits(Limits { bytes: MAX_RATIO * (file.len() + 64) });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND);
    decoder
}

/// Returns height, width and number of channels as the header has them, a palette counting as its colors.
pub fn png_header(file: &[u8]) -> Option<[usize; 3]> {
    let reader = decoder(file).read_info().ok()?;
    let info = reader.info();
    let channels = match info.color_type {
        ColorType::Indexed if info.trns.is_some() => 4,
        ColorType::Indexed => 3,
        other => other.samples(),
    };
    Some([info.height as usize, info.width as usize, channels])
}

/// Decodes a file to `channels` samples per pixel, 0 for as many as the file has, of 8 or 16 bits.
pub fn decode_png(file: &[u8], channels: usize, sixteen_bits: bool) -> Result<PngPixels> {
    let damaged = || status!(InvalidArgument, "Invalid PNG data, size {}", file.len());
    let reader = decoder(file).read_info();
    let mut reader =
        reader.map_err(|_| status!(InvalidArgument, "Invalid PNG. Failed to initialize decoder."))?;
    let info = reader.info();
    let (height, width) = (info.height as usize, info.width as usize);
    // A limit of libpng's.
    ensure!(
        height <= 1_000_000 && width <= 1_000_000,
        InvalidArgument,
        "Invalid PNG. Failed to initialize decoder."
    );
    ensure!(
        height < 1 << 27 && width < 1 << 27 && height * width < 1 << 29,
        InvalidArgument,
        "PNG size too large for int: {width} by {height}"
    );
    let depth = info.bit_depth as u32;
    let palette = info.color_type == ColorType::Indexed;
    let has_transparency = info.trns.is_some();
    let gamma = match (info.srgb, info.gama_chunk) {
        (Some(_), _) => 45455,
        (None, Some(gamma)) => gamma.into_scaled(),
        (None, None) => 100_000,
    };
    let declared = match (palette, has_transparency) {
        (true, true) => 4,
        (true, false) => 3,
        _ => info.color_type.samples(),
    };
    let channels = if channels == 0 { declared } else { channels };
    let size = reader.output_buffer_size().ok_or_else(damaged)?;
    // Not more memory than the file can fill.
    ensure!(size <= MAX_RATIO * (file.len() + 64), InvalidArgument, "Invalid PNG data, size {}", file.len());
    let mut bytes = vec![0; size];
    let frame = reader.next_frame(&mut bytes).map_err(|_| damaged())?;
    reader.finish().map_err(|_| damaged())?;
    let wide = frame.bit_depth == BitDepth::Sixteen;
    let read: Vec<u16> = if wide {
        bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair)).collect()
    } else {
        bytes.iter().map(|byte| u16::from(*byte)).collect()
    };
    // Stock fills in the greatest value of the file's depth, even where samples are spread to 8 bits.
    let opaque = (1u32 << depth).wrapping_sub(1) as u16;
    let in_file = frame.color_type.samples();
    let brightness = Brightness::new(gamma, wide);
    let mut samples = Vec::with_capacity(height * width * channels);
    for pixel in read.chunks_exact(in_file) {
        let (colors, alpha) = match in_file {
            2 | 4 => (&pixel[..in_file - 1], pixel[in_file - 1]),
            _ => (pixel, opaque),
        };
        match (channels < 3, colors) {
            (true, [r, g, b]) => samples.push(brightness.of([*r, *g, *b])),
            (true, _) => samples.push(colors[0]),
            (false, [gray]) => samples.extend([*gray; 3]),
            (false, _) => samples.extend_from_slice(colors),
        }
        if channels.is_multiple_of(2) {
            samples.push(alpha);
        }
    }
    match (wide, sixteen_bits) {
        (true, false) => samples.iter_mut().for_each(|sample| *sample >>= 8),
        (false, true) => samples.iter_mut().for_each(|sample| *sample |= *sample << 8),
        _ => {}
    }
    Ok(PngPixels { height, width, channels, samples })
}

/// The brightness of colors, with libpng's weights in 15 bits. Where a file says by which power its samples are to be
/// shown, it is found in light as it is, and raised to the power again.
struct Brightness {
    most: f64,
    /// Light by sample, and sample by light; nothing if they are the same.
    tables: Option<[Vec<u16>; 2]>,
}

impl Brightness {
    /// Powers are given times 100,000.
    fn new(gamma: u32, wide: bool) -> Brightness {
        let most = if wide { 65535.0 } else { 255.0 };
        let table = |power: f64| -> Vec<u16> {
            let raised = |x: u32| (most * (f64::from(x) / most).powf(power) + 0.5).floor() as u16;
            (0..=most as u32).map(raised).collect()
        };
        // Powers of about one are left alone, as in libpng.
        let significant = gamma > 0 && !(95_000..=105_000).contains(&gamma);
        let inverse = (1e10 / f64::from(gamma) + 0.5).floor() / 1e5;
        Brightness { most, tables: significant.then(|| [table(inverse), table(f64::from(gamma) / 1e5)]) }
    }

    fn of(&self, color: [u16; 3]) -> u16 {
        if color[0] == color[1] && color[1] == color[2] {
            return color[0];
        }
        let sum = |[r, g, b]: [u16; 3]| 9798 * u32::from(r) + 19235 * u32::from(g) + 3735 * u32::from(b);
        match &self.tables {
            Some([light, samples]) => {
                let light = sum(color.map(|sample| light[usize::from(sample)]));
                samples[(((light + 16384) >> 15) as usize).min(self.most as usize)]
            }
            // Only samples of 16 bits are rounded.
            None => ((sum(color) + if self.most > 255.0 { 16384 } else { 0 }) >> 15) as u16,
        }
    }
}
