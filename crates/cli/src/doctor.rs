//! `ferroflow doctor`: finds what is wrong with a cluster, before it trains.
//!
//! If this task is not up, the doctor listens in its place, so that the other tasks' ways to it are tried as well.

use crate::exit::{Failure, PERMANENT};
use crate::output::Output;
use crate::role_args::LocatedRoleArgs;
use ferroflow::discovery::Role;
use ferroflow::discovery::doctor::{Examination, Finding, Verdict, who_answers};
use ferroflow::server::{ListenConfig, listen};
use ferroflow::{LoggedWait, Server, ServerConfig, TaskName};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `ferroflow doctor`.
#[derive(clap::Args)]
#[command(
    after_help = "The exit code is 1 if there are errors: training would fail, or wait for ever. Warnings leave it 0."
)]
pub(crate) struct Args {
    /// Check a directory that all tasks share as well; may be repeated
    #[arg(long = "dir", value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Wait up to this many seconds for tasks that are not up; then every one of them is an error
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,

    /// Give one task this many seconds to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,

    /// Print the findings in this format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,

    #[command(flatten)]
    role: LocatedRoleArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Slow lookups of names and directories that do not answer are logged.
    crate::logging::start_for_waits();
    let findings = match args.role.role() {
        Ok(role) => examine(args, &role),
        Err(message) => {
            let text = format!("is not known: {message}");
            let fix = "correct the flags or TF_CONFIG; `ferroflow resolve` shows what is understood";
            vec![Finding::faulty(Verdict::Wrong, "role", "this task", text, fix)]
        }
    };
    match args.output {
        Output::Text => print_text(&findings),
        Output::Json => print_json(&findings),
    }
    match of(&findings, Verdict::Wrong).next() {
        Some(_) => Err(Failure::reported(PERMANENT)),
        None => Ok(()),
    }
}

fn examine(args: &Args, role: &Role) -> Vec<Finding> {
    let mut findings = vec![role_finding(role)];
    let (in_place, listening) = stand_in(role);
    let is_up = listening.as_ref().is_some_and(|finding| finding.verdict == Verdict::Fine);
    findings.extend(listening);
    let examination = Examination {
        role,
        listening: is_up,
        directories: &args.directories,
        limit: Duration::from_secs(args.timeout.max(1)),
        wait: args.wait.map(Duration::from_secs),
    };
    let mut waiting = LoggedWait::new();
    findings.extend(examination.run(|absent: &[TaskName]| {
        let names: Vec<String> = absent.iter().map(|task| format!("{}:{}", task.job, task.task)).collect();
        if let Some(word) = waiting.message(names.join(", "), "nothing answers at their addresses") {
            eprintln!("ferroflow: {word}");
        }
    }));
    if let Some(server) = in_place {
        server.stop();
    }
    findings
}

fn role_finding(role: &Role) -> Finding {
    let about = format!("{}:{}", role.task.job, role.task.task);
    match &role.unlocated {
        Some(why) => Finding::faulty(
            Verdict::Doubtful,
            "role",
            about,
            format!("is known by {}, without addresses: {}", role.source, why.message()),
            "check again with the addresses, once they are known",
        ),
        None if role.cluster.is_empty() => Finding::faulty(
            Verdict::Doubtful,
            "role",
            about,
            "is alone: no flags, no TF_CONFIG and no launcher name other tasks",
            "name the tasks, e.g. with --ps_hosts, --worker_hosts and --job_name, or in TF_CONFIG",
        ),
        None => {
            let size = role.cluster.tasks().count();
            Finding::fine("role", about, format!("is one of {size} tasks, by {}", role.source))
        }
    }
}

/// Listens in the place of this task unless it is up already, and returns the finding about its port.
fn stand_in(role: &Role) -> (Option<Server>, Option<Finding>) {
    let Some(entry) = role.address() else { return (None, None) };
    let config = ServerConfig {
        task: role.task.clone(),
        cluster: role.cluster.clone(),
        io_threads: 1,
        compute_threads: 1,
        ..ServerConfig::default()
    };
    let started =
        listen(&ListenConfig { entry: Some(entry), bind: None, port: None }).and_then(|listeners| {
            Server::start(config, ferroflow::registry(), listeners, std::future::pending())
        });
    match started {
        Ok(server) => {
            (Some(server), Some(Finding::fine("listen", entry, "is free, and listened on meanwhile")))
        }
        Err(error) => (None, Some(occupied(role, entry, error.message()))),
    }
}

/// Judges a port that is taken, which is right if this task is up.
fn occupied(role: &Role, entry: &str, why: &str) -> Finding {
    match who_answers(role, entry) {
        Some(task) if task == role.task => Finding::fine("listen", entry, "this task is up"),
        Some(task) => Finding::faulty(
            Verdict::Wrong,
            "port",
            entry,
            format!("is taken by {task}"),
            "end that task, or give this one another port in the lists of all tasks",
        ),
        None => {
            let fix = "end the program that has the port, or choose another one in the lists of all tasks";
            // The address has been named already, and the remedy follows.
            let why = why.split_once(": ").map_or(why, |(_, why)| why);
            let why = why.split_once("; ").map_or(why, |(why, _)| why);
            Finding::faulty(Verdict::Wrong, "port", entry, format!("cannot be listened on: {why}"), fix)
        }
    }
}

/// Returns the findings with this verdict.
fn of(findings: &[Finding], verdict: Verdict) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(move |finding| finding.verdict == verdict)
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "ok",
        Verdict::Doubtful => "warning",
        Verdict::Wrong => "error",
    }
}

fn print_text(findings: &[Finding]) {
    for finding in findings {
        let mark = name(finding.verdict);
        println!("{mark:<8} {:<10} {} {}", finding.check, finding.about, finding.text);
        if let Some(fix) = &finding.fix {
            println!("{:<8} {:<10} {fix}", "", "fix:");
        }
    }
    println!("{}", summary(findings));
}

/// Returns the last line: the errors and warnings, counted and named, and what they mean.
fn summary(findings: &[Finding]) -> String {
    let counted = |verdict: Verdict| {
        let about: Vec<String> =
            of(findings, verdict).map(|finding| format!("{} {}", finding.check, finding.about)).collect();
        let (word, plural) = (name(verdict), if about.len() == 1 { "" } else { "s" });
        match about.len() {
            0 => format!("no {word}s"),
            count => format!("{count} {word}{plural} ({})", about.join(", ")),
        }
    };
    let (errors, warnings) = (counted(Verdict::Wrong), counted(Verdict::Doubtful));
    let outcome = match of(findings, Verdict::Wrong).next() {
        Some(_) => "training would fail",
        None => "training can start",
    };
    format!("Found {errors} and {warnings}: {outcome}.")
}

fn print_json(findings: &[Finding]) {
    let finding = |finding: &Finding| {
        json!({
            "check": finding.check,
            "about": finding.about,
            "verdict": name(finding.verdict),
            "text": finding.text,
            "fix": finding.fix,
        })
    };
    let (errors, warnings) = (of(findings, Verdict::Wrong).count(), of(findings, Verdict::Doubtful).count());
    let findings: Vec<_> = findings.iter().map(finding).collect();
    println!(
        "{:#}",
        json!({"ok": errors == 0, "errors": errors, "warnings": warnings, "findings": findings})
    );
}
