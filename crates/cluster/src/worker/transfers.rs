//! A log of tensors received from other tasks, kept while a step is traced.

use super::since_epoch;
use ferroflow_core::rendezvous::RendezvousKey;
use ferroflow_proto::tensorflow::{
    AllocationDescription, DeviceStepStats, LabeledStepStats, LoggingRequest, LoggingResponse, NodeExecStats,
    NodeOutput, StepStats, TensorDescription,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of steps kept for masters that never ask. If there are more, all are dropped, as in stock.
const MAX_STEPS: usize = 1 << 10;

/// Transfers by step and receiving device.
#[derive(Default)]
pub(crate) struct Transfers {
    /// The number of masters that want the log.
    wanted: AtomicUsize,
    steps: Mutex<HashMap<i64, BTreeMap<String, Vec<NodeExecStats>>>>,
}

const UNPOISONED: &str = "no panic while transfers are locked";

impl Transfers {
    /// Returns whether transfers are logged now.
    #[inline]
    pub(super) fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// Serves a `Logging` call.
    pub(super) fn serve(&self, request: &LoggingRequest) -> LoggingResponse {
        if request.enable_rpc_logging {
            self.wanted.fetch_add(1, Ordering::Relaxed);
        }
        // Old masters set neither flag to stop the log.
        let stops_silently = !request.enable_rpc_logging && request.fetch_step_id.is_empty();
        if request.disable_rpc_logging || stops_silently {
            let less = |wanted: usize| Some(wanted.saturating_sub(1));
            let _ = self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        let mut steps = self.steps.lock().expect(UNPOISONED);
        let fetched = request.fetch_step_id.iter().filter_map(|id| Some((*id, steps.remove(id)?)));
        let step = fetched.map(|(step_id, devices)| LabeledStepStats {
            step_id,
            step_stats: Some(StepStats { dev_stats: devices.into_iter().map(device_stats).collect() }),
        });
        let step = step.collect();
        if request.clear {
            steps.clear();
        }
        LoggingResponse { step }
    }

    /// Records a transfer with the times, in microseconds since 1970, at which it was requested and sent.
    pub(super) fn record(&self, step_id: i64, key: &RendezvousKey, bytes: usize, (asked, sent): (i64, i64)) {
        let arrived = since_epoch();
        // The peer's clock may differ, but a response is sent after its request and before it arrives.
        let start = sent.max(asked).min(arrived - 1);
        let record = NodeExecStats {
            node_name: "RecvTensor".to_owned(),
            timeline_label: label(key, bytes, arrived - start),
            all_start_micros: start,
            op_end_rel_micros: arrived - start,
            all_end_rel_micros: arrived - start,
            output: vec![NodeOutput {
                tensor_description: Some(TensorDescription {
                    allocation_description: Some(AllocationDescription {
                        requested_bytes: bytes as i64,
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut steps = self.steps.lock().expect(UNPOISONED);
        steps.entry(step_id).or_default().entry(key.target().to_owned()).or_default().push(record);
        if steps.len() > MAX_STEPS {
            steps.clear();
        }
    }
}

fn device_stats((device, node_stats): (String, Vec<NodeExecStats>)) -> DeviceStepStats {
    DeviceStepStats { device, node_stats, ..Default::default() }
}

fn label(key: &RendezvousKey, bytes: usize, micros: i64) -> String {
    let megabytes = bytes as f64 / f64::from(1 << 20);
    let size = if megabytes >= 0.1 { format!("[{megabytes:.1}MB]") } else { format!("[{bytes}B]") };
    let megabits = 8.0 * bytes as f64 / micros.max(1) as f64;
    let rate = match megabits {
        1000.0.. => format!("[{}Gb/s]", six_digits(megabits / 1000.0)),
        _ => format!("[{}Mb/s]", six_digits(megabits)),
    };
    format!("{size} {rate} {} from {} to {}", key.edge(), key.source(), key.target())
}

/// Formats a number that is not negative like C's `%g`.
fn six_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = (5 - value.log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_handed_out_once_by_step_and_labeled_as_stock_does() {
        let transfers = Transfers::default();
        let serve = |request: LoggingRequest| transfers.serve(&request);
        serve(LoggingRequest { enable_rpc_logging: true, ..Default::default() });
        assert!(transfers.are_wanted());
        let key = RendezvousKey::parse("/job:a;0;/job:b;edge_5_y;0:0").unwrap();
        transfers.record(7, &key, 8, (0, since_epoch() - 1280));
        serve(LoggingRequest { disable_rpc_logging: true, ..Default::default() });
        assert!(!transfers.are_wanted());
        let fetch = || serve(LoggingRequest { fetch_step_id: vec![7, 8], ..Default::default() }).step;
        let [step] = &fetch()[..] else { panic!("one of the two steps is known") };
        let device = &step.step_stats.as_ref().unwrap().dev_stats[0];
        assert_eq!((step.step_id, &*device.device), (7, "/job:b"));
        let label = &device.node_stats[0].timeline_label;
        assert!(
            label.starts_with("[8B] [0.0") && label.ends_with("Mb/s] edge_5_y from /job:a to /job:b"),
            "{label}"
        );
        assert!(fetch().is_empty());
        assert_eq!(
            [0.693141, 12.5, 384.0, 0.05, 0.0].map(six_digits),
            ["0.693141", "12.5", "384", "0.05", "0"]
        );
    }
}
