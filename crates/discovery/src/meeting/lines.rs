//! Questions and answers between the processes that meet: one JSON value in a line each, one question per connection.
//!
//! A question begins with `{`, so that a server of another protocol can share the port.

mod acceptor;

use acceptor::Acceptor;
use ferroflow_cluster::{Listeners, PortSharer};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The longest line, in bytes: a list of thousands of names fits in it.
const LONGEST: u64 = 1 << 20;

/// The longest question at a port that also serves sessions, where any client may send it.
const LONGEST_AT_SHARED_PORT: u64 = 256 << 10;

/// The time that a peer has to send or to take its line.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest number of connections that are read from at the same time; further ones are closed.
const AT_ONCE: usize = 256;

/// The largest number of connections that are kept for a server that is about to start.
const MOST_KEPT: usize = 256;

/// The first byte of every question.
const FIRST_BYTE: u8 = b'{';

/// Asks one question.
pub(super) fn ask(address: SocketAddr, question: &Value, timeout: Duration) -> io::Result<Value> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    // A port of this machine without a listener can be connected to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_nodelay(true)?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let answer = read_line(&stream, LONGEST).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    })?;
    serde_json::from_str(&answer)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "another program answers"))
}

fn read_line(stream: &TcpStream, longest: u64) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(longest)).read_line(&mut line)?;
    if line.ends_with('\n') {
        Ok(line)
    } else {
        Err(io::Error::new(ErrorKind::InvalidData, "another program answers"))
    }
}

/// Answers questions on a socket until it is dropped.
pub(super) struct LineServer {
    listener: TcpListener,
    address: SocketAddr,
    conversations: Arc<Conversations>,
    /// None while a server that shares the port accepts the connections.
    acceptor: Mutex<Option<Acceptor>>,
}

/// The connections of a [`LineServer`].
struct Conversations {
    answer: Box<dyn Fn(&Value) -> Value + Send + Sync>,
    /// The longest question, in bytes.
    longest: u64,
    /// The number of connections that are being read from.
    busy: AtomicUsize,
    /// Guards only the decision where a connection goes.
    others: Mutex<Others>,
}

/// Destination of connections that do not begin as questions do.
enum Others {
    /// They get an error.
    Answered,
    /// They are kept for a server that will share the port.
    Kept(VecDeque<TcpStream>),
    /// They are passed to the server that shares the port.
    Passed(Box<dyn Fn(TcpStream) + Send + Sync>),
}

