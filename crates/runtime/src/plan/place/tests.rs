//! Placement of graphs that grow. Tests that cross crates compare the placement of whole graphs with stock's.

use super::Placer;
use crate::testing::{graph, graph_def};
use expect_test::{Expect, expect};
use ferroflow_core::device::DeviceSpec;

/// Places a graph, then the nodes added to it.
fn check(first: &str, second: &str, soft: bool, expected: Expect) {
    let names = ["/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0"];
    let spec = |task: &str| DeviceSpec::parse(&format!("{task}/replica:0/cpu:0")).unwrap();
    let devices = names.map(spec);
    let placer = Placer { devices: &devices, default: 2, soft, inline_calls: false };
    let mut graph = graph(first);
    placer.place(&mut graph, 0).unwrap();
    let known = graph.node_count();
    graph.extend(&graph_def(second)).unwrap();
    let shown = match placer.place(&mut graph, known) {
        Ok(()) => graph.to_string().replace("/replica:0", "").replace("/device:CPU:0", ""),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn new_nodes_go_to_the_variables_and_resources_of_old_ones() {
    check(
        "v = Variable() @/job:ps/task:1
         h = Handle() @/job:ps
         free = Handle()
         one = Value() value=1",
        "assign = Assign(v, one)
         read = Read(h) @/job:worker
         found = Read(free) @/job:ps
         sum = Add(read, one)",
        false,
        expect![[r#"
            v = Variable() @/job:ps/task:1
            h = Handle() @/job:ps/task:0
            free = Handle() @/job:worker/task:0
            one = Value() @/job:worker/task:0
            assign = Assign(v, one) @/job:ps/task:1
            read = Read(h) @/job:ps/task:0
            found = Read(free) @/job:worker/task:0
            sum = Add(read, one) @/job:worker/task:0
        "#]],
    );
}

#[test]
fn the_other_devices_of_the_default_task_come_before_those_of_others() {
    let spec = |name: &str| DeviceSpec::parse(name).unwrap();
    let names = [
        "/job:ps/task:0/cpu:0",
        "/job:ps/task:0/cpu:1",
        "/job:worker/task:0/cpu:0",
        "/job:worker/task:0/cpu:1",
    ];
    let devices = names.map(spec);
    let mut graph =
        graph("a = Value() value=1 @/cpu:1\nb = Value() value=1\nc = Value() value=1 @/job:ps/cpu:1");
    Placer { devices: &devices, default: 2, soft: false, inline_calls: true }.place(&mut graph, 0).unwrap();
    let placed: Vec<&str> = graph.nodes().iter().map(|node| node.data.device.as_str()).collect();
    let expected =
        ["/job:worker/task:0/device:CPU:1", "/job:worker/task:0/device:CPU:0", "/job:ps/task:0/device:CPU:1"];
    assert_eq!(placed, expected);
}

#[test]
fn old_nodes_stay_where_they_are() {
    check(
        "one = Value() value=1\nv = Variable()",
        "assign = Assign(v, one) @/job:ps/task:0\nsum = Add(one, two) @/job:ps/task:1\ntwo = Value() value=2",
        true,
        expect![[r#"
            one = Value() @/job:worker/task:0
            v = Variable() @/job:worker/task:0
            assign = Assign(v, one) @/job:worker/task:0
            sum = Add(one, two) @/job:ps/task:1
            two = Value() @/job:ps/task:1
        "#]],
    );
}
