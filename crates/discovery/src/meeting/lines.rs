//! Questions and answers between the processes of a rendezvous: one JSON value in a line each, one question per connection.

use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest line, which a list of thousands of names fits in.
const LONGEST: u64 = 1 << 20;

/// How long a peer may take to say or hear its line.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many questions are answered at the same time; more are turned away.
const AT_ONCE: usize = 256;

/// Asks one question.
pub(super) fn ask(address: SocketAddr, question: &Value, timeout: Duration) -> io::Result<Value> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    // A port of this machine that nobody listens on can be connected to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_nodelay(true)?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let answer = read_line(&stream).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    })?;
    serde_json::from_str(&answer)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "another program answers"))
}

fn read_line(stream: &TcpStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    match line.ends_with('\n') {
        true => Ok(line),
        false => Err(io::Error::new(ErrorKind::InvalidData, "another program answers")),
    }
}

/// Answers questions on a socket until it is dropped.
pub(super) struct LineServer {
    address: SocketAddr,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LineServer {
    pub(super) fn start(
        listener: TcpListener,
        answer: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> io::Result<LineServer> {
        let address = listener.local_addr()?;
        let ending = Arc::new(AtomicBool::new(false));
        let (told, answer) = (ending.clone(), Arc::new(answer));
        let thread = std::thread::Builder::new().name("meeting".to_owned()).spawn(move || {
            let busy = Arc::new(AtomicUsize::new(0));
            for stream in listener.incoming() {
                if told.load(Ordering::Acquire) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                if busy.load(Ordering::Acquire) >= AT_ONCE {
                    continue;
                }
                busy.fetch_add(1, Ordering::AcqRel);
                let (counted, answer) = (busy.clone(), answer.clone());
                let talk = move || {
                    // A peer that goes away in the middle has nothing to be told.
                    let _ = converse(&stream, &*answer);
                    counted.fetch_sub(1, Ordering::AcqRel);
                };
                if std::thread::Builder::new().name("meeting-talk".to_owned()).spawn(talk).is_err() {
                    busy.fetch_sub(1, Ordering::AcqRel);
                }
            }
        })?;
        Ok(LineServer { address, ending, thread: Some(thread) })
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for LineServer {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        // The thread waits for a connection; this is one.
        let host: IpAddr = match self.address.ip() {
            // A socket for all addresses takes this one, of whichever family it is.
            host if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            host => host,
        };
        let woken = TcpStream::connect_timeout(&SocketAddr::new(host, self.address.port()), PATIENCE);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn converse(stream: &TcpStream, answer: &(impl Fn(&Value) -> Value + ?Sized)) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let question = read_line(stream)?;
    let answer = match serde_json::from_str(&question) {
        Ok(question) => answer(&question),
        Err(_) => json!({"error": "this is a rendezvous of Ferroflow, and that was no question"}),
    };
    let mut writer = stream;
    writer.write_all(format!("{answer}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_and_noise_is_not_taken_for_an_answer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = LineServer::start(listener, |question| json!({"ok": question["op"]})).unwrap();
        let address = server.address;
        let answer = ask(address, &json!({"op": "hello"}), PATIENCE).unwrap();
        assert_eq!(answer, json!({"ok": "hello"}));
        let mut noise = TcpStream::connect(address).unwrap();
        noise.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        let mut said = String::new();
        noise.read_to_string(&mut said).unwrap();
        assert!(said.contains("no question"), "{said}");
        drop(server);
        assert_eq!(ask(address, &json!({}), PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
