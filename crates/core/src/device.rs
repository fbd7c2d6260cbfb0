//! Device names, full and partial, and the memory and threads that a device offers to kernels. Which node runs on which
//! device is decided by the runtime's placer.

mod background;
mod threads;
mod waits;

pub use background::{Background, BackgroundTask};
pub use threads::Threads;
pub use waits::{Wait, Waiter, Waits};

use crate::tensor::{Buffer, BufferPool};
use crate::{DType, Result, Shape, Status, Tensor, bail, ensure, status};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A device name in which every part may be missing: `/job:ps/task:1`, `/device:CPU:0`, or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceSpec {
    /// Job name.
    pub job: Option<String>,
    /// Replica number.
    pub replica: Option<u32>,
    /// Task number within the job.
    pub task: Option<u32>,
    /// Device type in capitals.
    pub kind: Option<String>,
    /// Device number within its task.
    pub index: Option<u32>,
}

impl DeviceSpec {
    /// Parses a full, partial, empty or legacy (`/cpu:0`) name.
    pub fn parse(text: &str) -> Result<DeviceSpec> {
        let mut spec = DeviceSpec::default();
        let malformed = || status!(InvalidArgument, "Malformed device specification '{text}'");
        for part in text.split('/').filter(|part| !part.is_empty()) {
            let fields: Vec<&str> = part.split(':').collect();
            let number = |digits: &str| -> Result<Option<u32>> {
                if digits == "*" { Ok(None) } else { digits.parse().map(Some).map_err(|_| malformed()) }
            };
            match fields.as_slice() {
                ["job", "*"] => spec.job = None,
                ["job", name] if is_job_name(name) => spec.job = Some((*name).to_owned()),
                ["replica", digits] => spec.replica = number(digits)?,
                ["task", digits] => spec.task = number(digits)?,
                ["device", kind, digits] => {
                    spec.kind = if *kind == "*" { None } else { Some(kind.to_uppercase()) };
                    spec.index = number(digits)?;
                }
                ["device", kind] => spec.kind = if *kind == "*" { None } else { Some(kind.to_uppercase()) },
                [kind @ ("cpu" | "CPU" | "gpu" | "GPU"), digits] => {
                    spec.kind = Some(kind.to_uppercase());
                    spec.index = number(digits)?;
                }
                [kind @ ("cpu" | "CPU" | "gpu" | "GPU")] => spec.kind = Some(kind.to_uppercase()),
                _ => return Err(malformed()),
            }
        }
        if !text.is_empty() && !text.starts_with('/') {
            return Err(malformed());
        }
        Ok(spec)
    }

    /// Returns whether every part given here agrees with the full name.
    pub fn matches(&self, full: &DeviceSpec) -> bool {
        fn agree<T: PartialEq>(want: &Option<T>, have: &Option<T>) -> bool {
            want.is_none() || want == have
        }
        agree(&self.job, &full.job)
            && agree(&self.replica, &full.replica)
            && agree(&self.task, &full.task)
            && agree(&self.kind, &full.kind)
            && agree(&self.index, &full.index)
    }

    /// Returns whether no part that both give differs.
    pub fn is_compatible(&self, other: &DeviceSpec) -> bool {
        self.merge(other, false).is_ok()
    }

