//! Graphs of the goldens, damaged in many ways, are run or refused.

use crate::tensor::{depends_on_the_machine, shape, tensor};
use crate::{assert_modest, config};
use ferroflow_core::op::Registry;
use ferroflow_core::{Code, Status};
use ferroflow_proto::tensorflow::attr_value::{ListValue, Value};
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NodeDef};
use ferroflow_runtime::PlanOptions;
use ferroflow_testing::golden::{self, GoldenCase};
use ferroflow_testing::local::Local;
use ferroflow_testing::suite::{self, Runtime};
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;
use std::sync::LazyLock;

/// One golden case of this number is damaged.
const STRIDE: usize = 29;

static REGISTRY: LazyLock<Registry> = LazyLock::new(ferroflow_ops::registry);

/// Cases that this build can run, from every family.
static CASES: LazyLock<Vec<GoldenCase>> = LazyLock::new(|| {
    let families = golden::families().expect("the goldens are in the repository");
    let files = families.iter().map(|family| golden::load(family).expect("a golden file parses"));
    let cases = files.flat_map(|file| file.case.into_iter().step_by(STRIDE));
    let known = |case: &GoldenCase| {
        case.graph.as_ref().is_some_and(|graph| suite::missing_ops(graph, &REGISTRY).is_empty())
    };
    cases.filter(known).filter(|case| !waits_for_others(case)).collect()
});

/// Whether a case has ops that wait by design for what another step brings: damaged, they may wait for ever, and rightly.
fn waits_for_others(case: &GoldenCase) -> bool {
    const WAITING: [&str; 5] = ["Queue", "Accumulator", "Barrier", "Unstage", "Recv"];
    let waits = |op: &str| WAITING.iter().any(|part| op.contains(part));
    case.graph.as_ref().is_some_and(|graph| graph.node.iter().any(|node| waits(&node.op)))
}

/// One way to damage a graph; indices choose the node, the input, the attribute.
#[derive(Clone, Debug)]
enum Damage {
    Op(Index),
    DropInput(Index),
    RepeatInput(Index),
    Redirect(Index, Index, u8),
    Input(Index, String),
    Rename(Index),
    Name(String),
    Device(String),
    DropAttr(Index),
    SwapAttr(Index, Index, Index),
    Attr(Index, Box<AttrValue>),
    DropNode,
    RepeatNode(Index),
    DropFunction(Index),
    Call(Index),
    Byte(Index, u8),
}

