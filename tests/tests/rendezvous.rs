//! `ferroflow join`: tasks that find each other, run stock's programs or serve them, and end by themselves.

use crate::launch::processes_with;
use crate::{binary, ports, stock};
use ferroflow::discovery::meeting::Meeting;
use ferroflow::{Graph, Server, Session};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes that long; where it shows, the test fails.
const LONG: Duration = Duration::from_secs(300);

#[test]
fn stock_programs_behind_join_train_on_our_parameter_server_and_everything_ends() {
    let Some(python) = stock::python() else { return };
    let directory = Directory::new("stock");
    let trainer = stock::root().join("oracle/launch/trainer.py");
    let program = [python.to_str().unwrap(), trainer.to_str().unwrap(), "--steps", "40"];
    let jobs = "ps:2,worker:2";
    // One parameter server is ours, one is stock's, which never ends by itself.
    let ours = directory.serve(jobs, "ps", &["--task", "0", "--exit-with-chief=300"]);
    let theirs = directory.join(jobs, "ps", &["--task", "1", "--grace", "300"], &program);
    let workers = [(); 2].map(|()| directory.join(jobs, "worker", &[], &program));
    for (task, worker) in workers.into_iter().enumerate() {
        let said = worker.end(0);
        assert!(said.contains("has ended at step") || said.contains("came late"), "{task}: {said}");
    }
    theirs.end(0);
    let said = ours.end(0);
    assert!(said.contains("The work is done: worker:0 has ended"), "{said}");
    assert!(said.contains("is published at file://") && said.contains("generation 0"), "{said}");
    directory.is_left_clean();
}

