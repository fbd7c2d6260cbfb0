//! The attributes of ops that move a window over an image: strides, dilations and padding.

use crate::linalg::window::Extent;
use ferroflow_core::attr::FromAttr;
use ferroflow_core::kernel::Init;
use ferroflow_core::op::{Dim, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Code, PartialShape, Result, Shape, Status, Tensor, bail, ensure};

/// The source of attributes.
pub(crate) trait Attributes {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T>;
    fn has(&self, name: &str) -> bool;
}

impl Attributes for Init<'_> {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.attr(name)
    }

    fn has(&self, name: &str) -> bool {
        self.attrs.has(name)
    }
}

impl Attributes for ShapeCx<'_> {
    fn get<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.attr(name)
    }

    fn has(&self, name: &str) -> bool {
        self.attr::<Vec<i64>>(name).is_ok()
    }
}

/// The order of a tensor's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// The number of dimensions.
    pub rank: usize,
    /// The channels' dimension.
    pub channel: usize,
    /// The first dimension of the image.
    pub first: usize,
}

impl Format {
    /// The format that an attribute names; `None` for packed channels.
    pub(crate) fn parse(name: &str) -> Option<Format> {
        match name {
            "NHWC" => Some(Format { rank: 4, channel: 3, first: 1 }),
            "NCHW" => Some(Format { rank: 4, channel: 1, first: 2 }),
            "NDHWC" => Some(Format { rank: 5, channel: 4, first: 1 }),
            "NCDHW" => Some(Format { rank: 5, channel: 1, first: 2 }),
            _ => None,
        }
    }

    /// The directions of the image.
    pub(crate) fn directions(&self) -> usize {
        self.rank - 2
    }

    /// A shape of these dimensions, in this order.
    pub(crate) fn dims(&self, batch: Dim, space: &[Dim], channels: Dim) -> Vec<Dim> {
        let mut dims = vec![batch];
        dims.extend_from_slice(space);
        dims.insert(self.channel, channels);
        dims
    }
}

/// The zeros around an image, or the elements that a pool does not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    /// As many as it takes for one window per stride.
    Same,
    /// None.
    Valid,
    /// Before and after, per direction.
    Explicit(Vec<(i64, i64)>),
}

impl Padding {
    pub(crate) fn read(attrs: &impl Attributes, format: Format) -> Result<Padding> {
        let name: String = attrs.get("padding")?;
        let given: Vec<i64> =
            if attrs.has("explicit_paddings") { attrs.get("explicit_paddings")? } else { Vec::new() };
        if name != "EXPLICIT" {
            ensure!(
                given.is_empty(),
                InvalidArgument,
                "explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"
            );
            return Ok(if name == "SAME" { Padding::Same } else { Padding::Valid });
        }
        ensure!(
            given.len() == 2 * format.rank,
            InvalidArgument,
            "explicit_paddings attribute must contain {} values, but got: {}",
            2 * format.rank,
            given.len()
        );
        ensure!(
            given.iter().all(|size| *size >= 0),
            InvalidArgument,
            "All elements of explicit_paddings must be nonnegative"
        );
        ensure!(
            given[..2] == [0, 0] && given[2 * format.channel..][..2] == [0, 0],
            InvalidArgument,
            "Nonzero explicit padding in the batch or depth dimensions is not supported"
        );
        let directions = given[2 * format.first..].chunks(2).take(format.directions());
        Ok(Padding::Explicit(directions.map(|pair| (pair[0], pair[1])).collect()))
    }
}

/// The layout of windows in an image.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    /// Per direction.
    pub strides: Vec<i64>,
    /// Per direction.
    pub dilations: Vec<i64>,
    pub padding: Padding,
}

