//! Image files other than JPEG: PNG, GIF, BMP and WebP, as stock reads them, and PNG as programs and summaries write it.

mod bmp;
mod gif;
mod png_reader;
mod webp;

pub use bmp::decode_bmp;
pub use gif::decode_gif;
pub use png_reader::{PngPixels, decode_png, png_header};
pub use webp::decode_webp;

use ferroflow_core::{Result, bail, ensure, status};

/// Frames of one size: bytes by frame, row, pixel and channel.
#[derive(Debug)]
pub struct Frames {
    /// The number of frames.
    pub count: usize,
    /// The number of rows of a frame.
    pub height: usize,
    /// The number of pixels in a row.
    pub width: usize,
    /// The number of bytes in a pixel.
    pub channels: usize,
    /// The bytes.
    pub pixels: Vec<u8>,
    /// Whether the file is an animation, be it of one frame.
    pub animated: bool,
}

/// Encodes an image with 1 (gray), 2 (gray and alpha), 3 (RGB) or 4 (RGBA) bytes per pixel.
pub fn encode_png(height: usize, width: usize, channels: usize, pixels: &[u8]) -> Result<Vec<u8>> {
    encode_png_with([height, width, channels], png::BitDepth::Eight, pixels, -1)
}

/// Encodes an image with 1 to 4 samples per pixel, of one byte, or of two with the higher one first. Levels of compression are those of
/// zlib, −1 being the default; files are not those that zlib would make.
pub fn encode_png_at(
    size: [usize; 3],
    sixteen_bits: bool,
    pixels: &[u8],
    compression: i64,
) -> Result<Vec<u8>> {
    let depth = if sixteen_bits { png::BitDepth::Sixteen } else { png::BitDepth::Eight };
    encode_png_with(size, depth, pixels, compression)
}

fn encode_png_with(
    [height, width, channels]: [usize; 3],
    depth: png::BitDepth,
    pixels: &[u8],
    compression: i64,
) -> Result<Vec<u8>> {
    let color = match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        4 => png::ColorType::Rgba,
        _ => bail!(InvalidArgument, "an image has 1, 2, 3 or 4 channels, not {channels}"),
    };
    let size = |dim: usize| u32::try_from(dim).ok().filter(|dim| *dim > 0);
    let (Some(rows), Some(columns)) = (size(height), size(width)) else {
        bail!(InvalidArgument, "an image of {height}×{width} pixels cannot be encoded");
    };
    ensure!(
        pixels.len() == height * width * channels * if depth == png::BitDepth::Sixteen { 2 } else { 1 },
        InvalidArgument,
        "got {} bytes for an image of {height}×{width}×{channels}",
        pixels.len()
    );
    let mut packed = Vec::new();
    let mut encoder = png::Encoder::new(&mut packed, columns, rows);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.set_compression(match compression {
        0 => png::Compression::NoCompression,
        1..=3 => png::Compression::Fast,
        9 => png::Compression::High,
        _ => png::Compression::Balanced,
    });
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(pixels)?;
        writer.finish()
    });
    written.map_err(|error| status!(Internal, "an image cannot be encoded: {error}"))?;
    Ok(packed)
}

/// Converts an image of floats to bytes, scaled as in stock's summaries: from 0 to the largest value, or symmetric
/// around 128 if some value is negative. Pixels with NaN or infinite values get `bad_color`.
pub fn scale_to_bytes(values: &[f32], channels: usize, bad_color: &[u8]) -> Vec<u8> {
    let pixels = || values.chunks_exact(channels.max(1));
    let finite = |pixel: &&[f32]| pixel.iter().all(|value| value.is_finite());
    let (mut min, mut max) = (f32::MAX, f32::MIN);
    for value in pixels().filter(finite).flatten() {
        (min, max) = (min.min(*value), max.max(*value));
    }
    let fraction = |top: f32, largest: f32| if largest < 1e-6 { 0.0 } else { top / largest };
    let (scale, offset) = if min < 0.0 {
        (fraction(127.0, min.abs().max(max.abs())), 128.0)
    } else {
        (fraction(255.0, max), 0.0)
    };
    let mut bytes = Vec::with_capacity(values.len());
    for pixel in pixels() {
        if finite(&pixel) {
            bytes.extend(pixel.iter().map(|value| (value * scale + offset) as u8));
        } else {
            bytes.extend((0..channels).map(|channel| bad_color.get(channel).copied().unwrap_or(0)));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_scaled_to_bytes() {
        assert_eq!(scale_to_bytes(&[0.0, 0.5, 1.0], 1, &[9]), [0, 127, 255]);
        assert_eq!(scale_to_bytes(&[-1.0, 0.0, 0.5], 1, &[9]), [1, 128, 191]);
        assert_eq!(scale_to_bytes(&[f32::NAN, 1.0, 2.0, 4.0], 2, &[9, 8]), [9, 8, 127, 255]);
        assert_eq!(scale_to_bytes(&[0.0], 1, &[9]), [0]);
    }

    #[test]
    fn wrong_sizes_are_errors() {
        assert!(encode_png(2, 2, 1, &[0; 4]).unwrap().starts_with(b"\x89PNG"));
        for (height, width, channels, bytes) in [(0, 2, 1, 0), (2, 2, 5, 20), (2, 2, 1, 3)] {
            assert!(encode_png(height, width, channels, &vec![0; bytes]).is_err());
        }
    }
}
