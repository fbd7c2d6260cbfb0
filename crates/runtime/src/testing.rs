//! Toy ops and graphs as text, so that planning and execution can be tested without any real op.
//!
//! A line is `name = Op(input, input:1, ^control) key=value … @device`; values are integers or words.

use crate::{ComputePool, Executable, LocalRendezvous, PlanOptions, RuntimeEnv, Signature};
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::Device;
use ferroflow_core::graph::Graph;
use ferroflow_core::kernel::{Init, Kernel, Outputs};
use ferroflow_core::op::{Op, OpClass, Registry};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::step::StepCx;
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{Result, Shape, Tensor, bail, kernels};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NodeDef};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

static OPS: &[&Op] = &[
    &Op {
        name: "Value",
        outputs: &["out: int32"],
        attrs: &["value: int"],
        kernels: kernels![any value],
        class: OpClass::Constant,
        ..Op::PURE
    },
    // Allocates this many numbers; the output says whether it ran on a compute thread.
    &Op {
        name: "Bulk",
        inputs: &["in: int32"],
        outputs: &["out: int32"],
        attrs: &["value: int"],
        kernels: kernels![any bulk],
        ..Op::PURE
    },
    &Op {
        name: "Add",
        inputs: &["a: int32", "b: int32"],
        outputs: &["out: int32"],
        kernels: kernels![any add],
        ..Op::PURE
    },
    &Op {
        name: "Less",
        inputs: &["a: int32", "b: int32"],
        outputs: &["out: bool"],
        kernels: kernels![any less],
        ..Op::PURE
    },
    &Op { name: "Feed", outputs: &["out: int32"], kernels: kernels![any fail], ..Op::STATEFUL },
    &Op {
        name: "Effect",
        inputs: &["a: int32"],
        outputs: &["out: int32"],
        kernels: kernels![any pass],
        ..Op::STATEFUL
    },
    &Op {
        name: "Fail",
        inputs: &["a: int32"],
        outputs: &["out: int32"],
        kernels: kernels![any fail],
        ..Op::STATEFUL
    },
    &Op {
        name: "Panic",
        inputs: &["a: int32"],
        outputs: &["out: int32"],
        kernels: kernels![any panics],
        ..Op::STATEFUL
    },
    &Op {
        name: "Later",
        inputs: &["a: int32"],
        outputs: &["out: int32"],
        kernels: kernels![any later],
        ..Op::STATEFUL
    },
    &Op {
        name: "Never",
        inputs: &["a: int32"],
        outputs: &["out: int32"],
        kernels: kernels![any never],
        ..Op::STATEFUL
    },
    &Op {
        name: "Switch",
        inputs: &["data: int32", "pred: bool"],
        outputs: &["output_false: int32", "output_true: int32"],
        class: OpClass::Switch,
        ..Op::PURE
    },
    &Op {
        name: "Merge",
        inputs: &["inputs: N * int32"],
        outputs: &["output: int32", "index: int32"],
        attrs: &["N: int = 2"],
        class: OpClass::Merge,
        ..Op::PURE
    },
    &Op {
        name: "Enter",
        inputs: &["data: int32"],
        outputs: &["out: int32"],
        attrs: &["frame_name: string", "is_constant: bool = false", "parallel_iterations: int = 10"],
        class: OpClass::Enter,
        ..Op::PURE
    },
    &Op {
        name: "Exit",
        inputs: &["data: int32"],
        outputs: &["out: int32"],
        class: OpClass::Exit,
        ..Op::PURE
    },
    &Op {
        name: "NextIteration",
        inputs: &["data: int32"],
        outputs: &["out: int32"],
        class: OpClass::NextIteration,
        ..Op::PURE
    },
    &Op {
        name: "LoopCond",
        inputs: &["input: bool"],
        outputs: &["output: bool"],
        kernels: kernels![any pass],
        class: OpClass::LoopCond,
        ..Op::PURE
    },
    &Op {
        name: "Identity",
        inputs: &["input: T"],
        outputs: &["output: T"],
        attrs: &["T: type"],
        class: OpClass::Identity,
        ..Op::PURE
    },
    &Op {
        name: "_Send",
        inputs: &["tensor: T"],
        attrs: EDGE_ATTRS,
        kernels: kernels![any send],
        class: OpClass::Send,
        ..Op::STATEFUL
    },
    &Op {
        name: "_Recv",
        outputs: &["tensor: tensor_type"],
        attrs: EDGE_ATTRS,
        kernels: kernels![any receive],
        class: OpClass::Recv,
        ..Op::STATEFUL
    },
    &Op {
        name: "Variable",
        outputs: &["out: Ref(int32)"],
        kernels: kernels![any fail],
        class: OpClass::Variable,
        ..Op::STATEFUL
    },
    &Op {
        name: "Assign",
        inputs: &["ref: Ref(int32)", "value: int32"],
        outputs: &["out: Ref(int32)"],
        kernels: kernels![any fail],
        ..Op::STATEFUL
    },
    &Op {
        name: "Handle",
        outputs: &["out: resource"],
        kernels: kernels![any fail],
        class: OpClass::Variable,
        ..Op::STATEFUL
    },
    &Op {
        name: "Read",
        inputs: &["handle: resource"],
        outputs: &["out: int32"],
        kernels: kernels![any fail],
        ..Op::STATEFUL
    },
];

