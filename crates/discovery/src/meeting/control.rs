//! The port at which a task shows, for its whole life, that it is the one that the board speaks of: the one that it serves
//! on, or one of its own where a program listens on that.
//!
//! It also hears at once what it would find on the board a little later: that there is something new, and which tasks left.

use super::lines::{LineServer, ask};
use super::record::{Member, Note, Place, address};
use super::wake::Wake;
use crate::lookup::look_up;
use ferroflow_cluster::Listeners;
use ferroflow_core::{Result, Status, status};
use serde_json::{Value, json};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The time that a task has to answer. Threads that also serve sessions may need a moment.
const PATIENCE: Duration = Duration::from_secs(3);

/// The answers of one start of a task, for as long as it is a member.
pub(super) struct Control {
    server: Arc<LineServer>,
    stage: Arc<AtomicU8>,
}

/// A member answers for itself.
const MEMBER: u8 = 0;
/// A member that lets its steps finish before it leaves: another start of the task waits for its place.
const ENDING: u8 = 1;
/// This start of the task is not a member anymore.
const LEFT: u8 = 2;

/// The facts that a task answers with.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) run: String,
    pub(super) incarnation: String,
}

impl Control {
    /// Answers on a port of its own.
    pub(super) fn start(listener: TcpListener, identity: Identity, wake: Arc<Wake>) -> Result<Control> {
        let stage = Arc::new(AtomicU8::new(MEMBER));
        let server = LineServer::start(listener, answers(identity, wake, stage.clone()));
        Ok(Control { server: Arc::new(server.map_err(unserved)?), stage })
    }

    /// Answers on the port that the task's server is going to listen on, and returns that server's socket.
    pub(super) fn start_shared(
        listener: TcpListener,
        identity: Identity,
        wake: Arc<Wake>,
    ) -> Result<(Control, Listeners)> {
        let stage = Arc::new(AtomicU8::new(MEMBER));
        let server = LineServer::start_shared(listener, answers(identity, wake, stage.clone()));
        let server = Arc::new(server.map_err(unserved)?);
        let listeners = server.share().map_err(unserved)?;
        Ok((Control { server, stage }, listeners))
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Answers again by itself, after the server that shared the port has stopped.
    pub(super) fn resume(&self) {
        if let Err(error) = self.server.resume() {
            tracing::debug!(%error, "Other tasks cannot ask this one while it ends.");
        }
    }

    /// Tells another start of the task from now on that this one is about to leave.
    pub(super) fn begin_to_leave(&self) {
        self.stage.fetch_max(ENDING, Ordering::AcqRel);
    }

    /// Denies from now on that this start of the task is a member.
    pub(super) fn leave(&self) {
        self.stage.store(LEFT, Ordering::Release);
    }
}

fn unserved(error: io::Error) -> Status {
    status!(Internal, "the questions of other tasks cannot be answered: {error}")
}

fn answers(identity: Identity, wake: Arc<Wake>, stage: Arc<AtomicU8>) -> impl Fn(&Value) -> Value {
    move |question| {
        if question["run"] != identity.run.as_str() {
            return json!({"ok": false});
        }
        match question["op"].as_str() {
            // A task that asks has read the incarnation from the board; it is not told to others.
            Some("hello") => {
                let known = question["incarnation"] == identity.incarnation.as_str();
                let stage = stage.load(Ordering::Acquire);
                return json!({"ok": known && stage != LEFT, "ending": stage == ENDING});
            }
            Some("look") => wake.look(),
            Some("note") => match serde_json::from_value(question["note"].clone()) {
                Ok(note) => wake.tell(note),
                Err(_) => return json!({"ok": false}),
            },
            _ => return json!({"ok": false}),
        }
        json!({"ok": true})
    }
}

/// The reason why a member could not be reached.
#[derive(Clone, Debug)]
pub(super) struct Unreached {
    pub(super) reason: String,
    /// True if nothing came back at all: it may be there, behind a network that does not work.
    pub(super) silent: bool,
}

/// The answer of a member.
pub(super) struct Reached {
    /// The host at which it answers.
    pub(super) host: String,
    /// True if it is about to leave.
    pub(super) ending: bool,
}

/// Returns the first of a member's hosts at which the very start of the task that published it answers.
pub(super) fn reach(member: &Member, run: &str, machine: &str) -> Result<Reached, Unreached> {
    let question = json!({"op": "hello", "run": run, "incarnation": member.incarnation});
    let mut unreached =
        Unreached { reason: "it published no address that can be tried".to_owned(), silent: false };
    for host in &member.hosts {
        if member.machine != machine && host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback()) {
            if member.hosts.len() == 1 {
                let reason = format!("it is on {} and published only {host}", member.host);
                unreached = Unreached { reason, silent: false };
            }
            continue;
        }
        let place = address(host, member.control);
        let (reason, silent) = match ask_host(host, member.control, &question) {
            Ok(answer) if answer["ok"] == true => {
                return Ok(Reached { host: host.clone(), ending: answer["ending"] == true });
            }
            Ok(_) => (format!("another task answers at {place}"), false),
            Err(error) => {
                let silent = !matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::InvalidData);
                let reason = match error.kind() {
                    ErrorKind::ConnectionRefused => "refused".to_owned(),
                    ErrorKind::TimedOut => "no answer".to_owned(),
                    _ => error.to_string(),
                };
                (format!("{place}: {reason}"), silent)
            }
        };
        unreached = Unreached { reason, silent: silent || unreached.silent };
    }
    Err(unreached)
}

