//! Errors of stores as statuses.

use ferroflow_core::{Code, Status};
use object_store::Error;

/// The status of a failed request.
pub(crate) fn of(url: &str, error: &Error) -> Status {
    let code = match error {
        Error::NotFound { .. } => Code::NotFound,
        Error::AlreadyExists { .. } => Code::AlreadyExists,
        Error::Precondition { .. } | Error::NotModified { .. } => Code::FailedPrecondition,
        Error::PermissionDenied { .. } => Code::PermissionDenied,
        Error::Unauthenticated { .. } => Code::Unauthenticated,
        Error::NotImplemented { .. } | Error::NotSupported { .. } => Code::Unimplemented,
        Error::InvalidPath { .. } | Error::UnknownConfigurationKey { .. } => Code::InvalidArgument,
        _ => refusal(&error.to_string()),
    };
    Status::new(code, format!("{url}; {error}"))
}

/// The code of a request about more than one object, such as a list: its HTTP status is only in the text.
fn refusal(text: &str) -> Code {
    let status = text.split_once("status code: ").map(|(_, rest)| rest.get(..3).unwrap_or_default());
    match status {
        Some("400") => Code::InvalidArgument,
        Some("401") => Code::Unauthenticated,
        Some("403") => Code::PermissionDenied,
        Some("404") => Code::NotFound,
        // The server or the way to it failed for longer than requests are repeated.
        _ => Code::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_list_is_told_from_a_server_that_fails() {
        let text = "Error performing GET http://h/b in 2ms - Server returned non-2xx status code: 404 Not Found: <?xml";
        assert_eq!(refusal(text), Code::NotFound);
        assert_eq!(refusal("status code: 503 Slow Down"), Code::Unavailable);
        assert_eq!(refusal("connection refused"), Code::Unavailable);
    }
}
