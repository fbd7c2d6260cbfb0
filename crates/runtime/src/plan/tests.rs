//! Planning as text: a graph and a signature in, the nodes that will run out.

use super::plan;
use crate::PlanOptions;
use crate::testing::{env, graph, signature};
use expect_test::{Expect, expect};

fn check(text: &str, feeds: &str, fetches: &str, targets: &str, optimize: bool, expected: Expect) {
    let graph = graph(text);
    let planned = plan(&graph, &signature(feeds, fetches, targets), &PlanOptions { optimize }, &env(&graph));
    match planned {
        Ok(planned) => expected.assert_eq(&planned.graph.to_string()),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

const CHAIN: &str = "
    a = Value() value=1
    b = Value() value=1
    c = Add(a, b)
    x = Feed()
    d = Add(c, x)
    e = Add(d, a)
    f = Add(d, b)
    unused = Effect(f)
    ordered = Add(x, x, ^unused)";

#[test]
fn unneeded_nodes_are_dropped() {
    check(
        CHAIN,
        "",
        "c",
        "",
        false,
        expect![[r#"
        a = Value()
        b = Value()
        c = Add(a, b)
    "#]],
    );
}

#[test]
fn a_feed_replaces_what_it_feeds() {
    check(
        CHAIN,
        "d:0",
        "e:0",
        "",
        false,
        expect![[r#"
            a = Value()
            e = Add(_recv_d_0, a)
            _recv_d_0 = _Arg() @/job:localhost/replica:0/task:0/device:CPU:0
        "#]],
    );
}

#[test]
fn constants_are_folded_and_equal_nodes_shared() {
    check(
        CHAIN,
        "x",
        "e f",
        "",
        true,
        expect![[r#"
            a = Const()
            c = Const()
            d = Add(c, _recv_x_0)
            e = Add(d, a)
            _recv_x_0 = _Arg() @/job:localhost/replica:0/task:0/device:CPU:0
        "#]],
    );
}

#[test]
fn control_edges_and_effects_stay() {
    check(
        CHAIN,
        "x",
        "ordered",
        "",
        true,
        expect![[r#"
            a = Const()
            c = Const()
            d = Add(c, _recv_x_0)
            f = Add(d, a)
            unused = Effect(f)
            ordered = Add(_recv_x_0, _recv_x_0, ^unused)
            _recv_x_0 = _Arg() @/job:localhost/replica:0/task:0/device:CPU:0
        "#]],
    );
}

#[test]
fn bad_signatures_are_refused() {
    let refuse =
        |feeds, fetches, targets, expected: Expect| check(CHAIN, feeds, fetches, targets, true, expected);
    refuse("", "", "", expect!["INVALID_ARGUMENT: Must specify at least one target to fetch or execute."]);
    refuse("", "nope", "", expect!["NOT_FOUND: FetchOutputs node nope: not found"]);
    refuse("", "c:3", "", expect!["INVALID_ARGUMENT: FetchOutputs c:3: output index too large, must be < 1"]);
    refuse("q:0", "c", "", expect!["NOT_FOUND: FeedInputs: unable to find feed output q:0"]);
    refuse("c:0 c", "d", "", expect![[r#"INVALID_ARGUMENT: Endpoint "c" fed more than once."#]]);
    refuse("c:0", "c:0", "", expect!["INVALID_ARGUMENT: c:0 is both fed and fetched."]);
    refuse("", "", "nope", expect!["NOT_FOUND: PruneForTargets: Some target nodes not found: nope "]);
}
