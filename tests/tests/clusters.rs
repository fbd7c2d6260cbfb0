//! Clusters of stock's tasks and ours do the same as clusters of stock's: the scenarios of `oracle/cluster`.
//!
//! Tasks are processes, because some of them are killed. `cargo xtask faults` runs more rounds of that,
//! `cargo xtask checkpoints` larger checkpoints.

use crate::{binary, stock};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

#[test]
fn a_stock_client_cannot_tell_clusters_apart() {
    run("shared");
}

#[test]
fn a_program_of_the_guide_trains_unchanged() {
    run("guide");
}

#[test]
fn tasks_come_in_any_order() {
    run("start_orders");
}

#[test]
fn tasks_are_where_their_clusters_say() {
    run("addresses");
}

#[test]
fn masters_say_whom_they_wait_for_and_why() {
    run("waits");
}

#[test]
fn iterators_are_saved_and_restored_across_runtimes() {
    run("iterator_states");
}

#[test]
fn servers_say_what_an_input_pipeline_waits_for() {
    run("pipeline_waits");
}

#[test]
fn a_task_that_stands_still_does_not_stop_sessions() {
    run("standstill");
}

#[test]
fn loops_without_end_let_others_have_their_turn() {
    run("long_loops");
}

#[test]
fn tasks_with_several_cpu_devices_are_used_as_stocks_are() {
    run("cpu_devices");
}

#[test]
fn a_second_process_of_the_same_task_is_refused() {
    run("rivals");
}

#[test]
fn servers_say_what_keeps_sessions_from_opening_and_steps_from_running() {
    run("missing_workers refusals");
}

#[test]
fn a_task_that_is_asked_to_end_is_gone_for_those_who_wait() {
    run("endings");
}

#[test]
fn containers_are_emptied_under_waiting_steps() {
    run("resets");
}

#[test]
fn a_session_is_told_that_its_server_restarted() {
    run("one_server");
}

#[test]
fn no_acknowledged_increment_is_lost() {
    run("counter");
}

#[test]
fn checkpoints_take_bounded_memory() {
    run("large_checkpoints");
}

#[test]
fn a_killed_server_leaves_a_whole_checkpoint() {
    run("killed_saves");
}

#[test]
fn training_survives_every_task() {
    run("restarts");
}

#[test]
fn a_bad_network_is_survived_or_noticed() {
    run("network");
}

/// The process that runs scenarios, one after the other: stock takes longer to start than most of them. It ends with its
/// input, with this process.
struct Runner {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Runner {
    fn start(python: &Path) -> Runner {
        let mut process = Command::new(python)
            .arg(stock::root().join("oracle/cluster/run.py"))
            .arg("--serve")
            .arg("--server")
            .arg(binary::path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter starts");
        let requests = process.stdin.take().expect("the input is a pipe");
        let answers = BufReader::new(process.stdout.take().expect("the output is a pipe"));
        Runner { process, requests, answers }
    }

    /// The answer to a line, and whether all went well; `None` if the process ended before.
    fn ask(&mut self, scenarios: &str) -> Option<(String, bool)> {
        writeln!(self.requests, "{scenarios}").ok()?;
        let mut said = Vec::new();
        loop {
            let from = said.len();
            if self.answers.read_until(b'\n', &mut said).ok()? == 0 {
                return None;
            }
            let line = String::from_utf8_lossy(&said[from..]).into_owned();
            if let Some(verdict) = line.strip_prefix("== ") {
                return Some((
                    String::from_utf8_lossy(&said).into_owned(),
                    verdict.trim() == "0 differences",
                ));
            }
        }
    }
}

/// One cluster at a time is enough for two cores.
static RUNNER: Mutex<Option<Runner>> = Mutex::new(None);

/// Runs scenarios of `oracle/cluster`, or of another folder if their names have a dot.
pub(crate) fn run(scenarios: &str) {
    let Some(python) = stock::python() else { return };
    let mut turn = RUNNER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut runner = turn.take().unwrap_or_else(|| Runner::start(&python));
    let Some((said, is_same)) = runner.ask(scenarios) else {
        panic!("the runner of scenarios ended: {:?}", runner.process.wait());
    };
    *turn = Some(runner);
    drop(turn);
    assert!(is_same, "{said}");
    // Seen with `--nocapture`: what was skipped, and how long each scenario took.
    println!("{said}");
}
