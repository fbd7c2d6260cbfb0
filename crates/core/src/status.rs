//! The error type that crosses crate borders: a code that callers act on and a message that people read.
//!
//! Codes are numerically equal to gRPC's and to TensorFlow's. Conversion to the wire lives in the cluster crate.

use std::fmt;

/// The result of every fallible function.
pub type Result<T, E = Status> = std::result::Result<T, E>;

/// The reason for a failure, chosen by what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    /// The step or call was cancelled.
    Cancelled = 1,
    /// No other code applies.
    Unknown = 2,
    /// The graph, feed or request is wrong.
    InvalidArgument = 3,
    /// The deadline passed before the call completed.
    DeadlineExceeded = 4,
    /// A name does not exist.
    NotFound = 5,
    /// A name exists already.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// Memory, a quota or a table is full.
    ResourceExhausted = 8,
    /// The state does not allow it, e.g. an uninitialized variable.
    FailedPrecondition = 9,
    /// The peer restarted or the session is gone; recreate the session.
    Aborted = 10,
    /// The end of the input, or an index beyond it.
    OutOfRange = 11,
    /// Not supported.
    Unimplemented = 12,
    /// A bug in Ferroflow: an invariant is broken.
    Internal = 13,
    /// The peer cannot be reached; retry.
    Unavailable = 14,
    /// A file is corrupt.
    DataLoss = 15,
    /// The caller has not proved its identity.
    Unauthenticated = 16,
}

impl Code {
    /// Every code, in numeric order.
    pub const ALL: [Code; 16] = [
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The code with this number; `None` for 0 (success) and unassigned numbers.
    pub fn from_number(number: i32) -> Option<Code> {
        Code::ALL.into_iter().find(|code| *code as i32 == number)
    }

    /// The name in capitals, as in protocols and messages.
    pub fn name(self) -> &'static str {
        match self {
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// A failure: one pointer wide, so that `Result` stays small on the hot path.
#[derive(Clone, PartialEq, Eq)]
pub struct Status(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    message: String,
    payloads: Vec<(String, Vec<u8>)>,
    derived: bool,
}

impl Status {
    /// A status with this code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status(Box::new(Inner { code, message: message.into(), payloads: Vec::new(), derived: false }))
    }

    /// The code that callers act on.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The message that people read.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Typed details that travel with the status, as (type URL, bytes).
    pub fn payloads(&self) -> &[(String, Vec<u8>)] {
        &self.0.payloads
    }

    /// Returns whether another failure caused this one; such a status never masks its cause.
    pub fn is_derived(&self) -> bool {
        self.0.derived
    }

    /// Marks the status as caused by another failure.
    #[must_use]
    pub fn derived(mut self) -> Status {
        self.0.derived = true;
        self
    }

    /// Adds a typed detail.
    #[must_use]
    pub fn with_payload(mut self, url: impl Into<String>, value: impl Into<Vec<u8>>) -> Status {
        self.0.payloads.push((url.into(), value.into()));
        self
    }

    /// The same status with the message replaced by `change(message)`.
    #[must_use]
    pub fn map_message(mut self, change: impl FnOnce(String) -> String) -> Status {
        self.0.message = change(std::mem::take(&mut self.0.message));
        self
    }

    /// Adds the name of the node that failed, in the form that stock's Python client parses. A node that is named
    /// already stays.
    #[must_use]
    pub fn at_node(self, node: &str) -> Status {
        if self.0.message.contains("[[{{node ") {
            return self;
        }
        self.map_message(|message| format!("{message}\n\t [[{{{{node {node}}}}}]]"))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.message)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Status {}

/// Builds a [`Status`] from a code and a format string: `status!(NotFound, "no device {name}")`.
#[macro_export]
macro_rules! status {
    ($code:ident, $($message:tt)+) => {
        $crate::Status::new($crate::Code::$code, format!($($message)+))
    };
}

/// Returns early with a [`Status`]: `bail!(InvalidArgument, "expected {a}, got {b}")`.
#[macro_export]
macro_rules! bail {
    ($code:ident, $($message:tt)+) => {
        return Err($crate::status!($code, $($message)+))
    };
}

/// Returns early with a [`Status`] unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $code:ident, $($message:tt)+) => {
        if !$condition {
            $crate::bail!($code, $($message)+)
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_a_round_trip_by_number() {
        for code in Code::ALL {
            assert_eq!(Code::from_number(code as i32), Some(code));
        }
        assert_eq!(Code::from_number(0), None);
        assert_eq!(Code::from_number(17), None);
    }

    #[test]
    fn the_innermost_node_is_named_once() {
        let status = status!(InvalidArgument, "bad").at_node("inner").at_node("outer");
        assert_eq!(status.message(), "bad\n\t [[{{node inner}}]]");
    }
}
