//! The URL of a place where tasks meet: `file:///shared/dir/job-42` or `tcp://host:port`.

use super::record::address;
use ferroflow_core::{Result, Status, bail, ensure, status};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A place where the tasks of one run meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// A directory that all tasks see and that is this run's own.
    File(PathBuf),
    /// A process that all tasks reach, and a name that tells runs apart there.
    Tcp {
        /// Its name or address.
        host: String,
        /// Its port.
        port: u16,
        /// The run.
        run: String,
    },
}

impl Url {
    /// Returns the name of the run, by which tasks know each other as members of it.
    pub fn run(&self) -> String {
        match self {
            Url::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Url::Tcp { run, .. } => run.clone(),
        }
    }
}

impl FromStr for Url {
    type Err = Status;

    fn from_str(text: &str) -> Result<Url> {
        if let Some(path) = text.strip_prefix("file://") {
            let path = path.strip_prefix("localhost").unwrap_or(path).trim_end_matches('/');
            ensure!(
                path.len() > 1 && path.starts_with('/'),
                InvalidArgument,
                "'{text}' is not an absolute path, expected e.g. file:///shared/dir/job-42"
            );
            let path = PathBuf::from(path);
            ensure!(
                path.file_name().is_some(),
                InvalidArgument,
                "'{text}' does not end with the name of a run, expected e.g. file:///shared/dir/job-42"
            );
            return Ok(Url::File(path));
        }
        let Some(rest) = text.strip_prefix("tcp://") else {
            let meant =
                if text.starts_with('/') { format!("; did you mean file://{text}?") } else { String::new() };
            bail!(
                InvalidArgument,
                "'{text}' is not a rendezvous, expected file:///shared/dir/job-42 or tcp://host:port{meant}"
            );
        };
        let (place, run) = rest.split_once('/').unwrap_or((rest, ""));
        let wrong =
            || status!(InvalidArgument, "'{text}' has no host and port, expected e.g. tcp://node1:7777");
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        ensure!(!host.is_empty(), InvalidArgument, "'{text}' has no host, expected e.g. tcp://node1:7777");
        let run = run.trim_matches('/');
        ensure!(
            run.len() <= 200,
            InvalidArgument,
            "the name of the run in '{text}' is longer than 200 bytes"
        );
        Ok(Url::Tcp { host: host.to_owned(), port, run: run.to_owned() })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Url::File(path) => write!(f, "file://{}", path.display()),
            Url::Tcp { host, port, run } => {
                write!(f, "tcp://{}", address(host, *port))?;
                if run.is_empty() { Ok(()) } else { write!(f, "/{run}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read_and_mistakes_named() {
        for text in ["file:///shared/dir/job-42", "tcp://node1:7777", "tcp://[::1]:7777/job-42"] {
            assert_eq!(text.parse::<Url>().unwrap().to_string(), text);
        }
        assert_eq!("file:///a/job-42/".parse::<Url>().unwrap().run(), "job-42");
        let message = |text: &str| text.parse::<Url>().unwrap_err().message().to_owned();
        assert!(message("file://relative/dir").contains("not an absolute path"));
        assert!(message("file:///").contains("not an absolute path"));
        assert!(message("file:///a/..").contains("the name of a run"));
        assert!(message("tcp://node1").contains("no host and port"));
        assert!(message("tcp://:80").contains("no host"));
        assert!(message("/shared/dir").ends_with("did you mean file:///shared/dir?"));
        assert!(message("node1:7777").contains("is not a rendezvous"));
    }
}
