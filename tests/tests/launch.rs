//! `ferroflow up` and `ferroflow run`: clusters of real processes that form, run programs and end, whatever happens.

use crate::examples::between_graph;
use crate::savers::Directory;
use crate::{binary, stock};
use ferroflow::server::TaskConfig;
use ferroflow::{Graph, Session, TaskName};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Anything that takes longer is taken to hang.
const PATIENCE: Duration = Duration::from_secs(180);

/// Words that no task says when everything goes well.
const COMPLAINTS: [&str; 5] = ["Traceback", "Error", "UNAVAILABLE", "CANCELLED", "panicked"];

fn ferroflow(arguments: &[&str]) -> Command {
    let mut command = binary::command(arguments);
    command.stdin(Stdio::null());
    command
}

/// Runs a script of the shell on a cluster; `{…}` in `words` are filled, and the script sees them as `$1` and so on.
fn run_script(flags: &[&str], script: &str, words: &[&str]) -> Output {
    let output = ferroflow(&["run"]).args(flags).args(["--", "sh", "-c", script, "sh"]).args(words).output();
    output.expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn programs_are_told_who_they_are() {
    let script = r#"echo "$@"; echo "$TF_CONFIG" > "$6/$1-$2""#;
    let directory = Directory::new("told");
    let words = ["{job}", "{task}", "{ps_hosts}", "{worker_hosts}", "{address}", directory.text()];
    let output = run_script(&["--ps", "2", "--workers", "2", "--chief", "--evaluator"], script, &words);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    let read = |job: &str, task: u32| {
        let path = PathBuf::from(directory.text()).join(format!("{job}-{task}"));
        let config = TaskConfig::from_tf_config(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(config.task, TaskName::new(job, task));
        config
    };
    let config = read("worker", 1);
    assert_eq!(config.cluster, read("chief", 0).cluster);
    assert_eq!(config.cluster, read("evaluator", 0).cluster);
    let address = |job, task| config.cluster.address(&TaskName::new(job, task)).unwrap_or_default();
    let line = format!(
        "worker/1    | worker 1 {},{} {},{} {} {}",
        address("ps", 0),
        address("ps", 1),
        address("worker", 0),
        address("worker", 1),
        address("worker", 1),
        directory.text()
    );
    assert!(said.lines().any(|said| said == line), "{line:?} is not in {said}");
    assert_eq!(said.lines().count(), 4, "only programs write to the output: {said}");
    assert_eq!(address("evaluator", 0), "", "an evaluator is beside the cluster");
    assert!(!said.contains('\x1b') && !errors.contains('\x1b'), "there is no color in a pipe");
}

#[test]
fn the_first_failure_is_the_exit_code_and_every_end_is_told_once() {
    let fails = "test $1 = worker/1 && { echo out of luck >&2; exit 7; }; sleep 1000";
    let directory = Directory::new("ends");
    let logs = PathBuf::from(directory.text()).join("logs");
    let flags = ["--workers", "3", "--log-dir", logs.to_str().unwrap()];
    let output = run_script(&flags, fails, &["{job}/{task}"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{errors}");
    assert_eq!(errors.matches("out of luck").count(), 1, "as it came, and not again: {errors}");
    let log = logs.join("worker-1.log");
    let failed = format!("ferroflow: worker/1 failed with exit code 7; its output is in {}\n", log.display());
    assert!(errors.contains(&failed), "{errors}");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "out of luck\n");
    assert!(text(&std::fs::read(logs.join("ps-0.log")).unwrap()).contains("serves /job:ps"));
    for line in [
        "ferroflow: worker/1 failed with exit code 7 (after ",
        "ferroflow: worker/0 was stopped because worker/1 failed (after ",
        "ferroflow: worker/2 was stopped because worker/1 failed (after ",
        "ferroflow: ps/0 was stopped because worker/1 failed (after ",
    ] {
        assert_eq!(errors.matches(line).count(), 1, "{line}: {errors}");
    }
    let well = run_script(&[], "true", &[]);
    let errors = text(&well.stderr);
    assert!(errors.contains("ferroflow: worker/0 finished (after "), "{errors}");
    assert!(errors.contains("ferroflow: ps/0 was stopped because the programs are done (after "), "{errors}");
    let killed = run_script(&[], "kill -9 $$", &[]);
    assert_eq!(killed.status.code(), Some(128 + 9), "{}", text(&killed.stderr));
    let absent = ferroflow(&["run", "--", "/no/such/program"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(127));
    assert!(text(&absent.stderr).contains("cannot start /no/such/program"), "{}", text(&absent.stderr));
    let nobody = ferroflow(&["run", "--workers", "0", "--", "true"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1), "{}", text(&nobody.stderr));
}

#[test]
fn unknown_placeholders_are_refused_before_anything_starts() {
    let output = run_script(&[], "echo started", &["--ps={ps_host}"]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), said.as_str()), (Some(1), ""), "{errors}");
    assert!(errors.contains("unknown placeholder {ps_host}: did you mean {ps_hosts}?"), "{errors}");
    let output = run_script(&[], "echo $1", &["{{ps_host}}"]);
    assert!(text(&output.stdout).contains("| {ps_host}"), "{}", text(&output.stderr));
}

#[test]
fn the_chief_decides_and_failed_tasks_are_started_again() {
    // Workers that never end by themselves, as those of a coordinator.
    let script = r#"test $1 = worker && exec sleep 1000; test -e "$2/x" && echo again && exit 0; touch "$2/x"; exit 3"#;
    let directory = Directory::new("again");
    let flags = ["--chief", "--workers", "2", "--restarts", "1", "--grace", "0"];
    let output = run_script(&flags, script, &["{job}", directory.text()]);
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("chief/0 failed with exit code 3"), "{errors}");
    assert!(errors.contains("chief/0 is started again (no restarts left)"), "{errors}");
    assert!(errors.contains("worker/1 was stopped because chief is done, and --grace is over"), "{errors}");
    assert!(text(&output.stdout).contains("chief/0  | again"), "{}", text(&output.stdout));
}

#[test]
fn a_coordinator_runs_once_and_outlives_a_worker() {
    let script = r#"echo "$TF_CONFIG"; while ! test -e "$1/go"; do sleep 0.02; done; exit 3"#;
    let directory = Directory::new("coordinator");
    let flags = ["run", "--ps", "2", "--workers", "2", "--coordinator", "--", "sh", "-c", script, "sh"];
    let mut run = Running::start(ferroflow(&flags).arg(directory.text()));
    let line = run.line();
    let told = line.strip_prefix("chief/0  | ").expect("the chief alone runs the program");
    let config = TaskConfig::from_tf_config(told).unwrap();
    assert_eq!(config.task, TaskName::new("chief", 0));
    let tasks: Vec<String> = config.cluster.tasks().map(|(task, _)| task.to_string()).collect();
    assert_eq!(tasks.len(), 5, "{tasks:?}");
    signal(task_of(run.process.id(), "worker/1").expect("a worker is served"), "KILL");
    let deadline = Instant::now() + PATIENCE;
    while !run.errors().contains("the cluster goes on without worker/1; --restarts N starts it again") {
        assert!(Instant::now() < deadline, "{}", run.errors());
        wait_a_moment();
    }
    std::fs::write(directory.0.join("go"), "").unwrap();
    let (code, errors) = (run.wait(), run.errors());
    assert_eq!(code, Some(3), "the program's own: {errors}");
    assert!(errors.contains("ferroflow: worker/0 was stopped because chief/0 failed (after "), "{errors}");
    let nobody = ferroflow(&["run", "--workers", "0", "--coordinator", "--", "true"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("there is no worker to run on"), "{}", text(&nobody.stderr));
}

#[test]
fn a_coordinator_of_stock_trains_and_goes_on_from_its_checkpoint() {
    let Some(python) = stock::python() else { return };
    let directory = Directory::new("stock-coordinator");
    let train = || {
        let flags =
            ["run", "--ps", "2", "--workers", "2", "--coordinator", "--evaluator", "--grace", "1", "--"];
        let mut run = ferroflow(&flags);
        run.arg(&python).arg(stock::root().join("examples/coordinator.py")).arg("2");
        let output = run.current_dir(&directory.0).output().unwrap();
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}{errors}");
        for complaint in COMPLAINTS {
            assert!(!errors.contains(complaint), "{errors}");
        }
        said
    };
    let said = train();
    assert!(said.contains("of the held-out digits are right; saved "), "{said}");
    let said = train();
    assert!(said.contains("model/ckpt-2, step 200"), "{said}");
    assert!(said.contains("model/ckpt-4"), "{said}");
    assert!(said.contains("evaluator/0 | step "), "{said}");
}

#[test]
fn a_cluster_tells_its_coordinator_where_it_is() {
    let Some(python) = stock::python() else { return };
    let mut up = Running::start(&mut ferroflow(&["up", "--ps", "1", "--workers", "1", "--output", "json"]));
    let told: serde_json::Value = serde_json::from_str(&up.line()).expect("the tasks are told as JSON");
    let config = told["coordinator"]["tf_config"].to_string();
    let directory = Directory::new("told-coordinator");
    let program = stock::root().join("examples/coordinator.py");
    let output = Command::new(python)
        .arg(program)
        .arg("1")
        .env("TF_CONFIG", config)
        .current_dir(&directory.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("of the held-out digits are right"), "{}", text(&output.stdout));
    up.signal("INT");
    assert_eq!(up.wait(), Some(0), "{}", up.errors());
}

#[test]
fn nothing_survives() {
    // A program with a child, a grandchild and a daemon; their arguments have the parameter server's address, as its own.
    let script = "setsid sh -c 'sleep 1000; :' $1 >/dev/null 2>&1 & echo $1; (sleep 1000; : $1) & sh -c 'sleep 1000; :' $1; :";
    for signals in [&["KILL"][..], &["INT"], &["TERM"]] {
        let mut run = Running::start(
            ferroflow(&["run", "--grace", "1", "--workers", "2", "--", "sh", "-c", script, "sh"])
                .arg("{ps_hosts}"),
        );
        let line = run.line();
        let address = line.rsplit(' ').next().unwrap().to_owned();
        let other = run.line();
        assert!(other.ends_with(&address), "{other}");
        assert!(!processes_with(&address).is_empty());
        run.signal(signals[0]);
        let code = run.wait();
        let expected = match signals[0] {
            "INT" => Some(130),
            "TERM" => Some(143),
            _ => None,
        };
        assert_eq!(code, expected);
        let deadline = Instant::now() + PATIENCE;
        while !processes_with(&address).is_empty() {
            assert!(Instant::now() < deadline, "{signals:?} leaves {:?}", processes_with(&address));
            wait_a_moment();
        }
    }
}

#[test]
fn programs_may_finish_after_the_first_interrupt_but_not_after_the_second() {
    // Whoever runs these tests in the background may have them ignore interrupts, and a shell does not undo that.
    let shell = ["env", "--default-signal=INT", "sh", "-c"];
    let saves = r#"trap 'echo saved; exit 0' INT; echo up; while :; do sleep 0.05; done"#;
    let mut run = Running::start(ferroflow(&["run", "--"]).args(shell).arg(saves));
    assert!(run.line().ends_with("up"));
    run.signal("INT");
    assert!(run.line().ends_with("saved"));
    assert_eq!(run.wait(), Some(130));
    let stubborn = r#"trap 'echo no' INT; trap '' TERM; echo up; while :; do sleep 0.05; done"#;
    let mut run = Running::start(ferroflow(&["run", "--grace", "600", "--"]).args(shell).arg(stubborn));
    assert!(run.line().ends_with("up"));
    run.signal("INT");
    assert!(run.line().ends_with("no"));
    run.signal("INT");
    assert_eq!(run.wait(), Some(130));
}

#[test]
fn twenty_tasks_come_up_and_a_crashed_one_comes_back() {
    let mut up = Running::start(&mut ferroflow(&[
        "up",
        "--ps",
        "4",
        "--workers",
        "16",
        "--restarts",
        "1",
        "--output",
        "json",
    ]));
    let told: serde_json::Value = serde_json::from_str(&up.line()).expect("the tasks are told as JSON");
    let tasks = told["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 20);
    let worker = tasks.iter().find(|task| task["job"] == "worker" && task["task"] == 15).unwrap();
    let config = TaskConfig::from_tf_config(&worker["tf_config"].to_string()).unwrap();
    assert_eq!(config.task, TaskName::new("worker", 15));
    let target = worker["target"].as_str().unwrap().to_owned();
    assert_eq!(target, format!("grpc://{}", config.cluster.address(&config.task).unwrap()));
    let on_another = || {
        let graph = Graph::new();
        let s = graph.scope().device("/job:ps/task:3");
        let sum = (&s.constant([1.0f32, 2.0])? + 1.0)?;
        Session::connect(target.as_str(), &graph)?.eval(&sum)
    };
    assert_eq!(on_another().unwrap().flat::<f32>().unwrap(), [2.0, 3.0]);
    let victim = config.cluster.address(&TaskName::new("ps", 3)).unwrap().to_owned();
    let victim = pid_of_task(&victim, "ps", 3);
    signal(victim, "KILL");
    let deadline = Instant::now() + PATIENCE;
    while up.errors().matches("ps/3 is started again").count() == 0 {
        assert!(Instant::now() < deadline, "{}", up.errors());
        wait_a_moment();
    }
    // It is reached at the same address, at once: callers wait until it listens.
    assert_eq!(on_another().unwrap().flat::<f32>().unwrap(), [2.0, 3.0]);
    up.signal("INT");
    assert_eq!(up.wait(), Some(0), "{}", up.errors());
}

#[test]
fn a_port_that_is_taken_is_told_with_its_owner() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = ferroflow(&["serve", "--port", &port]).output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&format!("cannot listen on port {port}")), "{errors}");
    assert!(errors.contains(&format!("by process {}", std::process::id())), "{errors}");
}

