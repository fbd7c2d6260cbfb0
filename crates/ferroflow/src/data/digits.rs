//! The UCI handwritten digits: 1,797 labeled images of 8×8 pixels, small enough to ship with the crate.
//!
//! ```
//! use ferroflow::data::digits::Digits;
//! # fn main() -> ferroflow::Result<()> {
//! let digits = Digits::bundled()?;
//! let (training, held_out) = digits.split(360, 42)?;
//! assert_eq!((training.len(), held_out.len()), (1437, 360));
//! let (images, labels) = &training.examples()?.shuffle(1437, 1).batch(32).collect()?[0];
//! assert_eq!((images.shape().dims(), labels.shape().dims()), (&[32, 64][..], &[32][..]));
//! # Ok(())
//! # }
//! ```

use super::dataset::Dataset;
use super::stack::{Slices, Stack};
use ferroflow_core::{Code, Result, Status, Tensor, ensure, status};
use std::io::Read;
use std::path::Path;

/// Number of pixels of an image.
pub const PIXELS: usize = 64;
/// Number of classes of images.
pub const CLASSES: usize = 10;
/// Contents of the file that comes with this crate, in the form that [`Digits::parse`] reads.
pub const BUNDLED: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// Labeled images.
#[derive(Clone, Debug)]
pub struct Digits {
    /// Pixels as floats from 0 to 1, a row of 64 per image.
    pub images: Tensor,
    /// Digit of each image, as int64.
    pub labels: Tensor,
}

impl Digits {
    /// Returns the digits that come with this crate.
    pub fn bundled() -> Result<Digits> {
        Digits::parse(BUNDLED)
    }

    /// Reads a file like [`BUNDLED`].
    pub fn load(path: impl AsRef<Path>) -> Result<Digits> {
        Digits::parse(&ferroflow_io::file::read(path)?)
    }

    /// Parses gzip-compressed text with a line per image: 64 pixels from 0 to 16, and the digit.
    pub fn parse(compressed: &[u8]) -> Result<Digits> {
        let mut text = String::new();
        let unpacked = flate2::read::GzDecoder::new(compressed).read_to_string(&mut text);
        unpacked.map_err(|error| status!(DataLoss, "the digits cannot be decompressed: {error}"))?;
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let fields: Result<Vec<f32>, _> = line.split(',').map(str::parse).collect();
            let fields = fields.ok().filter(|fields| fields.len() == PIXELS + 1);
            let fields = fields.ok_or_else(|| {
                let expected = "expected 64 pixels and a digit, separated by commas";
                status!(DataLoss, "line {} of the digits is malformed: {expected}", number + 1)
            })?;
            images.extend(fields[..PIXELS].iter().map(|pixel| pixel / 16.0));
            labels.push(fields[PIXELS] as i64);
        }
        let images = Tensor::new([labels.len(), PIXELS], images)?;
        Ok(Digits { images, labels: Tensor::vector(labels) })
    }

    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.labels.elements()
    }

    /// Returns `true` if there are no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shuffles the images and splits them: those to train with, and `held_out` ones for evaluation.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` unless both parts have at least one image.
    pub fn split(&self, held_out: usize, seed: u64) -> Result<(Digits, Digits)> {
        ensure!(
            held_out > 0 && held_out < self.len(),
            InvalidArgument,
            "cannot hold out {held_out} of {} digits; choose at least 1 and fewer than all",
            self.len()
        );
        let count = self.len();
        let order = Dataset::from_fn(move || 0..count).shuffle(count, seed).collect()?;
        let (held_out, training) = order.split_at(held_out);
        Ok((self.select(training)?, self.select(held_out)?))
    }

    fn select(&self, chosen: &[usize]) -> Result<Digits> {
        let rows =
            |tensor: &Tensor| Tensor::stack(chosen.iter().map(|i| tensor.slice(*i)).collect::<Result<_>>()?);
        Ok(Digits { images: rows(&self.images)?, labels: rows(&self.labels)? })
    }

    /// Returns a dataset of pairs of image and label.
    pub fn examples(&self) -> Result<Dataset<(Tensor, Tensor)>> {
        if self.is_empty() {
            return Err(Status::new(Code::InvalidArgument, "there are no digits to make examples of"));
        }
        Dataset::from_slices((self.images.clone(), self.labels.clone()))
    }
}
