//! Reads what the peer says on a direct connection. Large contents come in pieces, or are read where they are; either way
//! they go into the tensors' own memory.

use super::frames::{HEAD_BYTES, Head, Keys, Kind, Proof, TensorHead};
use super::link::Link;
use super::memory::PeerMemory;
use crate::transport::reader::malformed;
use crate::transport::tensor_codec::{Intake, Promise};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::tensor::Buffer;
use ferroflow_core::{Result, Status, bail, ensure, status};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What is read at once if there is as much.
const BUFFER_BYTES: usize = 128 << 10;

/// What is read of a peer's memory before others of the thread have their turn.
const STRETCH_BYTES: usize = 2 << 20;

/// Takes what the peer says.
pub(super) trait Deliver: Send {
    /// A tensor of a step.
    fn tensor(&mut self, step: i64, key: RendezvousKey, parcel: Parcel);

    /// Anything else.
    fn message(&mut self, kind: Kind, step: i64, body: &[u8]) -> Result<()>;
}

/// Reads until the connection ends; returns why it did.
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
        start: 0,
        end: 0,
        transfers: HashMap::new(),
        taken: HashMap::new(),
        keys: Keys::default(),
    };
    loop {
        if let Err(why) = incoming.frame(&mut deliver).await {
            return why;
        }
    }
}

/// A content on its way.
struct Transfer {
    step: i64,
    key: RendezvousKey,
    head: TensorHead<'static>,
    buffer: Buffer,
    filled: usize,
    _promise: Promise<Arc<Intake>>,
}

struct Incoming<'a, S> {
    socket: S,
    /// The peer's memory, if it is on this machine.
    memory: Option<PeerMemory>,
    link: &'a Link,
    intake: &'a Arc<Intake>,
    buffer: Vec<u8>,
    /// What has arrived and was not read yet is between these.
    start: usize,
    end: usize,
    /// Contents that arrive in pieces.
    transfers: HashMap<u32, Transfer>,
    /// Contents that were read from the peer's memory and wait for its word that they were still there.
    taken: HashMap<u32, Transfer>,
    keys: Keys,
}

impl<S: AsyncRead + Unpin> Incoming<'_, S> {
    /// Reads and delivers one frame.
    async fn frame(&mut self, deliver: &mut impl Deliver) -> Result<()> {
        self.need(HEAD_BYTES).await?;
        let head = self.buffer[self.start..].first_chunk().expect("that much has arrived");
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
                    let mut buffer = self.intake.allocate(content.len());
                    buffer.get_mut().expect("a new buffer has one owner").copy_from_slice(content);
                    head.with_buffer(buffer)?
                } else {
                    head.with_encoded(content)?
                };
                deliver.tensor(step, key, parcel);
            }
            Kind::Announced | Kind::Offered => {
                let Some((&[a, b, c, d, numbers @ ..], head)) = body.split_first_chunk::<20>() else {
                    bail!(Internal, "a tensor is announced without a length")
                };
                let number = u32::from_le_bytes([a, b, c, d]);
                let (numbers, _) = numbers.as_chunks();
                let [content_length, address] = [0, 1].map(|i: usize| u64::from_le_bytes(numbers[i]));
                let (head, _) = TensorHead::parse(head)?;
                let promise = Promise::new(self.intake.clone(), content_length as usize)?;
                let transfer = Transfer {
                    step,
                    key: self.keys.get(head.key)?,
                    head: head.into_owned(),
                    buffer: self.intake.allocate(content_length as usize),
                    filled: 0,
                    _promise: promise,
                };
                self.start += HEAD_BYTES + length;
                if kind == Kind::Offered {
                    self.take(number, address, transfer).await;
                } else {
                    self.transfers.insert(number, transfer);
                }
                return Ok(());
            }
            Kind::Proof => {
                let proof = Proof::decode(body).map_err(malformed)?;
                if self.memory.is_some_and(|memory| memory.shows(&proof)) {
                    self.link.tell(Kind::Readable, 0);
                }
            }
            Kind::Readable => self.link.hear_readable(),
            Kind::Taken => self.link.hear_taken(step as u32),
            Kind::Refused => self.link.hear_refused(step as u32),
            Kind::Given => {
                let Some(transfer) = self.taken.remove(&(step as u32)) else {
                    bail!(Internal, "a tensor is given that was not taken")
                };
                let parcel = transfer.head.with_buffer(transfer.buffer)?;
                deliver.tensor(transfer.step, transfer.key, parcel);
            }
            _ => deliver.message(kind, step, body)?,
        }
        self.start += HEAD_BYTES + length;
        Ok(())
    }

    /// Reads an offered content from the peer's memory.
    async fn take(&mut self, number: u32, address: u64, mut transfer: Transfer) {
        let memory = transfer.buffer.get_mut().expect("a new buffer has one owner");
        let mut at = address;
        for stretch in memory.chunks_mut(STRETCH_BYTES) {
            let read = self.memory.map(|peer| peer.read(at, stretch));
            if !matches!(read, Some(Ok(()))) {
                tracing::debug!(?read, "A peer's memory cannot be read; contents come in pieces.");
                self.transfers.insert(number, transfer);
                return self.link.tell(Kind::Refused, number);
            }
            at = at.wrapping_add(stretch.len() as u64);
            tokio::task::yield_now().await;
        }
        self.taken.insert(number, transfer);
        self.link.tell(Kind::Taken, number);
    }

    /// Reads a piece of a content into the tensor's memory.
    async fn piece(&mut self, length: usize, deliver: &mut impl Deliver) -> Result<()> {
        self.need(4).await?;
        let number = self.buffer[self.start..].first_chunk().expect("that much has arrived");
        let number = u32::from_le_bytes(*number);
        self.start += 4;
        let Some(length) = length.checked_sub(4) else { bail!(Internal, "a piece of nothing") };
        let Some(transfer) = self.transfers.get_mut(&number) else {
            bail!(Internal, "a piece of a tensor that was not announced")
        };
        let memory = transfer.buffer.get_mut().expect("a new buffer has one owner");
        let end = transfer.filled + length;
        ensure!(end <= memory.len(), Internal, "more of a tensor than was announced");
        let mut wanted = &mut memory[transfer.filled..end];
        let at_hand = wanted.len().min(self.end - self.start);
        wanted[..at_hand].copy_from_slice(&self.buffer[self.start..][..at_hand]);
        self.start += at_hand;
        wanted = &mut wanted[at_hand..];
        while !wanted.is_empty() {
            let count = arrived(self.socket.read(wanted).await)?;
            wanted = &mut wanted[count..];
        }
        transfer.filled = end;
        if end == transfer.buffer.len() {
            let Some(transfer) = self.transfers.remove(&number) else { return Ok(()) };
            let parcel = transfer.head.with_buffer(transfer.buffer)?;
            deliver.tensor(transfer.step, transfer.key, parcel);
        }
        Ok(())
    }

    /// Waits until so many bytes have arrived.
    async fn need(&mut self, count: usize) -> Result<()> {
        while self.end - self.start < count {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            }
            if self.start + count > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                if count > self.buffer.len() {
                    self.buffer.resize(count, 0);
                }
            }
            self.end += arrived(self.socket.read(&mut self.buffer[self.end..]).await)?;
        }
        Ok(())
    }
}

/// How many bytes were read; none means that the peer is gone.
fn arrived(read: std::io::Result<usize>) -> Result<usize> {
    match read {
        Ok(count @ 1..) => Ok(count),
        Ok(0) => Err(status!(Unavailable, "the peer closed it")),
        Err(error) => Err(status!(Unavailable, "{error}")),
    }
}