#[test]
fn a_trainer_of_stock_runs_to_its_end_without_a_complaint() {
    let Some(python) = stock::python() else { return };
    let script = stock::root().join("oracle/launch/trainer.py");
    let program = [python.to_str().unwrap(), script.to_str().unwrap(), "--steps=200"];
    let output = ferroflow(&["run", "--ps", "2", "--workers", "2", "--"]).args(program).output().unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    for worker in 0..2 {
        assert!(said.contains(&format!("worker/{worker} | worker {worker} ")), "{said}{errors}");
    }
    assert!(said.contains("with 3.000"), "the weight has been learned: {said}");
    for complaint in COMPLAINTS {
        assert!(!errors.contains(complaint), "{errors}");
    }
}

#[test]
fn tasks_started_by_hand_train_in_any_order_and_end_by_themselves() {
    let Some(python) = stock::python() else { return };
    let script = stock::root().join("oracle/launch/by_hand.py");
    let output = Command::new(python).arg(script).arg(binary::path()).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert_eq!(said.matches("trained and ended").count(), 6, "{said}");
    assert!(said.contains("a chief that crashed was waited for"), "{said}");
    assert!(said.contains("a step outlives the request to end"), "{said}");
}

/// Says to [`trainer`] that it is a task of a cluster.
const TRAINER: &str = "FERROFLOW_TEST_TRAINER";

