//! Counts and durations of what a server does, always on, and their text for those who scrape them.

mod process;
mod text;

use crate::transport::server::Services;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use text::Text;

/// Counts of the work of a task since it started.
pub(crate) struct Metrics {
    /// Steps of this task's master.
    pub(crate) steps: Durations,
    /// Parts of steps that masters had this task's worker run.
    pub(crate) parts: Durations,
    started: SystemTime,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics { steps: Durations::default(), parts: Durations::default(), started: SystemTime::now() }
    }
}

/// Upper bounds of the buckets that durations are counted in, in microseconds; there is one more without a bound.
const BOUNDS: [u64; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000,
    60_000_000,
];

/// Durations of one kind of work, and its failures.
#[derive(Default)]
pub(crate) struct Durations {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
    failures: AtomicU64,
}

impl Durations {
    /// Counts work that took this long.
    fn done(&self, took: Duration) {
        let bucket = BOUNDS.partition_point(|bound| u128::from(*bound) < took.as_micros());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Counts work that failed or was cancelled, whose duration would say nothing.
    fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts work that began then, and whether it ended well.
    pub(crate) fn count(&self, began: Instant, well: bool) {
        if well { self.done(began.elapsed()) } else { self.failed() }
    }

    /// Returns the number of pieces of work that have ended.
    pub(crate) fn total(&self) -> u64 {
        let counts = self.buckets.iter().chain([&self.failures]);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn write(&self, text: &mut Text, name: &str, what: &str) {
        text.family(
            &format!("{name}_seconds"),
            "histogram",
            &format!("{what} that succeeded, and their durations."),
        );
        let mut count = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS.iter().map(Some).chain([None])) {
            count += bucket.load(Ordering::Relaxed);
            let bound = bound.map_or("+Inf".to_owned(), |micros| format!("{}", *micros as f64 / 1e6));
            text.sample(&format!("{name}_seconds_bucket"), &[("le", &bound)], count);
        }
        let seconds = self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        text.sample(&format!("{name}_seconds_sum"), &[], seconds);
        text.sample(&format!("{name}_seconds_count"), &[], count);
        text.family(
            &format!("{name}_failures_total"),
            "counter",
            &format!("{what} that failed or were cancelled."),
        );
        text.sample(&format!("{name}_failures_total"), &[], self.failures.load(Ordering::Relaxed));
    }
}

/// Writes the metrics of a server in the text format of Prometheus.
pub(crate) fn render(services: &Services) -> String {
    let Services { master, worker, eager, .. } = services;
    let (metrics, census, kept) = (worker.metrics(), worker.census(), eager.count());
    let memory = worker.device().memory().budget();
    let mut text = Text::default();
    let task = worker.task();
    let index = task.task.to_string();
    text.family("ferroflow_info", "gauge", "The task and its version.");
    let labels = [("job", task.job.as_str()), ("task", &index), ("version", env!("CARGO_PKG_VERSION"))];
    text.sample("ferroflow_info", &labels, 1);
    metrics.steps.write(&mut text, "ferroflow_steps", "Steps of sessions at this task's master");
    metrics.parts.write(&mut text, "ferroflow_parts", "Parts of steps that masters had this task run");
    let gauges = [
        ("ferroflow_sessions", "Sessions open at this task's master.", master.session_count()),
        (
            "ferroflow_running_steps",
            "Steps of this task's master that are under way.",
            master.running_steps(),
        ),
        ("ferroflow_worker_sessions", "Sessions of masters that use this task's devices.", census.sessions),
        ("ferroflow_registered_graphs", "Graphs that masters registered here.", census.graphs),
        ("ferroflow_running_calls", "Parts of steps that run here for masters.", worker.running_calls()),
        ("ferroflow_waiting_tensors", "Tensors that were sent and not received yet.", census.parcels),
        ("ferroflow_waiting_receivers", "Receivers of tensors that were not sent yet.", census.receivers),
        ("ferroflow_eager_contexts", "Contexts of eager clients.", kept.contexts),
        ("ferroflow_eager_values", "Values that eager clients keep here.", kept.values),
        ("ferroflow_eager_functions", "Functions of eager clients.", kept.functions),
        ("ferroflow_eager_parts", "Parts of functions that other tasks registered here.", kept.parts),
        ("ferroflow_eager_plans", "Plans of eager operations and functions.", kept.plans),
        (
            "ferroflow_eager_running_calls",
            "Calls of eager clients that run something.",
            eager.running_calls(),
        ),
        (
            "ferroflow_memory_held_bytes",
            "Memory of tensors and requests that is accounted for.",
            memory.held(),
        ),
    ];
    for (name, help, value) in gauges {
        text.family(name, "gauge", help);
        text.sample(name, &[], value);
    }
    if memory.limit() < usize::MAX {
        text.family("ferroflow_memory_limit_bytes", "gauge", "The most that may be held.");
        text.sample("ferroflow_memory_limit_bytes", &[], memory.limit());
    }
    process::write(&mut text, metrics.started);
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_buckets_that_bound_them() {
        let durations = Durations::default();
        for micros in [10, 50, 51, 70_000_000] {
            durations.done(Duration::from_micros(micros));
        }
        durations.failed();
        let mut text = Text::default();
        durations.write(&mut text, "work", "Pieces of work");
        let text = text.finish();
        for line in [
            "work_seconds_bucket{le=\"0.00005\"} 2",
            "work_seconds_bucket{le=\"0.0001\"} 3",
            "work_seconds_bucket{le=\"60\"} 3",
            "work_seconds_bucket{le=\"+Inf\"} 4",
            "work_seconds_count 4",
            "work_failures_total 1",
        ] {
            assert!(text.lines().any(|each| each == line), "{line}: {text}");
        }
    }
}
