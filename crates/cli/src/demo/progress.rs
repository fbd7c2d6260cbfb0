//! The progress of the demonstration: a bar on a terminal, elsewhere a line per second.

use super::report::Report;
use crate::local::Stream;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The interval between lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Steps done and to do, with the model's loss and accuracy.
pub(crate) struct Progress {
    first: i64,
    last: i64,
    step: i64,
    loss: Option<f32>,
    accuracy: Option<f32>,
    /// The time at which training began, and at which its last step was reported.
    began: Instant,
    reported: Instant,
    look: Look,
}

enum Look {
    Bar(ProgressBar),
    Lines { printed: Option<Instant> },
}

impl Progress {
    /// Shows the progress from the first step to the last.
    pub(crate) fn new(first: i64, last: i64) -> Progress {
        let look = if std::io::stdout().is_terminal() {
            Look::Bar(bar((last - first).max(0) as u64))
        } else {
            Look::Lines { printed: None }
        };
        let now = Instant::now();
        Progress { first, last, step: first, loss: None, accuracy: None, began: now, reported: now, look }
    }

    /// Takes note of a line that a task wrote.
    pub(crate) fn hear(&mut self, stream: Stream, line: &[u8]) {
        if stream == Stream::Error {
            return;
        }
        match Report::read(&String::from_utf8_lossy(line)) {
            // The time before does not count as slow steps.
            Some(Report::Started) => (self.began, self.reported) = (Instant::now(), Instant::now()),
            Some(Report::Trained { step, loss }) => {
                self.loss = Some(loss);
                self.reached(step);
            }
            Some(Report::Judged { step, accuracy }) => {
                self.accuracy = Some(accuracy);
                self.reached(step);
            }
            None => {}
        }
    }

    fn reached(&mut self, step: i64) {
        // Workers finish the steps that they have begun, beyond the last one.
        let step = step.min(self.last);
        if step > self.step {
            (self.step, self.reported) = (step, Instant::now());
        }
        self.show();
    }

    /// Prints a line beside the bar.
    pub(crate) fn note(&self, text: &str) {
        match &self.look {
            Look::Bar(bar) => bar.println(text),
            Look::Lines { .. } => println!("{text}"),
        }
    }

    /// Ends the display.
    pub(crate) fn finish(self) {
        match self.look {
            Look::Bar(bar) => bar.abandon(),
            Look::Lines { .. } => println!("step {} of {}{}", self.step, self.last, self.details()),
        }
    }

    /// The step to train to.
    pub(crate) fn last(&self) -> i64 {
        self.last
    }

    /// Steps per second since training began, as text; none before there are steps to count.
    pub(crate) fn rate(&self) -> Option<String> {
        let seconds = self.reported.duration_since(self.began).as_secs_f64();
        rate(self.step - self.first, seconds)
    }

    /// The share of held-out digits that were recognized last.
    pub(crate) fn accuracy(&self) -> Option<f32> {
        self.accuracy
    }

    fn details(&self) -> String {
        let mut text = String::new();
        if let Some(rate) = self.rate() {
            text += &format!("  {rate} steps/s");
        }
        if let Some(loss) = self.loss {
            text += &format!("  loss {loss:.4}");
        }
        if let Some(accuracy) = self.accuracy {
            text += &format!("  held-out accuracy {:.1} %", accuracy * 100.0);
        }
        text
    }

    fn show(&mut self) {
        let details = self.details();
        match &mut self.look {
            Look::Bar(bar) => {
                bar.set_position((self.step - self.first).max(0) as u64);
                bar.set_message(details);
            }
            Look::Lines { printed } if printed.is_none_or(|at| at.elapsed() >= LINE_EVERY) => {
                *printed = Some(Instant::now());
                println!("step {} of {}{details}", self.step, self.last);
            }
            Look::Lines { .. } => {}
        }
    }
}

fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len}{msg}").expect("the template is right");
    ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stdout()).with_style(style)
}

fn rate(steps: i64, seconds: f64) -> Option<String> {
    let rate = steps as f64 / seconds.max(1e-3);
    match rate {
        rate if rate >= 9.95 => Some(format!("{rate:.0}")),
        rate if rate >= 0.095 => Some(format!("{rate:.1}")),
        rate if rate > 0.0 => Some(format!("{rate:.2}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn no_rate_is_zero() {
        let rates = [(0, 1.0), (1, 30.0), (1, 2.0), (99, 10.0), (1000, 10.0), (5, 0.0)];
        let texts = rates.map(|(steps, seconds)| rate(steps, seconds).unwrap_or_default());
        assert_eq!(texts, ["", "0.03", "0.5", "9.9", "100", "5000"]);
    }
}
