//! Partitioning as text, and parts that run together and must agree with the whole graph.

use super::{Borders, Parts, partition, split};
use crate::plan::plan;
use crate::testing::{block_on, env, graph, run, signature, step};
use crate::{Executable, LocalRendezvous, PlanOptions, RuntimeEnv};
use expect_test::{Expect, expect};
use ferroflow_core::rendezvous::Rendezvous;
use ferroflow_core::step::StepCx;
use ferroflow_core::{Result, Tensor};
use futures_util::future::try_join_all;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const CLIENT: &str = "/job:localhost/replica:0/task:0/device:CPU:0";

/// Plans and cuts a graph; nodes without a device are on the client device.
fn cut(text: &str, feeds: &str, fetches: &str, targets: &str, optimize: bool) -> Result<Parts> {
    let mut graph = graph(text);
    for id in graph.ids() {
        if graph.node(id).data.device.is_empty() {
            graph.set_device(id, CLIENT);
        }
    }
    let planned = plan(&graph, &signature(feeds, fetches, targets), &PlanOptions { optimize }, &env(&graph))?;
    let next_id = AtomicU64::new(0);
    partition(planned, &Borders { client: CLIENT, incarnation: &|_| 7, next_id: &next_id, bfloat16: false })
}

fn check(text: &str, feeds: &str, fetches: &str, targets: &str, expected: Expect) {
    let parts = match cut(text, feeds, fetches, targets, false) {
        Ok(parts) => parts,
        Err(error) => return expected.assert_eq(&error.to_string().replace(CLIENT, "client")),
    };
    let mut shown = String::new();
    for graph in std::iter::once(&parts.local.graph).chain(parts.remote.iter().map(|part| &part.graph)) {
        shown.push_str(&graph.to_string().replace(CLIENT, "client"));
        shown.push('\n');
    }
    expected.assert_eq(&shown);
}

