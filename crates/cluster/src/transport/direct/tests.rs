//! Both ends of a direct connection in one process.

use super::frames::Kind;
use super::incoming::Deliver;
use super::link::Link;
use super::memory::PeerMemory;
use crate::transport::tensor_codec::Intake;
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{Result, Tensor};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

struct Collect(UnboundedSender<(i64, Tensor)>);

impl Deliver for Collect {
    fn tensor(&mut self, step: i64, _: RendezvousKey, parcel: Parcel) {
        let _ = self.0.send((step, parcel.tensor));
    }

    fn message(&mut self, _: Kind, _: i64, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

fn key() -> RendezvousKey {
    RendezvousKey::new("/job:a/replica:0/task:0/device:CPU:0", 1, "/job:b/replica:0/task:0/device:CPU:0", "e")
}

/// Connects two ends, of which each has what `memory` makes of the other's, and runs a test on one of them and on what
/// arrives at the other.
fn between(
    memory: impl Fn(&UnixStream) -> Option<PeerMemory>,
    test: impl AsyncFnOnce(&Link, UnboundedReceiver<(i64, Tensor)>),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (here, there) = UnixStream::pair().unwrap();
        let intake = Arc::new(Intake::new(BufferPool::new(1 << 30), 1 << 30));
        let (near, far) = (Link::new("far".into()), Link::new("near".into()));
        let (tell, told) = unbounded_channel();
        let (memory_there, memory_here) = (memory(&here), memory(&there));
        let near_end = near.carry(here, memory_there, &intake, Collect(unbounded_channel().0));
        let far_end = far.carry(there, memory_here, &intake, Collect(tell));
        let carried = async { tokio::join!(near_end, far_end) };
        match select(pin!(test(&near, told)), pin!(carried)).await {
            Either::Left(_) => {}
            Either::Right(_) => panic!("the connection broke: {}", near.is_closed()),
        }
    });
}

/// Pushes tensors of several lengths and compares what arrives.
async fn exchange(link: &Link, told: &mut UnboundedReceiver<(i64, Tensor)>) {
    let lengths = [3usize, 40_000, 131_072, 700_001, 3_000_000];
    for (step, length) in lengths.iter().enumerate() {
        let values: Vec<f32> = (0..*length).map(|i| (i + step) as f32).collect();
        link.push(step as i64, &key(), Parcel::new(Tensor::vector(values))).unwrap();
    }
    for _ in lengths {
        let (step, tensor) = told.recv().await.unwrap();
        let length = lengths[step as usize];
        let expected: Vec<f32> = (0..length).map(|i| (i + step as usize) as f32).collect();
        assert!(tensor.flat::<f32>().unwrap() == expected, "{length} elements");
    }
}

/// Waits until the peer has shown that it can read this memory.
async fn readable(link: &Link) {
    while !link.is_readable() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn contents_are_read_from_the_peers_memory() {
    between(PeerMemory::of, async |link, mut told| {
        readable(link).await;
        exchange(link, &mut told).await;
        assert!(link.is_readable(), "nothing was refused");
        assert_eq!(link.waiting(), 0);
    });
}

#[test]
fn contents_come_in_pieces_where_memory_is_out_of_reach() {
    between(
        |_| None,
        async |link, mut told| {
            exchange(link, &mut told).await;
            assert!(!link.is_readable());
        },
    );
    // One who says that it could read and then cannot.
    between(
        |_| None,
        async |link, mut told| {
            link.hear_readable();
            exchange(link, &mut told).await;
            assert!(!link.is_readable(), "it was refused");
            assert_eq!(link.waiting(), 0);
        },
    );
}

#[test]
fn a_wrong_proof_proves_nothing() {
    between(PeerMemory::of, async |link, _told| {
        readable(link).await;
        let (one, _other) = UnixStream::pair().unwrap();
        let memory = PeerMemory::of(&one).unwrap();
        let value = Box::new(5u64);
        let address = std::ptr::from_ref(&*value).addr() as u64;
        assert!(memory.shows(&super::frames::Proof { address, value: *value }));
        assert!(!memory.shows(&super::frames::Proof { address, value: 6 }));
        assert!(!memory.shows(&super::frames::Proof { address: 16, value: 5 }));
    });
}

#[test]
fn what_was_offered_is_released_when_the_connection_ends() {
    let link = Link::new("nobody".into());
    link.hear_readable();
    let tensor = Tensor::vector(vec![1f32; 1 << 20]);
    link.push(1, &key(), Parcel::new(tensor)).unwrap();
    assert_eq!(link.waiting(), 1);
    link.close("the test says so");
    assert_eq!(link.waiting(), 0);
    // Whoever has read it by then hears nothing that lets it use what it read.
    link.hear_taken(0);
}