/// A program of Rust that `ferroflow run` starts: this test, with steps to train.
#[test]
fn trainer() {
    let Ok(steps) = std::env::var(TRAINER) else { return };
    // The launcher says in TF_CONFIG which task this is.
    between_graph::run([format!("--steps={steps}")]).unwrap();
}

#[test]
fn any_task_may_be_killed_in_any_phase() {
    for victim in ["ps/0", "worker/0", "worker/1"] {
        for phase in ["begins", "trains"] {
            kill_one(victim, phase);
        }
    }
}

/// Kills a task of the trainer, which is started again; in the end all have trained.
fn kill_one(victim: &str, phase: &str) {
    let mut command = ferroflow(&["run", "--ps", "1", "--workers", "2", "--restarts", "1", "--"]);
    // The second filter matches no test; it is there to be seen.
    let program = ["launch::trainer", "--exact", "--nocapture", "{job}/{task}"];
    // Enough steps to be far from the end when the first of them is told.
    let steps = if phase == "trains" { "2000" } else { "200" };
    command
        .arg(std::env::current_exe().unwrap())
        .args(program)
        .env(TRAINER, steps)
        .env("FERROFLOW_LOG", "info");
    let mut run = Running::start(&mut command);
    let deadline = Instant::now() + PATIENCE;
    let pid = loop {
        assert!(Instant::now() < deadline, "{victim} does not start: {}", run.errors());
        match task_of(run.process.id(), victim) {
            Some(pid) => break pid,
            None => wait_a_moment(),
        }
    };
    if phase == "trains" {
        while !run.errors().contains("loss") {
            assert!(Instant::now() < deadline, "{victim} does not train: {}", run.errors());
            wait_a_moment();
        }
    }
    signal(pid, "KILL");
    let code = run.wait();
    let errors = run.errors();
    assert_eq!(code, Some(0), "{victim} is killed when it {phase}: {errors}");
    assert!(errors.contains(&format!("{victim} is started again")), "{errors}");
}

