//! Parts of datasets for several workers: by files, by elements, or where the program says.

use super::limit::Shard;
use crate::data::auto_shard::{self, Part};
use crate::data::graph::{take_output, to_graph};
use crate::data::{Dataset, Spec, scalar};
use ferroflow_core::kernel::{FunctionLibrary, FutureCx, Init, Kernel};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, Tensor, ensure, kernels, status};
use ferroflow_proto::tensorflow::data::AutoShardPolicy;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&AUTO_SHARD_DATASET, &EXPERIMENTAL_AUTO_SHARD_DATASET];

static AUTO_SHARD_DATASET: Op = Op {
    name: "AutoShardDataset",
    inputs: &["input_dataset: variant", "num_workers: int64", "index: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "auto_shard_policy: int = 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "num_replicas: int = 0",
    ],
    shape: shapes::scalar,
    kernels: kernels![any auto_shard_kernel],
    ..Op::PURE
};

static EXPERIMENTAL_AUTO_SHARD_DATASET: Op = Op {
    name: "ExperimentalAutoShardDataset",
    inputs: &["input_dataset: variant", "num_workers: int64", "index: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "auto_shard_policy: int = 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any auto_shard_kernel],
    ..Op::PURE
};

/// The attributes of a node.
struct Sharding {
    spec: Arc<Spec>,
    policy: AutoShardPolicy,
    replicas: i64,
    library: Arc<dyn FunctionLibrary>,
}

fn auto_shard_kernel(init: &Init<'_>) -> Result<Kernel> {
    let policy: i64 = init.attr("auto_shard_policy")?;
    let policy = i32::try_from(policy).ok().and_then(|policy| AutoShardPolicy::try_from(policy).ok());
    let policy = policy.ok_or_else(|| status!(InvalidArgument, "auto_shard_policy is invalid."))?;
    let replicas = if init.attrs.has("num_replicas") { init.attr("num_replicas")? } else { 0 };
    let spec = Arc::new(Spec::new(init)?);
    let sharding = Arc::new(Sharding { spec, policy, replicas, library: init.library.clone() });
    Kernel::future(move |cx| {
        let sharding = sharding.clone();
        async move { Ok(sharding.run(cx).await?.into_tensor().into()) }
    })
}

impl Sharding {
    async fn run(&self, mut cx: FutureCx) -> Result<Dataset> {
        let (input, part, arguments) = {
            let cx = cx.cx();
            let (workers, index): (i64, i64) = (scalar(&cx, 1, "num_workers")?, scalar(&cx, 2, "index")?);
            ensure!(workers > 0, InvalidArgument, "num_workers must be >= 1, currently {workers}");
            ensure!(
                (0..workers).contains(&index),
                InvalidArgument,
                "index must be >= 0 and < {workers}, currently {index}"
            );
            let arguments: Result<Vec<Tensor>> = (0..3).map(|input| cx.input(input).cloned()).collect();
            (Dataset::input(&cx, 0)?, Part { workers, index, replicas: self.replicas }, arguments?)
        };
        let rewritten = match self.policy {
            AutoShardPolicy::Off => input,
            policy => match to_graph(&input) {
                Ok(graph) => self.rebuilt(auto_shard::shard(graph, policy, part)?, &cx).await?,
                // Datasets that have no graph are divided element by element.
                Err(_) => self.every_nth(&input, part),
            },
        };
        let cardinality = rewritten.cardinality();
        let dataset = Dataset::new(&self.spec, cardinality, move |cx| rewritten.open(cx));
        Ok(dataset.with_arguments(arguments))
    }

    /// The dataset that a graph describes.
    async fn rebuilt(
        &self,
        mut graph: ferroflow_proto::tensorflow::GraphDef,
        cx: &FutureCx,
    ) -> Result<Dataset> {
        let output = take_output(&mut graph)?;
        let function = self.library.capture_graph(graph, &output)?;
        let results = function.instantiate()?.call(Vec::new(), cx.step().clone()).await?;
        let dataset = results.first().map(Dataset::from_tensor);
        dataset.unwrap_or_else(|| Err(status!(Internal, "the graph of a dataset has no result")))
    }

    fn every_nth(&self, input: &Dataset, part: Part) -> Dataset {
        let cardinality = match input.cardinality() {
            known @ 0.. => known / part.workers + (part.index < known % part.workers) as i64,
            special => special,
        };
        let input = input.clone();
        Dataset::new(&self.spec, cardinality, move |cx| {
            Ok(Box::new(Shard::new(input.open(cx)?, part.workers, part.index, true)))
        })
    }
}
