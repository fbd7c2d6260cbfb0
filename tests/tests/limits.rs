//! Servers under limits: of memory, set by the system or by flags, and of what clients may leave behind.

use crate::served::{PATIENCE, Served};
use crate::{binary, stock};
use ferroflow::{Graph, Session};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A control group of the first version for one server, removed with this value.
struct Group(PathBuf);

impl Group {
    /// A group within another, of which the outer one has the limit; none where the test may not make them.
    fn new(bytes: usize) -> Option<Group> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own =
            groups.lines().find_map(|line| line.split_once(":memory:")).map(|(_, path)| path.to_owned());
        let (root, limit) = match own {
            Some(path) => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            None => ("/sys/fs/cgroup".to_owned(), "memory.max"),
        };
        let outer = Path::new(&root).join(format!("ferroflow-test-{}", std::process::id()));
        let group = Group(outer.join("inner"));
        fs::create_dir_all(&group.0).ok()?;
        fs::write(outer.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }

    /// A command that runs our binary in the group.
    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        let tasks = self.0.join("cgroup.procs");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(tasks).arg(binary::path());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

#[test]
fn a_server_at_its_limit_refuses_and_lives() {
    let Some(python) = stock::python() else { return };
    let mut servers = Vec::new();
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--as={}", 2usize << 30)).arg(binary::path());
    servers.push(("address-space", Served::start(limited, &[]), 2048));
    servers.push(("flag", Served::start(binary::command(&[]), &["--memory", "512M"]), 512));
    let group = Group::new(512 << 20);
    match &group {
        Some(group) => servers.push(("group", Served::start(group.command(), &[]), 512)),
        None => eprintln!("skipped: no control groups can be made here"),
    }
    let targets =
        servers.iter().map(|(name, server, megabytes)| format!("{name}={}={megabytes}", server.target));
    let run = Command::new(python).arg(stock::root().join("oracle/limits.py")).args(targets).output();
    let run = run.expect("the interpreter starts");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&run.stderr).into_owned();
    for (name, server, _) in &mut servers {
        assert!(server.is_alive(), "{name} ended:\n{said}{complaints}");
        for trial in ["random", "fill", "constant", "feed", "tile"] {
            let expected = format!("{name} {trial} RESOURCE_EXHAUSTED\n");
            assert!(said.contains(&expected), "no {expected:?} in:\n{said}{complaints}");
        }
        for expected in [
            format!("{name} variables some fit, then RESOURCE_EXHAUSTED; 42\n"),
            format!("{name} afterwards OK\n"),
        ] {
            assert!(said.contains(&expected), "no {expected:?} in:\n{said}{complaints}");
        }
    }
    drop(servers);
}

#[test]
fn the_share_of_the_machine_is_shown_and_kept() {
    let mut server = Served::start(binary::command(&[]), &["--threads", "3", "--memory", "1G"]);
    let line = server.log_line("Computes with");
    assert!(line.contains("3 threads and up to 1.0 GiB of memory, as --memory allows"), "{line}");
    let mut one = Command::new("taskset");
    one.args(["-c", "0"]).arg(binary::path());
    let mut pinned = Served::start(one, &[]);
    let line = pinned.log_line("Computes with");
    assert!(line.contains("with 1 thread") && !line.contains("threads"), "{line}");
    let refused = binary::command(&["serve", "--port", "0", "--memory", "lots"]).output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && errors.contains("'lots' is not an amount of memory"), "{errors}");
}

#[test]
fn signals_that_ask_are_answered() {
    // The tests themselves may have been started by `nohup`.
    let mut hearing = Command::new("env");
    hearing.arg("--default-signal=HUP").arg(binary::path());
    let mut server = Served::start(hearing, &[]);
    let graph = Graph::new();
    let session = Session::connect(server.target.as_str(), &graph).unwrap();
    for signal in ["USR1", "USR2"] {
        server.signal(signal);
        let line = server.log_line("sessions open");
        assert!(line.contains("has 1 sessions open and 0 steps under way"), "{line}");
    }
    drop(session);
    server.signal("HUP");
    server.log_line("The server has ended");
    assert!(server.process.wait().unwrap().success(), "a closed terminal ends a server well");
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(binary::path());
    let mut server = Served::start(ignoring, &[]);
    server.signal("HUP");
    server.signal("USR1");
    server.log_line("sessions open");
    assert!(server.is_alive(), "nohup keeps it");
}

