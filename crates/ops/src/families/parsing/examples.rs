//! Ops that parse serialized `tf.Example` messages.

use crate::parsing::AttrSource;
use crate::parsing::example::{Dense, ExampleParser, Feature, Kind, strides};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure, kernels};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const OPS: &[&Op] = &[&PARSE_EXAMPLE, &PARSE_EXAMPLE_V2, &PARSE_SINGLE_EXAMPLE];

static PARSE_EXAMPLE: Op = Op {
    name: "ParseExample",
    inputs: &[
        "serialized: string",
        "names: string",
        "sparse_keys: Nsparse * string",
        "dense_keys: Ndense * string",
        "dense_defaults: Tdense",
    ],
    outputs: &[
        "sparse_indices: Nsparse * int64",
        "sparse_values: sparse_types",
        "sparse_shapes: Nsparse * int64",
        "dense_values: Tdense",
    ],
    attrs: &[
        "Nsparse: int >= 0",
        "Ndense: int >= 0",
        "sparse_types: list({float, int64, string}) >= 0",
        "Tdense: list({float, int64, string}) >= 0",
        "dense_shapes: list(shape) >= 0",
    ],
    shape: parse_example_shape,
    kernels: kernels![any parse_example_kernel],
    ..Op::PURE
};

static PARSE_EXAMPLE_V2: Op = Op {
    name: "ParseExampleV2",
    inputs: &[
        "serialized: string",
        "names: string",
        "sparse_keys: string",
        "dense_keys: string",
        "ragged_keys: string",
        "dense_defaults: Tdense",
    ],
    outputs: &[
        "sparse_indices: num_sparse * int64",
        "sparse_values: sparse_types",
        "sparse_shapes: num_sparse * int64",
        "dense_values: Tdense",
        "ragged_values: ragged_value_types",
        "ragged_row_splits: ragged_split_types",
    ],
    attrs: &[
        "Tdense: list({float, int64, string}) >= 0",
        "num_sparse: int >= 0",
        "sparse_types: list({float, int64, string}) >= 0",
        "ragged_value_types: list({float, int64, string}) >= 0",
        "ragged_split_types: list({int32, int64}) >= 0",
        "dense_shapes: list(shape) >= 0",
    ],
    shape: parse_example_v2_shape,
    kernels: kernels![any parse_example_v2_kernel],
    ..Op::PURE
};

static PARSE_SINGLE_EXAMPLE: Op = Op {
    name: "ParseSingleExample",
    inputs: &["serialized: string", "dense_defaults: Tdense"],
    outputs: &[
        "sparse_indices: num_sparse * int64",
        "sparse_values: sparse_types",
        "sparse_shapes: num_sparse * int64",
        "dense_values: Tdense",
    ],
    attrs: &[
        "num_sparse: int >= 0",
        "sparse_keys: list(string) >= 0",
        "dense_keys: list(string) >= 0",
        "sparse_types: list({float, int64, string}) >= 0",
        "Tdense: list({float, int64, string}) >= 0",
        "dense_shapes: list(shape) >= 0",
    ],
    shape: parse_single_example_shape,
    kernels: kernels![any parse_single_example_kernel],
    ..Op::PURE
};

/// Types and shapes of features, as attributes give them.
pub(crate) struct Attributes {
    sparse_types: Vec<DType>,
    dense_types: Vec<DType>,
    dense_shapes: Vec<PartialShape>,
    ragged_types: Vec<DType>,
    split_types: Vec<DType>,
}

impl Attributes {
    /// Reads and checks attributes; the numbers of keys are those that the op declares.
    pub(crate) fn new(
        from: &impl AttrSource,
        sparse: usize,
        dense: Option<usize>,
        ragged: bool,
    ) -> Result<Attributes> {
        let attributes = Attributes {
            sparse_types: from.get("sparse_types")?,
            dense_types: from.get("Tdense")?,
            dense_shapes: from.get("dense_shapes")?,
            ragged_types: if ragged { from.get("ragged_value_types")? } else { Vec::new() },
            split_types: if ragged { from.get("ragged_split_types")? } else { Vec::new() },
        };
        let types = &attributes.dense_types;
        let dense = dense.unwrap_or(types.len());
        ensure!(
            sparse == attributes.sparse_types.len(),
            InvalidArgument,
            "len(sparse_keys) != len(sparse_types)"
        );
        ensure!(dense == types.len(), InvalidArgument, "len(dense_keys) != len(dense_types)");
        ensure!(
            dense == attributes.dense_shapes.len(),
            InvalidArgument,
            "len(dense_keys) != len(dense_shapes)"
        );
        ensure!(
            attributes.ragged_types.len() == attributes.split_types.len(),
            InvalidArgument,
            "len(ragged_keys) != len(ragged_split_types)"
        );
        for (index, shape) in attributes.dense_shapes.iter().enumerate() {
            strides(index, shape)?;
        }
        Ok(attributes)
    }

