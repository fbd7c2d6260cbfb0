//! How far the demonstration is: a bar on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Steps done out of those to do, with what is known of the model.
pub(crate) struct Progress {
    first: i64,
    last: i64,
    step: i64,
    loss: Option<f32>,
    accuracy: Option<f32>,
    began: Instant,
    look: Look,
}

enum Look {
    Bar(ProgressBar),
    Lines { printed: Option<Instant> },
}

impl Progress {
    /// From the first step to the last.
    pub(crate) fn new(first: i64, last: i64) -> Progress {
        let look = match std::io::stdout().is_terminal() {
            true => Look::Bar(bar((last - first).max(0) as u64)),
            false => Look::Lines { printed: None },
        };
        Progress { first, last, step: first, loss: None, accuracy: None, began: Instant::now(), look }
    }

    /// Training begins now: what came before does not count as slow steps.
    pub(crate) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Training is at this step, with this loss.
    pub(crate) fn trained(&mut self, step: i64, loss: f32) {
        self.step = self.step.max(step.min(self.last));
        self.loss = Some(loss);
        self.show();
    }

    /// The held-out digits have been judged.
    pub(crate) fn judged(&mut self, accuracy: f32) {
        self.accuracy = Some(accuracy);
        self.show();
    }

    /// Everything that will happen has.
    pub(crate) fn finish(self) {
        match self.look {
            Look::Bar(bar) => bar.abandon(),
            Look::Lines { .. } => println!("step {} of {}{}", self.step, self.last, self.details()),
        }
    }

    /// The last step that was told of.
    pub(crate) fn step(&self) -> i64 {
        self.step
    }

    /// Steps per second since training began.
    pub(crate) fn rate(&self) -> f64 {
        (self.step - self.first) as f64 / self.began.elapsed().as_secs_f64().max(1e-9)
    }

    /// The share of held-out digits that were recognized last.
    pub(crate) fn accuracy(&self) -> Option<f32> {
        self.accuracy
    }

    fn details(&self) -> String {
        let mut text = format!("  {:.0} steps/s", self.rate());
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