#[test]
fn a_server_alone_ends_well_with_a_session_open() {
    let mut server = Running::start(&mut ferroflow(&["serve", "--port", "0", "--log", "warn"]));
    let line = server.line();
    let target = line.rsplit(' ').next().unwrap();
    let graph = Graph::new();
    let one = graph.scope().constant([1.0f32]).unwrap();
    let session = Session::connect(target, &graph).unwrap();
    session.eval(&one).unwrap();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "{}", server.errors());
}

/// A process under way, and what it writes.
struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
    errors: Arc<Mutex<String>>,
}

impl Running {
    fn start(command: &mut Command) -> Running {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let errors = Arc::<Mutex<String>>::default();
        let (mut source, kept) = (process.stderr.take().unwrap(), errors.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut bytes) {
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Running { process, output, errors }
    }

    /// The next line of its output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended: {}", self.errors());
        line.trim_end().to_owned()
    }

    fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    /// Its exit code; none if a signal ended it.
    fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.errors());
            wait_a_moment();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(sent.success(), "process {pid} is gone");
}

pub(crate) fn wait_a_moment() {
    let (_kept, never) = channel::<()>();
    let _ = never.recv_timeout(Duration::from_millis(20));
}

/// The process of a task whose parent is `run`.
fn task_of(run: u32, task: &str) -> Option<u32> {
    let (job, number) = task.split_once('/').expect("a task has a job and a number");
    let words = [format!("--job_name {job} --task_index {number} "), format!(" {task} ")];
    processes().into_iter().find_map(|(pid, line)| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let child = status.lines().any(|line| line == format!("PPid:\t{run}"));
        (child && words.iter().any(|words| line.contains(words.as_str()))).then_some(pid)
    })
}

/// The process that serves a task of the cluster in which somebody has this address.
fn pid_of_task(address: &str, job: &str, task: u32) -> u32 {
    let word = format!("--job_name {job} --task_index {task} ");
    let found = processes().into_iter().find(|(_, line)| line.contains(address) && line.contains(&word));
    found.expect("the task has a process").0
}

/// Command lines that have a word in them.
pub(crate) fn processes_with(word: &str) -> Vec<String> {
    processes().into_iter().map(|(_, line)| line).filter(|line| line.contains(word)).collect()
}

/// Every process with its command line.
fn processes() -> Vec<(u32, String)> {
    let processes = std::fs::read_dir("/proc").expect("this system lists its processes").flatten();
    let read = |process: std::fs::DirEntry| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    processes.filter_map(read).collect()
}
