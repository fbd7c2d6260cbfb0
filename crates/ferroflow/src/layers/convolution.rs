//! Convolutions and pooling over images and sequences, channels last.

use super::{Weights, last_dim, weights_builder};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{Result, ensure};
use ferroflow_ops::builders as ops;

/// Treatment of windows that reach over the border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// Uses only windows that lie within the image.
    #[default]
    Valid,
    /// Pads the image with zeros, so that its size stays the same at stride 1.
    Same,
}

impl Padding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Padding::Valid => "VALID",
            Padding::Same => "SAME",
        }
    }
}

/// A convolution over images of shape (batch, height, width, channels).
///
/// ```
/// use ferroflow::layers::{Activation, Conv2d, Padding, max_pool2d};
/// use ferroflow::{DType, Graph, ops};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let images = ops::Placeholder::new(DType::Float).shape([-1, 8, 8, 1]).build(&s)?;
/// let features = Conv2d::new(16, [3, 3]).padding(Padding::Same).activation(Activation::Relu).build(&s, &images)?;
/// let pooled = max_pool2d(&s, &features, [2, 2], [2, 2], Padding::Valid)?;
/// assert_eq!(pooled.shape().to_string(), "[?,4,4,16]");
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Conv2d {
    filters: i64,
    size: [i64; 2],
    strides: [i64; 2],
    dilations: [i64; 2],
    padding: Padding,
    weights: Weights,
}

weights_builder!(Conv2d);

impl Conv2d {
    /// Describes a layer of `filters` filters of this height and width.
    pub fn new(filters: i64, size: [i64; 2]) -> Conv2d {
        Conv2d {
            filters,
            size,
            strides: [1, 1],
            dilations: [1, 1],
            padding: Padding::Valid,
            weights: Weights::new("conv2d"),
        }
    }

    /// Sets the distances between windows; 1 by default.
    #[must_use]
    pub fn strides(mut self, strides: [i64; 2]) -> Conv2d {
        self.strides = strides;
        self
    }

    /// Sets the distances between the pixels of a window; 1 by default.
    #[must_use]
    pub fn dilations(mut self, dilations: [i64; 2]) -> Conv2d {
        self.dilations = dilations;
        self
    }

    /// Sets the padding; [`Padding::Valid`] by default.
    #[must_use]
    pub fn padding(mut self, padding: Padding) -> Conv2d {
        self.padding = padding;
        self
    }

    /// Adds the layer.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number of channels of `x` is not known.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output) -> Result<Output> {
        let inner = scope.scope(&self.weights.name);
        let channels = last_dim(x)?;
        let [height, width] = self.size;
        let kernel = self.weights.kernel(&inner, vec![height, width, channels, self.filters], x)?;
        let convolved = convolve(&inner, x, &kernel, self.strides, self.dilations, self.padding)?;
        self.weights.finish(&inner, convolved, self.filters)
    }
}

fn convolve(
    scope: &Scope,
    x: &Output,
    kernel: &Output,
    [down, right]: [i64; 2],
    [tall, wide]: [i64; 2],
    padding: Padding,
) -> Result<Output> {
    let node = scope.op("Conv2D").input(x).input(kernel).attr("strides", [1, down, right, 1]);
    node.attr("dilations", [1, tall, wide, 1]).attr("padding", padding.name()).build()?.output(0)
}

/// A convolution over sequences of shape (batch, steps, channels).
#[derive(Clone, Debug)]
pub struct Conv1d {
    filters: i64,
    size: i64,
    stride: i64,
    padding: Padding,
    weights: Weights,
}

weights_builder!(Conv1d);

impl Conv1d {
    /// Describes a layer of `filters` filters of this length.
    pub fn new(filters: i64, size: i64) -> Conv1d {
        Conv1d { filters, size, stride: 1, padding: Padding::Valid, weights: Weights::new("conv1d") }
    }

    /// Sets the distance between windows; 1 by default.
    #[must_use]
    pub fn stride(mut self, stride: i64) -> Conv1d {
        self.stride = stride;
        self
    }

    /// Sets the padding; [`Padding::Valid`] by default.
    #[must_use]
    pub fn padding(mut self, padding: Padding) -> Conv1d {
        self.padding = padding;
        self
    }

    /// Adds the layer.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `x` does not have three dimensions or the number of its channels is not known.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output) -> Result<Output> {
        let inner = scope.scope(&self.weights.name);
        let rank = x.shape().rank();
        ensure!(
            rank.is_none_or(|rank| rank == 3),
            InvalidArgument,
            "'{}' has shape {}, but a convolution over sequences needs (batch, steps, channels)",
            x.name(),
            x.shape()
        );
        let channels = last_dim(x)?;
        let kernel = self.weights.kernel(&inner, vec![self.size, channels, self.filters], x)?;
        // A sequence is an image of height one.
        let image = ops::expand_dims(&inner, x, 1)?;
        let kernel = ops::expand_dims(&inner, &kernel, 0)?;
        let convolved = convolve(&inner, &image, &kernel, [1, self.stride], [1, 1], self.padding)?;
        let convolved = ops::Squeeze::new().squeeze_dims([1]).build(&inner, &convolved)?;
        self.weights.finish(&inner, convolved, self.filters)
    }
}

fn pool(
    scope: &Scope,
    op: &str,
    x: &Output,
    [height, width]: [i64; 2],
    [down, right]: [i64; 2],
    padding: Padding,
) -> Result<Output> {
    let node = scope.op(op).input(x).attr("ksize", [1, height, width, 1]);
    node.attr("strides", [1, down, right, 1]).attr("padding", padding.name()).build()?.output(0)
}

/// Takes the maximum of each window of an image.
#[track_caller]
pub fn max_pool2d(
    scope: &Scope,
    x: &Output,
    size: [i64; 2],
    strides: [i64; 2],
    padding: Padding,
) -> Result<Output> {
    pool(&scope.scope("max_pooling2d"), "MaxPool", x, size, strides, padding)
}

/// Takes the average of each window of an image.
#[track_caller]
pub fn avg_pool2d(
    scope: &Scope,
    x: &Output,
    size: [i64; 2],
    strides: [i64; 2],
    padding: Padding,
) -> Result<Output> {
    pool(&scope.scope("average_pooling2d"), "AvgPool", x, size, strides, padding)
}
