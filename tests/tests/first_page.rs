//! The commands of README.md, as they are written there.

use crate::savers::Directory;
use crate::{binary, stock};
use ferroflow::Server;
use std::process::{Command, Stdio};

#[test]
fn the_program_of_the_first_page_trains() {
    let Some(python) = stock::python() else { return };
    let page = std::fs::read_to_string(stock::root().join("README.md")).unwrap();
    let command = "ferroflow run --ps 1 --workers 2 -- python examples/trainer.py";
    assert!(page.lines().any(|line| line == command), "the page no longer has {command}");
    let directory = Directory::new("first-page");
    let mut run = binary::command(&["run", "--ps", "1", "--workers", "2", "--"]);
    run.arg(python).arg(stock::root().join("examples/trainer.py")).arg("300");
    let output = run.current_dir(&directory.0).stdin(Stdio::null()).output().expect("the binary starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("of the held-out digits are right; saved model/digits-"), "{said}{errors}");
    assert!(directory.0.join("model/checkpoint").exists(), "{said}{errors}");
}

#[test]
fn the_session_of_the_first_page_runs() {
    let Some(python) = stock::python() else { return };
    let page = std::fs::read_to_string(stock::root().join("README.md")).unwrap();
    let (_, program) = page.split_once("```python\n").expect("the page has a program");
    let (program, _) = program.split_once("```").expect("it ends");
    let server = Server::local().unwrap();
    let program = program.replace("localhost:2222", &server.address().to_string());
    let output = Command::new(python).args(["-c", &program]).output().expect("the interpreter starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("[ 25. 169.]"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