#[test]
fn listening_for_other_machines_is_warned_of() {
    let mut server = Served::start(binary::command(&[]), &["--bind", "0.0.0.0"]);
    let line = server.log_line("can run code");
    assert!(line.contains("WARN") && line.contains("Listening on 0.0.0.0:"), "{line}");
    drop(server);
    let server = Served::start(binary::command(&[]), &[]);
    server.signal("TERM");
    let all = server.rest_of_log();
    assert!(!all.contains("can run code"), "{all}");
}

#[test]
fn a_task_that_meets_others_listens_where_it_is_told() {
    let directory = std::env::temp_dir().join(format!("ferroflow-bind-{}", std::process::id()));
    let url = format!("file://{}", directory.display());
    let arguments = ["--rendezvous", &url, "--jobs", "ps:1", "--job", "ps", "--bind", "127.0.0.1"];
    let server = Served::start(binary::command(&[]), &arguments);
    assert!(server.address().starts_with("127.0.0.1:"), "{}", server.target);
    server.signal("TERM");
    let all = server.rest_of_log();
    assert!(!all.contains("can run code"), "nobody else reaches it: {all}");
    let _ = fs::remove_dir_all(directory);
}

/// Whether a connection that sends these bytes and waits is closed in time.
fn is_closed_after(address: &str, bytes: &[u8]) -> bool {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(bytes).unwrap();
    let mut rest = [0; 1024];
    loop {
        match socket.read(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn floods_leave_nothing_behind() {
    let server = Served::start(binary::command(&[]), &[]);
    let address = server.address().to_owned();
    // Greetings that are never finished, all waited for side by side.
    std::thread::scope(|scope| {
        for greeting in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"Ferro", b"GET / HTTP/1.1\r\n\r\n"] {
            let address = &address;
            scope.spawn(move || assert!(is_closed_after(address, greeting), "{greeting:?} stays open"));
        }
    });
    // Frames that announce much.
    let before = server.resident();
    let sockets: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut socket = TcpStream::connect(&address).unwrap();
            socket.write_all(b"Ferro/2\n").unwrap();
            let mut head = (255u32 << 20).to_le_bytes().to_vec();
            head.extend(1u32.to_le_bytes());
            head.extend(1i64.to_le_bytes());
            socket.write_all(&head).unwrap();
            let mut welcome = [0; 8];
            socket.read_exact(&mut welcome).unwrap();
            socket
        })
        .collect();
    let graph = Graph::new();
    let sum = (&graph.scope().constant([1.0f32, 2.0]).unwrap() + 1.0).unwrap();
    let session = Session::connect(server.target.as_str(), &graph).unwrap();
    assert_eq!(session.eval(&sum).unwrap().flat::<f32>().unwrap(), [2.0, 3.0]);
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes for {} heads", sockets.len());
    drop(sockets);
}

#[test]
fn a_flood_of_accept_failures_is_a_line_a_second() {
    let mut few = Command::new("prlimit");
    few.arg("--nofile=48").arg(binary::path());
    let mut server = Served::start(few, &["--threads", "1"]);
    let address = server.address().to_owned();
    let started = Instant::now();
    let sockets: Vec<TcpStream> = (0..200).map_while(|_| TcpStream::connect(&address).ok()).collect();
    let line = server.log_line("Cannot accept connections");
    assert!(line.contains("count=1"), "the first failure is told at once: {line}");
    let line = server.log_line("Cannot accept connections");
    let count: u64 =
        line.split("count=").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap();
    assert!(count > 1, "the next ones together: {line}");
    assert!(started.elapsed() >= Duration::from_secs(1));
    drop(sockets);
    let session = Session::connect(server.target.as_str(), &Graph::new());
    assert!(session.is_ok(), "it goes on when there is room again");
}
