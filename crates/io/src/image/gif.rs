//! GIF files: frames of palette colors, each drawn over the one before.

use super::Frames;
use ferroflow_core::{Result, bail, status};
use gif::{ColorOutput, DecodeOptions, MemoryLimit};
use std::num::NonZeroU64;

/// One byte of LZW codes stands for at most this many pixels, about.
const MAX_PIXELS_PER_BYTE: u64 = 4096;

/// Decodes a file to RGB; only the first frame unless `all_frames`. Frames have the size of the largest one.
pub fn decode_gif(file: &[u8], all_frames: bool) -> Result<Frames> {
    let failed =
        |message: String| status!(InvalidArgument, "Invalid GIF data (size {}), {message}", file.len());
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    let limit = MAX_PIXELS_PER_BYTE * (file.len() as u64 + 16);
    options.set_memory_limit(MemoryLimit::Bytes(NonZeroU64::new(limit).unwrap_or(NonZeroU64::MIN)));
    let decoder = options.read_info(file);
    let mut decoder = decoder.map_err(|error| failed(format!("failed to open gif file: {error}")))?;
    let mut frames = Vec::new();
    loop {
        match decoder.read_next_frame() {
            Ok(Some(frame)) => frames.push(frame.clone()),
            Ok(None) => break,
            // What was read before the damage is shown.
            Err(_) if !frames.is_empty() => break,
            Err(error) => return Err(failed(format!("failed to slurp gif file: {error}"))),
        }
    }
    if frames.is_empty() {
        return Err(failed("gif file does not contain any image".to_owned()));
    }
    let height = frames.iter().map(|frame| usize::from(frame.height)).max().unwrap_or(0);
    let width = frames.iter().map(|frame| usize::from(frame.width)).max().unwrap_or(0);
    if !all_frames {
        frames.truncate(1);
    }
    let size = height * width * 3;
    if size.saturating_mul(frames.len()) > i32::MAX as usize {
        bail!(InvalidArgument, "{} frames of {height}×{width} pixels are too many", frames.len());
    }
    let mut pixels: Vec<u8> = Vec::with_capacity(size * frames.len());
    for (number, frame) in frames.iter().enumerate() {
        match number {
            0 => pixels.resize(size, 0),
            _ => pixels.extend_from_within((number - 1) * size..),
        }
        let canvas = &mut pixels[number * size..];
        let palette = frame.palette.as_deref().or(decoder.global_palette());
        let Some(palette) = palette else {
            return Err(failed(format!("missing color map for frame {number}")));
        };
        let (top, left) = (usize::from(frame.top), usize::from(frame.left));
        for (row, indices) in frame.buffer.chunks(usize::from(frame.width).max(1)).enumerate() {
            for (column, index) in indices.iter().enumerate() {
                let (y, x) = (top + row, left + column);
                if y >= height || x >= width || frame.transparent == Some(*index) {
                    continue;
                }
                let Some(color) = palette.get(usize::from(*index) * 3..usize::from(*index) * 3 + 3) else {
                    let colors = palette.len() / 3;
                    return Err(failed(format!(
                        "found color index {index} outside of color map range {colors}"
                    )));
                };
                canvas[(y * width + x) * 3..][..3].copy_from_slice(color);
            }
        }
    }
    Ok(Frames { count: frames.len(), height, width, channels: 3, pixels, animated: true })
}
