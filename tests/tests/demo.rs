//! `ferroflow demo`: it trains well, resumes, ends every process, and stock reads what it leaves.

use crate::launch::{processes_with, wait_a_moment};
use crate::{binary, stock};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
    let [step, hidden, logits, events] = lines[..] else { panic!("stock finds {found}") };
    let step: i64 = step.strip_prefix("global_step ").expect("the step is told").parse().unwrap();
    // The workers' last steps are under way at the same time.
    assert!(step >= 900, "{found}");
    assert_eq!([hidden, logits], ["hidden/kernel [64, 256]", "logits/kernel [256, 10]"]);
    assert_eq!(events, "events of loss True");
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

/// What a run printed; it must end well, and its tasks with it.
fn demo(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new(binary::path())
        .arg("demo")
        .arg("--dir")
        .arg(directory)
        .args(arguments)
        .output()
        .expect("the binary starts");
    let said = String::from_utf8(output.stdout).expect("the output is text");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let place = directory.to_str().expect("the path is text");
    // Whoever ends the others ends a moment later.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !processes_with(place).is_empty() {
        assert!(Instant::now() < deadline, "{:?} are left over", processes_with(place));
        wait_a_moment();
    }
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
