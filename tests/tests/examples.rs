//! The examples, run as their readers run them but in threads: what they compute is what stock computes, and stock goes
//! on with what they saved.

#![allow(clippy::duplicate_mod, reason = "the examples share a module, and each is a program of its own")]

#[path = "../../crates/ferroflow/examples/between_graph.rs"]
mod between_graph;
#[path = "../../crates/ferroflow/examples/shared_counter.rs"]
mod shared_counter;
#[path = "../../crates/ferroflow/examples/sync_replicas.rs"]
mod sync_replicas;

use crate::savers::Directory;
use crate::stock;
use ferroflow::Result;
use std::net::TcpListener;
use std::process::Command;

/// Flags of a cluster with one parameter server, on free ports.
fn hosts(workers: usize) -> Vec<String> {
    let listeners: Vec<TcpListener> =
        (0..=workers).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let workers: Vec<String> = listeners[1..].iter().map(address).collect();
    vec![format!("--ps_hosts={}", address(&listeners[0])), format!("--worker_hosts={}", workers.join(","))]
}

fn task(hosts: &[String], job: &str, index: usize, more: &[String]) -> Vec<String> {
    let own = [format!("--job_name={job}"), format!("--task_index={index}")];
    hosts.iter().chain(&own).chain(more).cloned().collect()
}

/// Runs an example's parameter server, for as long as this process lives, and its workers to their end.
macro_rules! run {
    ($example:ident, $workers:expr, $more:expr) => {{
        let (hosts, more): (Vec<String>, Vec<String>) = (hosts($workers), $more);
        let flags = task(&hosts, "ps", 0, &more);
        std::thread::spawn(move || $example::run(flags));
        std::thread::scope(|threads| {
            let worker = |index| {
                let flags = task(&hosts, "worker", index, &more);
                threads.spawn(move || $example::run(flags))
            };
            let workers: Vec<_> = (0..$workers).map(worker).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Result<Vec<_>>>()
        })
    }};
}

#[test]
fn workers_count_together() -> Result<()> {
    let totals = run!(shared_counter, 2, vec!["--count=50".to_owned()])?;
    assert_eq!(totals.iter().max(), Some(&100));
    Ok(())
}

#[test]
fn replicas_learn_one_line_together() -> Result<()> {
    let lines = run!(sync_replicas, 2, vec!["--steps=300".to_owned()])?;
    for line in lines {
        assert!((line[0] - 2.0).abs() < 0.05 && (line[1] + 1.0).abs() < 0.05, "{line:?}");
    }
    Ok(())
}

#[test]
fn the_between_graph_trainer_has_stocks_losses_and_stock_goes_on_with_its_checkpoint() -> Result<()> {
    let Some(python) = stock::python() else { return Ok(()) };
    let digits = stock::root().join("examples/data/digits.csv.gz").to_str().unwrap().to_owned();
    let stock = |more: &[&str]| -> Vec<f64> {
        let script = stock::root().join("oracle/examples.py");
        let output = Command::new(&python).arg(script).args(["between_graph", &digits]).args(more).output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    let directory = Directory::new("between_graph");
    let more =
        vec![format!("--data={digits}"), "--steps=60".to_owned(), format!("--dir={}", directory.text())];
    let losses = run!(between_graph, 1, more)?.remove(0);
    let expected = stock(&["60"]);
    assert_eq!(losses.len(), 60);
    for (step, (ours, stock)) in losses.iter().zip(&expected).enumerate() {
        assert!(
            (f64::from(*ours) - stock).abs() < 1e-4 * (1.0 + stock),
            "step {step}: {ours}, stock {stock}"
        );
    }
    let resumed = stock(&["3", directory.text()]);
    assert_eq!(resumed[0], 60.0);
    assert!(resumed[1] < f64::from(losses[0]) / 2.0, "{resumed:?} after {losses:?}");
    Ok(())
}
