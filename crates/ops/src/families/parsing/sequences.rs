//! Ops that parse serialized `tf.SequenceExample` messages.

use crate::parsing::AttrSource;
use crate::parsing::sequence::{Form, SequenceParser, Wanted};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels, status};
use ferroflow_proto::tensorflow::{self as tf, SequenceExample, feature};
use prost::Message;

pub(crate) const OPS: &[&Op] =
    &[&PARSE_SEQUENCE_EXAMPLE, &PARSE_SEQUENCE_EXAMPLE_V2, &PARSE_SINGLE_SEQUENCE_EXAMPLE];

static PARSE_SEQUENCE_EXAMPLE: Op = Op {
    name: "ParseSequenceExample",
    inputs: &["serialized: string", "debug_name: string", "context_dense_defaults: Tcontext_dense"],
    outputs: &[
        "context_sparse_indices: Ncontext_sparse * int64",
        "context_sparse_values: context_sparse_types",
        "context_sparse_shapes: Ncontext_sparse * int64",
        "context_dense_values: Tcontext_dense",
        "feature_list_sparse_indices: Nfeature_list_sparse * int64",
        "feature_list_sparse_values: feature_list_sparse_types",
        "feature_list_sparse_shapes: Nfeature_list_sparse * int64",
        "feature_list_dense_values: feature_list_dense_types",
        "feature_list_dense_lengths: Nfeature_list_dense * int64",
    ],
    attrs: &[
        "feature_list_dense_missing_assumed_empty: list(string) >= 0",
        "context_sparse_keys: list(string) >= 0",
        "context_dense_keys: list(string) >= 0",
        "feature_list_sparse_keys: list(string) >= 0",
        "feature_list_dense_keys: list(string) >= 0",
        "Ncontext_sparse: int >= 0 = 0",
        "Ncontext_dense: int >= 0 = 0",
        "Nfeature_list_sparse: int >= 0 = 0",
        "Nfeature_list_dense: int >= 0 = 0",
        "context_sparse_types: list({float, int64, string}) >= 0 = []",
        "Tcontext_dense: list({float, int64, string}) >= 0 = []",
        "feature_list_dense_types: list({float, int64, string}) >= 0 = []",
        "context_dense_shapes: list(shape) >= 0 = []",
        "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
        "feature_list_dense_shapes: list(shape) >= 0 = []",
    ],
    shape: sequence_shape,
    kernels: kernels![any sequence_kernel],
    ..Op::PURE
};

static PARSE_SEQUENCE_EXAMPLE_V2: Op = Op {
    name: "ParseSequenceExampleV2",
    inputs: &[
        "serialized: string",
        "debug_name: string",
        "context_sparse_keys: string",
        "context_dense_keys: string",
        "context_ragged_keys: string",
        "feature_list_sparse_keys: string",
        "feature_list_dense_keys: string",
        "feature_list_ragged_keys: string",
        "feature_list_dense_missing_assumed_empty: bool",
        "context_dense_defaults: Tcontext_dense",
    ],
    outputs: &[
        "context_sparse_indices: Ncontext_sparse * int64",
        "context_sparse_values: context_sparse_types",
        "context_sparse_shapes: Ncontext_sparse * int64",
        "context_dense_values: Tcontext_dense",
        "context_ragged_values: context_ragged_value_types",
        "context_ragged_row_splits: context_ragged_split_types",
        "feature_list_sparse_indices: Nfeature_list_sparse * int64",
        "feature_list_sparse_values: feature_list_sparse_types",
        "feature_list_sparse_shapes: Nfeature_list_sparse * int64",
        "feature_list_dense_values: feature_list_dense_types",
        "feature_list_dense_lengths: Nfeature_list_dense * int64",
        "feature_list_ragged_values: feature_list_ragged_value_types",
        "feature_list_ragged_outer_splits: feature_list_ragged_split_types",
        "feature_list_ragged_inner_splits: feature_list_ragged_split_types",
    ],
    attrs: &[
        "Ncontext_sparse: int >= 0 = 0",
        "Tcontext_dense: list({float, int64, string}) >= 0 = []",
        "context_sparse_types: list({float, int64, string}) >= 0 = []",
        "context_ragged_value_types: list({float, int64, string}) >= 0 = []",
        "context_ragged_split_types: list({int32, int64}) >= 0 = []",
        "context_dense_shapes: list(shape) >= 0 = []",
        "Nfeature_list_sparse: int >= 0 = 0",
        "Nfeature_list_dense: int >= 0 = 0",
        "feature_list_dense_types: list({float, int64, string}) >= 0 = []",
        "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
        "feature_list_ragged_value_types: list({float, int64, string}) >= 0 = []",
        "feature_list_ragged_split_types: list({int32, int64}) >= 0 = []",
        "feature_list_dense_shapes: list(shape) >= 0 = []",
    ],
    shape: sequence_v2_shape,
    kernels: kernels![any sequence_v2_kernel],
    ..Op::PURE
};

