//! PNG encoding of images in summaries.

use ferroflow_core::{Result, bail, ensure, status};

/// Encodes an image with 1 (gray), 2 (gray and alpha), 3 (RGB) or 4 (RGBA) bytes per pixel.
pub fn encode_png(height: usize, width: usize, channels: usize, pixels: &[u8]) -> Result<Vec<u8>> {
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
        pixels.len() == height * width * channels,
        InvalidArgument,
        "got {} bytes for an image of {height}×{width}×{channels}",
        pixels.len()
    );
    let mut packed = Vec::new();
    let mut encoder = png::Encoder::new(&mut packed, columns, rows);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
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
