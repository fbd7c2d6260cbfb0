//! The reason why a task does not answer, as a plain connection to its address shows it.
//!
//! The status of a failed call says what the transport made of it. Connecting once more tells causes apart that need
//! different cures: a name, a firewall, a server that is not started, another program on the port.

use crate::lookup::look_up;
use ferroflow_core::{Code, Status};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The time that a program has to send its first line, if it is not a TensorFlow server.
const GREETING_WAIT: Duration = Duration::from_secs(1);

/// The length of that line that is shown.
const GREETING_BYTES: usize = 40;

/// The cause of a task's silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The host's name does not resolve.
    UnknownName(String),
    /// The machine is up, and nothing listens on the port.
    Refused,
    /// Neither the machine nor the port answers.
    TimedOut,
    /// The network refuses, e.g. because there is no route.
    Unreachable(String),
    /// Something accepts connections and does not answer calls.
    Silent,
    /// Something answers that does not speak TensorFlow's protocol.
    Stranger(String),
    /// The server refuses this user.
    Denied(String),
}

impl Obstacle {
    /// Finds out why a call to `host:port` failed with this status.
    pub(super) fn find(address: &str, failure: &Status, limit: Duration) -> Obstacle {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let addresses = match look_up(bare, port.parse().unwrap_or_default()) {
            Ok(addresses) => addresses,
            Err(error) => return Obstacle::UnknownName(error.to_string()),
        };
        let mut obstacle = Obstacle::UnknownName("it has no address".to_owned());
        for address in addresses {
            match TcpStream::connect_timeout(&address, limit) {
                Ok(connection) => return beyond_connection(connection, failure),
                Err(error) => obstacle = of_connection(&error),
            }
        }
        obstacle
    }

    /// Describes the cause, as the end of a sentence that begins with the task.
    pub(super) fn text(&self, address: &str, limit: Duration) -> String {
        let (host, seconds) =
            (address.rsplit_once(':').map_or(address, |(host, _)| host), limit.as_secs_f64());
        match self {
            Obstacle::UnknownName(why) => {
                format!("is not reached at {address}: the name {host} does not resolve ({why})")
            }
            Obstacle::Refused => format!("is not up: nothing listens at {address} (connection refused)"),
            Obstacle::TimedOut => {
                format!("is not reached at {address}: no answer to a connection within {seconds} s")
            }
            Obstacle::Unreachable(why) => format!("is not reached at {address}: {why}"),
            Obstacle::Silent => {
                format!(
                    "does not answer at {address}: connections are accepted, but not answered within {seconds} s"
                )
            }
            Obstacle::Stranger(greeting) => {
                format!("is not at {address}: what listens there is not a TensorFlow server{greeting}")
            }
            Obstacle::Denied(why) => format!("refuses at {address}: {why}"),
        }
    }

    /// Describes the cure.
    pub(super) fn fix(&self, task: &str, address: &str) -> String {
        let port = address.rsplit_once(':').map_or("", |(_, port)| port);
        match self {
            Obstacle::UnknownName(_) => {
                "write an address instead, or add the name to DNS or /etc/hosts of this machine".to_owned()
            }
            Obstacle::Refused => {
                format!("start {task}; if it runs, compare the address in its log with the one in the lists")
            }
            Obstacle::TimedOut => format!(
                "check that its machine is up, and that firewalls between here and there let port {port} through"
            ),
            Obstacle::Unreachable(_) => {
                "check the address, and the network between here and there".to_owned()
            }
            Obstacle::Silent => {
                "look whether that process hangs or is stopped, or is another program".to_owned()
            }
            Obstacle::Stranger(_) => {
                format!("end that program, or give {task} another port in the lists of all tasks")
            }
            Obstacle::Denied(_) => {
                format!("run this as the user of {task}, or start {task} with --allow-local-users")
            }
        }
    }
}

fn of_connection(error: &io::Error) -> Obstacle {
    match error.kind() {
        ErrorKind::ConnectionRefused => Obstacle::Refused,
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Obstacle::TimedOut,
        _ => Obstacle::Unreachable(error.to_string()),
    }
}

/// Finds the obstacle of a call that failed although the connection was made.
fn beyond_connection(connection: TcpStream, failure: &Status) -> Obstacle {
    if failure.code() == Code::PermissionDenied {
        return Obstacle::Denied(failure.message().to_owned());
    }
    match greeting(connection) {
        Some(greeting) => Obstacle::Stranger(format!(" (it says '{greeting}')")),
        None if failure.code() == Code::DeadlineExceeded => Obstacle::Silent,
        None => Obstacle::Stranger(format!(" ({})", failure.message())),
    }
}

/// Reads the first line that a program sends, unasked or in answer to a request of HTTP/1.
fn greeting(mut connection: TcpStream) -> Option<String> {
    connection.set_read_timeout(Some(GREETING_WAIT)).ok()?;
    connection.set_write_timeout(Some(GREETING_WAIT)).ok()?;
    connection.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut bytes = [0; GREETING_BYTES];
    let count = connection.read(&mut bytes).ok()?;
    let line = String::from_utf8_lossy(&bytes[..count]);
    let line = line.lines().next()?.trim();
    let printable = !line.is_empty() && line.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    printable.then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn found(address: &str, code: Code) -> Obstacle {
        Obstacle::find(address, &Status::new(code, "the call failed"), Duration::from_secs(60))
    }

    #[test]
    fn causes_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // Connections are not accepted, so requests are not answered.
        assert_eq!(found(&address, Code::DeadlineExceeded), Obstacle::Silent);
        let web = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            let (mut second, _) = listener.accept().unwrap();
            let _ = first.write_all(b"SSH-2.0-Something\r\n");
            let _ = second.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
            drop(first);
            let _ = second.read(&mut [0; 100]);
        });
        let stranger = found(&address, Code::Unavailable);
        assert!(
            matches!(&stranger, Obstacle::Stranger(said) if said.contains("HTTP/1.0 400")),
            "{stranger:?}"
        );
        web.join().unwrap();
        assert_eq!(found(&address, Code::Unavailable), Obstacle::Refused);
        assert!(matches!(found("no-such-host.invalid:1", Code::Unavailable), Obstacle::UnknownName(_)));
    }
}
