//! Datasets that pass elements on: ahead of time, with options, or under conditions that hold here anyway.

use super::order::dummy_kernel;
use crate::data::background::Prefetch;
use crate::data::{Dataset, Spec, kernel, scalar};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels};
use ferroflow_proto::tensorflow::VariantTensorDataProto;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &PREFETCH_DATASET,
    &OPTIONS_DATASET,
    &GET_OPTIONS,
    &MODEL_DATASET,
    &OPTIMIZE_DATASET,
    &OPTIMIZE_DATASET_V2,
    &FINALIZE_DATASET,
    &NON_SERIALIZABLE_DATASET,
    &EXPERIMENTAL_NON_SERIALIZABLE_DATASET,
    &REWRITE_DATASET,
    &THREAD_POOL_DATASET,
    &EXPERIMENTAL_THREAD_POOL_DATASET,
    &ASSERT_NEXT_DATASET,
    &EXPERIMENTAL_ASSERT_NEXT_DATASET,
    &ASSERT_PREV_DATASET,
    &PRIVATE_THREAD_POOL_DATASET,
    &EXPERIMENTAL_PRIVATE_THREAD_POOL_DATASET,
    &MAX_INTRA_OP_PARALLELISM_DATASET,
    &EXPERIMENTAL_MAX_INTRA_OP_PARALLELISM_DATASET,
    &DATASET_CARDINALITY,
    &EXPERIMENTAL_DATASET_CARDINALITY,
    &WRAP_DATASET_VARIANT,
    &UNWRAP_DATASET_VARIANT,
    &THREAD_POOL_HANDLE,
    &EXPERIMENTAL_THREAD_POOL_HANDLE,
];

static PREFETCH_DATASET: Op = Op {
    name: "PrefetchDataset",
    inputs: &["input_dataset: variant", "buffer_size: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "slack_period: int = 0",
        "legacy_autotune: bool = true",
        "buffer_size_min: int = 0",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any prefetch_kernel],
    cheap: true,
    ..Op::PURE
};

static OPTIONS_DATASET: Op = Op {
    name: "OptionsDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &[
        "serialized_options: string",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any options_kernel],
    cheap: true,
    ..Op::PURE
};

static GET_OPTIONS: Op = Op {
    name: "GetOptions",
    inputs: &["input_dataset: variant"],
    outputs: &["serialized_options: string"],
    shape: shapes::scalar,
    kernels: kernels![any get_options_kernel],
    cheap: true,
    ..Op::PURE
};

static MODEL_DATASET: Op = Op {
    name: "ModelDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &[
        "algorithm: int = 0",
        "cpu_budget: int = 0",
        "ram_budget: int = 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any pass_kernel],
    cheap: true,
    ..Op::PURE
};

static OPTIMIZE_DATASET: Op = Op {
    name: "OptimizeDataset",
    inputs: &["input_dataset: variant", "optimizations: string"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "optimization_configs: list(string) = []",
    ],
    shape: shapes::scalar,
    kernels: kernels![any pass_kernel],
    cheap: true,
    ..Op::PURE
};

static OPTIMIZE_DATASET_V2: Op = Op {
    name: "OptimizeDatasetV2",
    inputs: &[
        "input_dataset: variant",
        "optimizations_enabled: string",
        "optimizations_disabled: string",
        "optimizations_default: string",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "optimization_configs: list(string) = []",
    ],
    shape: shapes::scalar,
    kernels: kernels![any pass_kernel],
    cheap: true,
    ..Op::PURE
};

static FINALIZE_DATASET: Op = Op {
    name: "FinalizeDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &[
        "has_captured_ref: bool = false",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any pass_kernel],
    cheap: true,
    ..Op::PURE
};

