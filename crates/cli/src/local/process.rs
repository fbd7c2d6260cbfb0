//! A task's process: its output, and its end.

use super::{Stream, ThreadEvent};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The longest line in bytes; a longer one is cut, since a progress bar may never end its line.
const LINE_BYTES: u64 = 64 << 10;

/// The time that children may hold the output of a process open after its end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Follows a process on threads of their own, until it has ended and all of its output was read.
pub(super) fn follow(mut process: Child, task: usize, sender: &Sender<ThreadEvent>) {
    let (closed, both_closed) = channel();
    let (output, error) = (process.stdout.take(), process.stderr.take());
    read_lines(output, task, Stream::Output, sender.clone(), closed.clone());
    read_lines(error, task, Stream::Error, sender.clone(), closed);
    let sender = sender.clone();
    std::thread::spawn(move || {
        let group = Pid::from_child(&process);
        // The process is not taken off the system's list yet, so that no other process gets its number.
        let _ = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = kill_process_group(group, Signal::TERM);
        let in_time = await_close(&both_closed);
        let _ = kill_process_group(group, Signal::KILL);
        if !in_time {
            await_close(&both_closed);
        }
        let _ = sender.send(ThreadEvent::Ended { task, process });
    });
}

/// Returns whether both streams were closed in time. Nothing is ever sent: the channel ends with the last reader.
fn await_close(both_closed: &Receiver<()>) -> bool {
    both_closed.recv_timeout(LAST_WORDS) != Err(std::sync::mpsc::RecvTimeoutError::Timeout)
}

/// Reads a stream until it closes; `closed` is dropped then.
fn read_lines(
    source: Option<impl Read + Send + 'static>,
    task: usize,
    stream: Stream,
    sender: Sender<ThreadEvent>,
    closed: Sender<()>,
) {
    let Some(source) = source else { return };
    std::thread::spawn(move || {
        let _closed = closed;
        let mut source = BufReader::new(source);
        loop {
            let mut text = Vec::new();
            match (&mut source).take(LINE_BYTES).read_until(b'\n', &mut text) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
            if text.last() == Some(&b'\n') {
                text.pop();
            }
            if sender.send(ThreadEvent::Line { task, stream, text }).is_err() {
                return;
            }
        }
    });
}
