//! Pools as ops see them: window sizes, strides and padding on one side, the numeric routine on the other.

use crate::linalg::pool::Pool;
use crate::linalg::window::Grid;
use crate::support::windows::{Format, Padding, Windows, output_sizes};
use ferroflow_core::kernel::{Init, KernelCx};
use ferroflow_core::op::{Dim, ShapeCx};
use ferroflow_core::{PartialShape, Result, Shape, Tensor, bail, ensure};

/// The source of a pool's window sizes and strides.
#[derive(Clone, Debug)]
pub(crate) enum Sizes {
    /// Attributes: window sizes and strides, per dimension.
    Fixed(Vec<i64>, Vec<i64>),
    /// Two inputs, the first of which has this number.
    Inputs(usize),
}

/// Differences between the ops in what they refuse, and how stock words it.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The name of the kernel.
    pub(crate) kernel: &'static str,
    /// The name of the attribute with strides.
    pub(crate) strides: &'static str,
    /// The sentence for windows whose sizes are not positive.
    pub(crate) window: BadWindow,
    /// The sentence for windows along the channels, if the op knows none.
    pub(crate) depth: Option<&'static str>,
}

/// The sentence for windows whose sizes are not positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadWindow {
    /// All sizes, refused before any other mistake.
    All,
    /// The first bad one, refused before any other mistake.
    First,
    /// The first bad one, refused after windows over several images.
    FirstAfterBatch,
    /// Without sizes.
    Volume,
}

/// The attributes of a pool's kernel.
#[derive(Clone, Debug)]
pub(crate) struct Pooling {
    rules: &'static Rules,
    format: Format,
    sizes: Sizes,
    padding: Padding,
    centered: bool,
}

/// A pool over tensors of a known shape.
pub(crate) struct Placed {
    /// The numeric routine.
    pub(crate) pool: Pool,
    /// The result's shape.
    pub(crate) output: Shape,
    /// Neighboring channels that are pooled together.
    pub(crate) depth: usize,
}

impl Pooling {
    /// Reads a pool's attributes; `inputs` is the number of the input with window sizes, for ops that have no attribute
    /// for them. Channels must be last: stock's CPU kernels know nothing else.
    pub(crate) fn new(
        init: &Init<'_>,
        rules: &'static Rules,
        format: Format,
        inputs: Option<usize>,
    ) -> Result<Pooling> {
        if init.attrs.has("data_format") {
            let name: String = init.attr("data_format")?;
            ensure!(
                Format::parse(&name) == Some(format),
                InvalidArgument,
                "Default {} only supports {} on device type CPU",
                rules.kernel,
                if format.rank == 4 { "NHWC" } else { "NDHWC" }
            );
        }
        let sizes = match inputs {
            Some(first) => Sizes::Inputs(first),
            None => Sizes::Fixed(init.attr("ksize")?, init.attr("strides")?),
        };
        let padding = match init.attr::<String>("padding")?.as_str() {
            "SAME" => Padding::Same,
            "VALID" => Padding::Valid,
            _ => Padding::read(init, format)?,
        };
        let pooling = Pooling { rules, format, sizes, padding, centered: false };
        if let Sizes::Fixed(window, strides) = &pooling.sizes {
            pooling.check(window, strides)?;
        }
        Ok(pooling)
    }

    /// A pool whose padding may be less than none, as stock's in volumes; its gradients know nothing of it.
    pub(crate) fn centered(self) -> Pooling {
        Pooling { centered: true, ..self }
    }

    fn check(&self, window: &[i64], strides: &[i64]) -> Result<()> {
        for (what, values) in [("ksize", window), (self.rules.strides, strides)] {
            ensure!(
                values.len() == self.format.rank,
                InvalidArgument,
                "Sliding window {what} field must specify {} dimensions",
                self.format.rank
            );
        }
        if self.rules.window != BadWindow::FirstAfterBatch {
            self.check_window(window)?;
        }
        ensure!(
            window[0] == 1 && strides[0] == 1,
            Unimplemented,
            "Pooling is not yet supported on the batch dimension."
        );
        self.check_window(window)?;
        // The stride along the channels counts only where the window has a size there.
        for stride in &strides[self.space()] {
            ensure!(*stride > 0, InvalidArgument, "Stride must be > 0, but got {stride}");
        }
        Ok(())
    }

    fn check_window(&self, window: &[i64]) -> Result<()> {
        let Some(bad) = window.iter().find(|size| **size <= 0) else { return Ok(()) };
        match self.rules.window {
            BadWindow::All => {
                let sizes: Vec<String> = window.iter().map(i64::to_string).collect();
                bail!(
                    InvalidArgument,
                    "Sliding window ksize must be positive. The specified or inferred ksize is: {}",
                    sizes.join(",")
                )
            }
            BadWindow::First | BadWindow::FirstAfterBatch => {
                bail!(InvalidArgument, "ksize must be a positive int32 value, got:{bad}")
            }
            BadWindow::Volume => {
                bail!(InvalidArgument, "Sliding window ksize field must have non-negative dimensions")
            }
        }
    }

    /// The directions along which images are pooled.
    fn space(&self) -> std::ops::Range<usize> {
        self.format.first..self.format.first + self.format.directions()
    }

