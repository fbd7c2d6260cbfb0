//! Uncompressed BMP files of 8, 24 and 32 bits per pixel, which are all that stock reads.

use super::Frames;
use ferroflow_core::{Result, ensure};

/// Decodes a file to pixels with `channels` bytes; 0 for as many as the file has.
pub fn decode_bmp(file: &[u8], channels: usize) -> Result<Frames> {
    ensure!(
        file.len() >= 32,
        InvalidArgument,
        "Incomplete bmp content, requires at least 32 bytes to find the header size, width, height, and bpp, got {} bytes",
        file.len()
    );
    let number = |at: usize| i32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]]);
    let (header, width, height) = (number(10), number(18), number(22));
    let in_file = i16::from_le_bytes([file[28], file[29]]) / 8;
    ensure!(
        matches!(in_file, 1 | 3 | 4),
        InvalidArgument,
        "Number of channels inherent in the image must be 1, 3 or 4, was {in_file}"
    );
    ensure!(width > 0, InvalidArgument, "Width must be positive");
    ensure!(height != 0, InvalidArgument, "Height must be nonzero");
    ensure!(header >= 0, InvalidArgument, "header size must be nonnegative");
    ensure!(
        i64::from(width) * i64::from(height).abs() < i64::from(i32::MAX / 8),
        InvalidArgument,
        "Total possible pixel bytes must be less than 2^30"
    );
    let (in_file, header, width) = (in_file as usize, header as usize, width as usize);
    let rows = height.unsigned_abs() as usize;
    let stride = (in_file * width).div_ceil(4) * 4;
    let difference = file.len() as i64 - header as i64 - (stride * rows) as i64;
    ensure!(
        difference == 0,
        InvalidArgument,
        "Input size should match (header_size + row_size * abs_height) but they differ by {difference}"
    );
    let channels = if channels == 0 { in_file } else { channels };
    let mut pixels = Vec::with_capacity(rows * width * channels);
    for row in 0..rows {
        let row = if height < 0 { row } else { rows - 1 - row };
        for pixel in file[header + row * stride..][..in_file * width].chunks(in_file) {
            let color = match *pixel {
                [gray] => [gray, gray, gray, 255],
                [blue, green, red] => [red, green, blue, 255],
                [blue, green, red, alpha] => [red, green, blue, alpha],
                _ => [0; 4],
            };
            pixels.extend_from_slice(&color[..channels]);
        }
    }
    Ok(Frames { count: 1, height: rows, width, channels, pixels, animated: false })
}
