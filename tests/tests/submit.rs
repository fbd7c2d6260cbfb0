//! `ferroflow submit`, `completions` and `man`: what they write is taken by those who read it.

use crate::{binary, stock};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const TRAINING: [&str; 8] = [
    "--jobs",
    "chief:1,ps:2,worker:3,evaluator:1",
    "--",
    "python",
    "trainer.py",
    "--task={task}",
    "--of={job}",
    "$(X)",
];

#[test]
fn manifests_follow_the_published_schemas() {
    let Some(python) = stock::python() else { return };
    let directory = Directory::new("manifests");
    let flavors = ["plain", "tfjob", "jobset"];
    for flavor in flavors {
        let first =
            ["submit", "k8s", "--dry-run", "--image", "r.io/train:1", "--flavor", flavor, "--name", flavor];
        let more = ["--mem", "4Gi", "--cpus-per-task", "2", "--dir", directory.path()];
        let said = text(&ferroflow(&[&first[..], &more, &TRAINING].concat()));
        assert!(said.contains("kubectl apply"), "{said}");
    }
    let mut check = Command::new(python);
    check.arg(stock::root().join("oracle/managers/manifests.py"));
    check.args(flavors.map(|flavor| directory.0.join(flavor).with_extension("yaml")));
    let found = text(&check.output().expect("the interpreter starts"));
    let objects: Vec<&str> = found.lines().collect();
    let plain = [
        "Service plain",
        "Job plain-chief",
        "StatefulSet plain-ps",
        "Job plain-worker",
        "Job plain-evaluator",
    ];
    assert_eq!(objects, [&plain[..], &["TFJob tfjob", "JobSet jobset"]].concat());
}

#[test]
fn a_missing_tool_is_a_failure_that_says_what_to_do() {
    let directory = Directory::new("missing");
    let managers = [
        (&["slurm"][..], "trainer.sbatch", "sbatch"),
        (&["condor"], "trainer.sub", "condor_submit"),
        (&["k8s", "--image=i"], "trainer.yaml", "kubectl"),
    ];
    for (manager, file, tool) in managers {
        let arguments = [&["submit"], manager, &["--dir", directory.path()], &TRAINING].concat();
        let done = binary::command(&arguments).env("PATH", "").output().expect("the binary starts");
        let error = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{error}");
        assert!(error.contains(&format!("{tool} is not on the PATH")), "{error}");
        assert!(error.contains("it comes with") && error.contains("--dry-run"), "{error}");
        assert!(!directory.0.join(file).exists(), "nothing is written that is not submitted");
    }
}

#[test]
fn a_file_that_differs_is_not_overwritten_unasked() {
    let directory = Directory::new("overwrite");
    let submit = |more: &[&str]| {
        let arguments = ["submit", "slurm", "--dry-run", "--dir", directory.path()];
        let arguments = [&arguments[..], more, &TRAINING].concat();
        binary::command(&arguments).stdin(Stdio::null()).output().expect("the binary starts")
    };
    let script = directory.0.join("trainer.sbatch");
    assert!(submit(&[]).status.success());
    assert!(submit(&[]).status.success(), "the same file may be written again");
    let changed = std::fs::read_to_string(&script).unwrap() + "# by hand\n";
    std::fs::write(&script, &changed).unwrap();
    let refused = submit(&[]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.contains("exists and differs; overwrite it with --force"), "{error}");
    assert_eq!(std::fs::read_to_string(&script).unwrap(), changed);
    assert!(submit(&["--force"]).status.success());
    assert_ne!(std::fs::read_to_string(&script).unwrap(), changed);
}

#[test]
fn parameter_servers_are_ferroflows_everywhere_unless_the_program_serves() {
    let directory = Directory::new("served");
    let managers = [
        (&["slurm"][..], "trainer.sbatch", "--serve ps"),
        (&["condor"], "trainer.sub", "--serve ps"),
        (&["k8s", "--image=i"], "trainer.yaml", "- serve"),
    ];
    for (manager, file, served) in managers {
        for (more, expected) in [(&[][..], true), (&["--serve", "none", "--force"], false)] {
            let first = ["submit"];
            let options = ["--dry-run", "--dir", directory.path()];
            text(&ferroflow(&[&first, manager, &options, more, &TRAINING].concat()));
            let written = std::fs::read_to_string(directory.0.join(file)).unwrap();
            assert_eq!(written.contains(served), expected, "{manager:?} {more:?}: {written}");
        }
    }
}

