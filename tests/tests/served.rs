//! A Ferroflow server in a process of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Anything that takes longer is taken to hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A Ferroflow server in a process of its own; it is killed with this value.
pub(crate) struct Served {
    pub(crate) process: Child,
    pub(crate) target: String,
    /// Lines of its log, as they come.
    log: Receiver<String>,
}

impl Served {
    /// Starts `ferroflow serve` by this command, which names the binary, with these arguments.
    pub(crate) fn start(mut command: Command, arguments: &[&str]) -> Served {
        command.args(["serve", "--port", "0"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("the output is a pipe");
        BufReader::new(output).read_line(&mut line).expect("the output is text");
        let target = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let mut errors = BufReader::new(process.stderr.take().expect("the errors are a pipe"));
        if !target.starts_with("grpc://") {
            let mut all = String::new();
            let _ = errors.read_to_string(&mut all);
            panic!("the server does not start: {line:?} {all}");
        }
        let (lines, log) = channel();
        // It ends with the process, whose standard error it reads.
        std::thread::spawn(move || {
            errors.lines().map_while(|line| lines.send(line.ok()?).ok()).for_each(drop)
        });
        Served { process, target, log }
    }

    pub(crate) fn address(&self) -> &str {
        self.target.strip_prefix("grpc://").expect("a target")
    }

    /// Waits for a line of the log that holds this text.
    pub(crate) fn log_line(&mut self, text: &str) -> String {
        let mut others = Vec::new();
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => others.push(line),
                Err(error) => panic!("{error}; the log has no {text:?}: {others:#?}"),
            }
        }
    }

    /// The lines that are left in the log of a server that has ended.
    pub(crate) fn rest_of_log(&self) -> String {
        self.log.iter().collect::<Vec<String>>().join("\n")
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("the process is ours").is_none()
    }

    /// Memory of the process, in bytes.
    pub(crate) fn resident(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        line.trim().strip_suffix(" kB").and_then(|text| text.parse::<usize>().ok()).expect("a number") << 10
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