    /// A parser for features with these names and defaults.
    pub(crate) fn parser(
        &self,
        sparse: &[Str],
        dense: &[Str],
        ragged: &[Str],
        defaults: &[Tensor],
    ) -> Result<ExampleParser> {
        let mut features = Vec::with_capacity(dense.len() + sparse.len() + ragged.len());
        for (index, (key, dtype)) in dense.iter().zip(&self.dense_types).enumerate() {
            let shape = self.dense_shapes[index].clone();
            let dense = Dense::new(index, shape, defaults[index].clone())?;
            features.push(Feature { key: key.clone(), dtype: *dtype, kind: Kind::Dense(dense) });
        }
        for (key, dtype) in sparse.iter().zip(&self.sparse_types) {
            features.push(Feature { key: key.clone(), dtype: *dtype, kind: Kind::Sparse });
        }
        for ((key, dtype), splits) in ragged.iter().zip(&self.ragged_types).zip(&self.split_types) {
            features.push(Feature { key: key.clone(), dtype: *dtype, kind: Kind::Ragged(*splits) });
        }
        ExampleParser::new(features)
    }

    pub(crate) fn check_defaults(&self, defaults: &[Tensor]) -> Result<()> {
        ensure!(
            defaults.len() == self.dense_types.len(),
            InvalidArgument,
            "Expected len(dense_defaults) == len(dense_keys) but got: {} vs. {}",
            defaults.len(),
            self.dense_types.len()
        );
        for (d, ((value, shape), dtype)) in
            defaults.iter().zip(&self.dense_shapes).zip(&self.dense_types).enumerate()
        {
            let (variable, _) = strides(d, shape)?;
            if variable {
                ensure!(
                    value.elements() == 1,
                    InvalidArgument,
                    "dense_shape[{d}] is a variable length shape: {shape}, therefore def_value[{d}] must contain a \
                     single element (the padding element).  But its shape is: {}",
                    value.shape()
                );
            } else if value.elements() > 0 {
                ensure!(
                    shape.admits(value.shape()),
                    InvalidArgument,
                    "def_value[{d}].shape() == {} is not compatible with dense_shapes_[{d}] == {shape}",
                    value.shape()
                );
            }
            ensure!(
                value.dtype() == *dtype,
                InvalidArgument,
                "dense_defaults[{d}].dtype() == {} != dense_types_[{d}] == {dtype}",
                value.dtype()
            );
        }
        Ok(())
    }

    /// Infers outputs; all three ops have the same ones, with and without ragged features.
    fn infer(&self, s: &mut ShapeCx<'_>, serialized: &PartialShape) -> Result<()> {
        let rank = serialized.rank().map_or(UNKNOWN_DIM, |rank| rank as i64 + 1);
        let sparse = self.sparse_types.len();
        for output in 0..sparse {
            s.output(output, [UNKNOWN_DIM, rank])?;
            s.output(sparse + output, [UNKNOWN_DIM])?;
            s.output(2 * sparse + output, [rank])?;
        }
        let dense = 3 * sparse;
        for (output, shape) in self.dense_shapes.iter().enumerate() {
            if let (Some(prefix), Some(dims)) = (serialized.dims(), shape.dims()) {
                s.output(dense + output, prefix.iter().chain(dims).copied())?;
            }
        }
        let ragged = dense + self.dense_shapes.len();
        let splits = match serialized.dims() {
            Some([records]) if *records >= 0 => records + 1,
            _ => UNKNOWN_DIM,
        };
        for output in 0..self.ragged_types.len() {
            s.output(ragged + output, [UNKNOWN_DIM])?;
            s.output(ragged + self.ragged_types.len() + output, [splits])?;
        }
        Ok(())
    }
}

fn parse_example_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let attributes = Attributes::new(s, s.attr("Nsparse")?, Some(s.attr("Ndense")?), false)?;
    let serialized = s.rank(0, 1)?;
    s.rank(1, 1)?;
    attributes.infer(s, &serialized)
}

fn parse_example_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let attributes = Attributes::new(s, s.attr("num_sparse")?, None, true)?;
    let serialized = s.rank_at_most(0, 1)?;
    s.rank_at_most(1, 1)?;
    attributes.infer(s, &serialized)
}

fn parse_single_example_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let keys = (s.attr::<Vec<Str>>("sparse_keys")?.len(), s.attr::<Vec<Str>>("dense_keys")?.len());
    let attributes = Attributes::new(s, keys.0, Some(keys.1), false)?;
    let serialized = s.rank(0, 0)?;
    attributes.infer(s, &serialized)
}

/// The parser that the last step made: keys and defaults are most often the same constants in every step.
#[derive(Default)]
struct LastParser(Mutex<Option<(Vec<Tensor>, Arc<ExampleParser>)>>);

