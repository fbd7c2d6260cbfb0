//! Throwaway runner.
use ferroflow_core::attr::Attrs;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::Device;
use ferroflow_core::kernel::*;
use ferroflow_core::op::*;
use ferroflow_core::rendezvous::*;
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::step::StepCx;
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::*;
use ferroflow_proto::tensorflow::{GraphDef, NamedTensorProto, NodeDef, TensorProto};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(message, repeated, tag = "3")]
    case: Vec<Case>,
}
#[derive(Clone, PartialEq, Message)]
struct Case {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    accuracy: String,
    #[prost(message, optional, tag = "3")]
    graph: Option<GraphDef>,
    #[prost(int32, tag = "4")]
    status: i32,
    #[prost(message, repeated, tag = "5")]
    step: Vec<Step>,
}
#[derive(Clone, PartialEq, Message)]
struct Step {
    #[prost(message, repeated, tag = "1")]
    feed: Vec<NamedTensorProto>,
    #[prost(string, repeated, tag = "2")]
    fetch: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    target: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    expected: Vec<TensorProto>,
    #[prost(int32, tag = "5")]
    status: i32,
    #[prost(string, tag = "6")]
    contains: String,
    #[prost(string, tag = "7")]
    said: String,
}
struct Nowhere;
impl Rendezvous for Nowhere {
    fn send(&self, _: &RendezvousKey, _: Parcel) -> Result<()> {
        Ok(())
    }
    fn recv(&self, _: &RendezvousKey) -> BoxFuture<Result<Parcel>> {
        Box::pin(std::future::pending())
    }
    fn abort(&self, _: Status) {}
}
struct Made {
    kernel: Result<Kernel>,
    refs: Vec<bool>,
    uninit: bool,
}
struct Session<'a> {
    reg: &'a Registry,
    nodes: HashMap<String, NodeDef>,
    made: HashMap<String, Made>,
    step: Arc<StepCx>,
    lib: Arc<dyn FunctionLibrary>,
}
impl Session<'_> {
    fn make(&mut self, name: &str) -> Result<()> {
        if self.made.contains_key(name) {
            return Ok(());
        }
        let node = self.nodes[name].clone();
        let entry = self.reg.get(&node.op).ok_or_else(|| status!(NotFound, "NO OP {}", node.op))?.clone();
        let mut attrs = Attrs(node.attr.clone().into_iter().collect());
        for a in &entry.spec().attrs {
            if !attrs.has(&a.name) {
                if let Some(d) = &a.default {
                    attrs.set(&a.name, d.clone());
                }
            }
        }
        for a in &entry.spec().attrs {
            if let Some(v) = attrs.raw(&a.name) {
                a.check(v)?;
            }
        }
        let ins = OpSpec::arg_types(&entry.spec().inputs, &attrs)?;
        let outs: Vec<DType> =
            OpSpec::arg_types(&entry.spec().outputs, &attrs)?.into_iter().map(|x| x.0).collect();
        let in_types: Vec<DType> = ins.iter().map(|x| x.0).collect();
        let init = Init {
            node: name,
            op: entry.op.name,
            attrs: &attrs,
            input_types: &in_types,
            output_types: &outs,
            device: &self.step.device,
            resources: &self.step.resources,
            library: &self.lib,
        };
        let kernel = entry.kernel(name, &attrs).and_then(|row| (row.make)(&init));
        self.made.insert(
            name.to_owned(),
            Made {
                kernel,
                refs: ins.iter().map(|x| x.1).collect(),
                uninit: entry.op.allows_uninitialized_input,
            },
        );
        Ok(())
    }
    fn eval(&mut self, name: &str, memo: &mut HashMap<String, Vec<Value>>) -> Result<()> {
        if memo.contains_key(name) {
            return Ok(());
        }
        let node = self.nodes.get(name).ok_or_else(|| status!(NotFound, "no node {name}"))?.clone();
        let mut inputs = Vec::new();
        for i in &node.input {
            let (n, k) = match i.strip_prefix('^') {
                Some(c) => (c, None),
                None => match i.split_once(':') {
                    Some((n, k)) => (n, Some(k.parse::<usize>().unwrap())),
                    None => (i.as_str(), Some(0)),
                },
            };
            self.eval(n, memo)?;
            if let Some(k) = k {
                inputs.push(memo[n][k].clone());
            }
        }
        let out = match node.op.as_str() {
            "Const" => vec![Value::Tensor(match node.attr["value"].value.as_ref().unwrap() {
                ferroflow_proto::tensorflow::attr_value::Value::Tensor(t) => Tensor::from_proto(t)?,
                _ => panic!(),
            })],
            "Identity" => vec![Value::Tensor(inputs[0].read()?.deep_copy())],
            "Placeholder" => bail!(InvalidArgument, "not fed"),
            _ => {
                self.make(name)?;
                let made = &self.made[name];
                for (i, v) in inputs.iter_mut().enumerate() {
                    if !made.refs[i] {
                        *v = Value::Tensor(v.read()?);
                    } else if let Value::Ref(var) = v {
                        if !made.uninit && !var.is_initialized() {
                            return Err(var.uninitialized());
                        }
                    } else {
                        bail!(InvalidArgument, "needs a reference");
                    }
                }
                match made.kernel.as_ref().map_err(|e| e.clone())? {
                    Kernel::Sync(run) => match run(&mut KernelCx::new(
                        &mut inputs,
                        &self.step,
                        FrameIteration::default(),
                        false,
                    ))? {
                        Outputs::None | Outputs::Dead => vec![],
                        Outputs::One(v) => vec![v],
                        Outputs::Many(v) => v,
                    },
                    _ => panic!("future"),
                }
            }
        };
        memo.insert(name.to_owned(), out);
        Ok(())
    }
}
fn same(a: &Tensor, b: &Tensor, acc: &str) -> bool {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return false;
    }
    if acc == "random" {
        return true;
    }
    let rounding = acc == "rounding" && std::env::var("EXACT").is_err();
    macro_rules! fl {
        ($t:ty, $tol:expr) => {
            a.flat::<$t>().unwrap().iter().zip(b.flat::<$t>().unwrap()).all(|(x, y)| {
                let (x, y) = (f64::from(*x), f64::from(*y));
                x.to_bits() == y.to_bits()
                    || (x.is_nan() && y.is_nan())
                    || (rounding && (x - y).abs() <= $tol * (1e-3f64).max(x.abs().max(y.abs())))
            })
        };
    }
    match a.dtype() {
        DType::Float => fl!(f32, 2e-6),
        DType::Double => fl!(f64, 1e-13),
        DType::Half => fl!(f16, 2e-3),
        DType::Bfloat16 => fl!(bf16, 1.6e-2),
        DType::String => a.flat::<Str>().unwrap() == b.flat::<Str>().unwrap(),
        _ => a.bytes().unwrap() == b.bytes().unwrap() || (rounding && a.dtype().is_complex()),
    }
}
fn show(t: &Tensor) -> String {
    match t.dtype() {
        DType::Float => format!("{:?}", t.flat::<f32>().unwrap()),
        DType::Double => format!("{:?}", t.flat::<f64>().unwrap()),
        DType::Half => format!("{:?}", t.flat::<f16>().unwrap()),
        DType::Bfloat16 => format!("{:?}", t.flat::<bf16>().unwrap()),
        DType::Int32 => format!("{:?}", t.flat::<i32>().unwrap()),
        DType::Int64 => format!("{:?}", t.flat::<i64>().unwrap()),
        _ => format!("{t:?}"),
    }
    .chars()
    .take(160)
    .collect()
}