#[test]
fn a_server_that_met_others_serves_until_it_is_told_to_end() {
    let directory = Directory::new("served");
    let jobs = "ps:2,worker:1";
    let [mut stays, goes] = [&[][..], &["--exit-with-chief=0"]].map(|more| directory.serve(jobs, "ps", more));
    let worker = directory.join(jobs, "worker", &[], &SAY_CONFIG);
    let told = config(&worker.end(0));
    goes.end(0);
    for address in told["cluster"]["ps"].as_array().unwrap() {
        // Both were given ports that others can use; one of them is gone.
        let port = address.as_str().unwrap().rsplit_once(':').unwrap().1.parse::<u16>();
        assert!(port.is_ok_and(|port| port > 0), "{told}");
    }
    assert!(stays.said().contains(" serves /job:ps/replica:0/task:"), "{}", stays.said());
    stays.terminate();
    stays.end(0);
    directory.is_left_clean();
    let lonely = binary::command(&["serve", "--min-workers", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&lonely.stderr).into_owned();
    assert!(lonely.status.code() == Some(1) && said.contains("add --rendezvous"), "{said}");
}

#[test]
fn a_task_that_serves_listens_on_one_port_for_tasks_and_for_clients() {
    let directory = Directory::new("port");
    let jobs = "ps:1,worker:1";
    let ps = directory.serve(jobs, "ps", &[]);
    until("the parameter server is published", || directory.has("m.ps.0.0"));
    let port = |found: &Value| {
        let address = found["tasks"][0]["address"].as_str().unwrap().to_owned();
        address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap()
    };
    let found = status(&directory.url());
    assert_eq!(found["tasks"][0]["state"], "there");
    let port = port(&found);
    assert_eq!(listening_ports(ps.process.id()), BTreeSet::from([port]));
    // A client that is too early is served when the cluster is complete.
    let mut early = TcpStream::connect(("127.0.0.1", port)).unwrap();
    early.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let gate = Gate::new(&directory);
    let worker = directory.join(jobs, "worker", &[], &["sh", "-c", SAY_AND_WAIT, gate.path()]);
    let mut settings = [0; 9];
    early.set_read_timeout(Some(LONG)).unwrap();
    early.read_exact(&mut settings).unwrap();
    assert_eq!(settings[3], 4, "not HTTP/2's settings: {settings:?}");
    assert_eq!(ps.target(), format!("grpc://127.0.0.1:{port}"));
    assert_eq!(listening_ports(ps.process.id()), BTreeSet::from([port]));
    assert_eq!(status(&directory.url())["tasks"][0]["state"], "there");
    ferroflow(&["ping", &format!("127.0.0.1:{port}")]);
    // A connection that begins like none of the protocols is closed.
    let mut noise = TcpStream::connect(("127.0.0.1", port)).unwrap();
    noise.write_all(b"EHLO example.org\r\n").unwrap();
    assert!(matches!(noise.read(&mut [0; 9]), Ok(0) | Err(_)));
    gate.open();
    worker.end(0);
    let mut ps = ps;
    ps.terminate();
    ps.end(0);
    drop(gate);
    directory.is_left_clean();
}

/// The TCP ports that a process listens on.
fn listening_ports(process: u32) -> BTreeSet<u16> {
    let sockets = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let sockets = sockets.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let sockets: BTreeSet<String> = sockets.map(|link| link.to_string_lossy().into_owned()).collect();
    let listed = ["tcp", "tcp6"]
        .map(|kind| std::fs::read_to_string(format!("/proc/{process}/net/{kind}")).unwrap_or_default());
    let mut ports = BTreeSet::new();
    for line in listed.iter().flat_map(|text| text.lines()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Field 3 is the state, of which 0A is listening, and field 9 the inode.
        if fields.len() > 9 && fields[3] == "0A" && sockets.contains(&format!("socket:[{}]", fields[9])) {
            ports.extend(u16::from_str_radix(fields[1].rsplit_once(':').unwrap().1, 16));
        }
    }
    ports
}

#[test]
fn a_task_that_comes_back_elsewhere_is_followed() {
    let Some(python) = stock::python() else { return };
    let directory = Directory::new("moves");
    let jobs = "ps:1,worker:2";
    let options = ["--fail-fast=false"];
    let mut ps = directory.serve(jobs, "ps", &options);
    let serving = directory.join(jobs, "worker", &["--task", "0", "--fail-fast=false"], &[]);
    let gate = Gate::new(&directory);
    // It says what it was told whenever it is started, and waits.
    let program = ["sh", "-c", SAY_AND_WAIT, gate.path()];
    let working = directory.join(jobs, "worker", &["--task", "1", "--fail-fast=false"], &program);
    let mut client = Client::start(&python, &serving.target());
    assert_eq!(client.ask(), "1");
    assert_eq!(client.ask(), "2");
    ps.kill();
    let elsewhere = ports::address();
    let port = elsewhere.rsplit_once(':').unwrap().1;
    let ps = directory.serve(jobs, "ps", &["--fail-fast=false", "--port", port]);
    until("the worker hears where the parameter server is", || serving.said().contains("moved from"));
    // What the session had there is lost; the next one finds the new place.
    let refused = client.ask();
    assert!(["AbortedError", "UnavailableError"].contains(&refused.as_str()), "{refused}");
    assert_eq!(client.ask(), "1");
    assert_eq!(client.ask(), "2");
    drop(client);
    // The program is started again to be told.
    let told = || working.said().lines().filter(|line| line.starts_with('{')).count();
    until("the program is told the new address", || told() == 2);
    let said = working.said();
    let last = said.lines().rfind(|line| line.starts_with('{')).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["cluster"]["ps"][0], elsewhere, "{said}");
    gate.open();
    working.end(0);
    for mut server in [serving, ps] {
        server.terminate();
        server.end(0);
    }
    drop(gate);
    directory.is_left_clean();
}

#[test]
fn nothing_survives_a_task_that_is_killed() {
    let directory = Directory::new("survives");
    // A child, a grandchild and a daemon; all have the directory's name among their arguments.
    let script = "setsid sh -c 'sleep 1000; :' $0 >/dev/null 2>&1 & (sleep 1000; : $0) & echo up; sh -c 'sleep 1000; :' $0; :";
    let mark = directory.0.to_str().unwrap();
    for end in [Joined::kill, Joined::terminate] {
        let mut task = directory.join("worker:1", "worker", &[], &["sh", "-c", script, mark]);
        until("the program runs", || task.said().contains("up\n"));
        // Its own arguments name the directory as well.
        assert!(processes_with(mark).len() >= 4, "{:?}", processes_with(mark));
        end(&mut task);
        until("nothing is left", || processes_with(mark).is_empty());
    }
}

