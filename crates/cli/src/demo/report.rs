//! What the tasks of the demonstration tell the process that started them: one JSON object per line of output.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The chief trains from now on.
    Started,
    /// How far training is.
    Trained { step: i64, loss: f32 },
    /// The share of held-out digits that are recognized.
    Judged { step: i64, accuracy: f32 },
}

impl Report {
    /// Tells it.
    pub(crate) fn send(&self) {
        let line = serde_json::to_string(self).expect("a report is plain data");
        println!("{line}");
    }

    /// Understands a line; none that is something else.
    pub(crate) fn read(line: &str) -> Option<Report> {
        serde_json::from_str(line).ok()
    }
}
