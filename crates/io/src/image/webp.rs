//! WebP files, still and animated.

use super::Frames;
use ferroflow_core::{Result, ensure, status};
use image_webp::WebPDecoder;
use std::io::Cursor;

/// Pixels that a file may announce per byte it has; a lossless file of one color has very many.
const MAX_PIXELS_PER_BYTE: usize = 1 << 16;

/// Decodes a file to RGB, or RGBA if it has transparency; of animations only the first frame unless `all_frames`.
pub fn decode_webp(file: &[u8], channels: usize, all_frames: bool) -> Result<Frames> {
    let decoder = WebPDecoder::new(Cursor::new(file));
    let mut decoder = decoder.map_err(|_| status!(InvalidArgument, "Failed to decode WebP header."))?;
    let (width, height) = decoder.dimensions();
    let (width, height) = (width as usize, height as usize);
    let in_file = if decoder.has_alpha() { 4 } else { 3 };
    ensure!(
        channels == 0 || channels == in_file,
        InvalidArgument,
        "Number of channels requested does not match input"
    );
    ensure!(width > 0 && height > 0, InvalidArgument, "Got negative width or height.");
    ensure!(
        height * width <= file.len().saturating_mul(MAX_PIXELS_PER_BYTE),
        InvalidArgument,
        "Failed to decode WebP image."
    );
    decoder.set_memory_limit(4 * height * width + (16 << 20));
    if !decoder.is_animated() {
        let mut pixels = vec![0; height * width * in_file];
        let read = decoder.read_image(&mut pixels);
        read.map_err(|_| status!(InvalidArgument, "Failed to decode WebP image."))?;
        return Ok(Frames { count: 1, height, width, channels: in_file, pixels, animated: false });
    }
    ensure!(channels == 0 || channels == 4, InvalidArgument, "WebP Animation must be 4 channel RGBA");
    let count = if all_frames { decoder.num_frames() as usize } else { 1 };
    let mut pixels = Vec::new();
    let mut frame = vec![0; height * width * in_file];
    for number in 0..count {
        let read = decoder.read_frame(&mut frame);
        read.map_err(|_| match number {
            0 => status!(InvalidArgument, "Failed to decode WebP Animation: failed to decode WebP Animation"),
            _ => {
                status!(InvalidArgument, "Failed to decode WebP Animation: failed to decode frame: {number}")
            }
        })?;
        match in_file {
            4 => pixels.extend_from_slice(&frame),
            _ => pixels.extend(frame.as_chunks::<3>().0.iter().flat_map(|[r, g, b]| [*r, *g, *b, 255])),
        }
    }
    Ok(Frames { count, height, width, channels: 4, pixels, animated: true })
}
