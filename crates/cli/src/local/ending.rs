//! The ends of a run's tasks, which are printed when everything has ended.

use std::process::ExitStatus;
use std::time::Duration;

/// The end of a task.
pub(super) struct TaskEnd {
    pub(super) status: ExitStatus,
    /// The run time of its last process.
    pub(super) ran: Duration,
    /// The number of its starts.
    pub(super) starts: u32,
    /// The reason why it was asked to end; `None` if it ended by itself.
    pub(super) asked: Option<String>,
    /// True if it was killed because it did not end when it was asked to.
    pub(super) killed: bool,
}

impl TaskEnd {
    /// Describes the end, as the end of a sentence that begins with the task.
    pub(super) fn text(&self) -> String {
        let seconds = self.ran.as_secs_f64();
        let starts = if self.starts > 1 { format!(", in start {}", self.starts) } else { String::new() };
        let what = match &self.asked {
            Some(why) if self.killed => format!("was killed because it did not end when asked to: {why}"),
            Some(why) => format!("was stopped because {why}"),
            None if self.status.success() => "finished".to_owned(),
            None => format!("failed with {}", described(self.status)),
        };
        format!("{what} (after {seconds:.1} s{starts})")
    }
}

/// Describes an exit status in the words of shells.
pub(crate) fn described(status: ExitStatus) -> String {
    let text = status.to_string();
    match (text.strip_prefix("exit status: "), text.strip_prefix("signal: ")) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn ends_are_described() {
        let end = |status, asked: Option<&str>, killed| TaskEnd {
            status: ExitStatus::from_raw(status),
            ran: Duration::from_millis(1250),
            starts: 1,
            asked: asked.map(str::to_owned),
            killed,
        };
        assert_eq!(end(0, None, false).text(), "finished (after 1.2 s)");
        assert_eq!(end(7 << 8, None, false).text(), "failed with exit code 7 (after 1.2 s)");
        assert!(end(9, None, false).text().starts_with("failed with signal 9 (SIGKILL)"));
        assert!(
            end(15, Some("worker/1 failed"), false).text().starts_with("was stopped because worker/1 failed")
        );
        assert!(
            end(9, Some("x"), true).text().starts_with("was killed because it did not end when asked to: x")
        );
    }
}