impl LastParser {
    /// The parser that these inputs ask for.
    fn get(
        &self,
        inputs: &[Tensor],
        make: impl FnOnce() -> Result<ExampleParser>,
    ) -> Result<Arc<ExampleParser>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, parser)) = &*last
            && known.len() == inputs.len()
            && known.iter().zip(inputs).all(|(known, input)| known.shares_memory_with(input))
        {
            return Ok(parser.clone());
        }
        let parser = Arc::new(make()?);
        *last = Some((inputs.to_vec(), parser.clone()));
        Ok(parser)
    }
}

/// The inputs from `first` on.
fn inputs_from(cx: &KernelCx<'_>, first: usize) -> Result<Vec<Tensor>> {
    (first..cx.num_inputs()).map(|input| cx.input(input).cloned()).collect()
}

fn check_names(serialized: &Tensor, names: &Tensor) -> Result<()> {
    ensure!(
        names.elements() == 0 || names.shape() == serialized.shape(),
        InvalidArgument,
        "Expected names have the same shape as serialized: name.shape={}, serialized.shape={}",
        names.shape(),
        serialized.shape()
    );
    Ok(())
}

fn parse_example_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (sparse, dense): (usize, usize) = (init.attr("Nsparse")?, init.attr("Ndense")?);
    let attributes = Attributes::new(init, sparse, Some(dense), false)?;
    let last = LastParser::default();
    Kernel::sync(move |cx| {
        let (serialized, names) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            serialized.rank() == 1,
            InvalidArgument,
            "Expected serialized to be a vector, got shape: {}",
            serialized.shape()
        );
        check_names(serialized, names)?;
        let inputs = inputs_from(cx, 2)?;
        let parser = last.get(&inputs, || {
            let keys = inputs[..sparse + dense].iter().map(Tensor::to_scalar::<Str>);
            let keys = keys.collect::<Result<Vec<Str>>>()?;
            let defaults = &inputs[sparse + dense..];
            attributes.check_defaults(defaults)?;
            attributes.parser(&keys[..sparse], &keys[sparse..], &[], defaults)
        })?;
        let parsed = parser.parse_batch(cx.threads(), serialized.flat()?, names.flat()?)?;
        Ok(parsed.into_outputs().into())
    })
}

fn parse_example_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let sparse: usize = init.attr("num_sparse")?;
    let attributes = Attributes::new(init, sparse, None, true)?;
    let last = LastParser::default();
    Kernel::sync(move |cx| {
        let (serialized, names) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            serialized.rank() <= 1,
            InvalidArgument,
            "Expected serialized to be a scalar or vector, got shape: {}",
            serialized.shape()
        );
        check_names(serialized, names)?;
        let inputs = inputs_from(cx, 2)?;
        let parser = last.get(&inputs, || {
            let [sparse, dense, ragged, defaults @ ..] = inputs.as_slice() else {
                bail!(Internal, "keys are missing");
            };
            for (keys, wanted, text) in [
                (dense, attributes.dense_types.len(), "len(dense_keys) == len(dense_types)"),
                (sparse, attributes.sparse_types.len(), "len(sparse_keys) == num_sparse"),
                (ragged, attributes.ragged_types.len(), "len(ragged_keys) == len(ragged_value_types)"),
            ] {
                let given = keys.elements();
                ensure!(given == wanted, InvalidArgument, "Expected {text} but got: {given} vs. {wanted}");
            }
            attributes.check_defaults(defaults)?;
            attributes.parser(sparse.flat()?, dense.flat()?, ragged.flat()?, defaults)
        })?;
        let serialized: &[Str] = serialized.flat()?;
        let parsed = match (cx.input(0)?.rank(), serialized) {
            (0, [record]) => parser.parse_one(record)?,
            _ => parser.parse_batch(cx.threads(), serialized, names.flat()?)?,
        };
        Ok(parsed.into_outputs().into())
    })
}

fn parse_single_example_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (sparse, dense): (Vec<Str>, Vec<Str>) = (init.attr("sparse_keys")?, init.attr("dense_keys")?);
    let attributes = Attributes::new(init, sparse.len(), Some(dense.len()), false)?;
    let last = LastParser::default();
    Kernel::sync(move |cx| -> Result<Outputs> {
        let serialized = cx.input(0)?;
        let ([record], 0) = (serialized.flat::<Str>()?, serialized.rank()) else {
            bail!(InvalidArgument, "Expected serialized to be a scalar, got shape: {}", serialized.shape());
        };
        let defaults = inputs_from(cx, 1)?;
        let parser = last.get(&defaults, || {
            attributes.check_defaults(&defaults)?;
            attributes.parser(&sparse, &dense, &[], &defaults)
        })?;
        Ok(parser.parse_one(record)?.into_outputs().into())
    })
}