#[test]
fn mini() {
    let Ok(list) = std::env::var("MINI") else { return };
    let reg = ferroflow_ops::registry();
    for file in list.split(',') {
        let f = File::decode(std::fs::read(file).unwrap().as_slice()).unwrap();
        let (mut ok, mut bad, mut skip) = (0, 0, 0);
        for case in &f.case {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            let device = Arc::new(
                Device::new(
                    "/job:localhost/replica:0/task:0/device:CPU:0",
                    1,
                    BufferPool::new(1 << 20),
                    1 << 32,
                    Arc::new(pool),
                )
                .unwrap(),
            );
            let step = Arc::new(StepCx {
                step_id: 1,
                device,
                resources: ResourceManager::new("localhost"),
                step_resources: ResourceManager::new("step"),
                rendezvous: Arc::new(Nowhere),
                cancellation: Cancellation::new(),
            });
            let mut s = Session {
                reg: &reg,
                nodes: case.graph.clone().unwrap().node.into_iter().map(|n| (n.name.clone(), n)).collect(),
                made: HashMap::new(),
                step,
                lib: Arc::new(NoFunctions),
            };
            let mut verdict = String::new();
            for (k, st) in case.step.iter().enumerate() {
                let mut memo = HashMap::new();
                for feed in &st.feed {
                    memo.insert(
                        feed.name.split(':').next().unwrap().to_owned(),
                        vec![Value::Tensor(Tensor::from_proto(feed.tensor.as_ref().unwrap()).unwrap())],
                    );
                }
                let mut go = || -> Result<Vec<Tensor>> {
                    let mut out = vec![];
                    for t in &st.target {
                        s.eval(t, &mut memo)?;
                    }
                    for fetch in &st.fetch {
                        let (n, _) = fetch.split_once(':').unwrap();
                        s.eval(n, &mut memo)?;
                    }
                    for fetch in &st.fetch {
                        let (n, i) = fetch.split_once(':').unwrap();
                        out.push(
                            memo[n]
                                .get(i.parse::<usize>().unwrap())
                                .ok_or_else(|| status!(Internal, "no output"))?
                                .read()?,
                        );
                    }
                    Ok(out)
                };
                match go() {
                    Err(e) if e.message().starts_with("NO OP") => {
                        verdict = "skip".into();
                        break;
                    }
                    Err(e) => {
                        if e.code() as i32 != st.status {
                            verdict = format!(
                                "step {k}: {} {} want {} {}",
                                e.code().name(),
                                e.message(),
                                st.status,
                                st.said
                            );
                            break;
                        } else if !st.contains.is_empty() && !e.message().contains(&st.contains) {
                            verdict = format!("step {k}: says {} want {}", e.message(), st.contains);
                            break;
                        } else if std::env::var("TEXT").is_ok() && !st.said.contains(e.message()) {
                            println!("TEXT {}: {:?} | {:?}", case.name, e.message(), st.said);
                        }
                    }
                    Ok(out) => {
                        if st.status != 0 {
                            verdict = format!("step {k}: OK want {} {}", st.status, st.said);
                            break;
                        }
                        for (i, (a, b)) in out.iter().zip(&st.expected).enumerate() {
                            let b = Tensor::from_proto(b).unwrap();
                            if !same(a, &b, &case.accuracy) {
                                verdict = format!(
                                    "step {k} output {i}: {:?} {} want {:?} {}",
                                    a,
                                    show(a),
                                    b,
                                    show(&b)
                                );
                                break;
                            }
                        }
                        if !verdict.is_empty() {
                            break;
                        }
                    }
                }
            }
            match verdict.as_str() {
                "" => ok += 1,
                "skip" => skip += 1,
                v => {
                    bad += 1;
                    println!("BAD {}: {v}", case.name);
                }
            }
        }
        println!("{file}: ok {ok} bad {bad} skip {skip}");
    }
}