static PARSE_SINGLE_SEQUENCE_EXAMPLE: Op = Op {
    name: "ParseSingleSequenceExample",
    inputs: &[
        "serialized: string",
        "feature_list_dense_missing_assumed_empty: string",
        "context_sparse_keys: Ncontext_sparse * string",
        "context_dense_keys: Ncontext_dense * string",
        "feature_list_sparse_keys: Nfeature_list_sparse * string",
        "feature_list_dense_keys: Nfeature_list_dense * string",
        "context_dense_defaults: Tcontext_dense",
        "debug_name: string",
    ],
    outputs: &[
        "context_sparse_indices: Ncontext_sparse * int64",
        "context_sparse_values: context_sparse_types",
        "context_sparse_shapes: Ncontext_sparse * int64",
        "context_dense_values: Tcontext_dense",
        "feature_list_sparse_indices: Nfeature_list_sparse * int64",
        "feature_list_sparse_values: feature_list_sparse_types",
        "feature_list_sparse_shapes: Nfeature_list_sparse * int64",
        "feature_list_dense_values: feature_list_dense_types",
    ],
    attrs: &[
        "Ncontext_sparse: int >= 0 = 0",
        "Ncontext_dense: int >= 0 = 0",
        "Nfeature_list_sparse: int >= 0 = 0",
        "Nfeature_list_dense: int >= 0 = 0",
        "context_sparse_types: list({float, int64, string}) >= 0 = []",
        "Tcontext_dense: list({float, int64, string}) >= 0 = []",
        "feature_list_dense_types: list({float, int64, string}) >= 0 = []",
        "context_dense_shapes: list(shape) >= 0 = []",
        "feature_list_sparse_types: list({float, int64, string}) >= 0 = []",
        "feature_list_dense_shapes: list(shape) >= 0 = []",
    ],
    shape: single_shape,
    kernels: kernels![any single_kernel],
    ..Op::PURE
};

/// Types and shapes of wanted features, as attributes give them.
struct Attributes {
    context: Group,
    lists: Group,
}

struct Group {
    sparse: Vec<DType>,
    dense: Vec<DType>,
    shapes: Vec<PartialShape>,
    ragged: Vec<DType>,
    splits: Vec<DType>,
}

impl Attributes {
    fn new(attrs: &impl AttrSource, op: &str) -> Result<Attributes> {
        // The first generation has no ragged features.
        let types = |name: &str| Ok(attrs.get::<Vec<DType>>(name).unwrap_or_default());
        let attributes = Attributes {
            context: Group {
                sparse: types("context_sparse_types")?,
                dense: types("Tcontext_dense")?,
                shapes: attrs.get("context_dense_shapes")?,
                ragged: types("context_ragged_value_types")?,
                splits: types("context_ragged_split_types")?,
            },
            lists: Group {
                sparse: types("feature_list_sparse_types")?,
                dense: types("feature_list_dense_types")?,
                shapes: attrs.get("feature_list_dense_shapes")?,
                ragged: types("feature_list_ragged_value_types")?,
                splits: types("feature_list_ragged_split_types")?,
            },
        };
        let single = op == "ParseSingleSequenceExample";
        attributes.context.check(attrs, "context", single)?;
        attributes.lists.check(attrs, "feature_list", single)?;
        Ok(attributes)
    }
}