#[test]
fn a_failure_of_the_tool_is_passed_on() {
    let directory = Directory::new("failing");
    // A tool of this name that fails.
    let sbatch = directory.0.join("sbatch");
    std::fs::copy("/bin/false", &sbatch).unwrap();
    let arguments = [&["submit", "slurm", "--dir", directory.path()][..], &TRAINING].concat();
    let done = binary::command(&arguments).env("PATH", &directory.0).output().expect("the binary starts");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && error.contains("failed with exit code 1"), "{error}");
}

#[test]
fn the_batch_script_is_a_shell_script() {
    let directory = Directory::new("script");
    let arguments = ["submit", "slurm", "--dry-run", "--nodes", "3", "--dir", directory.path()];
    ferroflow(&[&arguments[..], &TRAINING].concat());
    let script = directory.0.join("trainer.sbatch");
    let checked = Command::new("sh").arg("-n").arg(script).status().expect("a shell starts");
    assert!(checked.success());
}

#[test]
fn completions_and_the_manual_know_every_command() {
    let help = text(&ferroflow(&["--help"]));
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // The descriptions of commands may go on in lines of their own, which begin further right.
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"submit") && commands.contains(&"serve"), "{help}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&ferroflow(&["completions", shell]));
        for command in &commands {
            assert!(script.contains(command), "{command} is not completed in {shell}");
        }
    }
    let directory = Directory::new("manual");
    ferroflow(&["man", directory.path()]);
    for command in commands.iter().filter(|command| **command != "help") {
        let page = std::fs::read_to_string(directory.0.join(format!("ferroflow-{command}.1")));
        assert!(page.is_ok_and(|page| page.contains(".SH NAME")), "{command} has no page");
    }
    assert!(directory.0.join("ferroflow-submit-slurm.1").exists());
    assert!(text(&ferroflow(&["man"])).contains(".TH ferroflow 1"));
}

#[test]
fn mistakes_on_the_command_line_are_answered_with_their_fix() {
    let mistakes = [
        (&["submit", "slurm", "--job", "ps:1"][..], "--jobs"),
        (
            &["submit", "slurm", "--jobs", "ps=1"],
            "': 'ps=1' is not a job with its number of tasks, write ps:1",
        ),
        (&["run", "python3", "x.py"], "write the program and its arguments after --, as in: … -- python3 …"),
        (&["run", "--log", "loud", "--", "true"], "expected one of"),
        (&["serve", "--port", "x"], "': 'x' is not a port, expected a number up to 65535"),
        (&["join", "--rendezvous=file:///a/b", "--jobs=ps:1", "--job=pss"], "did you mean ps?"),
        (&["rendezvous", "status", "file:///no/such/run"], "/no/such/run does not exist"),
        (&["rendezvous", "--listen", "5"], "expected e.g. 0.0.0.0:7777"),
        (&["ping", "localhost"], "the port is missing, write e.g. localhost:2222"),
        (&["serve", "--ps_hosts=[\"a:1\"]"], "the character '\"'"),
        (&["up", "--ps=0", "--workers=0"], "there is no task to start"),
    ];
    for (arguments, fix) in mistakes {
        let output = binary::command(arguments).output().expect("the binary starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {error}");
        assert!(error.contains(fix), "{arguments:?}: {error}");
        assert!(!error.contains("INVALID_ARGUMENT"), "{arguments:?}: {error}");
    }
}

fn ferroflow(arguments: &[&str]) -> Output {
    binary::command(arguments).output().expect("the binary starts")
}

/// What a command printed, which must end well.
fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("the output is text")
}

/// A directory of one test; it goes with this value.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ferroflow-submit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the directory can be made");
        Directory(path)
    }

    fn path(&self) -> &str {
        Path::to_str(&self.0).expect("the path is text")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