/// Signatures of ops that only stock has; the second one has no kernel there.
const STOCK_OPS: &str =
    "Elsewhere\tvalues: N * int32\tout: int32; more: N * int32\tN: int >= 1\nNowhere\t\tout: int32";
const STOCK_KERNELS: &str = "Elsewhere";

static EDGE_ATTRS: &[&str] = &["T: type = DT_INT32", "tensor_type: type = DT_INT32", "tensor_name: string"];

fn value(init: &Init<'_>) -> Result<Kernel> {
    let value = init.attr::<i64>("value")? as i32;
    Kernel::sync(move |_| Ok(Tensor::scalar(value).into()))
}

fn bulk(init: &Init<'_>) -> Result<Kernel> {
    let elements = init.attr::<i64>("value")? as usize;
    Kernel::sync(move |cx| {
        cx.alloc::<i32>(Shape::vector(elements))?;
        let computes = std::thread::current().name().is_some_and(|name| name.starts_with("compute"));
        Ok(Tensor::scalar(i32::from(computes)).into())
    })
}

fn add(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(cx.scalar::<i32>(0)? + cx.scalar::<i32>(1)?).into()))
}

fn less(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(cx.scalar::<i32>(0)? < cx.scalar::<i32>(1)?).into()))
}

fn pass(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(cx.take(0)?.into()))
}

/// The key of an edge, which the toy rendezvous identifies by name alone.
fn edge(init: &Init<'_>) -> Result<RendezvousKey> {
    Ok(RendezvousKey::new("", 0, "", &init.attr::<String>("tensor_name")?))
}

fn send(init: &Init<'_>) -> Result<Kernel> {
    let key = edge(init)?;
    Kernel::sync(move |cx| {
        let at = cx.frame();
        let parcel = if cx.is_dead() { Parcel::dead(Tensor::scalar(0i32)) } else { Parcel::new(cx.take(0)?) };
        cx.step().rendezvous.send(&key.at(at.frame, at.iteration), parcel)?;
        Ok(Outputs::None)
    })
}

fn receive(init: &Init<'_>) -> Result<Kernel> {
    let key = edge(init)?;
    Kernel::future(move |mut cx| {
        let at = cx.cx().frame();
        let receiving = cx.step().rendezvous.recv(&key.at(at.frame, at.iteration));
        async move {
            let parcel = receiving.await?;
            if parcel.dead { Ok(Outputs::Dead) } else { Ok(parcel.tensor.into()) }
        }
    })
}

fn fail(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| bail!(OutOfRange, "no more"))
}