impl Group {
    fn check(&self, attrs: &impl AttrSource, group: &str, single: bool) -> Result<()> {
        // Numbers that are not declared follow from the types.
        let count = |kind: &str, types: &[DType]| {
            attrs.get::<usize>(&format!("N{group}_{kind}")).unwrap_or(types.len())
        };
        let (sparse, dense) = (count("sparse", &self.sparse), count("dense", &self.dense));
        if single {
            let (types, shapes) = (self.dense.len(), self.shapes.len());
            ensure!(
                sparse == self.sparse.len(),
                InvalidArgument,
                "len({group}_sparse_keys) != len({group}_sparse_types)"
            );
            ensure!(dense == types, InvalidArgument, "len({group}_dense_keys) != len({group}_dense_types)");
            ensure!(dense == shapes, InvalidArgument, "len({group}_dense_keys) != len({group}_dense_shapes)");
            return Ok(());
        }
        for (kind, wanted) in [("sparse", sparse), ("dense", dense)] {
            let keys = format!("{group}_{kind}_keys");
            if let Ok(given) = attrs.get::<Vec<Str>>(&keys) {
                let given = given.len();
                ensure!(
                    given == wanted,
                    InvalidArgument,
                    "num_{group}_{kind} ({wanted}) must match the size of {keys} ({given})"
                );
            }
        }
        ensure!(
            sparse == self.sparse.len(),
            InvalidArgument,
            "num_{group}_sparse ({sparse}) must match the size of {group}_sparse_types ({})",
            self.sparse.len()
        );
        ensure!(
            dense == self.dense.len() && dense == self.shapes.len(),
            InvalidArgument,
            "num_{group}_dense ({dense}) must match the size of {group}_dense_types ({}) and {group}_dense_shapes ({})",
            self.dense.len(),
            self.shapes.len()
        );
        ensure!(
            self.ragged.len() == self.splits.len(),
            InvalidArgument,
            "num_{group}_ragged ({}) must match the size of {group}_ragged_value_types ({}) and \
             {group}_ragged_split_types ({})",
            self.ragged.len(),
            self.ragged.len(),
            self.splits.len()
        );
        Ok(())
    }

    /// Infers the sparse and dense outputs of a group from number `first` on; returns the number after the last.
    fn infer(&self, s: &mut ShapeCx<'_>, first: usize, records: &PartialShape, list: bool) -> Result<usize> {
        let rank = records.rank().map_or(UNKNOWN_DIM, |rank| rank as i64 + 1 + list as i64);
        let sparse = self.sparse.len();
        for output in first..first + sparse {
            s.output(output, [UNKNOWN_DIM, rank])?;
            s.output(sparse + output, [UNKNOWN_DIM])?;
            s.output(2 * sparse + output, [rank])?;
        }
        let mut next = first + 3 * sparse;
        let step = list.then_some(UNKNOWN_DIM);
        for shape in &self.shapes {
            if let (Some(records), Some(dims)) = (records.dims(), shape.dims()) {
                s.output(next, records.iter().copied().chain(step).chain(dims.iter().copied()))?;
            }
            next += 1;
        }
        Ok(next)
    }

    fn infer_ragged(
        &self,
        s: &mut ShapeCx<'_>,
        first: usize,
        records: &PartialShape,
        list: bool,
    ) -> Result<()> {
        let splits = match records.dims() {
            Some([records]) if *records >= 0 => records + 1,
            _ => UNKNOWN_DIM,
        };
        let count = self.ragged.len();
        for output in first..first + count {
            s.output(output, [UNKNOWN_DIM])?;
            s.output(count + output, [splits])?;
            if list {
                s.output(2 * count + output, [UNKNOWN_DIM])?;
            }
        }
        Ok(())
    }

    /// The shape of a dense feature, which must be whole.
    fn shape(&self, index: usize) -> Result<Shape> {
        let shape = &self.shapes[index];
        let whole = shape.to_shape();
        whole.ok_or_else(|| status!(InvalidArgument, "Shape {shape} is not fully defined"))
    }
}

fn sequence_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let attributes = Attributes::new(s, "ParseSequenceExample")?;
    let records = s.rank(0, 1)?;
    s.rank(1, 1)?;
    infer(s, &attributes, &records, true)
}

fn sequence_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let attributes = Attributes::new(s, "ParseSequenceExampleV2")?;
    let records = s.rank_at_most(0, 1)?;
    s.rank_at_most(1, 1)?;
    infer(s, &attributes, &records, true)
}

fn single_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let attributes = Attributes::new(s, "ParseSingleSequenceExample")?;
    let records = s.rank(0, 0)?;
    s.rank(1, 1)?;
    infer(s, &attributes, &records, false)
}

fn infer(s: &mut ShapeCx<'_>, attributes: &Attributes, records: &PartialShape, lengths: bool) -> Result<()> {
    let (context, lists) = (&attributes.context, &attributes.lists);
    let next = context.infer(s, 0, records, false)?;
    context.infer_ragged(s, next, records, false)?;
    let mut next = lists.infer(s, next + 2 * context.ragged.len(), records, true)?;
    if lengths {
        for _ in &lists.shapes {
            s.set(next, records.clone());
            next += 1;
        }
    }
    lists.infer_ragged(s, next, records, true)
}

