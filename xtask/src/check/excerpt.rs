//! What a reader needs of the log of a check that failed.

/// The rest is in the log.
const MOST_LINES: usize = 60;

/// The lines that say what failed: the reports of tests, after a list of their names and of the programs that were
/// killed before they could report, or the end of the log.
pub(super) fn of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
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

/// What the test programs print between their heads and their counts, of those in which a test failed.
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
}