static NON_SERIALIZABLE_DATASET: Op = Op {
    name: "NonSerializableDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any pass_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_NON_SERIALIZABLE_DATASET: Op =
    Op { name: "ExperimentalNonSerializableDataset", ..NON_SERIALIZABLE_DATASET };

static REWRITE_DATASET: Op = Op {
    name: "RewriteDataset",
    inputs: &["input_dataset: variant", "rewrite_name: string"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any rewrite_kernel],
    cheap: true,
    ..Op::PURE
};

static THREAD_POOL_DATASET: Op = Op {
    name: "ThreadPoolDataset",
    inputs: &["input_dataset: variant", "thread_pool: resource"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any pass_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_THREAD_POOL_DATASET: Op =
    Op { name: "ExperimentalThreadPoolDataset", ..THREAD_POOL_DATASET };

static ASSERT_NEXT_DATASET: Op = Op {
    name: "AssertNextDataset",
    inputs: &["input_dataset: variant", "transformations: string"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any assert_next_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_ASSERT_NEXT_DATASET: Op =
    Op { name: "ExperimentalAssertNextDataset", ..ASSERT_NEXT_DATASET };

static ASSERT_PREV_DATASET: Op = Op { name: "AssertPrevDataset", ..ASSERT_NEXT_DATASET };

static PRIVATE_THREAD_POOL_DATASET: Op = Op {
    name: "PrivateThreadPoolDataset",
    inputs: &["input_dataset: variant", "num_threads: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any private_pool_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_PRIVATE_THREAD_POOL_DATASET: Op =
    Op { name: "ExperimentalPrivateThreadPoolDataset", ..PRIVATE_THREAD_POOL_DATASET };

static MAX_INTRA_OP_PARALLELISM_DATASET: Op = Op {
    name: "MaxIntraOpParallelismDataset",
    inputs: &["input_dataset: variant", "max_intra_op_parallelism: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any intra_op_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_MAX_INTRA_OP_PARALLELISM_DATASET: Op =
    Op { name: "ExperimentalMaxIntraOpParallelismDataset", ..MAX_INTRA_OP_PARALLELISM_DATASET };

static DATASET_CARDINALITY: Op = Op {
    name: "DatasetCardinality",
    inputs: &["input_dataset: variant"],
    outputs: &["cardinality: int64"],
    attrs: &["cardinality_options: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any cardinality_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_DATASET_CARDINALITY: Op = Op {
    name: "ExperimentalDatasetCardinality",
    inputs: &["input_dataset: variant"],
    outputs: &["cardinality: int64"],
    shape: shapes::scalar,
    kernels: kernels![any cardinality_kernel],
    cheap: true,
    ..Op::PURE
};

static WRAP_DATASET_VARIANT: Op = Op {
    name: "WrapDatasetVariant",
    inputs: &["input_handle: variant"],
    outputs: &["output_handle: variant"],
    shape: shapes::scalar,
    kernels: kernels![any wrap_kernel],
    cheap: true,
    ..Op::PURE
};

static UNWRAP_DATASET_VARIANT: Op = Op {
    name: "UnwrapDatasetVariant",
    inputs: &["input_handle: variant"],
    outputs: &["output_handle: variant"],
    shape: shapes::scalar,
    kernels: kernels![any unwrap_kernel],
    cheap: true,
    ..Op::PURE
};

static THREAD_POOL_HANDLE: Op = Op {
    name: "ThreadPoolHandle",
    outputs: &["handle: resource"],
    attrs: &[
        "num_threads: int",
        "max_intra_op_parallelism: int = 1",
        "display_name: string",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any dummy_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_THREAD_POOL_HANDLE: Op =
    Op { name: "ExperimentalThreadPoolHandle", ..THREAD_POOL_HANDLE };

/// The first input under a new name.
fn pass(cx: &KernelCx<'_>, spec: &Arc<Spec>) -> Result<Dataset> {
    let input = Dataset::input(cx, 0)?;
    Ok(Dataset::new(spec, input.cardinality(), move |cx| input.open(cx)))
}

/// Rewriting and modeling change how stock runs a pipeline, not its elements.
fn pass_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| pass(cx, spec))
}

fn prefetch_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, size): (Dataset, i64) = (Dataset::input(cx, 0)?, scalar(cx, 1, "buffer_size")?);
        ensure!(
            size >= -1,
            InvalidArgument,
            "buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning"
        );
        Ok(Dataset::new(spec, input.cardinality(), move |cx| {
            let source = input.open(cx)?;
            if size == 0 || cx.device().background().is_none() {
                return Ok(source);
            }
            Ok(Box::new(Prefetch::new(source, (size > 0).then_some(size as usize), cx)))
        }))
    })
}

fn options_kernel(init: &Init<'_>) -> Result<Kernel> {
    let options: bytes::Bytes = init.attr("serialized_options")?;
    kernel(init, move |cx, spec| Ok(Dataset::input(cx, 0)?.with_options(spec, options.to_vec())))
}

/// Options of a dataset and of those that it is made of; those nearest to the end count.
fn get_options_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar::<Str>(Dataset::input(cx, 0)?.options().into()).into()))
}

/// The one rewrite that programs ask for by name shows in the fingerprint; others pass elements on.
fn rewrite_kernel(init: &Init<'_>) -> Result<Kernel> {
    let passes = pass_kernel(init)?;
    let Kernel::Sync(pass) = passes else { return Ok(passes) };
    Kernel::sync(move |cx| {
        if &*scalar::<Str>(cx, 1, "rewrite_name")? == b"replicate_on_split" {
            return Ok(Dataset::input(cx, 0)?.replicated_on_split().into_tensor().into());
        }
        pass(cx)
    })
}

/// Stock compares with what its rewriter left. Nothing is rewritten here, so the names are those of the program.
fn assert_next_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| pass(cx, spec))
}

fn private_pool_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let threads: i64 = scalar(cx, 1, "num_threads")?;
        ensure!(threads >= 0, InvalidArgument, "`num_threads` must be >= 0");
        pass(cx, spec)
    })
}

fn intra_op_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let threads: i64 = scalar(cx, 1, "max_intra_op_parallelism")?;
        ensure!(threads >= 0, InvalidArgument, "`max_intra_op_parallelism` must be >= 0");
        pass(cx, spec)
    })
}

fn cardinality_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(Dataset::input(cx, 0)?.cardinality()).into()))
}

/// A dataset that is a component of an element.
struct Wrapped(Dataset);

impl VariantValue for Wrapped {
    fn type_name(&self) -> &str {
        "tensorflow::WrappedDatasetVariant"
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        bail!(Unimplemented, "a wrapped dataset cannot leave its device")
    }
}

fn wrap_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let tensor = cx.input(0)?;
        ensure!(tensor.rank() == 0, InvalidArgument, "Dataset tensor must be a scalar of dtype DT_VARIANT.");
        let variants = vec![Variant::new(Wrapped(Dataset::from_tensor(tensor)?))];
        Ok(Tensor::from_units(DType::Variant, Shape::scalar(), variants)?.into())
    })
}

fn unwrap_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let tensor = cx.input(0)?;
        ensure!(tensor.rank() == 0, InvalidArgument, "Dataset tensor must be a scalar of dtype DT_VARIANT.");
        match tensor.units::<Variant>()?[0].downcast::<Wrapped>() {
            Some(wrapped) => Ok(wrapped.0.clone().into_tensor().into()),
            None => bail!(InvalidArgument, "Tensor must be a WrappedDataset variant object."),
        }
    })
}