/// Runs all parts together; the fetches must equal those of the whole graph on one device.
fn run_parts(text: &str, fetches: &str) -> Vec<i32> {
    let whole =
        text.lines().map(|line| line.split('@').next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let expected = run(&whole, fetches).unwrap();
    for optimize in [false, true] {
        let Parts { local, remote, .. } = cut(text, "", fetches, "", optimize).unwrap();
        let rendezvous: Arc<dyn Rendezvous> = Arc::new(LocalRendezvous::default());
        let start = |executable: Result<Arc<Executable>>, env: &RuntimeEnv| {
            let step = StepCx { rendezvous: rendezvous.clone(), ..Arc::into_inner(step(env)).unwrap() };
            executable.unwrap().start(Vec::new(), Arc::new(step), None).unwrap()
        };
        let own = env(&local.graph);
        let mut steps = vec![start(Executable::from_plan(local, &own), &own)];
        for part in remote {
            let env = env(&part.graph);
            steps.push(start(Executable::for_part(part.graph, &env), &env));
        }
        let results = block_on(try_join_all(steps)).unwrap();
        let values: Vec<i32> = results[0].iter().map(|value: &Tensor| value.to_scalar().unwrap()).collect();
        assert_eq!(values, expected, "optimize: {optimize}");
    }
    expected
}

#[test]
fn a_plan_on_one_device_is_not_changed() {
    check(
        "a = Value() value=1\nb = Add(a, a)",
        "",
        "b",
        "",
        expect![[r#"
        a = Value() @client
        b = Add(a, a) @client

    "#]],
    );
}

#[test]
fn an_output_crosses_once_per_device() {
    check(
        "x = Feed()
         b = Add(x, x) @ps0
         c = Add(b, x) @ps0
         d = Add(b, c) @ps1
         e = Add(d, b)",
        "x",
        "e c",
        "",
        expect![[r#"
            e = Add(d_S7, b_S9) @client
            _recv_x_0 = _Arg() @client
            _recv_x_0_S0 = _Send(_recv_x_0) @client
            d_S7 = _Recv() @client
            b_S9 = _Recv() @client
            c_S11 = _Recv() @client

            b = Add(_recv_x_0_S1, _recv_x_0_S1) @ps0
            c = Add(b, _recv_x_0_S1) @ps0
            _recv_x_0_S1 = _Recv() @ps0
            b_S2 = _Send(b) @ps0
            c_S4 = _Send(c) @ps0
            b_S8 = _Send(b) @ps0
            c_S10 = _Send(c) @ps0

            d = Add(b_S3, c_S5) @ps1
            b_S3 = _Recv() @ps1
            c_S5 = _Recv() @ps1
            d_S6 = _Send(d) @ps1

        "#]],
    );
}

#[test]
fn ends_of_nodes_cross_together() {
    check(
        "a = Value() value=1 @ps0
         b = Effect(a) @ps0
         c = Effect(a) @ps0
         d = Value(^b, ^c) value=2
         e = Effect(d, ^b) @ps0",
        "",
        "d",
        "e",
        expect![[r#"
            d = Value(^b_S3) @client
            b_S2 = _Recv() @client
            b_S3 = Identity(b_S2) @client
            d_S4 = _Send(d) @client

            a = Value() @ps0
            b = Effect(a) @ps0
            c = Effect(a) @ps0
            e = Effect(d_S5, ^b) @ps0
            b_S0 = Const(^b, ^c) @ps0
            b_S1 = _Send(b_S0) @ps0
            d_S5 = _Recv() @ps0

        "#]],
    );
}

#[test]
fn a_reference_does_not_cross() {
    let text = "v = Variable() @ps0\none = Value() value=1\nassign = Assign(v, one)\nread = Add(v, one)";
    check(
        text,
        "",
        "",
        "assign",
        expect![
            "INVALID_ARGUMENT: {{node assign}} on client needs a reference to {{node v}}, which is on ps0: a reference does not cross devices"
        ],
    );
    check(
        &format!("{text}\nlater = Add(v, one, ^read)"),
        "",
        "later",
        "",
        expect![[r#"
            one = Value() @client
            read = Add(v_S1, one) @client
            later = Add(v_S7, one, ^read) @client
            v_S1 = _Recv() @client
            read_S2 = Const(^read) @client
            read_S3 = _Send(read_S2) @client
            v_S7 = _Recv() @client

            v = Variable() @ps0
            v_S0 = _Send(v) @ps0
            read_S4 = _Recv() @ps0
            read_S5 = Identity(read_S4) @ps0
            v_S6 = _Send(v, ^read_S5) @ps0

        "#]],
    );
}

#[test]
fn dead_values_cross() {
    let branch = |left: i32, right: i32| {
        format!(
            "a = Value() value={left}
             b = Value() value={right}
             less = Less(a, b)
             x = Effect(a)
             switch = Switch(x, less) @ps0
             no = Add(switch, a) @ps0
             yes = Add(switch:1, b) @ps1
             merge = Merge(no, yes)
             after = Value(^yes) value=3
             other = Value(^no) value=4 @ps1
             both = Merge(after, other)"
        )
    };
    assert_eq!(run_parts(&branch(1, 5), "merge merge:1 both"), [6, 1, 3]);
    assert_eq!(run_parts(&branch(5, 1), "merge merge:1 both"), [10, 0, 4]);
}

#[test]
fn parts_give_what_the_whole_gives() {
    let text = "a = Value() value=1
                b = Add(a, a) @ps0
                c = Effect(b) @ps0
                d = Effect(c) @ps1
                e = Add(d, c)
                f = Add(e, b) @ps1";
    assert_eq!(run_parts(text, "e f"), [4, 6]);
}

/// A loop that adds `step` to `i` until it reaches `limit`, with nodes on several devices.
fn counting_loop(limit: i32, devices: [&str; 5]) -> String {
    let [condition, body, step, next, out] = devices;
    format!(
        "zero = Value() value=0
         limit = Value() value={limit}
         one = Value() value=1
         i = Enter(zero) frame_name=loop
         bound = Enter(limit) frame_name=loop is_constant=true
         step = Enter(one) frame_name=loop is_constant=true @{step}
         merged = Merge(i, next)
         less = Less(merged, bound) @{condition}
         goes_on = LoopCond(less) @{condition}
         switch = Switch(merged, goes_on)
         twice = Add(step, step) @{step}
         sum = Add(switch:1, twice) @{body}
         next = NextIteration(sum) @{next}
         out = Exit(switch) @{out}
         done = Add(out, one) @{out}"
    )
}

#[test]
fn a_loop_on_several_devices_has_a_skeleton_on_each() {
    check(
        &counting_loop(4, [CLIENT, "ps0", CLIENT, CLIENT, CLIENT]),
        "",
        "out",
        "",
        expect![[r#"
        zero = Value() @client
        limit = Value() @client
        one = Value() @client
        i = Enter(zero) @client
        bound = Enter(limit) @client
        step = Enter(one) @client
        merged = Merge(i, next) @client
        less = Less(merged, bound) @client
        goes_on = LoopCond(less) @client
        switch = Switch(merged, goes_on) @client
        twice = Add(step, step) @client
        next = NextIteration(sum_S17) @client
        out = Exit(switch) @client
        _cloop_S0 = Const() @client
        _cloop_S1 = Enter(_cloop_S0) @client
        _cloop_S2 = Merge(_cloop_S1, _cloop_S4) @client
        _cloop_S3 = Switch(_cloop_S2, goes_on) @client
        _cloop_S4 = NextIteration(_cloop_S3:1) @client
        goes_on_S8 = _Send(goes_on) @client
        switch_S12 = _Send(switch:1) @client
        twice_S14 = _Send(twice) @client
        sum_S17 = _Recv(^_cloop_S2) @client

        sum = Add(switch_S13, twice_S15) @ps0
        _cloop_S5 = Const() @ps0
        _cloop_S6 = Enter(_cloop_S5) @ps0
        _cloop_S7 = Merge(_cloop_S6, _cloop_S11) @ps0
        goes_on_S9 = _Recv(^_cloop_S7) @ps0
        _cloop_S10 = Switch(_cloop_S7, goes_on_S9) @ps0
        _cloop_S11 = NextIteration(_cloop_S10:1) @ps0
        switch_S13 = _Recv(^_cloop_S7) @ps0
        twice_S15 = _Recv(^_cloop_S7) @ps0
        sum_S16 = _Send(sum) @ps0

    "#]],
    );
}

#[test]
fn loops_on_several_devices_count() {
    let places = [
        [CLIENT, "a", CLIENT, CLIENT, CLIENT],
        ["a", CLIENT, CLIENT, CLIENT, CLIENT],
        [CLIENT, CLIENT, "a", CLIENT, CLIENT],
        [CLIENT, CLIENT, CLIENT, "a", "b"],
        ["a", "b", "c", "d", "e"],
        ["b", "a", "a", "b", "b"],
    ];
    for devices in places {
        for limit in [0, 1, 10, 31] {
            let loops = counting_loop(limit, devices);
            assert_eq!(run_parts(&loops, "out done"), [(limit + 1) / 2 * 2, (limit + 1) / 2 * 2 + 1]);
        }
    }
}

#[test]
fn a_loop_in_a_branch_that_is_not_taken_is_dead() {
    let branch = |left: i32| {
        format!(
            "a = Value() value={left}
             b = Value() value=3
             take = Less(a, b)
             x = Effect(b)
             pick = Switch(x, take)
             one = Value() value=1
             zero = Value(^pick) value=0 @b
             i = Enter(pick:1) frame_name=loop
             step = Enter(one) frame_name=loop is_constant=true
             bound = Enter(limit) frame_name=loop is_constant=true
             limit = Value() value=10
             merged = Merge(i, next)
             less = Less(merged, bound)
             goes_on = LoopCond(less)
             switch = Switch(merged, goes_on)
             sum = Add(switch:1, step) @a
             next = NextIteration(sum)
             out = Exit(switch)
             result = Merge(out, pick)"
        )
    };
    assert_eq!(run_parts(&branch(1), "result result:1"), [10, 0]);
    assert_eq!(run_parts(&branch(5), "result result:1"), [3, 1]);
}

/// A nested loop that adds up `j` for every `j < i`, for every `i < limit`.
fn nested_loop(limit: i32, devices: [&str; 4]) -> String {
    let [outer, inner, inner_body, exit] = devices;
    format!(
        "zero = Value() value=0
         one = Value() value=1
         limit = Value() value={limit}
         i = Enter(zero) frame_name=outer
         total = Enter(zero) frame_name=outer
         bound = Enter(limit) frame_name=outer is_constant=true
         step = Enter(one) frame_name=outer is_constant=true
         nil = Enter(zero) frame_name=outer is_constant=true
         i_merged = Merge(i, i_next)
         total_merged = Merge(total, total_next)
         i_less = Less(i_merged, bound)
         i_goes_on = LoopCond(i_less)
         i_switch = Switch(i_merged, i_goes_on)
         total_switch = Switch(total_merged, i_goes_on)
         i_now = Add(i_switch:1, nil) @{outer}
         j = Enter(nil) frame_name=inner @{inner}
         sum = Enter(total_switch:1) frame_name=inner @{inner}
         j_bound = Enter(i_now) frame_name=inner is_constant=true @{inner}
         j_step = Enter(step) frame_name=inner is_constant=true @{inner}
         j_merged = Merge(j, j_next) @{inner}
         sum_merged = Merge(sum, sum_next) @{inner}
         j_less = Less(j_merged, j_bound) @{inner}
         j_goes_on = LoopCond(j_less) @{inner}
         j_switch = Switch(j_merged, j_goes_on) @{inner}
         sum_switch = Switch(sum_merged, j_goes_on) @{inner}
         j_sum = Add(j_switch:1, j_step) @{inner}
         sum_sum = Add(sum_switch:1, j_switch:1) @{inner_body}
         j_next = NextIteration(j_sum) @{inner}
         sum_next = NextIteration(sum_sum) @{inner}
         inner_out = Exit(sum_switch) @{exit}
         i_sum = Add(i_switch:1, step)
         i_next = NextIteration(i_sum)
         total_next = NextIteration(inner_out)
         out = Exit(total_switch)"
    )
}

#[test]
fn nested_loops_on_several_devices_count() {
    let places = [
        [CLIENT, CLIENT, "a", CLIENT],
        [CLIENT, "a", "a", CLIENT],
        [CLIENT, "a", "a", "a"],
        [CLIENT, "a", "b", "c"],
        ["a", CLIENT, CLIENT, CLIENT],
        ["a", "b", "c", "d"],
        ["a", "b", "a", CLIENT],
    ];
    for devices in places {
        for limit in [0, 1, 5] {
            let expected: i32 = (0..limit).map(|i| (0..i).sum::<i32>()).sum();
            assert_eq!(run_parts(&nested_loop(limit, devices), "out"), [expected], "{devices:?}");
        }
    }
}

#[test]
fn a_graph_of_several_devices_is_split_with_and_without_edges_between_them() {
    let split = |text: &str| {
        let mut graph = graph(text);
        let other = CLIENT.replace("CPU:0", "CPU:1");
        for id in graph.ids() {
            let device = if graph.node(id).data.device.is_empty() { CLIENT } else { &other };
            graph.set_device(id, device);
        }
        let next_id = AtomicU64::new(0);
        let borders = Borders { client: CLIENT, incarnation: &|_| 7, next_id: &next_id, bfloat16: false };
        let parts = split(graph, &borders).unwrap();
        let shown = |name: &str| name.rsplit(':').next().unwrap_or_default().to_owned();
        let nodes = |graph: &ferroflow_core::graph::Graph| {
            let names = graph.nodes().iter().map(|node| node.data.op_name().to_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        parts
            .iter()
            .map(|part| format!("{}: {}", shown(&part.device), nodes(&part.graph)))
            .collect::<Vec<_>>()
    };
    let apart = split("a = Variable()\nb = Handle() @/cpu:1\nc = Read(b) @/cpu:1");
    assert_eq!(apart, ["0: Variable", "1: Handle Read"]);
    let crossing = split("h = Handle() @/cpu:1\nr = Read(h) @/cpu:1\ns = Add(r, r)");
    assert_eq!(crossing, ["0: Add _Recv", "1: Handle Read _Send"]);
}