    /// Adds the parts of `other`; parts given by both must agree, except that with `soft` the device type and index
    /// may differ and are then dropped.
    pub fn merge(&self, other: &DeviceSpec, soft: bool) -> Result<DeviceSpec> {
        let one = |what: &str, differ: bool| -> Result<()> {
            if differ {
                bail!(
                    InvalidArgument,
                    "Cannot merge devices with incompatible {what}: '{self}' and '{other}'"
                );
            }
            Ok(())
        };
        fn differ<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            a.is_some() && b.is_some() && a != b
        }
        one("jobs", differ(&self.job, &other.job))?;
        one("replicas", differ(&self.replica, &other.replica))?;
        one("tasks", differ(&self.task, &other.task))?;
        let mut merged = other.overridden_by(self);
        if differ(&self.kind, &other.kind) {
            one("types", !soft)?;
            (merged.kind, merged.index) = (None, None);
        } else if differ(&self.index, &other.index) {
            one("ids", !soft)?;
            merged.index = None;
        }
        Ok(merged)
    }

    /// The parts of `other`; parts that it lacks come from `self`.
    #[must_use]
    pub fn overridden_by(&self, other: &DeviceSpec) -> DeviceSpec {
        DeviceSpec {
            job: other.job.clone().or_else(|| self.job.clone()),
            replica: other.replica.or(self.replica),
            task: other.task.or(self.task),
            kind: other.kind.clone().or_else(|| self.kind.clone()),
            index: other.index.or(self.index),
        }
    }

    /// The job, replica and task, without the device.
    pub fn task_part(&self) -> DeviceSpec {
        DeviceSpec { job: self.job.clone(), replica: self.replica, task: self.task, kind: None, index: None }
    }
}

fn is_job_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "/job:{job}")?;
        }
        if let Some(replica) = self.replica {
            write!(f, "/replica:{replica}")?;
        }
        if let Some(task) = self.task {
            write!(f, "/task:{task}")?;
        }
        match (&self.kind, self.index) {
            (Some(kind), Some(index)) => write!(f, "/device:{kind}:{index}"),
            (Some(kind), None) => write!(f, "/device:{kind}:*"),
            (None, Some(index)) => write!(f, "/device:*:{index}"),
            (None, None) => Ok(()),
        }
    }
}

/// A device of this process: its name, its memory and its threads.
pub struct Device {
    name: String,
    spec: DeviceSpec,
    incarnation: u64,
    memory: Arc<BufferPool>,
    memory_limit: usize,
    /// Threads for loops inside one kernel. They run leaf work only and never take a lock, so a kernel may wait for
    /// them while it holds one.
    threads: Arc<rayon::ThreadPool>,
    /// Threads for work that outlives the step that starts it.
    background: OnceLock<Arc<dyn Background>>,
    waits: Arc<Waits>,
}

impl Device {
    /// A CPU device. `name` must be a full device name; `memory_limit` bounds a single allocation in bytes.
    pub fn new(
        name: &str,
        incarnation: u64,
        memory: Arc<BufferPool>,
        memory_limit: usize,
        threads: Arc<rayon::ThreadPool>,
    ) -> Result<Device> {
        let spec = DeviceSpec::parse(name)?;
        let background = OnceLock::new();
        let (name, waits) = (name.to_owned(), Arc::default());
        Ok(Device { name, spec, incarnation, memory, memory_limit, threads, background, waits })
    }

    /// The same device with another name, e.g. for a session with its own cluster definition.
    pub fn renamed(&self, name: &str) -> Result<Device> {
        let (memory, threads) = (self.memory.clone(), self.threads.clone());
        let renamed = Device::new(name, self.incarnation, memory, self.memory_limit, threads)?;
        Ok(Device { waits: self.waits.clone(), ..renamed })
    }

    /// The full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parsed name.
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    /// A number that distinguishes this process from an earlier one with the same name.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The pool that tensors come from.
    #[inline]
    pub fn memory(&self) -> &Arc<BufferPool> {
        &self.memory
    }

    /// Memory for a tensor: initialized, with unspecified contents.
    #[inline]
    pub fn allocate(&self, dtype: DType, shape: Shape) -> Result<Tensor> {
        if !dtype.is_plain() {
            self.check_allocation(dtype, &shape)?;
            return Ok(Tensor::zeros(dtype, shape));
        }
        let bytes = shape.elements().checked_mul(dtype.size());
        if bytes.is_some_and(|bytes| bytes <= self.memory_limit)
            && let Some(tensor) = Tensor::unspecified(dtype, shape.clone(), &self.memory)
        {
            return Ok(tensor);
        }
        Err(self.exhausted(dtype, &shape))
    }

