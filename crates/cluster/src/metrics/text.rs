//! The text format of Prometheus.

use std::fmt::{Display, Write};

/// A text under construction.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins the samples of a metric.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds a sample.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0 += name;
        if !labels.is_empty() {
            let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
            self.0 += &format!("{{{}}}", labels.join(","));
        }
        // A string takes everything.
        let _ = writeln!(self.0, " {value}");
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.sample("a", &[("b", "\"c\\\n")], 1.5);
        assert_eq!(text.finish(), "a{b=\"\\\"c\\\\\\n\"} 1.5\n");
    }
}
