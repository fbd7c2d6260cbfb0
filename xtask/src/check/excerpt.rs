//! The part of the log of a failed check that a reader needs.

/// The rest is in the log.
const MOST_LINES: usize = 60;

/// The lines that say what failed: the reports of tests, after a list of their names and of the programs that were
/// killed before they could report, or the end of the log. Stacks are left out: they are the test runner's, and where a
/// test failed is in its report.
pub(super) fn of(log: &str) -> String {
    let lines = without_stacks(log);
    let reports = failed_tests(&lines);
    let heads = reports.iter().filter(|line| line.starts_with("---- ")).copied();
    let killed = lines.iter().filter(|line| line.contains("process didn't exit successfully")).copied();
    let shown: Vec<&str> = if reports.is_empty() {
        killed.chain(lines[lines.len().saturating_sub(MOST_LINES)..].iter().copied()).collect()
    } else {
        killed.chain(heads).chain(reports.iter().take(MOST_LINES).copied()).collect()
    };
    shown.iter().map(|line| format!("    {line}\n")).collect()
}

/// The reports of test programs in which a test failed: the lines between their heads and their counts.
fn failed_tests<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut shown = Vec::new();
    let mut report: Vec<&str> = Vec::new();
    for line in lines {
        if *line == "failures:" || !report.is_empty() {
            report.push(line);
        }
        if line.starts_with("test result: ") {
            shown.append(&mut report);
        }
    }
    shown
}

/// The lines outside of stacks: Rust's, Python's (whose last line, the error, stays), and those of stock's checks.
fn without_stacks(log: &str) -> Vec<&str> {
    let (mut frames, mut kept) = (None, Vec::new());
    for line in log.lines() {
        let words = line.trim_start();
        let starts = match words {
            "stack backtrace:" | "Stack backtrace:" => Some(Stack::Rust),
            "Traceback (most recent call last):" => Some(Stack::Python { indent: line.len() - words.len() }),
            "*** Check failure stack trace: ***" => Some(Stack::Stock),
            _ => None,
        };
        if starts.is_some() {
            frames = starts;
            continue;
        }
        if frames.as_ref().is_some_and(|stack| stack.has(line)) {
            continue;
        }
        frames = None;
        if !words.starts_with("note: run with `RUST_BACKTRACE=") {
            kept.push(line);
        }
    }
    kept
}

enum Stack {
    Rust,
    Python { indent: usize },
    Stock,
}

impl Stack {
    /// Whether a line belongs to the stack that began before.
    fn has(&self, line: &str) -> bool {
        let words = line.trim_start();
        match self {
            // `3: function`, `at file:line`, and a note about what was left out.
            Stack::Rust => {
                let numbered =
                    words.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
                numbered || words.starts_with("at ") || words.starts_with("note: Some details")
            }
            Stack::Python { indent } => line.len() - words.len() > *indent,
            Stack::Stock => words.starts_with("@ "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn reports_of_failed_tests_stand_for_the_log() {
        let log = "\nrunning 2 tests\n.F\nfailures:\n\n---- a stdout ----\nboth sides differ\n\nfailures:\n    a\n\n\
                   test result: FAILED. 1 passed; 1 failed\n\nrunning 1 test\n.\ntest result: ok. 1 passed; 0 failed\n";
        let shown = of(log);
        assert!(shown.contains("both sides differ"), "{shown}");
        assert!(!shown.contains("running"), "{shown}");
        assert!(!shown.contains("ok. 1 passed"), "{shown}");
    }

    #[test]
    fn programs_that_were_killed_are_named() {
        let kill = "  process didn't exit successfully: `fuzz` (signal: 9, SIGKILL: kill)";
        let rest: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let shown = of(&format!("error: test failed\n\nCaused by:\n{kill}\n{rest}"));
        assert!(shown.contains("signal: 9") && shown.contains("line 99"), "{shown}");
    }

    #[test]
    fn the_end_stands_for_a_log_without_tests() {
        let log: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let shown = of(&log);
        assert!(
            shown.contains("line 99") && shown.contains("line 40\n") && !shown.contains("line 39\n"),
            "{shown}"
        );
    }

    #[test]
    fn stacks_are_left_out_and_errors_stay() {
        let log = "thread 'a' panicked at a.rs:1:2:\nleft is not right\nstack backtrace:\n   0: std::panicking\n\
                   \x20            at /rustc/lib.rs:3:4\n   1: a::b\nnote: Some details are omitted\nafter\n\
                   note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n\
                   Traceback (most recent call last):\n  File \"run.py\", line 1, in main\n    fail()\n    ^^^^\n\
                   ValueError: no such case\n*** Check failure stack trace: ***\n    @     0x7f40  tensorflow::Get()\nend\n";
        let shown = of(log);
        let expected = "    thread 'a' panicked at a.rs:1:2:\n    left is not right\n    after\n    ValueError: no such case\n    end\n";
        assert_eq!(shown, expected);
    }
}
