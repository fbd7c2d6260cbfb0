//! A stock client does the same on our server as on stock's: each scenario of `oracle/interop` prints the same lines.

use crate::stock;
use ferroflow::{Server, ServerConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// Lines by scenario.
pub(crate) type Report = BTreeMap<String, Vec<String>>;

const SCRIPT: &str = "oracle/interop/run.py";

#[test]
fn a_stock_client_cannot_tell_the_servers_apart() {
    let Some(python) = stock::python() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("some port is free");
    let server =
        Server::start(ServerConfig::default(), ferroflow::registry(), vec![listener], std::future::pending())
            .unwrap();
    let (ours, stock) = std::thread::scope(|scope| {
        let ours = scope.spawn(|| run_scenarios(&python, SCRIPT, &["--target", server.target()]));
        let stock = scope.spawn(|| run_scenarios(&python, SCRIPT, &[]));
        (ours.join().unwrap(), stock.join().unwrap())
    });
    assert!(!stock.is_empty(), "no scenario ran");
    let mut differences = first_differences(&stock, &ours);
    if !differences.is_empty() {
        // On a busy machine stock's server does not always do the same: it may miss that a call was dropped.
        let again = run_scenarios(&python, SCRIPT, &[]);
        let differ_again = first_differences(&again, &ours);
        differences.retain(|scenario, _| differ_again.contains_key(scenario));
    }
    let differences: String = differences.into_values().collect();
    assert!(differences.is_empty(), "the servers differ, first lines of each scenario:\n{differences}");
}

/// The first lines that differ, by scenario.
pub(crate) fn first_differences(stock: &Report, ours: &Report) -> BTreeMap<String, String> {
    let mut differences = BTreeMap::new();
    let names: BTreeSet<&String> = stock.keys().chain(ours.keys()).collect();
    for name in names {
        let [expected, found] = [stock, ours].map(|report| report.get(name).map_or(&[][..], Vec::as_slice));
        let first = (0..expected.len().max(found.len())).find(|line| expected.get(*line) != found.get(*line));
        if let Some(at) = first {
            let line = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(nothing)".to_owned());
            let (stock, ours) = (line(expected), line(found));
            differences.insert(name.clone(), format!("{name}\n  stock: {stock}\n  ours:  {ours}\n"));
        }
    }
    differences
}

/// Runs every scenario of a script. One that ends its process, as a crash of stock's server does, says so in its last line, and the
/// others run in another process.
pub(crate) fn run_scenarios(python: &Path, script: &str, arguments: &[&str]) -> Report {
    let mut report = Report::new();
    let mut left = Vec::new();
    loop {
        let output = Command::new(python)
            .arg(stock::root().join(script))
            .args(arguments)
            .args(&left)
            .stderr(Stdio::inherit())
            .output()
            .expect("the interpreter starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = read_report(&text, &mut report);
        if output.status.success() {
            return report;
        }
        let ended = format!("ended its process: {}", output.status);
        let (Some(last), Some(all)) =
            (last, text.lines().next().and_then(|line| line.strip_prefix("scenarios ")))
        else {
            report.entry("the start".to_owned()).or_default().push(ended);
            return report;
        };
        report.entry(last.clone()).or_default().push(ended);
        left = all.split(' ').skip_while(|name| *name != last).skip(1).map(str::to_owned).collect();
        if left.is_empty() {
            return report;
        }
    }
}

/// Adds what a process printed to a report; returns the scenario that it was at.
fn read_report(text: &str, report: &mut Report) -> Option<String> {
    let mut at = None;
    for line in text.lines().skip(1) {
        if let Some(name) = line.strip_prefix("== ") {
            report.entry(name.to_owned()).or_default();
            at = Some(name.to_owned());
        } else if let Some(name) = &at {
            report.entry(name.clone()).or_default().push(line.to_owned());
        }
    }
    at
}

#[test]
fn a_report_is_read_by_scenario() {
    let mut report = Report::new();
    let last = read_report("scenarios a b c\n== a\none\ntwo\n== b\nthree\n", &mut report);
    assert_eq!(last.as_deref(), Some("b"));
    assert_eq!(report["a"], ["one", "two"]);
    assert_eq!(report["b"], ["three"]);
}