    /// Memory for a tensor of plain elements, as bytes that are still to be filled.
    pub fn allocate_bytes(&self, dtype: DType, shape: &Shape) -> Result<Buffer> {
        let bytes = shape.elements().checked_mul(dtype.size()).filter(|bytes| *bytes <= self.memory_limit);
        let buffer = bytes.and_then(|bytes| self.memory.try_allocate(bytes));
        buffer.ok_or_else(|| self.exhausted(dtype, shape))
    }

    /// Memory for a tensor, all zeros or empty strings.
    pub fn allocate_zeros(&self, dtype: DType, shape: Shape) -> Result<Tensor> {
        if !dtype.is_plain() {
            return self.allocate(dtype, shape);
        }
        let bytes = shape.elements().checked_mul(dtype.size()).filter(|bytes| *bytes <= self.memory_limit);
        bytes
            .and_then(|_| Tensor::try_zeros(dtype, shape.clone()))
            .ok_or_else(|| self.exhausted(dtype, &shape))
    }

    /// Refuses an allocation that cannot succeed, with stock's message.
    #[inline]
    pub fn check_allocation(&self, dtype: DType, shape: &Shape) -> Result<()> {
        let unit = if dtype.is_plain() { dtype.size() } else { 32 };
        match shape.elements().checked_mul(unit) {
            Some(bytes) if self.admits(bytes) => Ok(()),
            _ => Err(self.exhausted(dtype, shape)),
        }
    }

    #[cold]
    fn exhausted(&self, dtype: DType, shape: &Shape) -> Status {
        status!(
            ResourceExhausted,
            "OOM when allocating tensor with shape{shape} and type {dtype} on {} by allocator cpu",
            self.name
        )
    }

    /// Refuses a string that does not fit into memory.
    pub fn check_text(&self, bytes: usize) -> Result<()> {
        ensure!(
            self.admits(bytes),
            ResourceExhausted,
            "OOM when allocating a string of {bytes} bytes on {} by allocator cpu",
            self.name
        );
        Ok(())
    }

    #[inline]
    fn admits(&self, bytes: usize) -> bool {
        bytes <= self.memory_limit && self.memory.has_room_for(bytes)
    }

    /// The threads for loops inside one kernel. Loops run to their end; [`crate::kernel::KernelCx::threads`] has those
    /// that end with the step.
    pub fn threads(&self) -> Threads<'_> {
        Threads::new(self)
    }

    /// The waits of whatever runs on the device beside the nodes of steps.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Names the threads for work that outlives the step that starts it. The first ones stay.
    pub fn set_background(&self, background: Arc<dyn Background>) {
        let _ = self.background.set(background);
    }

    /// The threads for work that outlives the step that starts it; none where kernels are tested alone.
    pub fn background(&self) -> Option<&Arc<dyn Background>> {
        self.background.get()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for name in ["/job:ps/replica:0/task:3/device:CPU:0", "/job:ps/task:1", "/device:CPU:*", ""] {
            assert_eq!(DeviceSpec::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(DeviceSpec::parse("/cpu:0").unwrap().to_string(), "/device:CPU:0");
    }

    #[test]
    fn malformed_names_are_refused() {
        for name in ["job:ps", "/job:", "/task:x", "/device:CPU:0:1", "/nonsense:3", "/job:1ps"] {
            assert!(DeviceSpec::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn merging_joins_parts_and_reports_conflicts() {
        let parse = |text| DeviceSpec::parse(text).unwrap();
        let merged = parse("/job:ps").merge(&parse("/task:1/cpu:0"), false).unwrap();
        assert_eq!(merged.to_string(), "/job:ps/task:1/device:CPU:0");
        assert!(parse("/job:ps").merge(&parse("/job:worker"), true).is_err());
        assert!(parse("/cpu:0").merge(&parse("/gpu:0"), false).is_err());
        assert_eq!(parse("/job:a/gpu:0").merge(&parse("/cpu:0"), true).unwrap().to_string(), "/job:a");
    }
}