fn attr() -> impl Strategy<Value = AttrValue> {
    let value = prop_oneof![
        prop_oneof![-3i32..130, Just(i32::MAX)].prop_map(Value::Type),
        prop_oneof![-3i64..10, Just(i64::MAX), Just(i64::MIN), Just(1i64 << 40)].prop_map(Value::I),
        any::<bool>().prop_map(Value::B),
        any::<f32>().prop_map(Value::F),
        ".{0,8}".prop_map(|text| Value::S(text.into_bytes().into())),
        shape().prop_map(Value::Shape),
        tensor().prop_map(|tensor| Value::Tensor(Box::new(tensor))),
        prop::collection::vec(1i32..24, 0..6)
            .prop_map(|types| Value::List(Box::new(ListValue { r#type: types, ..Default::default() }))),
        prop::collection::vec(-4i64..5, 0..6)
            .prop_map(|numbers| Value::List(Box::new(ListValue { i: numbers, ..Default::default() }))),
    ];
    value.prop_map(|value| AttrValue { value: Some(value) })
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<Index>;
    let text = || prop_oneof![".{0,6}", "\\^?[a-c]{1,2}(:[0-9]{0,12})?"];
    prop_oneof![
        index().prop_map(Damage::Op),
        index().prop_map(Damage::DropInput),
        index().prop_map(Damage::RepeatInput),
        (index(), index(), any::<u8>()).prop_map(|(input, node, slot)| Damage::Redirect(input, node, slot)),
        (index(), text()).prop_map(|(input, text)| Damage::Input(input, text)),
        index().prop_map(Damage::Rename),
        text().prop_map(Damage::Name),
        text().prop_map(Damage::Device),
        index().prop_map(Damage::DropAttr),
        (index(), index(), index()).prop_map(|(to, node, from)| Damage::SwapAttr(to, node, from)),
        (index(), attr()).prop_map(|(at, value)| Damage::Attr(at, Box::new(value))),
        Just(Damage::DropNode),
        index().prop_map(Damage::RepeatNode),
        index().prop_map(Damage::DropFunction),
        index().prop_map(Damage::Call),
        (index(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
    ]
}

fn apply(graph: &mut GraphDef, node: &Index, damage: &Damage) {
    if graph.node.is_empty() {
        return;
    }
    let at = node.index(graph.node.len());
    let others: Vec<NodeDef> = graph.node.clone();
    let pick = |index: &Index| &others[index.index(others.len())];
    let node = &mut graph.node[at];
    let key = |node: &NodeDef, index: &Index| -> Option<String> {
        (!node.attr.is_empty()).then(|| node.attr.keys().nth(index.index(node.attr.len())).cloned())?
    };
    match damage {
        Damage::Op(op) => {
            let ops = REGISTRY.all();
            node.op = ops[op.index(ops.len())].op.name.to_owned();
        }
        Damage::DropInput(input) if !node.input.is_empty() => {
            node.input.remove(input.index(node.input.len()));
        }
        Damage::RepeatInput(input) if !node.input.is_empty() => {
            node.input.push(node.input[input.index(node.input.len())].clone());
        }
        Damage::Redirect(input, source, slot) => {
            let name = &pick(source).name;
            let text = match slot {
                0..128 => name.clone(),
                128..192 => format!("{name}:{}", slot % 4),
                _ => format!("^{name}"),
            };
            if node.input.is_empty() {
                node.input.push(text);
            } else {
                let input = input.index(node.input.len());
                node.input[input] = text;
            }
        }
        Damage::Input(input, text) if !node.input.is_empty() => {
            let input = input.index(node.input.len());
            node.input[input] = text.clone();
        }
        Damage::Rename(to) => node.name = pick(to).name.clone(),
        Damage::Name(name) => node.name = name.clone(),
        Damage::Device(device) => node.device = device.clone(),
        Damage::DropAttr(index) => {
            if let Some(key) = key(node, index) {
                node.attr.remove(&key);
            }
        }
        Damage::SwapAttr(to, source, from) => {
            let source = pick(source);
            if let (Some(to), Some(from)) = (key(node, to), key(source, from)) {
                node.attr.insert(to, source.attr[&from].clone());
            }
        }
        Damage::Attr(index, value) => {
            if let Some(key) = key(node, index) {
                node.attr.insert(key, (**value).clone());
            }
        }
        Damage::DropNode => {
            graph.node.remove(at);
        }
        Damage::RepeatNode(other) => {
            let mut copy = pick(other).clone();
            copy.name.push_str("_again");
            graph.node.push(copy);
        }
        Damage::DropFunction(index) => {
            if let Some(library) = &mut graph.library
                && !library.function.is_empty()
            {
                library.function.remove(index.index(library.function.len()));
            }
        }
        // A function calls some function of the library, possibly itself.
        Damage::Call(index) => {
            if let Some(library) = &mut graph.library
                && !library.function.is_empty()
            {
                let callee = library.function[index.index(library.function.len())].clone();
                let count = library.function.len();
                let caller = &mut library.function[at % count];
                if let (Some(inner), Some(signature)) = (caller.node_def.first_mut(), callee.signature) {
                    inner.op = signature.name;
                }
            }
        }
        Damage::Byte(index, byte) => {
            let mut bytes = graph.encode_to_vec();
            let at = index.index(bytes.len());
            bytes[at] = *byte;
            if let Ok(damaged) = GraphDef::decode(bytes.as_slice()) {
                *graph = damaged;
            }
        }
        Damage::DropInput(_) | Damage::RepeatInput(_) | Damage::Input(..) => {}
    }
}

/// Whether a node holds a tensor whose size some machines can hold and others cannot.
fn asks_for_much(graph: &GraphDef) -> bool {
    let library = graph.library.iter().flat_map(|library| &library.function);
    let nodes = graph.node.iter().chain(library.flat_map(|function| &function.node_def));
    let values = nodes.flat_map(|node| node.attr.values()).filter_map(|attr| attr.value.as_ref());
    values.into_iter().any(|value| matches!(value, Value::Tensor(proto) if depends_on_the_machine(proto)))
}

/// A refusal that only a bug of Ferroflow can cause.
fn is_bug(status: &Status) -> bool {
    status.message().contains("a kernel panicked") || status.code() == Code::DeadlineExceeded
}

/// Opens a session and runs the case's steps; every answer is fine except one that shows a bug.
fn try_to_run(runtime: &Local, case: &GoldenCase, graph: &GraphDef) -> Result<(), TestCaseError> {
    let mut session = match runtime.session(graph) {
        Ok(session) => session,
        Err(status) => {
            prop_assert!(!is_bug(&status), "{status}");
            return Ok(());
        }
    };
    for step in &case.step {
        let Ok(feeds) = suite::feeds(step) else { continue };
        if let Err(status) = session.run(feeds, &step.fetch, &step.target) {
            prop_assert!(!is_bug(&status), "{}: {status}", case.name);
        }
    }
    Ok(())
}

#[test]
fn any_graph_is_run_or_refused() {
    let runtime = Local::new(REGISTRY.clone(), PlanOptions::default()).expect("threads start");
    let damages = prop::collection::vec((any::<Index>(), damage()), 1..4);
    proptest!(config(400), |(case in any::<Index>(), damages in damages)| {
        let case = &CASES[case.index(CASES.len())];
        let mut graph = case.graph.clone().expect("cases without a graph are left out");
        for (node, damage) in &damages {
            apply(&mut graph, node, damage);
        }
        prop_assume!(!asks_for_much(&graph));
        try_to_run(&runtime, case, &graph)?;
    });
    assert_modest(8 << 30);
}
