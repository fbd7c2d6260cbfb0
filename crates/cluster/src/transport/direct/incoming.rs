//! The receiving side of a direct connection. Large contents arrive in pieces or are read from the peer's memory;
//! either way they go directly into the memory of the new tensor.

use super::frames::{HEAD_BYTES, Head, KeyCache, Kind, Proof, TensorHead};
use super::link::Link;
use super::memory::PeerMemory;
use crate::transport::intake::{Content, Intake};
use crate::transport::reader::malformed;
use ferroflow_core::memory::Charge;
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::{Result, Status, bail, ensure, status};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The initial size of the receive buffer.
const BUFFER_BYTES: usize = 128 << 10;

/// Bytes read from a peer's memory before other tasks of the thread get a turn.
const STRETCH_BYTES: usize = 2 << 20;

/// The largest number of contents in flight, to bound what a hostile peer can allocate.
const MAX_TRANSFERS: usize = 1 << 16;

/// A handler of incoming frames.
pub(super) trait Deliver: Send {
    /// Handles a tensor of a step, or the reason why it could not be received.
    fn tensor(&mut self, step: i64, key: RendezvousKey, parcel: Result<Parcel>);

    /// Handles any other frame.
    fn message(&mut self, kind: Kind, step: i64, body: &[u8]) -> Result<()>;
}

/// Reads until the connection ends; returns the reason.
pub(super) async fn read_all(
    socket: impl AsyncRead + Unpin,
    memory: Option<PeerMemory>,
    link: &Link,
    intake: &Arc<Intake>,
    mut deliver: impl Deliver,
) -> Status {
    let mut incoming = Incoming {
        socket,
        memory,
        link,
        intake,
        buffer: vec![0; BUFFER_BYTES],
        surplus: intake.charge(),
        start: 0,
        end: 0,
        transfers: HashMap::new(),
        taken: HashMap::new(),
        keys: KeyCache::default(),
    };
    loop {
        if let Err(why) = incoming.frame(&mut deliver).await {
            return why;
        }
    }
}

/// A content in flight.
struct Transfer {
    step: i64,
    key: RendezvousKey,
    head: TensorHead<'static>,
    content: Arriving,
}

enum Arriving {
    Kept(Content),
    /// There was no memory for it and its step has failed; this many bytes are still to be skipped.
    Skipped(usize),
}

impl Transfer {
    fn missing(&self) -> usize {
        match &self.content {
            Arriving::Kept(content) => content.missing(),
            Arriving::Skipped(missing) => *missing,
        }
    }

    /// Fails the step for lack of memory and skips the rest of the content.
    fn give_up(&mut self, why: Status, deliver: &mut impl Deliver) {
        let missing = self.missing();
        self.content = Arriving::Skipped(missing);
        deliver.tensor(self.step, self.key.clone(), Err(why));
    }

    /// Delivers a complete content.
    fn finish(self, deliver: &mut impl Deliver) -> Result<()> {
        if let Arriving::Kept(content) = self.content {
            let (buffer, _charge) = content.finish();
            let parcel = self.head.with_buffer(buffer)?;
            deliver.tensor(self.step, self.key, Ok(parcel));
        }
        Ok(())
    }
}

struct Incoming<'a, S> {
    socket: S,
    /// The peer's memory, if the peer is on this machine.
    memory: Option<PeerMemory>,
    link: &'a Link,
    intake: &'a Arc<Intake>,
    buffer: Vec<u8>,
    /// The memory charged for a buffer that has grown beyond its initial size.
    surplus: Charge,
    /// The range of the buffer that has arrived and is not parsed yet.
    start: usize,
    end: usize,
    /// Contents that arrive in pieces.
    transfers: HashMap<u32, Transfer>,
    /// Contents read from the peer's memory that wait for its confirmation.
    taken: HashMap<u32, Transfer>,
    keys: KeyCache,
}

