//! The end of the process: an exit code for schedulers, and a message for people.
//!
//! Kubeflow's convention holds everywhere: a task that ends with a code below 128 failed for good, one with 128 or more
//! was stopped from outside and can be started again.

use rustix::process::Signal;
use std::process::ExitStatus;

/// The code of a failure that another start would not cure.
pub(crate) const PERMANENT: u8 = 1;

/// The code of tasks that were told of different clusters.
pub(crate) const MISMATCH: u8 = 3;

/// The code of a task that could not be reached when it was started a second time, and lost its place.
pub(crate) const SUPERSEDED: u8 = 4;

/// The code of a second process that was started as a task that is alive.
pub(crate) const TAKEN: u8 = 5;

/// The code of a task whose peers did not come in time; they may come next time.
pub(crate) const TIMED_OUT: u8 = 75;

/// The exit code, as in shells, of a process that wrote to a pipe without a reader.
const NO_READER: i32 = 141;

/// Ends the process and its tasks quietly when the reader of its output is gone, as in `ferroflow demo | head -1`.
pub(crate) fn end_with_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>();
        if text.is_some_and(|text| text.starts_with("failed printing to std") && text.contains("Broken pipe"))
        {
            std::process::exit(NO_READER);
        }
        report(panic);
    }));
}

/// A failure of the process.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    /// `None` if the reason has been printed already.
    message: Option<String>,
}

impl Failure {
    /// Makes a failure with a code of its own.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: Some(message.into()) }
    }

    /// Makes a failure whose reason has been printed already.
    pub(crate) fn reported(code: u8) -> Failure {
        Failure { code, message: None }
    }

    /// The code of the process.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Prints the reason and returns the code.
    pub(crate) fn report(self) -> u8 {
        if let Some(message) = self.message {
            eprintln!("ferroflow: {message}");
        }
        self.code
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::new(PERMANENT, message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Failure {
        Failure::new(PERMANENT, message)
    }
}

/// Returns the code of a process that a signal ended, as shells give it.
pub(crate) fn of_signal(signal: Signal) -> u8 {
    128u8.saturating_add(u8::try_from(signal.as_raw()).unwrap_or(u8::MAX))
}

/// Returns the code with which a process passes on how another one ended.
pub(crate) fn of_status(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(PERMANENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn codes_are_those_of_shells() {
        assert_eq!(of_signal(Signal::TERM), 143);
        assert_eq!(of_status(ExitStatus::from_raw(9)), 137);
        assert_eq!(of_status(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(of_status(ExitStatus::from_raw(0)), 0);
    }
}
