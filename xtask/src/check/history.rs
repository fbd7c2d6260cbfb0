//! Durations of checks in earlier runs, which say how long they will take.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds by the name of a check, in a file beside the logs.
pub(super) struct History {
    file: PathBuf,
    seconds: BTreeMap<String, f64>,
}

impl History {
    /// Reads what earlier runs noted; nothing if there were none.
    pub(super) fn read(logs: &Path) -> History {
        let file = logs.join("durations.json");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let noted: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap_or_default();
        let seconds = noted.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
        History { file, seconds: seconds.collect() }
    }

    /// The duration that a check had in the last run, or `guess` seconds.
    pub(super) fn expected(&self, name: &str, guess: u64) -> Duration {
        let seconds = self.seconds.get(name).copied().unwrap_or(guess as f64);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Notes how long a check took. Losing the file loses nothing but better guesses.
    pub(super) fn note(&mut self, name: &str, took: Duration) {
        self.seconds.insert(name.to_owned(), (took.as_secs_f64() * 10.0).round() / 10.0);
        let text = serde_json::to_string_pretty(&self.seconds).unwrap_or_default();
        let _ = fs::write(&self.file, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_is_better_than_a_guess() {
        let directory = std::env::temp_dir().join(format!("ferroflow-history-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut history = History::read(&directory);
        assert_eq!(history.expected("docs", 60), Duration::from_secs(60));
        history.note("docs", Duration::from_millis(12_340));
        assert_eq!(History::read(&directory).expected("docs", 60), Duration::from_secs_f64(12.3));
        fs::write(directory.join("durations.json"), "{\"docs\": -1, torn").unwrap();
        assert_eq!(History::read(&directory).expected("docs", 60), Duration::from_secs(60));
        fs::remove_dir_all(&directory).unwrap();
    }
}
