//! The socket by which a task shows, for its whole life, that it is the one that the board speaks of.
//!
//! It also hears at once what it would find on the board a little later: that there is something new, and who left.

use super::lines::{LineServer, ask};
use super::record::{Member, Note, Place, address};
use super::wake::Wake;
use crate::lookup::look_up;
use ferroflow_core::{Result, status};
use serde_json::{Value, json};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// How long a task may take to answer; its threads are idle, so this is the network's time.
const PATIENCE: Duration = Duration::from_secs(2);

/// The open socket.
pub(super) struct Control {
    server: LineServer,
}

impl Control {
    pub(super) fn start(
        listener: TcpListener,
        run: String,
        incarnation: String,
        wake: Arc<Wake>,
    ) -> Result<Control> {
        let answer = move |question: &Value| {
            if question["run"] != run.as_str() {
                return json!({"ok": false});
            }
            match question["op"].as_str() {
                // Whoever asks has read the incarnation from the board; it is not told to others.
                Some("hello") => return json!({"ok": question["incarnation"] == incarnation.as_str()}),
                Some("look") => wake.look(),
                Some("note") => match serde_json::from_value(question["note"].clone()) {
                    Ok(note) => wake.tell(note),
                    Err(_) => return json!({"ok": false}),
                },
                _ => return json!({"ok": false}),
            }
            json!({"ok": true})
        };
        let server = LineServer::start(listener, answer)
            .map_err(|error| status!(Internal, "the control socket cannot be served: {error}"))?;
        Ok(Control { server })
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port()
    }
}

/// Why a member could not be reached.
#[derive(Clone, Debug)]
pub(super) struct Unreached {
    pub(super) reason: String,
    /// Nothing came back at all: it may be there, behind a network that does not work.
    pub(super) silent: bool,
}

/// The first of a member's hosts at which the very start of the task that published it answers.
pub(super) fn reach(member: &Member, run: &str, machine: &str) -> Result<String, Unreached> {
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
            Ok(answer) if answer["ok"] == true => return Ok(host.clone()),
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

/// Tells tasks to look at the board, all at the same time; who is not there is not missed.
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
                let mut told = hosts.map(|host| ask_host(host, member.control, question).is_ok());
                let _ = told.any(|told| told);
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
    let mut last = io::Error::new(ErrorKind::AddrNotAvailable, "its name leads nowhere");
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
    fn only_who_has_read_the_board_is_answered() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let wake = Arc::new(Wake::default());
        let control =
            Control::start(listener, "job-42".to_owned(), "secret".to_owned(), wake.clone()).unwrap();
        let said = |question: Value| ask_host("127.0.0.1", control.port(), &question).unwrap()["ok"] == true;
        assert!(said(json!({"op": "hello", "run": "job-42", "incarnation": "secret"})));
        assert!(!said(json!({"op": "hello", "run": "job-42", "incarnation": "guessed"})));
        assert!(!said(json!({"op": "hello", "run": "job-42"})));
        assert!(!said(json!({"op": "hello", "run": "job-43", "incarnation": "secret"})));
        assert!(!said(json!({"op": "note", "run": "job-42", "note": {"code": 1}})));
        assert!(!said(json!({"op": "end", "run": "job-42"})));
        assert!(wake.notes().is_empty());
        assert!(said(json!({"op": "look", "run": "job-42"})));
    }
}
