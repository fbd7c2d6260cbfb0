//! Remote eager execution: a stock client does the same on our servers, and on ours and stock's together, as on stock's.
//! Each scenario of `oracle/eager` prints the same lines, and so do the programs of `oracle/coordinator` on clusters of
//! processes.

use crate::interop::{first_differences, run_scenarios};
use crate::{clusters, stock};
use ferroflow::{Server, ServerConfig};
use std::net::TcpListener;
use std::process::Command;

const SCRIPT: &str = "oracle/eager/run.py";

/// Scenarios in which tasks talk to each other.
const SPANNING: &[&str] = &["functions", "spanning", "coordination", "coordinator"];

#[test]
fn a_stock_client_runs_ops_and_functions_on_our_servers() {
    let Some(python) = stock::python() else { return };
    // Servers of their own, because some scenarios end the contexts of all clients.
    let servers: Vec<Server> = (0..6).map(|_| start()).collect();
    let targets: Vec<&str> = servers.iter().map(|server| &**server.target()).collect();
    let [first, second, ps, other_first, other_second, other_ps] = targets[..] else {
        unreachable!("six servers were started")
    };
    let run = |targets: [&str; 3], scenarios: &[&str]| {
        let joined = targets.join(",");
        let mut arguments = vec!["--target", &joined];
        arguments.extend(scenarios);
        run_scenarios(&python, SCRIPT, &arguments)
    };
    let stock = ["stock"; 3];
    let mixtures = [["stock", other_second, other_ps], [other_first, "stock", "stock"]];
    let ([expected, some_ours], [ours, other_ours]) = std::thread::scope(|scope| {
        let one = scope.spawn(|| [run(stock, &[]), run(mixtures[0], SPANNING)]);
        let other = scope.spawn(|| [run([first, second, ps], &[]), run(mixtures[1], SPANNING)]);
        (one.join().unwrap(), other.join().unwrap())
    });
    assert!(!expected.is_empty(), "no scenario ran");
    let mut differences = String::new();
    for (targets, found, is_all) in [
        ([first, second, ps], &ours, true),
        (mixtures[0], &some_ours, false),
        (mixtures[1], &other_ours, false),
    ] {
        let mut differ = first_differences(&expected, found);
        differ.retain(|scenario, _| is_all || SPANNING.contains(&scenario.as_str()));
        for difference in differ.into_values() {
            differences += &format!("{targets:?}: {difference}");
        }
    }
    assert!(differences.is_empty(), "first lines that differ:\n{differences}");
}

#[test]
fn functions_that_a_stock_client_gives_up_end_on_every_task() {
    let Some(python) = stock::python() else { return };
    let servers: Vec<Server> = (0..3).map(|_| start()).collect();
    let addresses = servers.iter().map(|server| server.target().trim_start_matches("grpc://"));
    let program = stock::root().join("oracle/eager/cancelled_program.py");
    let run = Command::new(python).arg(program).args(addresses).output().unwrap();
    let mut expected = String::new();
    for device in ["/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"] {
        expected += &format!(
            "all wait, asked of {device}: CancelledError\nnobody waits: [int32[] 1, int32[] 1, int32[] 1]\nasked \
             again: float32[] 3.0\n"
        );
    }
    expected += "a loop over two tasks: CancelledError\nand on: float32[] 2.0\n";
    let (told, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert_eq!(told, expected, "{errors}");
}

#[test]
fn variables_in_pieces_and_aggregated_ones_are_used_as_on_stocks_tasks() {
    clusters::run("coordinator.sharded coordinator.aggregation");
}

#[test]
fn coordinators_train_evaluate_and_save_as_on_stocks_tasks() {
    clusters::run("coordinator.training coordinator.datasets coordinator.evaluation coordinator.saving");
}

#[test]
fn the_first_strategy_trains_in_sessions() {
    clusters::run("coordinator.first_strategy");
}

#[test]
fn first_programs_of_coordinators_run() {
    clusters::run("coordinator.first_programs coordinator.two_devices");
}

#[test]
fn input_is_distributed_and_models_of_keras_are_fitted() {
    clusters::run("coordinator.distributed coordinator.keras_fit coordinator.tutorial");
}

#[test]
fn coordinators_survive_their_workers() {
    clusters::run("coordinator.lost_tasks");
}

#[test]
fn nothing_is_left_of_a_coordinator_that_was_killed() {
    clusters::run("coordinator.silence");
}

fn start() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("some port is free");
    Server::start(ServerConfig::default(), ferroflow::registry(), vec![listener], std::future::pending())
        .unwrap()
}