    /// The pool over an image of this shape.
    pub(crate) fn place(&self, cx: &KernelCx<'_>, image: &Shape) -> Result<Placed> {
        let read;
        let (window, strides) = match &self.sizes {
            Sizes::Fixed(window, strides) => (window, strides),
            Sizes::Inputs(first) => {
                read = (cx.i64s(*first)?, cx.i64s(first + 1)?);
                self.check(&read.0, &read.1)?;
                (&read.0, &read.1)
            }
        };
        let format = self.format;
        self.check_rank(image)?;
        let space = self.space();
        let (spatial, depth) = (&window[space.clone()], window[format.channel]);
        let channels = image.dim(format.channel);
        if let (Some(sentence), true) = (self.rules.depth, depth != 1) {
            bail!(Unimplemented, "{sentence}");
        }
        if depth != 1 {
            ensure!(
                spatial.iter().all(|size| *size == 1),
                Unimplemented,
                "MaxPooling supports exactly one of pooling across depth or pooling across width/height."
            );
            ensure!(
                channels as i64 % depth == 0,
                Unimplemented,
                "Depthwise max pooling requires the depth window to evenly divide the input depth"
            );
            ensure!(
                depth == strides[format.channel],
                Unimplemented,
                "Depthwise max pooling requires the depth window to equal the depth stride"
            );
        }
        if let Padding::Explicit(sizes) = &self.padding {
            let sides = sizes.iter().zip(spatial).flat_map(|((a, b), window)| [(a, window), (b, window)]);
            for ((padding, window), side) in sides.zip(["Top", "Bottom", "Left", "Right"]) {
                ensure!(
                    padding < window,
                    InvalidArgument,
                    "{side} padding {padding} needs to be smaller than the window size {window}"
                );
            }
        }
        let windows = Windows {
            strides: strides[space.clone()].to_vec(),
            dilations: vec![1; format.directions()],
            padding: self.padding.clone(),
        };
        let extents = windows.extents(&image[space], spatial)?;
        let mut grid = Grid { batch: image.dim(0), extents };
        if self.centered && matches!(self.padding, Padding::Same) {
            grid = grid.centered();
        }
        ensure!(
            grid.pixels() < u32::MAX as usize,
            InvalidArgument,
            "an image of shape {image} has too many pixels to be pooled"
        );
        let sizes = output_sizes(&grid.extents, format.directions());
        let output = Shape::new(format.dims(image[0], &sizes, channels as i64 / depth))?;
        Ok(Placed { pool: Pool { grid, channels }, output, depth: depth as usize })
    }

    fn check_rank(&self, image: &Shape) -> Result<()> {
        if self.format.rank == 5 {
            ensure!(image.rank() == 5, InvalidArgument, "tensor_in must be 5-dimensional");
        }
        ensure!(
            image.rank() == self.format.rank,
            InvalidArgument,
            "tensor_in_shape must have {} spatial dimensions. {}",
            self.format.directions(),
            image.rank()
        );
        Ok(())
    }

    /// The number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.format.rank
    }
}

/// Checks an input's shape against the one that follows from the others.
pub(crate) fn expect(what: &str, tensor: &Tensor, expected: &Shape) -> Result<()> {
    ensure!(
        tensor.shape() == expected,
        InvalidArgument,
        "Expected {what} shape to be {expected}, but got {}",
        tensor.shape()
    );
    Ok(())
}

/// The shape function of a pool with attributes for sizes: every output has the result's shape.
pub(crate) fn pool_shape(s: &mut ShapeCx<'_>, default_format: &str) -> Result<()> {
    let (window, strides): (Vec<i64>, Vec<i64>) = (s.attr("ksize")?, s.attr("strides")?);
    let shape = pooled(s, default_format, Some((&window, &strides)))?;
    for output in 0..s.num_outputs() {
        s.set(output, shape.clone());
    }
    Ok(())
}

/// The shape function of a pool that takes its sizes as inputs.
pub(crate) fn pool_shape_by_inputs(s: &mut ShapeCx<'_>) -> Result<()> {
    let sizes = s.constant_i64s(1)?.zip(s.constant_i64s(2)?);
    let shape = pooled(s, "NHWC", sizes.as_ref().map(|(window, strides)| (&window[..], &strides[..])))?;
    s.set(0, shape);
    Ok(())
}

fn pooled(s: &ShapeCx<'_>, default_format: &str, sizes: Option<(&[i64], &[i64])>) -> Result<PartialShape> {
    let name = s.attr::<String>("data_format").unwrap_or_else(|_| default_format.to_owned());
    let Some(format) = Format::parse(&name) else { return Ok(PartialShape::unknown()) };
    let input = s.rank(0, format.rank)?;
    let dims = input.dims().unwrap_or_default();
    let Some((window, strides)) = sizes else {
        return PartialShape::new(vec![-1; format.rank]);
    };
    for (what, values) in [("ksize", window), ("stride", strides)] {
        ensure!(
            values.len() == format.rank,
            InvalidArgument,
            "Sliding window {what} field must specify {} dimensions",
            format.rank
        );
    }
    let padding = match s.attr::<String>("padding")?.as_str() {
        "SAME" => Padding::Same,
        "VALID" => Padding::Valid,
        _ => Padding::read(s, format)?,
    };
    let space = format.first..format.first + format.directions();
    let windows = Windows { strides: strides[space.clone()].to_vec(), dilations: vec![1; 3], padding };
    let sizes = space.clone().enumerate();
    let sizes = sizes.map(|(direction, at)| windows.output_dim(direction, dims[at], window[at]));
    let sizes = sizes.collect::<Result<Vec<Dim>>>()?;
    let channels = match dims[format.channel] {
        -1 => -1,
        channels => channels / window[format.channel].max(1),
    };
    PartialShape::new(format.dims(dims[0], &sizes, channels))
}
