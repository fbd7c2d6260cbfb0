//! JPEG images, decoded to the very bytes that stock's decoder, libjpeg-turbo, gives, and encoded to the very files that
//! it writes.
//!
//! No crate decodes JPEG that way: their transforms and their interpolation of colors differ in the last bits, and models
//! that were trained on one decoder see other pixels with another. The parts are those of the standard: markers
//! (`header`), Huffman codes and the scans made of them (`huffman`, `scan`), the inverse transforms (`idct`), and
//! the way from planes to pixels (`pixels`).
//!
//! Files that end too early are the one place where pixels may differ from stock's: in the block at which the data ends,
//! and, of progressive files, wherever scans are missing, since stock smoothes such blocks.

mod encode;
mod fdct;
mod header;
mod huffman;
mod idct;
mod pixels;
mod progressive;
mod scan;

pub use encode::{EncodeOptions, encode};

use ferroflow_core::device::Threads;
use ferroflow_core::{Result, Tensor};
use header::Header;

/// Settings of a decoder.
#[derive(Clone, Copy, Debug)]
pub struct DecodeOptions {
    /// Bytes per pixel: 1 (gray), 3 (RGB), or 0 for as many as the file has.
    pub channels: usize,
    /// The factor by which the image is made smaller: 1, 2, 4 or 8.
    pub ratio: usize,
    /// Interpolates colors between the pixels that have them.
    pub fancy_upscaling: bool,
    /// Accepts files that end too early.
    pub try_recover_truncated: bool,
    /// The share of rows that must have been read for a file that ends too early to be accepted.
    pub acceptable_fraction: f32,
    /// Uses the transform with the smaller error, not the fast one.
    pub accurate_dct: bool,
    /// A window to cut out: its top, left, height and width.
    pub crop: Option<[i32; 4]>,
}

impl Default for DecodeOptions {
    fn default() -> DecodeOptions {
        DecodeOptions {
            channels: 0,
            ratio: 1,
            fancy_upscaling: true,
            try_recover_truncated: false,
            acceptable_fraction: 1.0,
            accurate_dct: false,
            crop: None,
        }
    }
}

/// A decoded image: bytes by row, pixel and channel.
#[derive(Debug)]
pub struct Image {
    /// The number of rows.
    pub height: usize,
    /// The number of pixels in a row.
    pub width: usize,
    /// The number of bytes in a pixel.
    pub channels: usize,
    /// The bytes, in a row.
    pub pixels: Tensor,
}

/// Returns height, width and number of channels, which are read from the file's header.
pub fn shape(file: &[u8]) -> Option<[usize; 3]> {
    let header = Header::read(file)?;
    Some([header.frame.height, header.frame.width, header.frame.components.len()])
}

/// Decodes a file into memory of the threads' device; nothing if it is damaged, or the window is not in the image. Fails if
/// there is no memory.
pub fn decode(file: &[u8], options: &DecodeOptions, threads: Threads<'_>) -> Result<Option<Image>> {
    match Header::read(file) {
        Some(header) => pixels::decode(file, &header, options, threads),
        None => Ok(None),
    }
}

/// Positions of coefficients in a block, in the order in which they are written; positions past the end are the last one.
const ZIGZAG: [u8; 80] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
];

/// Coefficients of a block, row by row.
type Block = [i16; 64];