#[test]
fn who_waits_says_for_whom() {
    let directory = Directory::new("speaks");
    let jobs = "ps:1,worker:1,evaluator:1";
    let first = directory.join(jobs, "ps", &[], &[]);
    until("the first is published", || directory.has("m.ps.0.0"));
    let missing = directory.join(jobs, "evaluator", &[], &SAY_CONFIG);
    // Nobody makes room.
    let second = directory.join(jobs, "ps", &[], &[]);
    let said = |task: &Joined, whom: &str, why: &str| {
        let said = task.said();
        said.lines().any(|line| line.contains(&format!("Waiting for {whom} for")) && line.contains(why))
    };
    until("a task names the missing", || said(&missing, "the other tasks", "1 missing: worker:0 (absent)"));
    until("a task names those in its place", || {
        said(&second, "a place at the rendezvous", "all tasks of job ps are taken")
    });
    drop([first, missing, second]);
}

#[test]
fn twenty_tasks_of_one_machine_see_the_same_cluster() {
    let directory = Directory::new("twenty");
    let jobs = "chief:1,ps:2,worker:17";
    let servers = [(); 2].map(|()| directory.join(jobs, "ps", &[], &[]));
    let mut programs = vec![directory.join(jobs, "chief", &[], &SAY_CONFIG)];
    programs.extend([(); 17].map(|()| directory.join(jobs, "worker", &[], &SAY_CONFIG)));
    let said: Vec<Value> = programs.into_iter().map(|program| config(&program.end(0))).collect();
    let tasks: BTreeSet<String> = said.iter().map(|config| config["task"].to_string()).collect();
    assert_eq!(tasks.len(), 18, "numbers are given twice");
    let cluster = &said[0]["cluster"];
    assert!(said.iter().all(|config| config["cluster"] == *cluster));
    assert_eq!(cluster["worker"].as_array().map(Vec::len), Some(17));
    let addresses: BTreeSet<&str> = ["chief", "ps", "worker"]
        .iter()
        .flat_map(|job| cluster[*job].as_array().unwrap())
        .map(|address| address.as_str().unwrap())
        .collect();
    assert_eq!(addresses.len(), 20);
    servers.into_iter().for_each(|server| drop(server.end(0)));
    directory.is_left_clean();
}

#[test]
fn five_clusters_form_at_once_in_one_directory() {
    let directory = Directory::new("five");
    let runs = ["a", "b", "c", "d", "e"].map(|run| directory.run(run));
    let tasks: Vec<[Joined; 3]> = runs
        .iter()
        .map(|run| {
            ["ps", "worker", "worker"].map(|job| {
                let program: &[&str] = if job == "ps" { &[] } else { &SAY_CONFIG };
                join(&format!("file://{}", run.display()), "ps:1,worker:2", job, &[], program)
            })
        })
        .collect();
    let mut clusters = BTreeSet::new();
    for [ps, first, second] in tasks {
        let (first, second) = (config(&first.end(0)), config(&second.end(0)));
        assert_eq!(first["cluster"], second["cluster"]);
        clusters.insert(first["cluster"].to_string());
        ps.end(0);
    }
    assert_eq!(clusters.len(), 5);
    directory.is_left_clean();
}

