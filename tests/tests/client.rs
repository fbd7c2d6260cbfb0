//! Our client on stock's servers: what a stock server answers to it is what stock wrote into the goldens.

use crate::stock;
use ferroflow_testing::golden;
use ferroflow_testing::remote::Remote;
use ferroflow_testing::suite::{self, Outcome};

/// Families that between them use every kind of tensor, state and failure.
const FAMILIES: [&str; 8] =
    ["matmul", "string", "cast", "function", "variable_ref", "variable_resource", "queue", "graph"];

#[test]
fn a_stock_server_answers_our_client_as_it_answers_its_own() {
    let Some(server) = stock::Server::start(None) else { return };
    let remote = Remote::to(server.target()).unwrap();
    let (mut failures, mut passed) = (String::new(), 0);
    for family in FAMILIES {
        for case in golden::load(family).unwrap().case {
            match suite::run(&remote, &case) {
                Outcome::Failed(why) => failures.push_str(&format!("{family}/{}: {why}\n", case.name)),
                _ => passed += 1,
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(passed > 100, "only {passed} cases");
}
