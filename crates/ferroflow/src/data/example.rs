//! `tf.Example` messages: parsing into tensors as described by a specification, and encoding.

use super::Features;
use super::dataset::Dataset;
use super::stack::Stack;
use bytes::Bytes;
use ferroflow_core::{Code, DType, Result, Shape, Status, Tensor, ToShape, bail, ensure, status};
use ferroflow_proto::tensorflow::{self as tf, BytesList, FloatList, Int64List, feature};
use prost::Message;
use std::collections::BTreeMap;

/// Expected type (float, int64 or string) and shape of one feature.
#[derive(Clone, Debug)]
pub struct Feature {
    dtype: DType,
    shape: Result<Shape>,
    kind: Kind,
    default: Option<Tensor>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Fixed,
    Sequence,
    Variable,
}

impl Feature {
    fn new(dtype: DType, shape: impl ToShape, kind: Kind) -> Feature {
        Feature { dtype, shape: shape.to_shape(), kind, default: None }
    }

    /// Expects a tensor of this shape.
    pub fn fixed(dtype: DType, shape: impl ToShape) -> Feature {
        Feature::new(dtype, shape, Kind::Fixed)
    }

    /// Expects any number of tensors of this shape, which are stacked; zero of them if the feature is missing.
    pub fn sequence(dtype: DType, shape: impl ToShape) -> Feature {
        Feature::new(dtype, shape, Kind::Sequence)
    }

    /// Expects a vector of any length; empty if the feature is missing. Batches of such features are made by
    /// [`Dataset::padded_batch`] or [`sparse_rows`].
    pub fn variable(dtype: DType) -> Feature {
        Feature::new(dtype, [], Kind::Variable)
    }

    /// Sets the value of a missing feature of a fixed shape.
    pub fn or(mut self, default: Tensor) -> Feature {
        self.default = Some(default);
        self
    }

    fn check(&self, name: &str) -> Result<()> {
        let shape = self.shape.as_ref().map_err(Status::clone)?;
        ensure!(
            matches!(self.dtype, DType::Float | DType::Int64 | DType::String),
            InvalidArgument,
            "feature '{name}': {} is not a type of examples; use float, int64 or string",
            self.dtype
        );
        if let Some(default) = &self.default {
            ensure!(
                default.dtype() == self.dtype && default.shape() == shape && self.kind == Kind::Fixed,
                InvalidArgument,
                "feature '{name}': the default is a {} of shape {}, expected a {} of shape {shape}",
                default.dtype(),
                default.shape(),
                self.dtype
            );
        }
        Ok(())
    }

    fn parse(&self, name: &str, feature: Option<&tf::Feature>) -> Result<Tensor> {
        let shape = self.shape.as_ref().map_err(Status::clone)?;
        let Some(values) = feature.and_then(|feature| feature.kind.as_ref()) else {
            return match (&self.default, self.kind) {
                (Some(default), _) => Ok(default.clone()),
                (None, Kind::Fixed) => bail!(
                    InvalidArgument,
                    "Feature: {name} (data type: {}) is required but could not be found.",
                    self.dtype
                ),
                (None, _) => Ok(Tensor::zeros(self.dtype, self.whole_shape(shape, 0)?)),
            };
        };
        let flat = values_of(values);
        ensure!(
            flat.dtype() == self.dtype,
            InvalidArgument,
            "Key: {name}.  Data types don't match. Data type: {} but expected type: {}",
            flat.dtype(),
            self.dtype
        );
        let whole = self.whole_shape(shape, flat.elements())?;
        ensure!(
            whole.elements() == flat.elements(),
            InvalidArgument,
            "Key: {name}.  Number of {} values != expected.  Values size: {} but output shape: {shape}",
            self.dtype,
            flat.elements()
        );
        flat.reshaped(whole)
    }

    /// Returns the shape of a tensor with `values` values; its size differs if they do not fit.
    fn whole_shape(&self, shape: &Shape, values: usize) -> Result<Shape> {
        match self.kind {
            Kind::Fixed => Ok(shape.clone()),
            Kind::Variable => Ok(Shape::vector(values)),
            Kind::Sequence => {
                let steps = values.checked_div(shape.elements()).unwrap_or(0);
                Shape::new([steps as i64].into_iter().chain(shape.dims().iter().copied()))
            }
        }
    }
}

fn values_of(kind: &feature::Kind) -> Tensor {
    match kind {
        feature::Kind::BytesList(list) => Tensor::vector(list.value.clone()),
        feature::Kind::FloatList(list) => Tensor::vector(list.value.clone()),
        feature::Kind::Int64List(list) => Tensor::vector(list.value.clone()),
    }
}