/// Names of wanted features, by group.
#[derive(Default)]
struct Keys {
    sparse: Vec<Str>,
    dense: Vec<Str>,
    ragged: Vec<Str>,
}

fn wanted(
    group: &Group,
    keys: &Keys,
    dense: &mut dyn FnMut(usize, &Str) -> Result<Form>,
) -> Result<Vec<Wanted>> {
    let mut wanted = Vec::new();
    for (key, dtype) in keys.sparse.iter().zip(&group.sparse) {
        wanted.push(Wanted { key: key.clone(), dtype: *dtype, form: Form::Sparse });
    }
    for ((key, dtype), splits) in keys.ragged.iter().zip(&group.ragged).zip(&group.splits) {
        wanted.push(Wanted { key: key.clone(), dtype: *dtype, form: Form::Ragged(*splits) });
    }
    for (index, (key, dtype)) in keys.dense.iter().zip(&group.dense).enumerate() {
        wanted.push(Wanted { key: key.clone(), dtype: *dtype, form: dense(index, key)? });
    }
    Ok(wanted)
}

/// Parses the first input, whose names are the second; defaults are the inputs from `defaults` on.
fn parse(
    cx: &KernelCx<'_>,
    attributes: &Attributes,
    defaults: usize,
    context: &Keys,
    lists: &Keys,
    may_miss: &dyn Fn(usize, &Str) -> bool,
) -> Result<Vec<Tensor>> {
    let (serialized, names) = (cx.input(0)?, cx.input(1)?);
    ensure!(
        serialized.rank() <= 1,
        InvalidArgument,
        "Expected serialized to be a scalar or vector, got shape: {}",
        serialized.shape()
    );
    let context = wanted(&attributes.context, context, &mut |index, _| {
        let (shape, default) = (attributes.context.shape(index)?, cx.input(defaults + index)?);
        if default.elements() > 0 {
            ensure!(
                *default.shape() == shape,
                InvalidArgument,
                "default_value[{index}].shape() == {} != context_dense_shapes[{index}] == {shape}",
                default.shape()
            );
        }
        Ok(Form::Dense { shape, default: default.clone(), may_miss: false })
    })?;
    let lists = wanted(&attributes.lists, lists, &mut |index, key| {
        let (shape, may_miss) = (attributes.lists.shape(index)?, may_miss(index, key));
        Ok(Form::Dense { shape, default: Tensor::zeros(DType::Float, [0]), may_miss })
    })?;
    let parser = SequenceParser::new(context, lists)?;
    Ok(parser.parse(serialized.flat()?, names.flat()?, serialized.rank() == 1)?.into_outputs())
}

fn sequence_kernel(init: &Init<'_>) -> Result<Kernel> {
    let attributes = Attributes::new(init, init.op)?;
    let keys = |group: &str| -> Result<Keys> {
        let (sparse, dense) = (format!("{group}_sparse_keys"), format!("{group}_dense_keys"));
        Ok(Keys { sparse: init.attr(&sparse)?, dense: init.attr(&dense)?, ragged: Vec::new() })
    };
    let (context, lists) = (keys("context")?, keys("feature_list")?);
    let may_miss: Vec<Str> = init.attr("feature_list_dense_missing_assumed_empty")?;
    Kernel::sync(move |cx| {
        let may_miss = |_: usize, key: &Str| may_miss.contains(key);
        Ok(parse(cx, &attributes, 2, &context, &lists, &may_miss)?.into())
    })
}

fn sequence_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let attributes = Attributes::new(init, init.op)?;
    let lists_dense: usize = init.attr("Nfeature_list_dense")?;
    Kernel::sync(move |cx| {
        let keys = |input: usize, wanted: usize, name: &str, text: &str| -> Result<Vec<Str>> {
            let keys = cx.input(input)?;
            ensure!(keys.elements() == wanted, InvalidArgument, "Expected len({name}_keys) to match {text}");
            Ok(keys.flat::<Str>()?.to_vec())
        };
        let (context, lists) = (&attributes.context, &attributes.lists);
        let context = Keys {
            dense: keys(3, context.dense.len(), "context_dense", "len(Tcontext_dense)")?,
            sparse: keys(2, context.sparse.len(), "context_sparse", "Ncontext_sparse")?,
            ragged: keys(4, context.ragged.len(), "context_ragged", "len(context_ragged_value_types)")?,
        };
        let dense = keys(6, lists_dense, "feature_list_dense", "Nfeature_list_dense")?;
        let may_miss = cx.input(8)?;
        ensure!(
            may_miss.elements() == lists_dense,
            InvalidArgument,
            "Expected len(feature_list_dense_missing_assumed_empty to match Nfeature_list_dense"
        );
        let ragged = "len(feature_list_ragged_value_types)";
        let lists = Keys {
            dense,
            sparse: keys(5, lists.sparse.len(), "feature_list_sparse", "Nfeature_list_sparse")?,
            ragged: keys(7, lists.ragged.len(), "feature_list_ragged", ragged)?,
        };
        let may_miss = may_miss.flat::<bool>()?;
        let may_miss = |index: usize, _: &Str| may_miss[index];
        Ok(parse(cx, &attributes, 9, &context, &lists, &may_miss)?.into())
    })
}

