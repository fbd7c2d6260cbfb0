//! Tests with both ends of a direct connection in one process.

use super::frames::{Head, Kind, MAX_BODY};
use super::incoming::{Deliver, read_all};
use super::link::Link;
use super::memory::PeerMemory;
use crate::transport::intake::Intake;
use bytes::{BufMut, BytesMut};
use ferroflow_core::memory::MemoryBudget;
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{Code, Result, Status, Tensor};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use std::pin::pin;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

struct Collect(UnboundedSender<(i64, Result<Tensor>)>);

impl Deliver for Collect {
    fn tensor(&mut self, step: i64, _: RendezvousKey, parcel: Result<Parcel>) {
        let _ = self.0.send((step, parcel.map(|parcel| parcel.tensor)));
    }

    fn message(&mut self, _: Kind, _: i64, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

fn key() -> RendezvousKey {
    RendezvousKey::new("/job:a/replica:0/task:0/device:CPU:0", 1, "/job:b/replica:0/task:0/device:CPU:0", "e")
}

/// Connects two ends, gives each the access to the other's memory that `memory` returns, and runs a test on one end and
/// on what arrives at the other.
fn between(
    memory: impl Fn(&UnixStream) -> Option<PeerMemory>,
    test: impl AsyncFnOnce(&Link, UnboundedReceiver<(i64, Result<Tensor>)>),
) {
    between_with(1 << 30, memory, test);
}

/// Like [`between`], with a memory limit per connection.
fn between_with(
    limit: usize,
    memory: impl Fn(&UnixStream) -> Option<PeerMemory>,
    test: impl AsyncFnOnce(&Link, UnboundedReceiver<(i64, Result<Tensor>)>),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (here, there) = UnixStream::pair().unwrap();
        let intake = Intake::new(BufferPool::new(1 << 30), limit);
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
async fn exchange(link: &Link, told: &mut UnboundedReceiver<(i64, Result<Tensor>)>) {
    let lengths = [3usize, 40_000, 131_072, 700_001, 3_000_000];
    for (step, length) in lengths.iter().enumerate() {
        let values: Vec<f32> = (0..*length).map(|i| (i + step) as f32).collect();
        link.push(step as i64, &key(), Parcel::new(Tensor::vector(values))).unwrap();
    }
    for _ in lengths {
        let (step, tensor) = told.recv().await.unwrap();
        let length = lengths[step as usize];
        let expected: Vec<f32> = (0..length).map(|i| (i + step as usize) as f32).collect();
        assert!(tensor.unwrap().flat::<f32>().unwrap() == expected, "{length} elements");
    }
}

/// Waits until the peer has verified that it can read this memory.
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
    // A peer that claims to have access and then cannot read.
    between(
        |_| None,
        async |link, mut told| {
            link.on_readable();
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
    link.on_readable();
    let tensor = Tensor::vector(vec![1f32; 1 << 20]);
    link.push(1, &key(), Parcel::new(tensor)).unwrap();
    assert_eq!(link.waiting(), 1);
    link.close("the test says so");
    assert_eq!(link.waiting(), 0);
    // A peer that has read the content by then gets no confirmation and cannot use it.
    link.on_taken(0);
}

#[test]
fn a_tensor_without_memory_fails_its_step_and_nothing_else() {
    let reaches: [fn(&UnixStream) -> Option<PeerMemory>; 2] = [|_| None, PeerMemory::of];
    for memory in reaches {
        between_with(8 << 20, memory, async |link, mut told| {
            let push = |step, elements: usize| {
                link.push(step, &key(), Parcel::new(Tensor::vector(vec![1f32; elements]))).unwrap();
            };
            push(1, 8 << 20);
            push(2, 3);
            push(3, 1 << 18);
            let mut outcomes = Vec::new();
            for _ in 0..3 {
                outcomes.push(told.recv().await.unwrap());
            }
            for (step, outcome) in outcomes {
                match step {
                    1 => assert_eq!(outcome.unwrap_err().code(), Code::ResourceExhausted),
                    _ => assert!(outcome.is_ok(), "step {step}"),
                }
            }
        });
    }
}

/// Feeds raw bytes to a reader; returns its error, if any, and the memory that it holds.
fn read_raw(bytes: &[u8]) -> (Option<Status>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut here, there) = tokio::io::duplex(1 << 20);
        let pool = BufferPool::within(0, MemoryBudget::process().part(usize::MAX));
        let intake = Intake::new(pool.clone(), 1 << 30);
        let link = Link::new("far".into());
        let mut reading = pin!(read_all(there, None, &link, &intake, Collect(unbounded_channel().0)));
        here.write_all(bytes).await.unwrap();
        for _ in 0..100 {
            if let Some(why) = reading.as_mut().now_or_never() {
                return (Some(why), pool.budget().held());
            }
            tokio::task::yield_now().await;
        }
        (None, pool.budget().held())
    })
}

#[test]
fn lengths_alone_get_no_memory() {
    let mut body = BytesMut::new();
    Head::put(MAX_BODY, Kind::Run, 1, &mut body);
    body.put_slice(b"a start");
    let (why, held) = read_raw(&body);
    assert!(why.is_none() && held < 1 << 20, "{why:?}, {held} bytes for a head");

    let mut announced = BytesMut::new();
    let name = key().to_string();
    for number in 0..8 {
        Head::put(20 + 8 + 8 + name.len(), Kind::Announced, 1, &mut announced);
        announced.put_u32_le(number);
        announced.put_u64_le(1 << 40);
        announced.put_u64_le(0);
        announced.put_slice(&[0, 1, 1, 0]);
        announced.put_u32_le(name.len() as u32);
        announced.put_i64_le(1 << 38);
        announced.put_slice(name.as_bytes());
    }
    let (why, held) = read_raw(&announced);
    assert!(why.is_none() && held <= 16 << 20, "{why:?}, {held} bytes for {}", announced.len());

    let mut too_long = BytesMut::new();
    Head::put(MAX_BODY + 1, Kind::Run, 1, &mut too_long);
    assert!(read_raw(&too_long).0.is_some());
}