/// Expected features of an example; other features are ignored.
///
/// ```
/// use ferroflow::data::{Dataset, ExampleSpec, Feature, Features, encode_example};
/// use ferroflow::{DType, Tensor};
/// # fn main() -> ferroflow::Result<()> {
/// let spec = ExampleSpec::new()
///     .feature("image", Feature::fixed(DType::Float, [2]))
///     .feature("label", Feature::fixed(DType::Int64, []).or(Tensor::scalar(-1i64)))
///     .feature("words", Feature::variable(DType::Int64));
/// let example = Features::from([
///     ("image".to_owned(), Tensor::vector(vec![0.5f32, 1.0])),
///     ("words".to_owned(), Tensor::vector(vec![7i64, 8, 9])),
/// ]);
/// let records = Dataset::from_vec(vec![encode_example(&example)?]);
/// let parsed = records.parse_examples(&spec)?.collect()?;
/// assert_eq!(parsed[0]["label"].to_scalar::<i64>()?, -1);
/// assert_eq!(parsed[0]["words"].flat::<i64>()?, [7, 8, 9]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ExampleSpec {
    features: BTreeMap<String, Feature>,
}

impl ExampleSpec {
    /// Creates a specification without features.
    pub fn new() -> ExampleSpec {
        ExampleSpec::default()
    }

    /// Adds an expected feature.
    pub fn feature(mut self, name: impl Into<String>, feature: Feature) -> ExampleSpec {
        self.features.insert(name.into(), feature);
        self
    }

    /// Parses one serialized `tf.Example`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the bytes are not an example, or a feature is missing or has another type or size.
    pub fn parse(&self, serialized: &[u8]) -> Result<Features> {
        let example = tf::Example::decode(serialized)
            .map_err(|error| status!(InvalidArgument, "Could not parse example input: {error}"))?;
        self.parse_features(&example.features.unwrap_or_default())
    }

    fn parse_features(&self, features: &tf::Features) -> Result<Features> {
        let parse = |(name, feature): (&String, &Feature)| {
            Ok((name.clone(), feature.parse(name, features.feature.get(name))?))
        };
        self.features.iter().map(parse).collect()
    }

    /// Parses lists of features: the steps of each are stacked, after padding to the longest step if they are variable.
    fn parse_lists(&self, lists: &tf::FeatureLists) -> Result<Features> {
        let parse = |(name, feature): (&String, &Feature)| {
            let steps = lists.feature_list.get(name).map_or(&[][..], |list| &list.feature);
            let steps = steps.iter().map(|step| feature.parse(name, Some(step)));
            let steps = steps.collect::<Result<Vec<_>>>()?;
            let stacked = if steps.is_empty() {
                let shape = feature.shape.clone()?;
                let dims = [0].into_iter().chain(shape.dims().iter().copied());
                let dims = dims.chain((feature.kind != Kind::Fixed).then_some(0));
                Tensor::zeros(feature.dtype, Shape::new(dims)?)
            } else {
                Tensor::stack_padded(steps)?
            };
            Ok((name.clone(), stacked))
        };
        self.features.iter().map(parse).collect()
    }

    fn check(&self) -> Result<()> {
        self.features.iter().try_for_each(|(name, feature)| feature.check(name))
    }
}

impl Dataset<Bytes> {
    /// Parses every element as a `tf.Example`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the specification is not valid; errors of elements are errors of the pass.
    pub fn parse_examples(&self, spec: &ExampleSpec) -> Result<Dataset<Features>> {
        spec.check()?;
        let spec = spec.clone();
        Ok(self.try_map(move |serialized| spec.parse(&serialized)))
    }

    /// Parses every element as a `tf.SequenceExample`: features of the whole sequence, and features with a value per step.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a specification is not valid; errors of elements are errors of the pass.
    pub fn parse_sequence_examples(
        &self,
        context: &ExampleSpec,
        lists: &ExampleSpec,
    ) -> Result<Dataset<(Features, Features)>> {
        context.check()?;
        lists.check()?;
        let (context, lists) = (context.clone(), lists.clone());
        Ok(self.try_map(move |serialized| {
            let example = tf::SequenceExample::decode(serialized)
                .map_err(|error| status!(InvalidArgument, "Could not parse example input: {error}"))?;
            let whole = context.parse_features(&example.context.unwrap_or_default())?;
            Ok((whole, lists.parse_lists(&example.feature_lists.unwrap_or_default())?))
        }))
    }
}

/// Serializes tensors of float, int64 or string values as the features of a `tf.Example`, which keeps no shapes.
///
/// # Errors
///
/// `InvalidArgument` for tensors of other types.
///
/// ```
/// use ferroflow::data::{ExampleSpec, Feature, Features, encode_example};
/// use ferroflow::{DType, Tensor};
///
/// let features = Features::from([
///     ("x".to_owned(), Tensor::vector(vec![0.5f32, 1.5])),
///     ("label".to_owned(), Tensor::scalar(3i64)),
/// ]);
/// let serialized = encode_example(&features)?;
/// let spec = ExampleSpec::new()
///     .feature("x", Feature::fixed(DType::Float, [2]))
///     .feature("label", Feature::fixed(DType::Int64, []));
/// assert_eq!(spec.parse(&serialized)?["label"].to_scalar::<i64>()?, 3);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn encode_example(features: &Features) -> Result<Bytes> {
    let encode = |(name, tensor): (&String, &Tensor)| {
        let kind = match tensor.dtype() {
            DType::Float => feature::Kind::FloatList(FloatList { value: tensor.flat::<f32>()?.to_vec() }),
            DType::Int64 => feature::Kind::Int64List(Int64List { value: tensor.flat::<i64>()?.to_vec() }),
            DType::String => feature::Kind::BytesList(BytesList { value: tensor.flat::<Bytes>()?.to_vec() }),
            other => bail!(
                InvalidArgument,
                "feature '{name}': {other} is not a type of examples; use float, int64 or string"
            ),
        };
        Ok((name.clone(), tf::Feature { kind: Some(kind) }))
    };
    let feature = features.iter().map(encode).collect::<Result<_>>()?;
    Ok(tf::Example { features: Some(tf::Features { feature }) }.encode_to_vec().into())
}

