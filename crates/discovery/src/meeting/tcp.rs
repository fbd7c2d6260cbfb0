//! A process as a meeting place: it keeps the records, in memory, for all tasks that reach it.
//!
//! The first task that gets no answer at the address, and whose own address it is, becomes the host. A host that dies
//! takes the board with it; tasks that still run say so, and publish their records again at the next host.

use super::board::{Board, Listing};
use super::lines::{LineServer, ask};
use crate::lookup::look_up;
use crate::port::{PortChoice, listen_on};
use ferroflow_core::{Code, Result, bail, status};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time that a host has to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The largest number of names, and of bytes, that one host keeps.
const MOST_NAMES: usize = 100_000;
const MOST_BYTES: usize = 64 << 20;

/// A run at a host elsewhere, or in this process.
pub(super) struct TcpBoard {
    host: String,
    port: u16,
    run: String,
    /// True if this process may become the host.
    may_host: bool,
    hosted: Mutex<Option<Host>>,
}

impl TcpBoard {
    /// Makes a board that asks at an address; nothing is asked yet.
    pub(super) fn new(host: &str, port: u16, run: &str, may_host: bool) -> TcpBoard {
        TcpBoard { host: host.to_owned(), port, run: run.to_owned(), may_host, hosted: Mutex::new(None) }
    }

    /// Adds the host that this process runs, if it does.
    pub(super) fn hosting(mut self, host: Option<Host>) -> TcpBoard {
        self.hosted = Mutex::new(host);
        self
    }