impl Windows {
    /// The result's size and the padding before the image, along one direction.
    pub(crate) fn output(&self, direction: usize, input: i64, filter: i64) -> Result<(i64, i64)> {
        let (stride, dilation) = (self.strides[direction], self.dilations[direction]);
        ensure!(stride > 0, InvalidArgument, "Stride must be > 0, but got {stride}");
        let effective = (filter - 1).checked_mul(dilation).and_then(|size| size.checked_add(1));
        let Some(effective) = effective else { bail!(InvalidArgument, "a filter of {filter} is too large") };
        let given = match &self.padding {
            Padding::Same => {
                let output = input.saturating_add(stride - 1) / stride;
                let needed =
                    (output - 1).saturating_mul(stride).saturating_add(effective).saturating_sub(input);
                return Ok((output, needed.max(0) / 2));
            }
            Padding::Valid => (0, 0),
            Padding::Explicit(sizes) => sizes[direction],
        };
        let padded = input.checked_add(given.0).and_then(|sum| sum.checked_add(given.1));
        let Some(padded) = padded else { bail!(InvalidArgument, "the padding is too large") };
        let output = (padded.saturating_sub(effective).saturating_add(stride)) / stride;
        ensure!(
            output >= 0,
            InvalidArgument,
            "Computed output size would be negative: {output} [input_size: {input}, effective_filter_size: \
             {effective}, stride: {stride}]"
        );
        Ok((output, given.0))
    }

    /// Like [`Windows::output`], for sizes that may not be known.
    pub(crate) fn output_dim(&self, direction: usize, input: Dim, filter: Dim) -> Result<Dim> {
        match (input, filter) {
            (UNKNOWN_DIM, _) | (_, UNKNOWN_DIM) => Ok(UNKNOWN_DIM),
            (input, filter) => Ok(self.output(direction, input, filter)?.0),
        }
    }

    /// The directions of an image of these sizes under a filter of those; the missing ones come first.
    pub(crate) fn extents(&self, input: &[i64], filter: &[i64]) -> Result<[Extent; 3]> {
        let mut extents = [Extent::NONE; 3];
        let missing = extents.len() - input.len();
        for (direction, (input, filter)) in input.iter().zip(filter).enumerate() {
            let (output, before) = self.output(direction, *input, *filter)?;
            extents[missing + direction] = Extent {
                input: *input as usize,
                filter: *filter as usize,
                output: output as usize,
                stride: self.strides[direction] as usize,
                dilation: self.dilations[direction] as usize,
                before: before as usize,
                skipped: 0,
            };
        }
        Ok(extents)
    }
}

/// The sizes of a result, without the directions that the image does not have.
pub(crate) fn output_sizes(extents: &[Extent; 3], directions: usize) -> Vec<i64> {
    extents[3 - directions..].iter().map(|extent| extent.output as i64).collect()
}

/// An attribute with a number per dimension, which must be 1 along the batch and the channels.
pub(crate) fn per_direction(
    attrs: &impl Attributes,
    name: &str,
    what: &str,
    format: Format,
) -> Result<Vec<i64>> {
    let values: Vec<i64> = attrs.get(name)?;
    ensure!(
        values.len() == format.rank,
        InvalidArgument,
        "Sliding window {what} field must specify {} dimensions",
        format.rank
    );
    if values[0] != 1 || values[format.channel] != 1 {
        // Stock has two codes for one mistake.
        let code = if format.rank == 4 { Code::Unimplemented } else { Code::InvalidArgument };
        let text = "Current implementation does not yet support";
        return Err(Status::new(code, format!("{text} {what} in the batch and depth dimensions.")));
    }
    let values = values[format.first..][..format.directions()].to_vec();
    ensure!(
        values.iter().all(|value| *value > 0),
        InvalidArgument,
        "Sliding window {what} should be larger than 0."
    );
    Ok(values)
}

/// The shape that an integer vector describes; `what` names it.
pub(crate) fn sizes_of(sizes: &Tensor, what: &str) -> Result<Shape> {
    ensure!(sizes.rank() == 1, InvalidArgument, "{what} input must be 1-dim, not {}", sizes.rank());
    let dims = sizes.to_i64s()?;
    if let Some(negative) = dims.iter().position(|dim| *dim < 0) {
        bail!(InvalidArgument, "Dimension {negative} of {what} must be >= 0");
    }
    Shape::new(dims)
}

/// A shape function: the result has the shape that an input describes.
pub(crate) fn described(s: &mut ShapeCx<'_>, input: usize, rank: usize) -> Result<()> {
    let shape = s.constant_shape(input)?;
    let shape = s.merge(&shape, &PartialShape::of_rank(rank as i64)?)?;
    s.set(0, shape);
    Ok(())
}
