//! Step traces: the start and duration of every node, for `RunOptions.FULL_TRACE`. The executor records only if a step
//! has one.

use crate::exec::layout::Layout;
use ferroflow_core::Tensor;
use ferroflow_core::kernel::Value;
use ferroflow_proto::tensorflow::{
    AllocationDescription, DeviceStepStats, NodeExecStats, NodeOutput, StepStats, TensorDescription,
};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A trace, with one record per node that ran.
pub struct StepTrace {
    device: String,
    /// The same moment on the monotonic clock and in nanoseconds since the epoch.
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

    /// Records a run of a node.
    pub(crate) fn record(
        &self,
        layout: &Layout,
        number: u32,
        start: Instant,
        end: Instant,
        outputs: &[Value],
    ) {
        let node = &layout.nodes[number as usize];
        let start_nanos =
            (self.origin.1 + start.saturating_duration_since(self.origin.0).as_nanos() as u64) as i64;
        let length = end.saturating_duration_since(start).as_nanos() as i64;
        let record = NodeExecStats {
            node_name: node.data().name.clone(),
            all_start_micros: start_nanos / 1000,
            op_start_rel_micros: 0,
            op_end_rel_micros: length / 1000,
            all_end_rel_micros: (length + 999) / 1000,
            timeline_label: layout.label(number),
            scheduled_micros: start_nanos / 1000,
            all_start_nanos: start_nanos,
            op_end_rel_nanos: length,
            all_end_rel_nanos: length,
            scheduled_nanos: start_nanos,
            output: outputs
                .iter()
                .enumerate()
                .filter_map(|(slot, output)| node_output(slot, output))
                .collect(),
            ..Default::default()
        };
        self.records.lock().expect("no panic while a record is added").push(record);
    }

    /// All records, ordered by start.
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

/// Stock's name for the CPU allocator.
const ALLOCATOR: &str = "cpu";

/// The description of an output; `None` if it is dead or has no value yet.
fn node_output(slot: usize, output: &Value) -> Option<NodeOutput> {
    let described = match output {
        Value::None => return None,
        Value::Tensor(tensor) => describe(tensor),
        Value::Ref(_) | Value::View(_) => describe(&output.read().ok()?),
    };
    Some(NodeOutput { slot: slot as i32, tensor_description: Some(described) })
}

fn describe(tensor: &Tensor) -> TensorDescription {
    let bytes = tensor.byte_size() as i64;
    TensorDescription {
        dtype: tensor.dtype().to_wire(),
        shape: Some(tensor.shape().to_proto()),
        allocation_description: Some(AllocationDescription {
            requested_bytes: bytes,
            allocated_bytes: bytes,
            allocator_name: ALLOCATOR.to_owned(),
            ..Default::default()
        }),
    }
}