/// Tells tasks to look at the board, all at the same time; tasks that are gone are left out.
pub(super) fn tell_to_look<'a>(members: impl Iterator<Item = &'a Member>, run: &str, machine: &str) {
    let question = json!({"op": "look", "run": run});
    std::thread::scope(|scope| {
        for member in members {
            let question = &question;
            scope.spawn(move || {
                let own = member.machine == machine;
                let hosts = member
                    .hosts
                    .iter()
                    .filter(|host| own || !host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback()));
                let mut answered = hosts.map(|host| ask_host(host, member.control, question).is_ok());
                let _ = answered.any(|answered| answered);
            });
        }
    });
}

/// Tells the others in a cluster how this task ended.
pub(super) fn tell_note<'a>(places: impl Iterator<Item = &'a Place>, run: &str, note: &Note) {
    let question = json!({"op": "note", "run": run, "note": note});
    std::thread::scope(|scope| {
        for place in places {
            let question = &question;
            scope.spawn(move || {
                let _ = ask_host(&place.host, place.control, question);
            });
        }
    });
}

fn ask_host(host: &str, port: u16, question: &Value) -> io::Result<Value> {
    let mut last = io::Error::new(ErrorKind::AddrNotAvailable, "its name has no address");
    for address in look_up(host, port)? {
        match ask(address, question, PATIENCE) {
            Ok(answer) => return Ok(answer),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn only_tasks_that_have_read_the_board_are_answered() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let wake = Arc::new(Wake::default());
        let identity = Identity { run: "job-42".to_owned(), incarnation: "secret".to_owned() };
        let control = Control::start(listener, identity, wake.clone()).unwrap();
        let said = |question: Value| ask_host("127.0.0.1", control.port(), &question).unwrap()["ok"] == true;
        assert!(said(json!({"op": "hello", "run": "job-42", "incarnation": "secret"})));
        assert!(!said(json!({"op": "hello", "run": "job-42", "incarnation": "guessed"})));
        assert!(!said(json!({"op": "hello", "run": "job-42"})));
        assert!(!said(json!({"op": "hello", "run": "job-43", "incarnation": "secret"})));
        assert!(!said(json!({"op": "note", "run": "job-42", "note": {"code": 1}})));
        assert!(!said(json!({"op": "end", "run": "job-42"})));
        assert!(wake.notes().is_empty());
        assert!(said(json!({"op": "look", "run": "job-42"})));
        control.leave();
        assert!(!said(json!({"op": "hello", "run": "job-42", "incarnation": "secret"})));
    }
}
