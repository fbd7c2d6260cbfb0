//! Statistics of pipelines: histograms by name, which summaries show.

use crate::numeric::histogram::Histogram;
use crate::state::summary_writer::SummaryWriter;
use ferroflow_core::resource::Resource;
use ferroflow_proto::tensorflow::summary::Value;
use ferroflow_proto::tensorflow::{Summary, summary};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The statistics that the stages of one or more iterators add to.
#[derive(Default)]
pub(crate) struct StatsAggregator {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    histograms: BTreeMap<String, Histogram>,
    /// Receives histograms as they grow, if there is one.
    writer: Option<Arc<SummaryWriter>>,
}

/// The field of an event that holds a summary.
const SUMMARY: u32 = 5;

impl StatsAggregator {
    /// Adds a value to a histogram. The number of the element is its step in a summary file.
    pub(crate) fn add(&self, name: &str, value: f64, step: i64) {
        let mut kept = self.lock();
        let histogram = kept.histograms.entry(name.to_owned()).or_default();
        histogram.add(value);
        let entry = entry(name, histogram);
        if let Some(writer) = &kept.writer {
            // A pipeline does not fail because its statistics cannot be written.
            let _ = writer.write(step, SUMMARY, &Summary { value: vec![entry] }.encode_to_vec());
        }
    }

    /// All histograms as a summary.
    pub(crate) fn summary(&self) -> Summary {
        let kept = self.lock();
        Summary { value: kept.histograms.iter().map(|(name, histogram)| entry(name, histogram)).collect() }
    }

    /// Writes what comes from now on to a file.
    pub(crate) fn set_writer(&self, writer: Arc<SummaryWriter>) {
        self.lock().writer = Some(writer);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while statistics are kept")
    }
}

fn entry(name: &str, histogram: &Histogram) -> Value {
    Value {
        tag: name.to_owned(),
        value: Some(summary::value::Value::Histo(histogram.to_proto())),
        ..Value::default()
    }
}

impl Resource for StatsAggregator {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data15StatsAggregatorE"
    }
}

/// An aggregator as a pipeline sees it: with the tag that its names get.
#[derive(Clone)]
pub(crate) struct Statistics {
    pub(crate) aggregator: Arc<StatsAggregator>,
    pub(crate) tag: String,
}

impl Statistics {
    /// Adds a value to a histogram of this pipeline.
    pub(crate) fn add(&self, name: &str, value: f64, step: i64) {
        if self.tag.is_empty() {
            self.aggregator.add(name, value, step);
        } else {
            self.aggregator.add(&format!("{}::{name}", self.tag), value, step);
        }
    }
}
