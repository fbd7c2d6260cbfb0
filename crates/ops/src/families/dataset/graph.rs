//! Datasets as graphs: written to a string, and made again of one.

use crate::data::fingerprint::fingerprint;
use crate::data::graph::{check_external_state, registry, take_output, to_graph};
use crate::data::{Dataset, scalar};
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, Status, Tensor, bail, kernels, status};
use ferroflow_proto::tensorflow::GraphDef;
use ferroflow_proto::tensorflow::data::options::OptionalExternalStatePolicy;
use ferroflow_proto::tensorflow::data::{ExternalStatePolicy, Options};
use prost::Message;

pub(crate) const OPS: &[&Op] =
    &[&DATASET_TO_GRAPH, &DATASET_TO_GRAPH_V2, &DATASET_FROM_GRAPH, &DATASET_FINGERPRINT];

static DATASET_TO_GRAPH: Op = Op {
    name: "DatasetToGraph",
    inputs: &["input_dataset: variant"],
    outputs: &["graph: string"],
    attrs: &[
        "stateful_whitelist: list(string) >= 0 = []",
        "allow_stateful: bool = false",
        "strip_device_assignment: bool = false",
    ],
    shape: shapes::scalar,
    kernels: kernels![any to_graph_kernel],
    ..Op::PURE
};

static DATASET_TO_GRAPH_V2: Op = Op {
    name: "DatasetToGraphV2",
    inputs: &["input_dataset: variant"],
    outputs: &["graph: string"],
    attrs: &["external_state_policy: int = 0", "strip_device_assignment: bool = false"],
    shape: shapes::scalar,
    kernels: kernels![any to_graph_kernel],
    ..Op::PURE
};

static DATASET_FROM_GRAPH: Op = Op {
    name: "DatasetFromGraph",
    inputs: &["graph_def: string"],
    outputs: &["handle: variant"],
    shape: shapes::scalar,
    kernels: kernels![any from_graph_kernel],
    ..Op::PURE
};

static DATASET_FINGERPRINT: Op = Op {
    name: "DatasetFingerprint",
    inputs: &["input_dataset: variant"],
    outputs: &["fingerprint: uint64"],
    shape: shapes::scalar,
    kernels: kernels![any fingerprint_kernel],
    ..Op::PURE
};

fn fingerprint_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let graph = to_graph(&Dataset::input(cx, 0)?).map_err(unserialized)?;
        Ok(Tensor::scalar(fingerprint(&graph, registry())?).into())
    })
}

fn unserialized(error: Status) -> Status {
    status!(FailedPrecondition, "Failed to serialize the input pipeline graph: {}", error.message())
}

fn to_graph_kernel(init: &Init<'_>) -> Result<Kernel> {
    let policy = if init.op == "DatasetToGraph" {
        let allows: bool = init.attr("allow_stateful")?;
        if allows { ExternalStatePolicy::PolicyWarn } else { ExternalStatePolicy::PolicyFail }
    } else {
        let policy: i64 = init.attr("external_state_policy")?;
        i32::try_from(policy).ok().and_then(|policy| policy.try_into().ok()).unwrap_or_default()
    };
    let strips: bool = init.attr("strip_device_assignment")?;
    Kernel::sync(move |cx| {
        let dataset = Dataset::input(cx, 0)?;
        // Later fields of a message override earlier ones: those of the dataset itself come last.
        let options = Options::decode(dataset.options().as_slice()).unwrap_or_default();
        let policy = match options.optional_external_state_policy {
            Some(OptionalExternalStatePolicy::ExternalStatePolicy(own)) => own.try_into().unwrap_or(policy),
            None => policy,
        };
        if policy == ExternalStatePolicy::PolicyFail {
            check_external_state(&dataset).map_err(unserialized)?;
        }
        let mut graph = to_graph(&dataset).map_err(unserialized)?;
        if strips {
            strip_devices(&mut graph);
        }
        Ok(Tensor::scalar::<Str>(graph.encode_to_vec().into()).into())
    })
}

/// Keeps of every device its type and number alone, so that the functions run wherever the dataset is used.
fn strip_devices(graph: &mut GraphDef) {
    let functions = graph.library.iter_mut().flat_map(|library| &mut library.function);
    // A function of Python runs where its interpreter is.
    let nodes = functions.flat_map(|function| &mut function.node_def).filter(|node| node.op != "PyFunc");
    for node in nodes {
        if let Some(at) = node.device.find("/device:") {
            node.device = node.device[at..].to_owned();
        } else {
            node.device.clear();
        }
    }
}

fn from_graph_kernel(init: &Init<'_>) -> Result<Kernel> {
    let library = init.library.clone();
    Kernel::future(move |mut cx| {
        let library = library.clone();
        async move {
            let text: Str = scalar(&cx.cx(), 0, "graph_def")?;
            let Ok(mut graph) = GraphDef::decode(text) else {
                bail!(InvalidArgument, "Could not parse GraphDef")
            };
            let output = take_output(&mut graph)?;
            let function = library.capture_graph(graph, &output)?;
            let results = function.instantiate()?.call(Vec::new(), cx.step().clone()).await?;
            // The functions that the dataset calls belong to it; what made it may go.
            Ok(results.into())
        }
    })
}
