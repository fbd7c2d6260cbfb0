//! Clusters of stock's tasks and ours do the same as clusters of stock's: the scenarios of `oracle/cluster`.
//!
//! Tasks are processes, because some of them are killed. `cargo xtask faults` runs more rounds of that,
//! `cargo xtask checkpoints` larger checkpoints.

use crate::{binary, stock};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// One cluster at a time is enough for two cores.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn a_stock_client_cannot_tell_clusters_apart() {
    run(&["--shared"]);
}

#[test]
fn a_program_of_the_guide_trains_unchanged() {
    run(&["guide"]);
}

#[test]
fn tasks_come_in_any_order() {
    run(&["start_orders"]);
}

#[test]
fn tasks_are_where_their_clusters_say() {
    run(&["addresses"]);
}

#[test]
fn masters_say_whom_they_wait_for_and_why() {
    run(&["waits"]);
}

#[test]
fn a_task_that_stands_still_does_not_stop_sessions() {
    run(&["standstill"]);
}

#[test]
fn loops_without_end_let_others_have_their_turn() {
    run(&["long_loops"]);
}

#[test]
fn tasks_with_several_cpu_devices_are_used_as_stocks_are() {
    run(&["cpu_devices"]);
}

#[test]
fn a_second_process_of_the_same_task_is_refused() {
    run(&["rivals"]);
}

#[test]
fn servers_say_what_keeps_sessions_from_opening_and_steps_from_running() {
    run(&["missing_workers", "refusals"]);
}

#[test]
fn a_task_that_is_asked_to_end_is_gone_for_those_who_wait() {
    run(&["endings"]);
}

#[test]
fn containers_are_emptied_under_waiting_steps() {
    run(&["resets"]);
}

#[test]
fn a_session_is_told_that_its_server_restarted() {
    run(&["one_server"]);
}

#[test]
fn no_acknowledged_increment_is_lost() {
    run(&["counter"]);
}

#[test]
fn checkpoints_take_bounded_memory() {
    run(&["large_checkpoints"]);
}

#[test]
fn a_killed_server_leaves_a_whole_checkpoint() {
    run(&["killed_saves"]);
}

#[test]
fn training_survives_every_task() {
    run(&["restarts"]);
}

#[test]
fn a_bad_network_is_survived_or_noticed() {
    run(&["network"]);
}

fn run(scenarios: &[&str]) {
    let Some(python) = stock::python() else { return };
    let binary = binary::path();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(python)
        .arg(stock::root().join("oracle/cluster/run.py"))
        .arg("--server")
        .arg(binary)
        .args(scenarios)
        .output()
        .expect("the interpreter starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // Seen with `--nocapture`: what was skipped, and how long each scenario took.
    println!("{said}");
}
