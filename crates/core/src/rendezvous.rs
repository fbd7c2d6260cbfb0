//! The exchange of tensors between devices: the contract between send and receive ops and the transport that moves the
//! bytes.
//!
//! The runtime implements it within a process; the cluster extends it across tasks. Edges within one device do not use
//! it.

use crate::kernel::Value;
use crate::{BoxFuture, Result, Status, Tensor, bail};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The identity of one tensor within a step: sender, receiver, edge and loop iteration.
///
/// Names are shared and hashed once, so a clone increments a counter and a lookup compares pointers first.
#[derive(Clone, Debug)]
pub struct RendezvousKey {
    edge: Arc<EdgeName>,
    /// The loop frame; 0 outside loops.
    pub frame: u64,
    /// The iteration within the frame.
    pub iteration: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct EdgeName {
    source: String,
    source_incarnation: u64,
    target: String,
    name: String,
    hash: u64,
}

impl RendezvousKey {
    /// The key of an edge outside loops. Device names are full; the incarnation identifies the sending process.
    pub fn new(source: &str, source_incarnation: u64, target: &str, edge: &str) -> RendezvousKey {
        let mut hasher = DefaultHasher::new();
        (source, source_incarnation, target, edge).hash(&mut hasher);
        let edge = EdgeName {
            source: source.to_owned(),
            source_incarnation,
            target: target.to_owned(),
            name: edge.to_owned(),
            hash: hasher.finish(),
        };
        RendezvousKey { edge: Arc::new(edge), frame: 0, iteration: 0 }
    }

    /// The same edge in another loop frame and iteration.
    #[must_use]
    pub fn at(&self, frame: u64, iteration: u64) -> RendezvousKey {
        RendezvousKey { edge: self.edge.clone(), frame, iteration }
    }

    /// Full name of the sending device.
    pub fn source(&self) -> &str {
        &self.edge.source
    }

    /// The incarnation of the sending process.
    pub fn source_incarnation(&self) -> u64 {
        self.edge.source_incarnation
    }

    /// Full name of the receiving device.
    pub fn target(&self) -> &str {
        &self.edge.target
    }

    /// The edge's name.
    pub fn edge(&self) -> &str {
        &self.edge.name
    }

    /// Parses the wire form.
    pub fn parse(text: &str) -> Result<RendezvousKey> {
        let parts: Vec<&str> = text.split(';').collect();
        if let [source, incarnation, target, edge, frame] = parts.as_slice()
            && let Ok(incarnation) = u64::from_str_radix(incarnation, 16)
            && let Some((frame, iteration)) = frame.split_once(':')
            && let (Ok(frame), Ok(iteration)) = (frame.parse(), iteration.parse())
        {
            return Ok(RendezvousKey {
                frame,
                iteration,
                ..RendezvousKey::new(source, incarnation, target, edge)
            });
        }
        // The two spaces are in stock's message.
        bail!(InvalidArgument, "Invalid  rendezvous key: {text}")
    }
}

impl PartialEq for RendezvousKey {
    fn eq(&self, other: &RendezvousKey) -> bool {
        (self.frame, self.iteration) == (other.frame, other.iteration)
            && (Arc::ptr_eq(&self.edge, &other.edge)
                || (self.edge.hash == other.edge.hash && self.edge == other.edge))
    }
}

impl Eq for RendezvousKey {}

impl Hash for RendezvousKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.edge.hash, self.frame, self.iteration).hash(hasher);
    }
}

impl fmt::Display for RendezvousKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{};{:016x};{};{};{}:{}",
            self.edge.source,
            self.edge.source_incarnation,
            self.edge.target,
            self.edge.name,
            self.frame,
            self.iteration
        )
    }
}

/// A tensor in transit. A dead parcel comes from a branch that was not taken.
#[derive(Clone)]
pub struct Parcel {
    /// The value; unspecified if dead.
    pub tensor: Tensor,
    /// True if the sending node was dead.
    pub dead: bool,
    /// A reference to the value, if it is sent by reference.
    reference: Option<Value>,
}

impl Parcel {
    /// A parcel with a live value.
    pub fn new(tensor: Tensor) -> Parcel {
        Parcel { tensor, dead: false, reference: None }
    }

    /// A parcel from a branch that was not taken; `filler` is what the wire carries.
    pub fn dead(filler: Tensor) -> Parcel {
        Parcel { tensor: filler, dead: true, reference: None }
    }

    /// A parcel with the value of an edge. A reference or a view is read on delivery: a receiver that reads a variable
    /// after an update of the same step must see the update, even though the reference was sent before it.
    pub fn of(value: Value) -> Result<Parcel> {
        let tensor = value.read()?;
        let reference = (!matches!(value, Value::Tensor(_))).then_some(value);
        Ok(Parcel { tensor, dead: false, reference })
    }

    /// The parcel with its value read, as the receiver gets it.
    pub fn delivered(mut self) -> Result<Parcel> {
        if let Some(reference) = self.reference.take() {
            self.tensor = reference.read()?;
        }
        Ok(self)
    }
}

/// The exchange of one step.
pub trait Rendezvous: Send + Sync {
    /// Leaves a tensor for its receiver; never blocks.
    fn send(&self, key: &RendezvousKey, parcel: Parcel) -> Result<()>;

    /// Waits for a tensor.
    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Parcel>>;

    /// Fails all pending and future receives with this status.
    fn abort(&self, reason: Status);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_a_round_trip() {
        let text = "/job:a/replica:0/task:0/device:CPU:0;00000000000000ff;/job:b/replica:0/task:1/device:CPU:0;edge_1_x;7:2";
        let key = RendezvousKey::parse(text).unwrap();
        assert_eq!((key.source_incarnation(), key.frame, key.iteration), (255, 7, 2));
        assert_eq!(key.to_string(), text);
        let made = RendezvousKey::new(key.source(), 255, key.target(), key.edge());
        assert_ne!(made, key);
        assert_eq!(made.at(7, 2), key);
        for bad in ["", "a;x;c;d;0:0", "a;0;c;d;0", "a;0;c;d;0:0;e"] {
            assert!(RendezvousKey::parse(bad).is_err(), "{bad}");
        }
    }
}
