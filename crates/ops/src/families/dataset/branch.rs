//! Datasets that a function makes of another one when it is run.

use crate::data::{Caller, Dataset, Function, IteratorCx, Next, Source, SourceCx, UNKNOWN, kernel, scalar};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, bail, ensure, kernels};
use std::sync::Arc;
use std::task::ready;

pub(crate) const OPS: &[&Op] = &[&CHOOSE_FASTEST_BRANCH_DATASET];

static CHOOSE_FASTEST_BRANCH_DATASET: Op = Op {
    name: "ChooseFastestBranchDataset",
    inputs: &[
        "input_dataset: variant",
        "ratio_numerator: int64",
        "ratio_denominator: int64",
        "other_arguments: Targuments",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "Targuments: list(type) >= 0",
        "num_elements_per_branch: int >= 1",
        "branches: list(func) >= 1",
        "other_arguments_lengths: list(int) >= 1",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any fastest_branch_kernel],
    cheap: true,
    ..Op::PURE
};

/// Runs the dataset that a function makes of another one.
pub(super) struct Made {
    caller: Caller,
    input: Option<Dataset>,
    running: Option<Box<dyn Source>>,
    cx: Arc<IteratorCx>,
    /// The function's name in messages.
    name: &'static str,
}

impl Made {
    pub(super) fn new(
        function: &Function,
        input: Dataset,
        cx: &Arc<IteratorCx>,
        name: &'static str,
    ) -> Result<Made> {
        Ok(Made { caller: function.caller(cx)?, input: Some(input), running: None, cx: cx.clone(), name })
    }
}

impl Source for Made {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let running = match &mut self.running {
            Some(running) => running,
            none => {
                if let Some(input) = self.input.take() {
                    self.caller.start(vec![input.into_tensor()]);
                }
                let results = ready!(self.caller.poll(cx))?;
                let [dataset] = results.as_slice() else {
                    return std::task::Poll::Ready(Err(ferroflow_core::status!(
                        InvalidArgument,
                        "{} returns more than one argument.",
                        self.name
                    )));
                };
                none.insert(Dataset::from_tensor(dataset)?.open(&self.cx)?)
            }
        };
        running.poll_next(cx)
    }
}

/// All branches make the same elements; the first one is as good as any.
fn fastest_branch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let lengths: Vec<i64> = init.attr("other_arguments_lengths")?;
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let (numerator, denominator): (i64, i64) =
            (scalar(cx, 1, "ratio_numerator")?, scalar(cx, 2, "ratio_denominator")?);
        ensure!(numerator > 0, InvalidArgument, "`ratio_numerator` must be greater than zero.");
        ensure!(denominator > 0, InvalidArgument, "`ratio_denominator` must be greater than zero.");
        let Some(first) = lengths.first().and_then(|length| usize::try_from(*length).ok()) else {
            bail!(InvalidArgument, "`other_arguments_lengths` must not be negative")
        };
        ensure!(
            3 + first <= cx.num_inputs(),
            InvalidArgument,
            "`other_arguments_lengths` asks for more arguments than there are"
        );
        let function = spec.function_at(cx, "branches", 0, 3..3 + first)?;
        let cardinality = match input.cardinality() {
            known @ 0.. => known.saturating_mul(numerator) / denominator,
            special => special,
        };
        let cardinality = if cardinality < -1 { UNKNOWN } else { cardinality };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            Ok(Box::new(Made::new(&function, input.clone(), cx, "a branch")?))
        }))
    })
}
