//! Messages of the demonstration's tasks to the process that started them: one JSON object per line of output.

use serde::{Deserialize, Serialize};

/// A message.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The chief trains from now on.
    Started,
    /// The progress of training.
    Trained { step: i64, loss: f32 },
    /// The share of held-out digits that are recognized.
    Judged { step: i64, accuracy: f32 },
}

impl Report {
    /// Prints the message.
    pub(crate) fn send(&self) {
        let line = serde_json::to_string(self).expect("a report is plain data");
        println!("{line}");
    }

    /// Parses a line; returns `None` for other output.
    pub(crate) fn read(line: &str) -> Option<Report> {
        serde_json::from_str(line).ok()
    }
}