/// Stock reads a single sequence as a message, which merges what the faster readers overwrite.
fn single_kernel(init: &Init<'_>) -> Result<Kernel> {
    let attributes = Attributes::new(init, init.op)?;
    Kernel::sync(move |cx| {
        let (context, lists) = (&attributes.context, &attributes.lists);
        let mut next = 2;
        let mut keys = |count: usize, name: &str| -> Result<Vec<Str>> {
            let mut keys = Vec::with_capacity(count);
            for index in 0..count {
                let key = cx.input(next)?;
                ensure!(
                    key.rank() == 0,
                    InvalidArgument,
                    "Expected {name}_keys[{index}] to be a scalar, got shape: {}",
                    key.shape()
                );
                keys.push(key.to_scalar::<Str>()?);
                next += 1;
            }
            Ok(keys)
        };
        let context_sparse = keys(context.sparse.len(), "context_sparse")?;
        let context_dense = keys(context.dense.len(), "context_dense")?;
        let list_sparse = keys(lists.sparse.len(), "feature_list_sparse")?;
        let list_dense = keys(lists.dense.len(), "feature_list_dense")?;
        let (may_miss, serialized, name) = (cx.input(1)?, cx.input(0)?, cx.input(cx.num_inputs() - 1)?);
        ensure!(
            may_miss.rank() == 1,
            InvalidArgument,
            "Expected feature_list_dense_missing_assumed_empty to be a vector, got shape: {}",
            may_miss.shape()
        );
        ensure!(
            name.elements() == 0 || name.rank() == 0,
            InvalidArgument,
            "Expected debug_name to be a scalar, got shape: {}",
            name.shape()
        );
        ensure!(
            serialized.rank() == 0,
            InvalidArgument,
            "Expected serialized to be a scalar, got shape: {}",
            serialized.shape()
        );
        let name = name.flat::<Str>()?.first().cloned().unwrap_or(Str::from_static(b"<unknown>"));
        let name = String::from_utf8_lossy(&name);
        for (d, (shape, dtype)) in context.shapes.iter().zip(&context.dense).enumerate() {
            let value = cx.input(next + d)?;
            ensure!(
                value.elements() == 0 || shape.admits(value.shape()),
                InvalidArgument,
                "def_value[{d}].shape() == {} != context_dense_shapes_[{d}] == {shape}",
                value.shape()
            );
            ensure!(
                value.dtype() == *dtype,
                InvalidArgument,
                "context_dense_defaults[{d}].dtype() == {} != context_dense_types_[{d}] == {dtype}",
                value.dtype()
            );
        }
        let serialized = serialized.to_scalar::<Str>()?;
        let Ok(message) = SequenceExample::decode(serialized.clone()) else {
            let text = String::from_utf8_lossy(&serialized);
            bail!(InvalidArgument, "Could not parse example input, value: '{text}'");
        };
        let features = message.context.unwrap_or_default().feature;
        let steps = message.feature_lists.unwrap_or_default().feature_list;
        let text = |key: &Str| String::from_utf8_lossy(key).into_owned();
        let mut outputs: [Vec<Tensor>; 8] = Default::default();
        for (d, key) in context_dense.iter().enumerate() {
            let (dtype, key) = (context.dense[d], text(key));
            let shape = context.shape(d)?;
            let Some(feature) = features.get(&key) else {
                let default = cx.input(next + d)?;
                ensure!(
                    default.elements() > 0,
                    InvalidArgument,
                    "Name: {name}, Context feature '{key}' is required but could not be found."
                );
                outputs[3].push(default.clone());
                continue;
            };
            let place = format!("Name: {name}, Context feature: {key}");
            let values = values_of(feature, dtype, &place, false)?;
            check_count(&values, &shape, &format!("Name: {name}, Key: {key}, Index: 0"))?;
            outputs[3].push(values.reshaped(shape)?);
        }
        for (d, key) in context_sparse.iter().enumerate() {
            let (dtype, key) = (context.sparse[d], text(key));
            let place = format!("Name: {name}, Context feature: {key}");
            let values = match features.get(&key) {
                Some(feature) => values_of(feature, dtype, &place, true)?,
                None => Tensor::zeros(dtype, [0]),
            };
            let count = values.elements();
            outputs[0].push(Tensor::new(Shape::matrix(count, 1), (0..count as i64).collect())?);
            outputs[1].push(values);
            outputs[2].push(Tensor::vector(vec![count as i64]));
        }
        let may_miss = may_miss.flat::<Str>()?;
        for (d, key) in list_dense.iter().enumerate() {
            let (dtype, shape) = (lists.dense[d], lists.shape(d)?);
            let found = steps.get(&text(key));
            let missed = found.is_some() || may_miss.contains(key);
            let key = text(key);
            ensure!(
                missed,
                InvalidArgument,
                "Name: {name}, Feature list '{key}' is required but could not be found.  Did you mean to include it \
                 in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
            );
            let steps = found.map(|list| list.feature.as_slice()).unwrap_or_default();
            let mut rows = Vec::with_capacity(steps.len());
            for (index, step) in steps.iter().enumerate() {
                let place = format!("Name: {name}, Feature list: {key}, Index: {index}");
                let values = values_of(step, dtype, &place, false)?;
                check_count(&values, &shape, &format!("Name: {name}, Key: {key}, Index: {index}"))?;
                rows.push(values);
            }
            let shape = crate::support::rows::stacked(rows.len(), shape.dims())?;
            let rows: Vec<&Tensor> = rows.iter().collect();
            outputs[7].push(crate::support::rows::join(cx.device(), dtype, shape, &rows)?);
        }
        for (d, key) in list_sparse.iter().enumerate() {
            let (dtype, key) = (lists.sparse[d], text(key));
            let steps = steps.get(&key).map(|list| list.feature.as_slice()).unwrap_or_default();
            let (mut rows, mut indices, mut most) = (Vec::new(), Vec::new(), 0);
            for (index, step) in steps.iter().enumerate() {
                let place = format!("Name: {name}, Feature List: {key}, Index: {index}");
                let values = values_of(step, dtype, &place, true)?;
                most = most.max(values.elements());
                indices.extend((0..values.elements() as i64).flat_map(|at| [index as i64, at]));
                rows.push(values);
            }
            let total = indices.len() / 2;
            let rows: Vec<&Tensor> = rows.iter().collect();
            outputs[4].push(Tensor::new(Shape::matrix(total, 2), indices)?);
            let values = crate::support::rows::join(cx.device(), dtype, Shape::vector(total), &rows)?;
            outputs[5].push(values);
            outputs[6].push(Tensor::vector(vec![steps.len() as i64, most as i64]));
        }
        Ok(outputs.into_iter().flatten().collect::<Vec<Tensor>>().into())
    })
}

