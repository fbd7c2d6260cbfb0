//! The socket to the process manager, with a deadline for everything that is asked over it.

use ferroflow_cluster::logged_wait::LoggedWait;
use ferroflow_core::{Result, Status, bail, ensure, status};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest answer of a process manager, in bytes.
const LONGEST_ANSWER: usize = 1 << 16;

pub(super) struct Wire {
    stream: UnixStream,
    waiting: LoggedWait,
    patience: Duration,
}

impl Wire {
    /// Bounds everything over this socket by `patience` from now.
    pub(super) fn new(stream: UnixStream, patience: Duration) -> Wire {
        Wire { stream, waiting: LoggedWait::new(), patience }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(|error| gone(&error))
    }

    /// Reads one line and returns it without its end.
    pub(super) fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            self.fill(&mut byte)?;
            if byte == *b"\n" {
                return text(line);
            }
            ensure!(line.len() < LONGEST_ANSWER, DataLoss, "the process manager's answer has no end");
            line.push(byte[0]);
        }
    }

    /// Reads a number of bytes as text.
    pub(super) fn text(&mut self, length: usize) -> Result<String> {
        ensure!(
            length <= LONGEST_ANSWER,
            DataLoss,
            "the process manager announces an answer of {length} bytes"
        );
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        text(bytes)
    }

    fn fill(&mut self, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            let left = self.patience.saturating_sub(self.waiting.elapsed());
            ensure!(
                !left.is_zero(),
                DeadlineExceeded,
                "the process manager did not answer within {:?}",
                self.patience
            );
            self.waiting.log(
                "the other processes of this launch",
                "they have yet to publish their addresses at the process manager (PMI)",
            );
            // A timeout of zero would mean none.
            let pause = left.min(self.waiting.until_next()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(pause)).map_err(|error| gone(&error))?;
            match self.stream.read(buffer) {
                Ok(0) => bail!(Unavailable, "the process manager closed its connection"),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(gone(&error)),
            }
        }
        Ok(())
    }
}

/// Returns the value of a name in an answer of `name=value` pairs, after the answer's own success is known.
pub(super) fn value<'a>(answer: &'a str, separator: char, name: &str) -> Result<&'a str> {
    let find = |name| {
        let mut pairs = answer.split(separator).filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let failed = find("rc").is_some_and(|code| code != "0");
    ensure!(!failed, Unavailable, "the process manager answers '{}'", answer.trim_end());
    find(name).ok_or_else(|| status!(DataLoss, "the process manager answers '{answer}', which has no {name}"))
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| status!(DataLoss, "the process manager's answer is not valid UTF-8"))
}

fn gone(error: &std::io::Error) -> Status {
    status!(Unavailable, "the process manager cannot be reached: {error}")
}
