//! Our placer gives every node the device that stock's gives it, and refuses what stock refuses.

use ferroflow_core::Code;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::Graph;
use ferroflow_proto::tensorflow::GraphDef;
use ferroflow_runtime::plan::place::Placer;
use ferroflow_testing::{golden, text};
use std::fmt::Write;

const TASKS: [&str; 4] = [
    "/job:ps/replica:0/task:0",
    "/job:ps/replica:0/task:1",
    "/job:worker/replica:0/task:0",
    "/job:worker/replica:0/task:1",
];

#[test]
fn nodes_are_placed_where_stock_places_them() {
    let directory = golden::testdata().join("placement");
    let mut wrong = String::new();
    let mut cases = 0;
    for entry in std::fs::read_dir(directory).expect("testdata is part of the repository") {
        let path = entry.expect("the directory can be read").path();
        let written = std::fs::read_to_string(&path).expect("the file can be read");
        let difference = difference(&written);
        if !difference.is_empty() {
            let _ = writeln!(wrong, "{}:\n{difference}", path.display());
        }
        cases += 1;
    }
    assert!(cases > 0, "no case was found");
    assert!(wrong.is_empty(), "{wrong}");
}

/// The values of `key` in the comments of a case.
fn notes<'a>(written: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    written.lines().filter_map(move |line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
}

/// The first difference between our placement of a case and stock's.
fn difference(written: &str) -> String {
    let def: GraphDef = text::parse("tensorflow.GraphDef", written).expect("stock's graph parses");
    let note = |key| notes(written, key).next().expect("the case says so");
    let devices = TASKS.map(|task| DeviceSpec::parse(&format!("{task}/device:CPU:0")).expect("a full name"));
    let default = devices.iter().position(|device| device.to_string() == note("master"));
    let default = default.expect("the master is a task");
    let mut graph = Graph::new(ferroflow_ops::registry());
    graph.extend(&def).expect("stock's graph is valid");
    let placed = Placer { devices: &devices, default, soft: note("soft") == "true", inline_calls: true }
        .place(&mut graph, 0);
    let mut wrong = String::new();
    match (placed, notes(written, "error").next()) {
        (Ok(()), None) => {
            for line in notes(written, "placed") {
                let (name, device) = line.split_once(' ').expect("a name and a device");
                let node = graph.find(name).expect("stock places the nodes of the graph");
                let ours = &graph.node(node).data.device;
                if ours != device {
                    let _ = writeln!(wrong, "  {name}: ours {ours}, stock {device}");
                }
            }
        }
        (Ok(()), Some(error)) => wrong = format!("  stock refuses: {error}\n"),
        (Err(error), None) => wrong = format!("  stock places what we refuse: {error}\n"),
        (Err(error), Some(stock)) => {
            let (code, message) = stock.split_once(' ').expect("a code and a text");
            let message = message.trim_matches(['\'', '"']).replace("\\n", "\n").replace("\\t", "\t");
            // Stock goes on with the devices in no order and with its own view of the group's members.
            let start = |text: &str| text.split(" All available devices").next().map(str::to_owned);
            let (ours, message) = (start(error.message()), start(&message));
            if error.code() != Code::InvalidArgument || code != "3" || ours != message {
                wrong = format!("  ours  {ours:?}\n  stock {message:?}\n");
            }
        }
    }
    wrong
}
