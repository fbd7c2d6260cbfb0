//! Ops that run a whole dataset within a step.

use super::iterators::component_shapes;
use crate::data::iterator::{OneRun, check_element};
use crate::data::{Dataset, SourceCx, Spec};
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Gradient, Op, ShapeCx};
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure, kernels};
use ferroflow_io::record::{Compression, RecordWriter};
use std::future::poll_fn;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] =
    &[&REDUCE_DATASET, &DATASET_TO_SINGLE_ELEMENT, &DATASET_TO_TF_RECORD, &EXPERIMENTAL_DATASET_TO_TF_RECORD];

static REDUCE_DATASET: Op = Op {
    name: "ReduceDataset",
    gradient: Gradient::Stop,
    inputs: &["input_dataset: variant", "initial_state: Tstate", "other_arguments: Targuments"],
    outputs: &["components: output_types"],
    attrs: &[
        "f: func",
        "Tstate: list(type) >= 1",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "use_inter_op_parallelism: bool = true",
        "metadata: string = ''",
    ],
    shape: component_shapes,
    kernels: kernels![any reduce_kernel],
    ..Op::STATEFUL
};

static DATASET_TO_SINGLE_ELEMENT: Op = Op {
    name: "DatasetToSingleElement",
    inputs: &["dataset: variant"],
    outputs: &["components: output_types"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: component_shapes,
    kernels: kernels![any single_element_kernel],
    ..Op::STATEFUL
};

static DATASET_TO_TF_RECORD: Op = Op {
    name: "DatasetToTFRecord",
    inputs: &["input_dataset: variant", "filename: string", "compression_type: string"],
    shape: no_shapes,
    kernels: kernels![any to_tf_record_kernel],
    ..Op::STATEFUL
};

static EXPERIMENTAL_DATASET_TO_TF_RECORD: Op =
    Op { name: "ExperimentalDatasetToTFRecord", ..DATASET_TO_TF_RECORD };

fn no_shapes(_: &mut ShapeCx<'_>) -> Result<()> {
    Ok(())
}

fn reduce_kernel(init: &Init<'_>) -> Result<Kernel> {
    let states = init.attr::<Vec<DType>>("Tstate")?.len();
    let (types, shapes): (Vec<DType>, Vec<PartialShape>) =
        (init.attr("output_types")?, init.attr("output_shapes")?);
    let spec = Arc::new(Spec::new(init)?);
    let results = Arc::new((types, shapes));
    Kernel::future(move |mut cx| {
        let (spec, results) = (spec.clone(), results.clone());
        async move {
            let (mut run, caller, mut state) = {
                let cx = cx.cx();
                let run = OneRun::new(&Dataset::input(&cx, 0)?, cx.step(), "ReduceDataset")?;
                let function = spec.function(&cx, "f", 1 + states..cx.num_inputs())?;
                let state: Result<Vec<Tensor>> = (1..=states).map(|input| cx.input(input).cloned()).collect();
                let caller = function.caller(&run.cx)?;
                (run, caller, state?)
            };
            while let Some(element) = run.next().await? {
                cx.step().check_cancelled()?;
                let mut arguments = std::mem::take(&mut state);
                arguments.extend(element);
                state = caller.call(arguments).await?;
                ensure!(
                    state.len() == states,
                    InvalidArgument,
                    "The number of components of the initial state and the reduce function output does not match. \
                     (initial_state={states}, output={}).",
                    state.len()
                );
            }
            check_element(&results.0, &results.1, &state)?;
            Ok(state.into())
        }
    })
}

fn single_element_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (types, shapes): (Vec<DType>, Vec<PartialShape>) =
        (init.attr("output_types")?, init.attr("output_shapes")?);
    let results = Arc::new((types, shapes));
    Kernel::future(move |mut cx| {
        let results = results.clone();
        async move {
            let mut run = {
                let cx = cx.cx();
                OneRun::new(&Dataset::input(&cx, 0)?, cx.step(), "DatasetToSingleElement")?
            };
            let Some(element) = run.next().await? else { bail!(InvalidArgument, "Dataset was empty.") };
            ensure!(run.next().await?.is_none(), InvalidArgument, "Dataset had more than one element.");
            check_element(&results.0, &results.1, &element)?;
            Ok(element.into())
        }
    })
}

/// Writes the strings of a dataset as records to a file.
fn to_tf_record_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(move |mut cx| async move {
        let (mut run, name, compression) = {
            let cx = cx.cx();
            let run = OneRun::new(&Dataset::input(&cx, 0)?, cx.step(), "DatasetToTFRecord")?;
            let text = |input: usize| {
                cx.scalar::<Str>(input).map(|text| String::from_utf8_lossy(&text).into_owned())
            };
            (run, text(1)?, Compression::from_name(&text(2)?)?)
        };
        poll_fn(|task| SourceCx::new(task).leave_io_thread()).await;
        let mut writer = RecordWriter::create(&name, compression)?;
        while let Some(element) = run.next().await? {
            poll_fn(|task| SourceCx::new(task).leave_io_thread()).await;
            let record = match element.as_slice() {
                [record] if record.dtype() == DType::String && record.rank() == 0 => record,
                _ => bail!(InvalidArgument, "the elements of the dataset must be scalar strings"),
            };
            writer.write(&record.units::<Str>()?[0])?;
        }
        writer.finish()?;
        Ok(().into())
    })
}
