//! `ferroflow demo`: it trains well, resumes, ends every process, and stock reads what it leaves.

use crate::launch::{processes_with, wait_a_moment};
use crate::{binary, stock};
use ferroflow::train::Saver;
use ferroflow::{Graph, Session, Variable};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The accuracy that the demonstration promises, in percent.
const PROMISED: f32 = 97.0;

#[test]
fn the_demonstration_trains_and_resumes() {
    let Some(python) = stock::python() else { return };
    let directory = Directory::new("mlp");
    let said = demo(&directory.0, &["--steps", "900"]);
    assert!(accuracy(&said) >= PROMISED, "{said}");
    assert!(!said.contains("Resuming"), "{said}");
    let script = stock::root().join("oracle/demo.py");
    let check =
        Command::new(python).arg(script).arg(directory.0.join("mlp")).stderr(Stdio::inherit()).output();
    let found = String::from_utf8(check.expect("the interpreter starts").stdout).unwrap();
    let lines: Vec<&str> = found.lines().collect();
    let [step, hidden, logits, loss, accuracy_events] = lines[..] else { panic!("stock finds {found}") };
    let step: i64 = step.strip_prefix("global_step ").expect("the step is told").parse().unwrap();
    // The workers' last steps are under way at the same time.
    assert!(step >= 900, "{found}");
    assert_eq!([hidden, logits], ["hidden/kernel [64, 256]", "logits/kernel [256, 10]"]);
    assert_eq!([loss, accuracy_events], ["events of loss True", "events of accuracy True"]);
    let said = demo(&directory.0, &["--steps", "50"]);
    assert!(said.contains(&format!("Resuming from step {step}")), "{said}");
    assert!(accuracy(&said) >= PROMISED, "{said}");
}

#[test]
fn replicas_train_in_step_on_several_parameter_servers() {
    let directory = Directory::new("sync");
    let said = demo(&directory.0, &["--sync", "--ps", "2", "--steps", "100"]);
    assert!(accuracy(&said) > 80.0, "{said}");
}

#[test]
fn a_convolutional_network_is_trained() {
    let directory = Directory::new("cnn");
    let said = demo(&directory.0, &["--model", "cnn", "--steps", "4"]);
    assert!(accuracy(&said) > 0.0, "{said}");
}

#[test]
fn an_interrupted_demonstration_is_saved_and_goes_on_to_the_same_step() {
    let directory = Directory::new("interrupted");
    let interrupt = |expected: &str| -> i64 {
        let mut running = start(&directory.0, &["--steps", "1000000"]);
        let mut lines =
            BufReader::new(running.stdout.take().expect("it is piped")).lines().map_while(|line| line.ok());
        // Far from the first checkpoint of training.
        let begun = |line: String| line.starts_with("step ") && !line.starts_with("step 0 of");
        assert!(lines.any(begun), "it trains");
        let asked = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(asked.expect("the command starts").success());
        let rest: Vec<String> = lines.collect();
        assert_eq!(running.wait().expect("it ends").code(), Some(130));
        nothing_is_left(&directory.0);
        assert!(!rest.iter().any(|line| line.contains("was killed")), "{rest:?}");
        let saved = rest.iter().find_map(|line| line.strip_prefix("Saved at step "));
        let (step, goal) = saved.and_then(|line| line.split_once("; ")).expect("the step is told");
        assert_eq!(goal, expected, "{rest:?}");
        step.parse().expect("a number follows")
    };
    let first = interrupt("the same command goes on to step 1000000.");
    assert!(first > 0, "what was trained is saved");
    let second = interrupt("the same command goes on to step 1000000.");
    assert!(second > first, "{second} follows {first}");
    let said = demo(&directory.0, &["--steps", "5"]);
    assert!(said.contains(&format!("Resuming from step {second}, ")), "{said}");
    assert!(said.contains(&format!("training to step {}.", second + 5)), "{said}");
    assert!(!said.contains(" 0 steps"), "{said}");
}

#[test]
fn a_demonstration_whose_reader_has_gone_ends_quietly() {
    let directory = Directory::new("unread");
    let mut running = start(&directory.0, &["--steps", "1000000"]);
    let mut line = String::new();
    let mut output = BufReader::new(running.stdout.take().expect("it is piped"));
    output.read_line(&mut line).expect("it is text");
    drop(output);
    let mut complaints = String::new();
    let mut errors = running.stderr.take().expect("it is piped");
    errors.read_to_string(&mut complaints).expect("it is text");
    assert_eq!((running.wait().expect("it ends").code(), complaints.as_str()), (Some(141), ""), "{line}");
    nothing_is_left(&directory.0);
}

#[test]
fn a_checkpoint_that_does_not_fit_is_named() {
    let directory = Directory::new("foreign");
    let place = directory.0.join("mlp");
    std::fs::create_dir_all(&place).expect("it can be made");
    let graph = Graph::new();
    let other = Variable::with_value(&graph.scope(), "other", 1.0f32).unwrap();
    let session = Session::new(&graph).unwrap();
    session.execute(other.initializer()).unwrap();
    Saver::new(&graph).unwrap().save(&session, place.join("model.ckpt"), Some(7)).unwrap();
    let output = command(&directory.0, &["--steps", "5"]).output().expect("the binary starts");
    let complaints = String::from_utf8(output.stderr).expect("it is text");
    assert_eq!(output.status.code(), Some(1), "{complaints}");
    assert!(complaints.contains("not found in checkpoint"), "{complaints}");
    nothing_is_left(&directory.0);
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary::path());
    command.arg("demo").arg("--dir").arg(directory).args(arguments);
    command
}

fn start(directory: &Path, arguments: &[&str]) -> Child {
    let mut command = command(directory, arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts")
}

/// The tasks are gone a moment after the process that started them.
fn nothing_is_left(directory: &Path) {
    let place = directory.to_str().expect("the path is text");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !processes_with(place).is_empty() {
        assert!(Instant::now() < deadline, "{:?} are left over", processes_with(place));
        wait_a_moment();
    }
}

/// The output of a run; it must end well, and its tasks with it.
fn demo(directory: &Path, arguments: &[&str]) -> String {
    let output = command(directory, arguments).output().expect("the binary starts");
    let said = String::from_utf8(output.stdout).expect("the output is text");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    nothing_is_left(directory);
    said
}

fn accuracy(said: &str) -> f32 {
    let text = said.split("Held-out accuracy ").nth(1).expect("the accuracy is told");
    text.split(' ').next().expect("a number follows").parse().expect("a number follows")
}

/// A directory that is gone after the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        Directory(std::env::temp_dir().join(format!("ferroflow-demo-{name}-{}", std::process::id())))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