/// The values of a feature as a vector. A feature that has none of any type is refused unless it `may_lack` them.
fn values_of(feature: &tf::Feature, dtype: DType, place: &str, may_lack: bool) -> Result<Tensor> {
    let values = match &feature.kind {
        Some(feature::Kind::BytesList(list)) => Tensor::vector(list.value.clone()),
        Some(feature::Kind::FloatList(list)) => Tensor::vector(list.value.clone()),
        Some(feature::Kind::Int64List(list)) => Tensor::vector(list.value.clone()),
        None if may_lack => Tensor::zeros(dtype, [0]),
        None => bail!(InvalidArgument, "{place}.  Data types don't match. Expected type: {dtype}"),
    };
    ensure!(
        values.dtype() == dtype,
        InvalidArgument,
        "{place}.  Data types don't match. Expected type: {dtype}  Feature is: {}",
        values.dtype()
    );
    Ok(values)
}

fn check_count(values: &Tensor, shape: &Shape, place: &str) -> Result<()> {
    let kind = if values.dtype() == DType::String { "bytes" } else { values.dtype().name() };
    ensure!(
        values.elements() == shape.elements(),
        InvalidArgument,
        "{place}.  Number of {kind} values != expected.  values size: {} but output shape: {shape}",
        values.elements()
    );
    Ok(())
}
