//! Log lines of Rust programs: on standard error unless the program or the environment says otherwise.

use crate::savers::Directory;
use ferroflow::logging::{self, LevelFilter};
use ferroflow::train::{MonitoredTrainingSession, StopAtStep};
use ferroflow::{Graph, global_step};
use std::process::Command;

/// Says to [`program`] what kind of program it is, and where it saves.
const PROGRAM: &str = "FERROFLOW_TEST_LOGGING";

/// A program that trains a little: this test, started as a process of its own.
#[test]
fn program() {
    let Ok(kind) = std::env::var(PROGRAM) else { return };
    let (kind, directory) = kind.split_once(' ').unwrap();
    match kind {
        "silent" => logging::set_default_level(LevelFilter::OFF),
        "own" => tracing_subscriber::fmt().with_writer(std::io::stdout).init(),
        _ => {}
    }
    let graph = Graph::new();
    let s = graph.scope();
    let train = global_step(&s).unwrap().assign_add(&s, 1).unwrap();
    let session = MonitoredTrainingSession::new(&graph).checkpoint_dir(directory).hook(StopAtStep::last(2));
    session.build().unwrap().run_loop(|session| session.execute(&train)).unwrap();
}

/// Standard output and standard error of a program.
fn output(kind: &str, level: Option<&str>) -> (String, String) {
    let directory = Directory::new(&format!("logging_{kind}"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["logging::program", "--exact", "--nocapture"]);
    command.env(PROGRAM, format!("{kind} {}", directory.text())).env_remove("FERROFLOW_LOG");
    if let Some(level) = level {
        command.env("FERROFLOW_LOG", level);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert!(output.status.success(), "{}", text(output.stderr));
    (text(output.stdout), text(output.stderr))
}

const SAVED: &str = "A checkpoint was written.";
const OPENED: &str = "A session was opened.";

#[test]
fn programs_tell_of_checkpoints_by_default() {
    let (out, err) = output("usual", None);
    assert!(err.contains(SAVED) && !err.contains(OPENED), "{err}");
    assert!(!out.contains(SAVED), "{out}");
}

#[test]
fn the_environment_chooses_the_level() {
    let (_, err) = output("usual", Some("debug"));
    assert!(err.contains(SAVED) && err.contains(OPENED), "{err}");
    assert_eq!(output("usual", Some("off")).1, "");
    assert_eq!(output("usual", Some("ferroflow=warn")).1, "");
    let (_, err) = output("usual", Some("loud"));
    assert!(err.starts_with("FERROFLOW_LOG=loud is not a level") && err.contains(SAVED), "{err}");
}

#[test]
fn a_program_chooses_silence_or_a_subscriber_of_its_own() {
    assert_eq!(output("silent", None).1, "");
    let (_, err) = output("silent", Some("info"));
    assert!(err.contains(SAVED), "{err}");
    let (out, err) = output("own", Some("debug"));
    assert!(out.contains(SAVED) && err.is_empty(), "{out}{err}");
}