/// Vectors of different lengths as one sparse matrix.
#[derive(Clone, Debug)]
pub struct SparseRows {
    /// Row and column of each value: an int64 matrix with two columns.
    pub indices: Tensor,
    /// All values, row by row.
    pub values: Tensor,
    /// Number of rows, and length of the longest.
    pub dense_shape: Tensor,
}

/// Joins vectors, such as the values of a variable feature, into one sparse matrix.
///
/// # Errors
///
/// `InvalidArgument` if there are no rows, or one is not a vector.
///
/// ```
/// use ferroflow::{Tensor, data::sparse_rows};
///
/// let rows = sparse_rows(&[Tensor::vector(vec![7i64, 8]), Tensor::vector(vec![9i64])])?;
/// assert_eq!(rows.indices.flat::<i64>()?, [0, 0, 0, 1, 1, 0]);
/// assert_eq!(rows.values.flat::<i64>()?, [7, 8, 9]);
/// assert_eq!(rows.dense_shape.flat::<i64>()?, [2, 2]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn sparse_rows(rows: &[Tensor]) -> Result<SparseRows> {
    let (mut indices, mut longest) = (Vec::new(), 0);
    for (number, row) in rows.iter().enumerate() {
        ensure!(
            row.rank() == 1,
            InvalidArgument,
            "row {number} has shape {}, but rows must be vectors",
            row.shape()
        );
        longest = longest.max(row.elements());
        (0..row.elements()).for_each(|column| indices.extend([number as i64, column as i64]));
    }
    let Some(first) = rows.first() else {
        return Err(Status::new(Code::InvalidArgument, "cannot join rows: there are none"));
    };
    // Scalars of each row stack to the flat values.
    let scalars = |row: &Tensor| -> Result<Vec<Tensor>> {
        (0..row.elements()).map(|i| super::Slices::slice(row, i)).collect()
    };
    let mut values = Vec::new();
    for row in rows {
        values.extend(scalars(row)?);
    }
    let values = if values.is_empty() { Tensor::zeros(first.dtype(), [0]) } else { Tensor::stack(values)? };
    Ok(SparseRows {
        indices: Tensor::new([indices.len() / 2, 2], indices)?,
        values,
        dense_shape: Tensor::vector(vec![rows.len() as i64, longest as i64]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(spec: &ExampleSpec, features: &Features) -> String {
        spec.parse(&encode_example(features).unwrap()).unwrap_err().message().to_owned()
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let spec = ExampleSpec::new().feature("x", Feature::fixed(DType::Float, [2]));
        assert!(message(&spec, &Features::new()).contains("x (data type: float) is required"));
        let integers = Features::from([("x".to_owned(), Tensor::vector(vec![1i64, 2]))]);
        assert!(message(&spec, &integers).contains("Data type: int64 but expected type: float"));
        let three = Features::from([("x".to_owned(), Tensor::vector(vec![1f32, 2.0, 3.0]))]);
        assert!(message(&spec, &three).contains("Values size: 3 but output shape: [2]"));
        assert_eq!(spec.parse(&[255, 255]).unwrap_err().code(), Code::InvalidArgument);
        let wrong = ExampleSpec::new().feature("x", Feature::fixed(DType::Int32, []));
        let records = Dataset::from_vec(vec![Bytes::new()]);
        assert_eq!(records.parse_examples(&wrong).err().unwrap().code(), Code::InvalidArgument);
    }

    #[test]
    fn sequences_and_rows_have_any_length() {
        let spec = ExampleSpec::new().feature("x", Feature::sequence(DType::Float, [2]));
        let four = Features::from([("x".to_owned(), Tensor::vector(vec![1f32, 2.0, 3.0, 4.0]))]);
        assert_eq!(spec.parse(&encode_example(&four).unwrap()).unwrap()["x"].shape().dims(), [2, 2]);
        let rows = sparse_rows(&[Tensor::vector(vec![5i64]), Tensor::vector(vec![6i64, 7])]).unwrap();
        assert_eq!(rows.indices.flat::<i64>().unwrap(), [0, 0, 1, 0, 1, 1]);
        assert_eq!(rows.values.flat::<i64>().unwrap(), [5, 6, 7]);
        assert_eq!(rows.dense_shape.flat::<i64>().unwrap(), [2, 2]);
    }
}
