//! `ferroflow doctor`: what is wrong with a cluster, before it trains.
//!
//! If this task is not up, the doctor listens in its place, so that the other tasks' ways to it are tried as well.

use crate::exit::{Failure, PERMANENT};
use crate::output::Output;
use crate::role_args::LocatedRoleArgs;
use ferroflow::discovery::Role;
use ferroflow::discovery::doctor::{Examination, Finding, Verdict, who_answers};
use ferroflow::server::{Place, listen};
use ferroflow::{Server, ServerConfig, TaskName, Waiting};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `ferroflow doctor`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A directory that all tasks share; may be given several times
    #[arg(long = "dir", value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Wait so many seconds for tasks that are not up; they must be then
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,

    /// How many seconds one task may take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,

    /// What to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    role: LocatedRoleArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Names that are looked up and directories that do not answer say so.
    crate::logging::start_for_waits();
    let findings = match args.role.role() {
        Ok(role) => examine(args, &role),
        Err(message) => {
            vec![Finding::faulty(Verdict::Wrong, "role", "this task", message, "see `ferroflow resolve`")]
        }
    };
    let wrong = findings.iter().filter(|finding| finding.verdict == Verdict::Wrong).count();
    match args.output {
        Output::Text => print_text(&findings, wrong),
        Output::Json => print_json(&findings, wrong),
    }
    if wrong > 0 { Err(Failure::told(PERMANENT)) } else { Ok(()) }
}

fn examine(args: &Args, role: &Role) -> Vec<Finding> {
    let mut findings = vec![told(role)];
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
    let mut waiting = Waiting::new();
    findings.extend(examination.run(|absent: &[TaskName]| {
        let names: Vec<String> = absent.iter().map(|task| format!("{}:{}", task.job, task.task)).collect();
        if let Some(word) = waiting.word(names.join(", "), "nobody answers at their addresses") {
            eprintln!("ferroflow: {word}");
        }
    }));
    if let Some(server) = in_place {
        server.stop();
    }
    findings
}

fn told(role: &Role) -> Finding {
    let about = format!("{}:{}", role.task.job, role.task.task);
    match &role.unlocated {
        Some(why) => Finding::faulty(
            Verdict::Doubtful,
            "role",
            about,
            format!("is told by {}, without addresses: {}", role.source, why.message()),
            "check again with the addresses, once they are known",
        ),
        None => {
            let size = role.cluster.tasks().count();
            let cluster = if size == 0 { "alone".to_owned() } else { format!("one of {size} tasks") };
            Finding::fine("role", about, format!("{cluster}, told by {}", role.source))
        }
    }
}

/// Listens in the place of this task unless it is up already; what came of it.
fn stand_in(role: &Role) -> (Option<Server>, Option<Finding>) {
    let Some(entry) = role.address() else { return (None, None) };
    let config = ServerConfig {
        task: role.task.clone(),
        cluster: role.cluster.clone(),
        io_threads: 1,
        compute_threads: 1,
        ..ServerConfig::default()
    };
    let started = listen(&Place { entry: Some(entry), bind: None, port: None }).and_then(|listeners| {
        Server::start(config, ferroflow::registry(), listeners, std::future::pending())
    });
    match started {
        Ok(server) => {
            (Some(server), Some(Finding::fine("listen", entry, "is free, and listened on meanwhile")))
        }
        Err(error) => (None, Some(occupied(role, entry, error.message()))),
    }
}

/// The port cannot be had; right if this task is up.
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
            Finding::faulty(Verdict::Wrong, "port", entry, why, fix)
        }
    }
}

fn print_text(findings: &[Finding], wrong: usize) {
    for finding in findings {
        let mark = match finding.verdict {
            Verdict::Fine => "ok",
            Verdict::Doubtful => "warning",
            Verdict::Wrong => "WRONG",
        };
        println!("{mark:<8} {:<10} {} {}", finding.check, finding.about, finding.text);
        if let Some(fix) = &finding.fix {
            println!("{:<8} {:<10} {fix}", "", "fix:");
        }
    }
    match wrong {
        0 => println!("Nothing is wrong."),
        1 => println!("1 thing is wrong."),
        _ => println!("{wrong} things are wrong."),
    }
}

fn print_json(findings: &[Finding], wrong: usize) {
    let finding = |finding: &Finding| {
        let verdict = match finding.verdict {
            Verdict::Fine => "ok",
            Verdict::Doubtful => "warning",
            Verdict::Wrong => "wrong",
        };
        json!({
            "check": finding.check,
            "about": finding.about,
            "verdict": verdict,
            "text": finding.text,
            "fix": finding.fix,
        })
    };
    let findings: Vec<_> = findings.iter().map(finding).collect();
    println!("{:#}", json!({"ok": wrong == 0, "findings": findings}));
}