fn panics(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| panic!("broken"))
}

/// Waits once and is woken by another thread.
fn later(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let mut waited = false;
        std::future::poll_fn(|context: &mut Context<'_>| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake());
            Poll::Pending
        })
        .await;
        Ok(cx.cx().take(0)?.into())
    })
}

fn never(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|_| std::future::pending())
}

/// A graph from its text.
pub(crate) fn graph(text: &str) -> Graph {
    let registry = Registry::new(OPS.iter().copied()).expect("toy names are unique");
    let mut graph = Graph::new(registry.with_stock_ops(STOCK_OPS).with_stock_kernels(STOCK_KERNELS));
    graph.extend(&graph_def(text)).unwrap_or_else(|error| panic!("{error}"));
    graph
}

/// A graph in wire form, from its text.
pub(crate) fn graph_def(text: &str) -> GraphDef {
    let mut def = GraphDef::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, rest) = line.split_once(" = ").expect("name = Op(…)");
        let (op, rest) = rest.split_once('(').expect("Op(…)");
        let (inputs, attrs) = rest.split_once(')').expect("a closing parenthesis");
        let (attrs, device) = attrs.split_once('@').unwrap_or((attrs, ""));
        let attr = attrs.split_whitespace().map(|attr| {
            let (key, value) = attr.split_once('=').expect("key=value");
            let value = match (value.parse(), value) {
                (Ok(number), _) => Value::I(number),
                (_, "true") => Value::B(true),
                (_, word) => Value::S(word.to_owned().into_bytes().into()),
            };
            (key.to_owned(), AttrValue { value: Some(value) })
        });
        def.node.push(NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            input: inputs.split(", ").filter(|input| !input.is_empty()).map(str::to_owned).collect(),
            attr: attr.collect(),
            device: device.to_owned(),
            ..Default::default()
        });
    }
    def
}

/// An environment with two compute threads.
pub(crate) fn env(graph: &Graph) -> Arc<RuntimeEnv> {
    let threads = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread starts"));
    let name = "/job:localhost/replica:0/task:0/device:CPU:0";
    let device = Device::new(name, 1, BufferPool::new(1 << 20), 1 << 30, threads).expect("a full name");
    let resources = ResourceManager::new("localhost");
    RuntimeEnv::new(graph.registry().clone(), Arc::new(device), resources, ComputePool::new(2))
}

/// A step in this environment.
pub(crate) fn step(env: &RuntimeEnv) -> Arc<StepCx> {
    Arc::new(StepCx {
        step_id: 1,
        device: env.device.clone(),
        resources: env.resources.clone(),
        step_resources: ResourceManager::new("step"),
        rendezvous: Arc::new(LocalRendezvous::default()),
        cancellation: Cancellation::new(),
        depth: 0,
    })
}

/// A signature from space-separated names.
pub(crate) fn signature(feeds: &str, fetches: &str, targets: &str) -> Signature {
    let list = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    Signature { feeds: list(feeds), fetches: list(fetches), targets: list(targets) }
}

/// Runs a graph once with and once without the optimizer; both must agree.
pub(crate) fn run(text: &str, fetches: &str) -> Result<Vec<i32>> {
    let results = [true, false].map(|optimize| {
        let graph = graph(text);
        let env = env(&graph);
        let executable =
            Executable::build(&graph, &signature("", fetches, ""), &PlanOptions { optimize }, &env)?;
        let outputs = block_on(executable.start(Vec::new(), step(&env), None)?)?;
        outputs.iter().map(|tensor| tensor.to_scalar::<i32>()).collect::<Result<Vec<i32>>>()
    });
    assert_eq!(results[0], results[1]);
    results.into_iter().next().expect("two results")
}

/// Polls a future on this thread until it completes; panics if that takes very long.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    let patience = std::time::Duration::from_secs(30);
    let started = std::time::Instant::now();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park_timeout(patience),
        }
        assert!(started.elapsed() < patience, "the future does not end");
    }
}
