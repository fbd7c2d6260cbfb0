//! What ran when: the statistics behind `RunOptions.FULL_TRACE`.

use crate::exec::layout::ExecNode;
use ferroflow_proto::tensorflow::{DeviceStepStats, NodeExecStats, StepStats};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Collects one record per node that ran.
pub struct StepTrace {
    device: String,
    /// The same moment on both clocks.
    origin: (Instant, u64),
    records: Mutex<Vec<NodeExecStats>>,
}

impl StepTrace {
    /// A trace of a step on this device.
    pub fn new(device: &str) -> Arc<StepTrace> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Arc::new(StepTrace {
            device: device.to_owned(),
            origin: (Instant::now(), since_epoch.as_nanos() as u64),
            records: Mutex::default(),
        })
    }

    pub(crate) fn record(&self, node: &ExecNode, start: Instant, end: Instant) {
        let start_nanos =
            (self.origin.1 + start.saturating_duration_since(self.origin.0).as_nanos() as u64) as i64;
        let length = end.saturating_duration_since(start).as_nanos() as i64;
        let record = NodeExecStats {
            node_name: node.data().name.clone(),
            all_start_micros: start_nanos / 1000,
            op_start_rel_micros: 0,
            op_end_rel_micros: length / 1000,
            all_end_rel_micros: (length + 999) / 1000,
            timeline_label: node.details.label.clone(),
            scheduled_micros: start_nanos / 1000,
            all_start_nanos: start_nanos,
            op_end_rel_nanos: length,
            all_end_rel_nanos: length,
            scheduled_nanos: start_nanos,
            ..Default::default()
        };
        self.records.lock().expect("no panic while a record is added").push(record);
    }

    /// Everything recorded, in order of start.
    pub fn to_proto(&self) -> StepStats {
        let mut node_stats = self.records.lock().expect("no panic while a record is added").clone();
        node_stats.sort_by_key(|record| record.all_start_nanos);
        StepStats {
            dev_stats: vec![DeviceStepStats {
                device: self.device.clone(),
                node_stats,
                ..Default::default()
            }],
        }
    }
}