impl<S: AsyncRead + Unpin> Incoming<'_, S> {
    /// Reads and handles one frame.
    async fn frame(&mut self, deliver: &mut impl Deliver) -> Result<()> {
        self.need(HEAD_BYTES).await?;
        let head = self.buffer[self.start..].first_chunk().expect("need() has waited for that many bytes");
        let Head { length, kind, step } = Head::parse(head)?;
        if kind == Kind::Piece {
            self.start += HEAD_BYTES;
            return self.piece(length, deliver).await;
        }
        self.need(HEAD_BYTES + length).await?;
        let body = &self.buffer[self.start + HEAD_BYTES..][..length];
        match kind {
            Kind::Tensor => {
                let (head, content) = TensorHead::parse(body)?;
                let key = self.keys.get(head.key)?;
                let parcel = if head.is_plain() {
                    self.intake.allocate(content.len()).and_then(|mut buffer| {
                        buffer.get_mut().expect("a new buffer has one owner").copy_from_slice(content);
                        head.with_buffer(buffer)
                    })
                } else {
                    head.with_encoded(content)
                };
                deliver.tensor(step, key, parcel);
            }
            Kind::Announced | Kind::Offered => {
                let Some((&[a, b, c, d, numbers @ ..], head)) = body.split_first_chunk::<20>() else {
                    bail!(Internal, "malformed frame: a tensor without a transfer number and length")
                };
                let number = u32::from_le_bytes([a, b, c, d]);
                let (numbers, _) = numbers.as_chunks();
                let [content_length, address] = [0, 1].map(|i: usize| u64::from_le_bytes(numbers[i]));
                let content_length = usize::try_from(content_length).map_err(malformed)?;
                let (head, _) = TensorHead::parse(head)?;
                let key = self.keys.get(head.key)?;
                ensure!(
                    self.transfers.len() + self.taken.len() < MAX_TRANSFERS,
                    ResourceExhausted,
                    "more than {MAX_TRANSFERS} tensors in flight"
                );
                let expected = match kind {
                    Kind::Offered => self.intake.expect_whole(content_length),
                    _ => self.intake.expect(content_length),
                };
                self.start += HEAD_BYTES + length;
                let mut transfer = Transfer {
                    step,
                    key,
                    head: head.into_owned(),
                    content: Arriving::Skipped(content_length),
                };
                match expected {
                    Ok(content) => transfer.content = Arriving::Kept(content),
                    Err(why) => transfer.give_up(why, deliver),
                }
                if kind == Kind::Offered {
                    self.take(number, address, transfer).await?;
                } else {
                    self.transfers.insert(number, transfer);
                }
                return Ok(());
            }
            Kind::Proof => {
                let proof = Proof::decode(body).map_err(malformed)?;
                if self.memory.is_some_and(|memory| memory.shows(&proof)) {
                    self.link.send_notice(Kind::Readable, 0);
                }
            }
            Kind::Readable => self.link.on_readable(),
            Kind::Taken => self.link.on_taken(step as u32),
            Kind::Refused => self.link.on_refused(step as u32),
            Kind::Confirmed => {
                let Some(transfer) = self.taken.remove(&(step as u32)) else {
                    bail!(Internal, "malformed frame: a confirmation of a tensor that was not read")
                };
                transfer.finish(deliver)?;
            }
            _ => deliver.message(kind, step, body)?,
        }
        self.start += HEAD_BYTES + length;
        Ok(())
    }

    /// Reads an offered content from the peer's memory.
    async fn take(&mut self, number: u32, address: u64, mut transfer: Transfer) -> Result<()> {
        let mut at = address;
        // A skipped content counts as taken, so that the peer releases it.
        if let Arriving::Kept(content) = &mut transfer.content {
            while content.missing() > 0 {
                let room = content.room()?;
                let stretch = room.len().min(STRETCH_BYTES);
                let read = self.memory.map(|peer| peer.read(at, &mut room[..stretch]));
                if !matches!(read, Some(Ok(()))) {
                    tracing::debug!(?read, "Cannot read a peer's memory; contents are sent in pieces.");
                    content.restart();
                    self.transfers.insert(number, transfer);
                    self.link.send_notice(Kind::Refused, number);
                    return Ok(());
                }
                content.advance(stretch);
                at = at.wrapping_add(stretch as u64);
                tokio::task::yield_now().await;
            }
        }
        self.taken.insert(number, transfer);
        self.link.send_notice(Kind::Taken, number);
        Ok(())
    }

    /// Reads a piece of a content into the tensor's memory.
    async fn piece(&mut self, length: usize, deliver: &mut impl Deliver) -> Result<()> {
        self.need(4).await?;
        let number = self.buffer[self.start..].first_chunk().expect("need() has waited for that many bytes");
        let number = u32::from_le_bytes(*number);
        self.start += 4;
        let Some(mut left) = length.checked_sub(4) else {
            bail!(Internal, "malformed frame: a piece without a transfer number")
        };
        let Some(transfer) = self.transfers.get_mut(&number) else {
            bail!(Internal, "malformed frame: a piece of a tensor that was not announced")
        };
        ensure!(
            left <= transfer.missing(),
            Internal,
            "malformed frame: more bytes of a tensor than were announced"
        );
        while left > 0 {
            let refused = match &mut transfer.content {
                Arriving::Kept(content) => content.room().err(),
                Arriving::Skipped(_) => None,
            };
            if let Some(why) = refused {
                transfer.give_up(why, deliver);
            }
            let at_hand = left.min(self.end - self.start);
            let count = match &mut transfer.content {
                Arriving::Kept(content) => {
                    let room = content.room()?;
                    let wanted = left.min(room.len());
                    let count = if at_hand > 0 {
                        let count = at_hand.min(wanted);
                        room[..count].copy_from_slice(&self.buffer[self.start..][..count]);
                        self.start += count;
                        count
                    } else {
                        arrived(self.socket.read(&mut room[..wanted]).await)?
                    };
                    content.advance(count);
                    count
                }
                Arriving::Skipped(missing) => {
                    if at_hand == 0 {
                        (self.start, self.end) = (0, arrived(self.socket.read(&mut self.buffer).await)?);
                        continue;
                    }
                    self.start += at_hand;
                    *missing -= at_hand;
                    at_hand
                }
            };
            left -= count;
        }
        if transfer.missing() == 0 {
            let Some(transfer) = self.transfers.remove(&number) else { return Ok(()) };
            transfer.finish(deliver)?;
        }
        Ok(())
    }

    /// Waits until this many bytes are buffered. The buffer grows with the bytes that arrive, not with the announced
    /// length.
    async fn need(&mut self, count: usize) -> Result<()> {
        while self.end - self.start < count {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
                if self.buffer.len() > BUFFER_BYTES && count <= BUFFER_BYTES {
                    self.buffer = vec![0; BUFFER_BYTES];
                    self.surplus.clear();
                }
            }
            if self.start > 0 && self.start + count > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if self.end == self.buffer.len() {
                let more = self.buffer.len().min(count - self.buffer.len());
                // Twice, because decoding needs memory too.
                self.surplus.add(2 * more)?;
                self.buffer.resize(self.buffer.len() + more, 0);
            }
            self.end += arrived(self.socket.read(&mut self.buffer[self.end..]).await)?;
        }
        Ok(())
    }
}

/// Returns the number of bytes read, or an error at the end of the stream.
fn arrived(read: std::io::Result<usize>) -> Result<usize> {
    match read {
        Ok(count @ 1..) => Ok(count),
        Ok(0) => Err(status!(Unavailable, "the peer closed the connection")),
        Err(error) => Err(status!(Unavailable, "{error}")),
    }
}