#[test]
fn tasks_meet_at_a_host_which_shows_who_is_there() {
    let mut host = binary::command(&["rendezvous", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    let output = host.stdout.take().expect("the output is a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
    let url = line.split(' ').next_back().unwrap().trim().to_owned();
    let ps = join(&url, "ps:1,worker:1", "ps", &[], &[]);
    let there = |survey: &Value| survey["tasks"][0]["state"] == "there";
    until("the parameter server is there", || there(&status(&url)));
    assert_eq!(status(&url)["jobs"], "ps:1,worker:1");
    assert_eq!(status(&url)["missing"], serde_json::json!(["worker:0"]));
    let told = ferroflow(&["rendezvous", "status", &url]);
    assert!(told.contains("worker:0     missing"), "{told}");
    assert!(told.ends_with("1 of 2 tasks are there; not there: worker:0 (missing)\n"), "{told}");
    let worker = join(&url, "ps:1,worker:1", "worker", &[], &SAY_CONFIG);
    assert_eq!(config(&worker.end(0))["task"]["type"], "worker");
    ps.end(0);
    host.kill().unwrap();
    host.wait().unwrap();
}

#[test]
fn any_task_can_host_the_meeting_place() {
    let url = format!("tcp://{}/job", ports::address());
    let ps = join(&url, "ps:1,worker:2", "ps", &[], &[]);
    let workers = [(); 2].map(|()| join(&url, "ps:1,worker:2", "worker", &[], &SAY_CONFIG));
    let said = workers.map(|worker| worker.end(0)).concat() + &ps.end(0);
    // When the host has ended, another task may take its place.
    assert!(said.contains("This task hosts the rendezvous"), "{said}");
}

#[test]
fn a_task_that_is_killed_and_started_again_takes_its_old_place() {
    let directory = Directory::new("killed");
    let jobs = "ps:1,worker:2";
    let gate = Gate::new(&directory);
    let program = ["sh", "-c", SAY_AND_WAIT, gate.path()];
    // Killed while it waits for the others: the leader, which is the worker with number 0.
    let mut early = directory.join(jobs, "worker", &["--task", "0"], &program);
    until("the worker is published", || directory.has("m.worker.0.0"));
    early.kill();
    let ps = directory.join(jobs, "ps", &["--fail-fast=false"], &[]);
    let first = directory.join(jobs, "worker", &["--task", "0", "--fail-fast=false"], &program);
    let mut second = directory.join(jobs, "worker", &["--fail-fast=false"], &program);
    until("the cluster is complete", || {
        second.said().contains("TF_CONFIG") || second.said().contains("cluster\":")
    });
    // Killed while it works.
    second.kill();
    let again = directory.join(jobs, "worker", &["--fail-fast=false"], &program);
    until("the restarted task is in the cluster", || again.said().contains("cluster\":"));
    assert!(again.said().contains("generation 1"), "{}", again.said());
    assert_eq!(config(&again.said()), config(&second.said()), "the address of the task has changed");
    gate.open();
    first.end(0);
    again.end(0);
    ps.end(0);
    drop(gate);
    directory.is_left_clean();
}

#[test]
fn failures_have_codes_and_reasons() {
    let directory = Directory::new("codes");
    // Missing: whoever waits says for whom, and gives up.
    let late = directory.join("ps:1,worker:1", "worker", &["--timeout", "1"], &SAY_CONFIG);
    let said = late.end(75);
    assert!(said.contains("ps:0 (absent)"), "{said}");
    // Twice the same task: the second is refused while the first is alive.
    let first = directory.join("ps:2,worker:1", "ps", &["--task", "1"], &[]);
    until("the task is published", || directory.has("m.ps.1.0"));
    let said = directory.join("ps:2,worker:1", "ps", &["--task", "1"], &[]).end(5);
    assert!(
        said.contains("ps:1 is alive at 127.0.0.1:") && said.contains("end the other one first"),
        "{said}"
    );
    // One that is stopped does not answer and loses its place; it learns of that when it goes on.
    crate::launch::signal(first.process.id(), "STOP");
    let mut newer = directory.join("ps:2,worker:1", "ps", &["--task", "1"], &[]);
    until("the second start is published", || directory.has("m.ps.1.1"));
    crate::launch::signal(first.process.id(), "CONT");
    let said = first.end(4);
    assert!(said.contains("ps:1 was started again"), "{said}");
    // Another list of jobs.
    let said = directory.join("ps:2,worker:3", "ps", &["--task", "0"], &[]).end(3);
    assert!(said.contains("ps:2,worker:1") && said.contains("ps:2,worker:3"), "{said}");
    // Asked to end while it waits: as shells say it.
    newer.terminate();
    newer.end(143);
}

#[test]
fn a_program_that_fails_ends_all_with_its_code() {
    let directory = Directory::new("fails");
    let jobs = "ps:1,worker:2";
    let ps = directory.join(jobs, "ps", &[], &[]);
    let gate = Gate::new(&directory);
    let waiting = directory.join(jobs, "worker", &["--task", "0"], &["sh", "-c", SAY_AND_WAIT, gate.path()]);
    let failing = directory.join(jobs, "worker", &["--task", "1"], &["sh", "-c", "exit 9"]);
    failing.end(9);
    for other in [waiting, ps] {
        let said = other.end(9);
        assert!(said.contains("worker:1 ended with code 9: the program failed with exit code 9"), "{said}");
    }
    drop(gate);
    // What went wrong can be looked at afterwards.
    let found = status(&directory.url());
    assert_eq!(found["tasks"].as_array().map(Vec::len), Some(3));
    assert!(found["tasks"].as_array().unwrap().iter().all(|task| task["state"] == "ended"), "{found}");
    let removed = ferroflow(&["rendezvous", "gc", directory.0.to_str().unwrap(), "--older-than", "0"]);
    assert!(removed.contains("removed"), "{removed}");
    directory.is_left_clean();
}

#[test]
fn rust_programs_meet_train_and_end() {
    let directory = Directory::new("rust");
    let at = |job: &str| {
        let mut meeting = Meeting::new(&directory.url(), "ps:1,worker:1", job, None).unwrap();
        meeting.advertise = Some("127.0.0.1".to_owned());
        meeting.program = job == "worker";
        meeting
    };
    let ps = at("ps");
    let serving = std::thread::spawn(move || Server::meet(ps).unwrap().join());
    let worker = Server::meet(at("worker")).unwrap();
    let graph = Graph::new();
    let there = graph.scope().device("/job:ps/task:0").constant([1.0f32, 2.0]).unwrap();
    let sum = (&there + 1.0).unwrap();
    let session = Session::connect(worker.target(), &graph).unwrap();
    assert_eq!(session.eval(&sum).unwrap().flat::<f32>().unwrap(), [2.0, 3.0]);
    drop(session);
    worker.stop();
    serving.join().unwrap();
    directory.is_left_clean();
}

#[test]
fn directories_of_others_are_refused() {
    let directory = Directory::new("refused");
    let open = directory.run("job");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    let said = directory.join("ps:1", "ps", &[], &[]).end(1);
    assert!(said.contains("chmod 700"), "{said}");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o700)).unwrap();
    // Only the superuser can give a directory away.
    let own = std::fs::metadata(&open).unwrap().uid();
    let other = if own == 65534 { 65533 } else { 65534 };
    if std::os::unix::fs::chown(&open, Some(other), None).is_ok() {
        let said = directory.join("ps:1", "ps", &[], &[]).end(1);
        assert!(said.contains(&format!("belongs to user {other}")), "{said}");
        std::os::unix::fs::chown(&open, Some(own), None).unwrap();
    } else {
        eprintln!("skipped: a directory of another user, which only the superuser can make");
    }
    let said = join("file:///proc/ferroflow/job", "ps:1", "ps", &[], &[]).end(1);
    assert!(said.contains("/proc/ferroflow/job"), "{said}");
}

/// A script that says what it was told and waits for a file.
const SAY_AND_WAIT: &str = r#"echo $TF_CONFIG; until test -e "$0"; do sleep 0.05; done"#;

/// A program that says what it was told.
const SAY_CONFIG: [&str; 3] = ["sh", "-c", "echo $TF_CONFIG"];

/// The role that a program said it was given.
fn config(said: &str) -> Value {
    let line =
        said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no TF_CONFIG in {said}"));
    serde_json::from_str(line).unwrap()
}

fn status(url: &str) -> Value {
    serde_json::from_str(&ferroflow(&["rendezvous", "status", url, "--output", "json"])).unwrap()
}

fn ferroflow(arguments: &[&str]) -> String {
    let output = binary::command(arguments).output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn join(url: &str, jobs: &str, job: &str, options: &[&str], program: &[&str]) -> Joined {
    let program = if program.is_empty() { Vec::new() } else { [&["--"], program].concat() };
    start("join", url, jobs, job, &[options, &program].concat())
}

/// A `ferroflow` command that meets others.
fn start(command: &str, url: &str, jobs: &str, job: &str, options: &[&str]) -> Joined {
    let log = std::env::temp_dir().join(format!("ferroflow-join-{}-{}", std::process::id(), unique()));
    let file = || std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
    let name = command;
    let mut command = binary::command(&[name]);
    command.args(["--rendezvous", url, "--jobs", jobs, "--job", job]);
    command.args(["--advertise", "127.0.0.1"]).args(options);
    command.stdin(Stdio::null()).stdout(file()).stderr(file());
    Joined { process: command.spawn().expect("the binary starts"), log }
}

fn unique() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Looks again until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    while !is_so() {
        assert!(Instant::now() < end, "it does not come true that {what}");
        let _ = never.recv_timeout(Duration::from_millis(30));
    }
}

/// A task's process, and what it says.
struct Joined {
    process: Child,
    log: PathBuf,
}

impl Joined {
    /// Its output, once it has ended with this code.
    fn end(mut self, code: i32) -> String {
        let mut status = None;
        let until_end = || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        };
        until("the task ends", until_end);
        let said = self.said();
        assert_eq!(status.unwrap().code(), Some(code), "{said}");
        said
    }

    /// Where it serves, once it does.
    fn target(&self) -> String {
        until("the task serves", || self.said().contains(" at grpc://"));
        let said = self.said();
        let line = said.lines().find(|line| line.contains(" at grpc://")).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn terminate(&mut self) {
        crate::launch::signal(self.process.id(), "TERM");
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// A client of stock's that asks a parameter server whenever it is told to.
struct Client {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn start(python: &Path, target: &str) -> Client {
        let mut process = Command::new(python)
            .arg(stock::root().join("oracle/launch/ask.py"))
            .arg(target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter starts");
        let answers = BufReader::new(process.stdout.take().unwrap());
        Client { process, answers }
    }

    fn ask(&mut self) -> String {
        let mut answer = String::new();
        writeln!(self.process.stdin.as_mut().unwrap()).unwrap();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It ends when its input does, after closing its session.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// A file for which programs wait.
struct Gate(PathBuf);

impl Gate {
    fn new(directory: &Directory) -> Gate {
        Gate(directory.0.join("gate"))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Lets all programs through.
    fn open(&self) {
        std::fs::write(&self.0, "").unwrap();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A directory for runs that is gone after the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ferroflow-join-{name}-{}", std::process::id()));
        // Whatever the user's own mask is, nobody else may write there.
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Directory(path)
    }

    fn run(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn url(&self) -> String {
        format!("file://{}", self.run("job").display())
    }

    fn has(&self, name: &str) -> bool {
        self.run("job").join(name).exists()
    }

    fn serve(&self, jobs: &str, job: &str, options: &[&str]) -> Joined {
        start("serve", &self.url(), jobs, job, options)
    }

    fn join(&self, jobs: &str, job: &str, options: &[&str], program: &[&str]) -> Joined {
        join(&self.url(), jobs, job, options, program)
    }

    /// Neither files nor processes are left.
    fn is_left_clean(&self) {
        let left: Vec<PathBuf> =
            std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        let names = |path: &PathBuf| -> Vec<String> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let kept: Vec<_> = left.iter().map(|path| (path, names(path))).collect();
        assert!(left.is_empty(), "left over: {kept:?}");
        until("no process is left", || processes_with(self.0.to_str().unwrap()).is_empty());
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
