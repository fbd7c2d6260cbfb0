//! The classifiers that the demonstration trains.

use ferroflow::data::digits::CLASSES;
use ferroflow::initializers::glorot_uniform;
use ferroflow::layers::{self, Activation, Conv2d, Dense, Padding};
use ferroflow::{DType, Output, Result, Scope, losses, ops};

/// A kind of classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Model {
    /// Two dense layers
    Mlp,
    /// Two convolutions, a pool and two dense layers
    Cnn,
}

/// The inputs and outputs of a classifier.
pub(crate) struct Classifier {
    pub(crate) images: Output,
    pub(crate) labels: Output,
    pub(crate) loss: Output,
    /// The share of images whose most likely class is their label.
    pub(crate) accuracy: Output,
}

impl Model {
    /// Its name as an argument.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Model::Mlp => "mlp",
            Model::Cnn => "cnn",
        }
    }

    /// Adds the classifier to a graph. Equal seeds start equal models.
    pub(crate) fn build(self, s: &Scope) -> Result<Classifier> {
        let images = ops::Placeholder::new(DType::Float).shape([-1, 64]).name("images").build(s)?;
        let labels = ops::Placeholder::new(DType::Int64).shape([-1]).name("labels").build(s)?;
        let hidden = match self {
            Model::Mlp => dense(s, &images, 256, 1)?,
            Model::Cnn => {
                let pixels = ops::reshape(s, &images, [-1i32, 8, 8, 1])?;
                let edges = convolution(s, &pixels, 16, 2)?;
                let shapes = convolution(s, &edges, 32, 3)?;
                let pooled = layers::max_pool2d(s, &shapes, [2, 2], [2, 2], Padding::Valid)?;
                dense(s, &layers::flatten(s, &pooled)?, 64, 1)?
            }
        };
        let logits = Dense::new(CLASSES as i64)
            .kernel_initializer(glorot_uniform().seed(4))
            .name("logits")
            .build(s, &hidden)?;
        let loss = losses::sparse_softmax_cross_entropy(s, &labels, &logits)?;
        let classes = ops::ArgMax::new().build(s, &logits, 1i32)?;
        let right = ops::cast(s, ops::equal(s, &classes, &labels), DType::Float)?;
        let accuracy = ops::mean(s, &right, 0i32)?;
        Ok(Classifier { images, labels, loss, accuracy })
    }
}

fn dense(s: &Scope, x: &Output, units: i64, seed: i64) -> Result<Output> {
    let layer = Dense::new(units).activation(Activation::Relu).name("hidden");
    layer.kernel_initializer(glorot_uniform().seed(seed)).build(s, x)
}

fn convolution(s: &Scope, x: &Output, filters: i64, seed: i64) -> Result<Output> {
    let layer = Conv2d::new(filters, [3, 3]).padding(Padding::Same).activation(Activation::Relu);
    layer.kernel_initializer(glorot_uniform().seed(seed)).build(s, x)
}
