//! The handwritten digits of the UCI repository: 1,797 images of 8×8 pixels with their labels, small enough to ship.
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

/// Pixels of an image.
pub const PIXELS: usize = 64;
/// Classes of images.
pub const CLASSES: usize = 10;

/// Images and what they show.
#[derive(Clone, Debug)]
pub struct Digits {
    /// Floats from 0 to 1, a row of 64 per image.
    pub images: Tensor,
    /// The digit in each image, as int64.
    pub labels: Tensor,
}

impl Digits {
    /// The digits that come with this crate.
    pub fn bundled() -> Result<Digits> {
        Digits::parse(include_bytes!("../../../../examples/data/digits.csv.gz"))
    }

    /// Reads `digits.csv.gz`.
    pub fn load(path: impl AsRef<Path>) -> Result<Digits> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| ferroflow_io::file::status(path, &error))?;
        Digits::parse(&bytes)
    }

    /// Reads the contents of `digits.csv.gz`: a line per image with 64 pixels from 0 to 16 and the digit.
    pub fn parse(compressed: &[u8]) -> Result<Digits> {
        let mut text = String::new();
        let unpacked = flate2::read::GzDecoder::new(compressed).read_to_string(&mut text);
        unpacked.map_err(|error| status!(DataLoss, "the digits cannot be unpacked: {error}"))?;
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let fields: Result<Vec<f32>, _> = line.split(',').map(str::parse).collect();
            let fields = fields.ok().filter(|fields| fields.len() == PIXELS + 1);
            let fields = fields.ok_or_else(|| status!(DataLoss, "line {} is not a digit", number + 1))?;
            images.extend(fields[..PIXELS].iter().map(|pixel| pixel / 16.0));
            labels.push(fields[PIXELS] as i64);
        }
        let images = Tensor::new([labels.len(), PIXELS], images)?;
        Ok(Digits { images, labels: Tensor::vector(labels) })
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.elements()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shuffles the images and sets some aside: those to train with, and `held_out` ones to judge with.
    pub fn split(&self, held_out: usize, seed: u64) -> Result<(Digits, Digits)> {
        ensure!(
            held_out > 0 && held_out < self.len(),
            InvalidArgument,
            "cannot hold out {held_out} of {} digits",
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

    /// The pairs of image and label.
    pub fn examples(&self) -> Result<Dataset<(Tensor, Tensor)>> {
        if self.is_empty() {
            return Err(Status::new(Code::InvalidArgument, "there are no digits"));
        }
        Dataset::from_slices((self.images.clone(), self.labels.clone()))
    }
}
