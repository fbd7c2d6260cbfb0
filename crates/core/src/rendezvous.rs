//! Where tensors that cross devices meet: the contract between send/receive ops and whatever moves the bytes.

use crate::{BoxFuture, Result, Status, Tensor, bail};
use std::fmt;

/// Identifies one tensor of one step: who sends it, who receives it, which edge, which loop iteration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RendezvousKey {
    /// Full name of the sending device.
    pub source: String,
    /// The sending process.
    pub source_incarnation: u64,
    /// Full name of the receiving device.
    pub target: String,
    /// The edge's name.
    pub edge: String,
    /// The loop frame; 0 outside loops.
    pub frame: u64,
    /// The iteration within the frame.
    pub iteration: u64,
}

impl RendezvousKey {
    /// Parses the wire form.
    pub fn parse(text: &str) -> Result<RendezvousKey> {
        let parts: Vec<&str> = text.split(';').collect();
        if let [source, incarnation, target, edge, frame] = parts.as_slice()
            && let Ok(source_incarnation) = u64::from_str_radix(incarnation, 16)
            && let Some((frame, iteration)) = frame.split_once(':')
            && let (Ok(frame), Ok(iteration)) = (frame.parse(), iteration.parse())
        {
            return Ok(RendezvousKey {
                source: (*source).to_owned(),
                source_incarnation,
                target: (*target).to_owned(),
                edge: (*edge).to_owned(),
                frame,
                iteration,
            });
        }
        // The two spaces are stock's.
        bail!(InvalidArgument, "Invalid  rendezvous key: {text}")
    }
}

impl fmt::Display for RendezvousKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{};{:016x};{};{};{}:{}",
            self.source, self.source_incarnation, self.target, self.edge, self.frame, self.iteration
        )
    }
}

/// A tensor in transit. A dead one stands for a branch that was not taken.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// The value; unspecified if dead.
    pub tensor: Tensor,
    /// Whether the sending node was dead.
    pub dead: bool,
}

/// The meeting place of one step.
pub trait Rendezvous: Send + Sync {
    /// Leaves a tensor for its receiver; never waits.
    fn send(&self, key: &RendezvousKey, parcel: Parcel) -> Result<()>;

    /// Waits for a tensor.
    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Parcel>>;

    /// Ends every present and later wait with this status.
    fn abort(&self, reason: Status);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_a_round_trip() {
        let text = "/job:a/replica:0/task:0/device:CPU:0;00000000000000ff;/job:b/replica:0/task:1/device:CPU:0;edge_1_x;7:2";
        let key = RendezvousKey::parse(text).unwrap();
        assert_eq!((key.source_incarnation, key.frame, key.iteration), (255, 7, 2));
        assert_eq!(key.to_string(), text);
        for bad in ["", "a;x;c;d;0:0", "a;0;c;d;0", "a;0;c;d;0:0;e"] {
            assert!(RendezvousKey::parse(bad).is_err(), "{bad}");
        }
    }
}