impl LineServer {
    /// Answers questions on a port of its own.
    pub(super) fn start(
        listener: TcpListener,
        answer: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> io::Result<LineServer> {
        LineServer::accept_on(listener, Box::new(answer), Others::Answered)
    }

    /// Answers questions on a port that a server is going to share.
    pub(super) fn start_shared(
        listener: TcpListener,
        answer: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> io::Result<LineServer> {
        LineServer::accept_on(listener, Box::new(answer), Others::Kept(VecDeque::new()))
    }

    fn accept_on(
        listener: TcpListener,
        answer: Box<dyn Fn(&Value) -> Value + Send + Sync>,
        others: Others,
    ) -> io::Result<LineServer> {
        let address = listener.local_addr()?;
        let longest = if matches!(others, Others::Answered) { LONGEST } else { LONGEST_AT_SHARED_PORT };
        let (busy, others) = (AtomicUsize::new(0), Mutex::new(others));
        let conversations = Conversations { answer, longest, busy, others };
        let server = LineServer {
            listener,
            address,
            conversations: Arc::new(conversations),
            acceptor: Mutex::new(None),
        };
        server.resume()?;
        Ok(server)
    }

    /// The port that it listens on.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Accepts connections again, after the server that shared the port has stopped.
    pub(super) fn resume(&self) -> io::Result<()> {
        let mut acceptor = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        if acceptor.is_none() {
            let conversations = self.conversations.clone();
            *acceptor = Some(Acceptor::start(&self.listener, move |stream| conversations.begin(stream))?);
        }
        Ok(())
    }

    /// The socket for a server that shares the port.
    pub(super) fn share(self: &Arc<LineServer>) -> io::Result<Listeners> {
        let sharer: Arc<dyn PortSharer> = Arc::new(SharedLines(Arc::downgrade(self)));
        Ok(Listeners { sockets: vec![self.listener.try_clone()?], sharer: Some(sharer) })
    }

    fn stop_accepting(&self) {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// A line server as the server that shares its port knows it. A task that has left its cluster answers no questions.
struct SharedLines(Weak<LineServer>);

impl PortSharer for SharedLines {
    fn speaks(&self, first_byte: u8) -> bool {
        first_byte == FIRST_BYTE
    }

    fn serve(&self, connection: TcpStream) {
        if let Some(lines) = self.0.upgrade() {
            lines.conversations.begin(connection);
        }
    }

    fn hand_over(&self, server: Box<dyn Fn(TcpStream) + Send + Sync>) {
        let Some(lines) = self.0.upgrade() else { return };
        lines.stop_accepting();
        let mut others = lines.conversations.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Others::Kept(kept) = &mut *others {
            kept.drain(..).for_each(&server);
        }
        *others = Others::Passed(server);
    }
}

impl Conversations {
    /// Answers on a thread of its own.
    fn begin(self: &Arc<Conversations>, stream: TcpStream) {
        if self.busy.fetch_add(1, Ordering::AcqRel) >= AT_ONCE {
            self.busy.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let conversations = self.clone();
        let converse = move || {
            // A peer that goes away in the middle needs no answer.
            let _ = conversations.converse(stream);
            conversations.busy.fetch_sub(1, Ordering::AcqRel);
        };
        if std::thread::Builder::new().name("meeting-line".to_owned()).spawn(converse).is_err() {
            self.busy.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn converse(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut first = [0];
        if stream.peek(&mut first)? == 1 && first[0] != FIRST_BYTE {
            match &mut *self.others.lock().unwrap_or_else(PoisonError::into_inner) {
                Others::Answered => {}
                Others::Kept(kept) => {
                    // The oldest one is the likeliest to have been given up.
                    if kept.len() == MOST_KEPT {
                        kept.pop_front();
                    }
                    kept.push_back(stream);
                    return Ok(());
                }
                Others::Passed(server) => {
                    server(stream);
                    return Ok(());
                }
            }
        }
        let question = read_line(&stream, self.longest)?;
        let answer = match serde_json::from_str(&question) {
            Ok(question) => (self.answer)(&question),
            Err(_) => json!({"error": "this is a Ferroflow rendezvous, and that was not a question"}),
        };
        stream.write_all(format!("{answer}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::mpsc::channel;

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
        assert!(said.contains("not a question"), "{said}");
        drop(server);
        assert_eq!(ask(address, &json!({}), PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn connections_of_another_protocol_reach_the_server_that_shares_the_port() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = Arc::new(LineServer::start_shared(listener, |_| json!({"ok": true})).unwrap());
        let (address, ok) = (server.address, json!({"ok": true}));
        let (early, late) = (other_protocol(address, "early"), TcpStream::connect(address).unwrap());
        assert_eq!(ask(address, &json!({}), PATIENCE).unwrap(), ok);
        let Listeners { sockets, sharer } = server.share().unwrap();
        let (sender, passed) = channel();
        let sharer = sharer.unwrap();
        sharer.hand_over(Box::new(move |stream| sender.send(stream).unwrap()));
        assert_eq!(first_word(&passed.recv_timeout(PATIENCE).unwrap()), "early");
        // One that was accepted before and says only now what it is.
        (&late).write_all(b"late.\n").unwrap();
        assert_eq!(first_word(&passed.recv_timeout(PATIENCE).unwrap()), "late.");
        // The server accepts, and gives questions back.
        let asking = std::thread::spawn(move || ask(address, &json!({}), PATIENCE));
        sockets[0].set_nonblocking(false).unwrap();
        sharer.serve(sockets[0].accept().unwrap().0);
        assert_eq!(asking.join().unwrap().unwrap(), ok);
        drop(sockets);
        server.resume().unwrap();
        assert_eq!(ask(address, &json!({}), PATIENCE).unwrap(), ok);
        drop((early, server));
        assert_eq!(ask(address, &json!({}), PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    fn other_protocol(address: SocketAddr, says: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("{says}\n").as_bytes()).unwrap();
        stream
    }

    fn first_word(stream: &TcpStream) -> String {
        read_line(stream, LONGEST).unwrap().trim().to_owned()
    }
}