    fn ask(&self, mut question: Value) -> Result<Value> {
        question["run"] = self.run.clone().into();
        let answer = match self.ask_anywhere(&question) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && self.become_host()? => {
                self.ask_anywhere(&question)
            }
            answer => answer,
        };
        let place = self.place();
        let answer = answer.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => {
                status!(FailedPrecondition, "{place} is not a Ferroflow rendezvous: {error}; check the port")
            }
            ErrorKind::ConnectionRefused => status!(
                Unavailable,
                "nothing answers at {place}; start a task on that machine, or run: ferroflow rendezvous --listen {}:{}",
                self.host,
                self.port
            ),
            _ => status!(Unavailable, "{place} does not answer: {error}"),
        })?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => bail!(ResourceExhausted, "{place} refuses: {error}"),
            None => Ok(answer),
        }
    }

    fn ask_anywhere(&self, question: &Value) -> io::Result<Value> {
        let mut last = io::Error::new(ErrorKind::AddrNotAvailable, "its name has no address");
        for address in look_up(&self.host, self.port)? {
            match ask(address, question, PATIENCE) {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Listens at the address if it is this machine's and free.
    fn become_host(&self) -> Result<bool> {
        let mut hosted = self.hosted.lock().unwrap_or_else(PoisonError::into_inner);
        if hosted.is_some() || !self.may_host {
            return Ok(false);
        }
        match listen_at(&self.host, self.port) {
            Ok(listener) => {
                *hosted = Some(Host::start(listener)?);
                tracing::info!("This task hosts the rendezvous at {}:{}.", self.host, self.port);
                Ok(true)
            }
            // It is another machine's, or another task was faster.
            Err(error) if error.code() == Code::Unavailable => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Board for TcpBoard {
    fn place(&self) -> String {
        format!("the rendezvous at {}:{}", self.host, self.port)
    }

    fn publish(&self, name: &str, text: &str) -> Result<bool> {
        let answer = self.ask(json!({"op": "publish", "name": name, "text": text}))?;
        Ok(answer["published"] == true)
    }

    fn list(&self) -> Result<Listing> {
        let answer = self.ask(json!({"op": "list"}))?;
        let (Some(names), Some(era)) = (answer["names"].as_array(), answer["era"].as_str()) else {
            bail!(
                FailedPrecondition,
                "the program that answers at {}:{} is not a rendezvous; check the port",
                self.host,
                self.port
            );
        };
        let names = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(Listing { names, era: era.to_owned() })
    }

    fn read(&self, name: &str) -> Result<Option<String>> {
        let answer = self.ask(json!({"op": "read", "name": name}))?;
        Ok(answer["text"].as_str().map(str::to_owned))
    }

    fn remove_all(&self) -> Result<()> {
        self.ask(json!({"op": "remove"})).map(drop)
    }

    /// Returns false: another task may have to host the place, which then begins empty.
    fn is_lasting(&self) -> bool {
        false
    }

    fn is_host(&self) -> bool {
        self.hosted.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Listens at a host and port of this machine. A name means all addresses, because others may know it by another one.
fn listen_at(host: &str, port: u16) -> Result<TcpListener> {
    let address = match host.parse::<IpAddr>() {
        Ok(address) => Some(address),
        Err(_) if host == "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        Err(_) => {
            let addresses = look_up(host, port);
            let addresses = addresses.map_err(|error| status!(Unavailable, "{host}: {error}"))?;
            let own = addresses.iter().any(|address| listen_on(Some(address.ip()), PortChoice::Any).is_ok());
            if !own {
                bail!(Unavailable, "{host} is another machine");
            }
            None
        }
    };
    let choice = if port == 0 { PortChoice::Any } else { PortChoice::Fixed(port) };
    listen_on(address, choice)
}

/// Keeps the records of any number of runs, until it is dropped.
pub struct Host {
    _server: LineServer,
    port: u16,
}

#[derive(Default)]
struct Runs {
    runs: HashMap<String, BTreeMap<String, String>>,
    bytes: usize,
    names: usize,
}

impl Host {
    /// Hosts rendezvous at `host:port` of this machine; port 0 means any free one.
    pub fn at(place: &str) -> Result<Host> {
        let (host, port) = place
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .ok_or_else(|| {
            status!(InvalidArgument, "'{place}' is not an address to listen on, expected e.g. 0.0.0.0:7777")
        })?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Host::start(listen_at(if host.is_empty() { "0.0.0.0" } else { host }, port)?)
    }

    /// Hosts rendezvous at all addresses of this machine.
    pub(super) fn anywhere(port: PortChoice) -> Result<Host> {
        Host::start(listen_on(None, port)?)
    }

    fn start(listener: TcpListener) -> Result<Host> {
        let failed = |error: io::Error| status!(Internal, "the rendezvous cannot be hosted: {error}");
        let era = getrandom::u64().map_err(|error| status!(Internal, "no random numbers: {error}"))?;
        let era = format!("{era:016x}");
        let port = listener.local_addr().map_err(failed)?.port();
        let runs = Arc::new(Mutex::new(Runs::default()));
        let answer = move |question: &Value| {
            let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.answer(question, &era)
        };
        Ok(Host { _server: LineServer::start(listener, answer).map_err(failed)?, port })
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Runs {
    fn answer(&mut self, question: &Value, era: &str) -> Value {
        let word = |field: &str| question[field].as_str().unwrap_or_default();
        let run = self.runs.get(word("run"));
        match word("op") {
            "list" => {
                let names: Vec<&String> = run.map(|run| run.keys().collect()).unwrap_or_default();
                json!({"names": names, "era": era})
            }
            "read" => json!({"text": run.and_then(|run| run.get(word("name")))}),
            "publish" => {
                let (name, text) = (word("name"), word("text"));
                if run.is_some_and(|run| run.contains_key(name)) {
                    return json!({"published": false});
                }
                if self.names >= MOST_NAMES || self.bytes + text.len() > MOST_BYTES {
                    return json!({"error": "it is full; start another one"});
                }
                self.names += 1;
                self.bytes += text.len();
                let run = self.runs.entry(word("run").to_owned()).or_default();
                run.insert(name.to_owned(), text.to_owned());
                json!({"published": true})
            }
            "remove" => {
                let removed = self.runs.remove(word("run")).unwrap_or_default();
                self.names -= removed.len();
                self.bytes -= removed.values().map(String::len).sum::<usize>();
                json!({"removed": removed.len()})
            }
            _ => json!({"error": "the question is not known"}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_runs_apart_and_names_are_published_once() {
        let host = Host::at("127.0.0.1:0").unwrap();
        let board = |run| TcpBoard::new("127.0.0.1", host.port(), run, false);
        let (first, second) = (board("a"), board("b"));
        assert!(first.publish("m.ps.0.0", "one").unwrap());
        assert!(!first.publish("m.ps.0.0", "two").unwrap());
        assert!(second.publish("m.ps.0.0", "three").unwrap());
        assert_eq!(first.read("m.ps.0.0").unwrap().as_deref(), Some("one"));
        assert_eq!(second.list().unwrap().names, ["m.ps.0.0"]);
        assert_eq!(first.read("m.ps.1.0").unwrap(), None);
        first.remove_all().unwrap();
        assert!(first.list().unwrap().names.is_empty());
        let port = host.port();
        drop(host);
        let gone = TcpBoard::new("127.0.0.1", port, "a", false).list().map(drop).unwrap_err();
        assert_eq!(gone.code(), Code::Unavailable);
        assert!(gone.message().contains("ferroflow rendezvous --listen"), "{gone}");
    }

    #[test]
    fn the_first_that_gets_no_answer_becomes_the_host() {
        let port = crate::ReservedPort::new(None, PortChoice::Any).unwrap();
        let boards = [(); 3].map(|()| TcpBoard::new("localhost", port.port(), "", true));
        let won: Vec<bool> = boards.iter().map(|board| board.publish("c.1", "").unwrap()).collect();
        assert_eq!(won, [true, false, false]);
        assert_eq!(boards.iter().filter(|board| board.is_host()).count(), 1);
    }
}
