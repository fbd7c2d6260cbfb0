//! Numbers of tests, counted from what their programs print.

use std::fmt;
use std::iter::Sum;

/// Tests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

/// The start of a line by which a test or a check says that this machine lacks something.
const SKIPPED: &str = "skipped: ";

impl Tally {
    /// A check that did not run.
    pub(super) const SKIPPED: Tally = Tally { passed: 0, failed: 0, skipped: 1 };

    /// Counts the tests in the log of a check. A check without tests counts as one.
    pub(super) fn of(log: &str, has_passed: bool) -> Tally {
        let results: Vec<Tally> = log.lines().filter_map(result).collect();
        let skipped = log.lines().filter(|line| line.starts_with(SKIPPED)).count();
        let mut tally: Tally = results.iter().copied().sum();
        if results.is_empty() {
            tally = Tally { passed: 1, ..Tally::default() };
        }
        // A test that is skipped returns early, and its program takes it for passed.
        let skipped = skipped.min(tally.passed);
        tally.passed -= skipped;
        tally.skipped += skipped;
        if !has_passed && tally.failed == 0 {
            tally.failed = 1;
            if results.is_empty() {
                tally.passed = 0;
            }
        }
        tally
    }
}

/// The counts in a line such as `test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; ...`.
fn result(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        let part = counts.split("; ").find_map(|part| part.strip_suffix(word));
        part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    };
    Some(Tally { passed: count("passed"), failed: count("failed"), skipped: count("ignored") })
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Tally>>(tallies: I) -> Tally {
        tallies.fold(Tally::default(), |sum, each| Tally {
            passed: sum.passed + each.passed,
            failed: sum.failed + each.failed,
            skipped: sum.skipped + each.skipped,
        })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_all_programs_are_counted() {
        let log = "running 3 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                   test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(Tally::of(log, false).to_string(), "6 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn tests_that_say_so_are_skipped() {
        let log = "---- a stdout ----\nskipped: no stock TensorFlow\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n";
        assert_eq!(Tally::of(log, true).to_string(), "1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_check_without_tests_counts_as_one() {
        assert_eq!(Tally::of("anything\n", true).to_string(), "1 passed, 0 failed, 0 skipped");
        assert_eq!(Tally::of("anything\n", false).to_string(), "0 passed, 1 failed, 0 skipped");
        assert_eq!(Tally::of("skipped: no emulator\n", true).to_string(), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_program_that_is_killed_fails() {
        let log = "test result: ok. 2 passed; 0 failed; 0 ignored\nrunning 9 tests\n";
        assert_eq!(Tally::of(log, false).to_string(), "2 passed, 1 failed, 0 skipped");
    }
}
