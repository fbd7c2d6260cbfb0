//! One end of a direct connection: the queue of outgoing frames, and the parts that the peer runs for this task.

use super::super::keys::KeyText;
use super::frames::{GREETING, Head, Kind, OutgoingParcel, Proof, RunPart, WELCOME};
use super::incoming::{Deliver, read_all};
use super::memory::PeerMemory;
use crate::random;
use crate::transport::greeting::GREETING_WAIT;
use crate::transport::intake::Intake;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::{Result, Status, bail, status};
use ferroflow_proto::tensorflow::RunGraphResponse;
use futures_util::future::{Either, select};
use futures_util::task::AtomicWaker;
use prost::Message;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The largest content that is sent within one frame. Larger ones are sent in pieces, interleaved with other frames.
const WHOLE_BYTES: usize = 64 << 10;
/// The smallest content that is offered to a peer that can read this process's memory.
const OFFERED_BYTES: usize = 512 << 10;
/// The largest size of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Contents below this size are copied, which is cheaper than another entry in a vectored write.
const COPIED_BYTES: usize = 16 << 10;
/// The largest number of entries in a vectored write.
const SLICES: usize = 64;

const UNPOISONED: &str = "no panic while a direct connection is locked";

/// One end of a direct connection.
pub(crate) struct Link {
    /// The peer, for error messages.
    address: Arc<str>,
    queue: Mutex<Queue>,
    /// Wakes the writer when there is something to send.
    writer: AtomicWaker,
    /// Parts that the peer runs for this task, by step.
    running: Mutex<HashMap<i64, oneshot::Sender<RunGraphResponse>>>,
    /// A random value that only a process with access to this memory can read.
    secret: u64,
    /// True if the peer can read this process's memory.
    is_readable: AtomicBool,
}

/// The outgoing data.
#[derive(Default)]
struct Queue {
    ready: VecDeque<Bytes>,
    /// Frames that follow `ready`.
    tail: BytesMut,
    /// Contents being sent in pieces, taking turns.
    transfers: VecDeque<(u32, Bytes)>,
    /// Contents that the peer reads from this process's memory.
    offered: HashMap<u32, Bytes>,
    next_transfer: u32,
    /// The reason why the connection is closed.
    closed: Option<Status>,
}

impl Link {
    pub(super) fn new(address: Arc<str>) -> Arc<Link> {
        Arc::new(Link {
            address,
            queue: Mutex::default(),
            writer: AtomicWaker::new(),
            running: Mutex::default(),
            secret: random().unwrap_or_default(),
            is_readable: AtomicBool::new(false),
        })
    }

    /// Returns whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.lock().expect(UNPOISONED).closed.is_some()
    }

    /// Sends a tensor to the peer's side of a step. On a closed connection this does nothing, because the step fails
    /// through its parts.
    pub(crate) fn push(&self, step: i64, key: &RendezvousKey, parcel: Parcel) -> Result<()> {
        let (outgoing, key) = (OutgoingParcel::new(parcel)?, KeyText::new(key));
        let (head, content) = (outgoing.head_len(&key), outgoing.content().len());
        let mut queue = self.queue.lock().expect(UNPOISONED);
        if queue.closed.is_some() {
            return Ok(());
        }
        if content > WHOLE_BYTES {
            let number = queue.next_transfer;
            queue.next_transfer = number.wrapping_add(1);
            let is_offered = content >= OFFERED_BYTES && self.is_readable.load(Ordering::Relaxed);
            let kind = if is_offered { Kind::Offered } else { Kind::Announced };
            Head::put(20 + head, kind, step, &mut queue.tail);
            queue.tail.put_u32_le(number);
            queue.tail.put_u64_le(content as u64);
            queue.tail.put_u64_le(if is_offered { outgoing.content().as_ptr().addr() as u64 } else { 0 });
            outgoing.put_head(&key, &mut queue.tail);
            if is_offered {
                queue.offered.insert(number, outgoing.into_content());
            } else {
                queue.transfers.push_back((number, outgoing.into_content()));
            }
        } else {
            Head::put(head + content, Kind::Tensor, step, &mut queue.tail);
            outgoing.put_head(&key, &mut queue.tail);
            if content < COPIED_BYTES {
                queue.tail.put_slice(outgoing.content());
            } else {
                let before = queue.tail.split().freeze();
                queue.ready.extend([before, outgoing.into_content()]);
            }
        }
        drop(queue);
        self.writer.wake();
        Ok(())
    }

    /// Runs a part of a step on the peer. Dropping the future cancels the part.
    pub(crate) async fn run(&self, step: i64, part: RunPart) -> Result<RunGraphResponse> {
        let (sender, receiver) = oneshot::channel();
        self.running.lock().expect(UNPOISONED).insert(step, sender);
        let mut pending = PendingRun { link: self, step, under_way: true };
        self.send_message(Kind::Run, step, &part)?;
        let ended = receiver.await;
        pending.under_way = false;
        ended.map_err(|_| self.reason())
    }

    /// Tells the peer that a step is over.
    pub(crate) fn forget(&self, step: i64) -> Result<()> {
        self.send_message(Kind::CleanUp, step, &())
    }

    /// Reports the end of a part to the peer.
    pub(super) fn send_end(&self, step: i64, response: &RunGraphResponse) {
        let _ = self.send_message(Kind::Ended, step, response);
    }

    /// Handles the peer's report that a part has ended.
    pub(super) fn on_part_ended(&self, step: i64, response: RunGraphResponse) {
        let pending = self.running.lock().expect(UNPOISONED).remove(&step);
        // Nothing waits for a part that was cancelled.
        if let Some(pending) = pending {
            let _ = pending.send(response);
        }
    }

    fn send_message(&self, kind: Kind, step: i64, message: &impl Message) -> Result<()> {
        let mut queue = self.queue.lock().expect(UNPOISONED);
        if let Some(reason) = &queue.closed {
            return Err(reason.clone());
        }
        Head::put(message.encoded_len(), kind, step, &mut queue.tail);
        message.encode_raw(&mut queue.tail);
        drop(queue);
        self.writer.wake();
        Ok(())
    }

    /// Returns whether the peer can read this process's memory.
    #[cfg(test)]
    pub(super) fn is_readable(&self) -> bool {
        self.is_readable.load(Ordering::Relaxed)
    }

    /// Returns the number of offered contents that the peer has not read yet.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().expect(UNPOISONED).offered.len()
    }

    /// Handles the peer's report that it can read this process's memory.
    pub(super) fn on_readable(&self) {
        self.is_readable.store(true, Ordering::Relaxed);
    }

    /// Handles the peer's report that it has read an offered content. The peer may use what it read only after the
    /// confirmation, which shows that the memory was valid all the time.
    pub(super) fn on_taken(&self, number: u32) {
        let taken = self.queue.lock().expect(UNPOISONED).offered.remove(&number);
        if taken.is_some() {
            self.send_notice(Kind::Confirmed, number);
        }
    }

    /// Handles the peer's report that it could not read an offered content: sends it in pieces instead.
    pub(super) fn on_refused(&self, number: u32) {
        self.is_readable.store(false, Ordering::Relaxed);
        {
            let mut queue = self.queue.lock().expect(UNPOISONED);
            let refused = queue.offered.remove(&number);
            queue.transfers.extend(refused.map(|content| (number, content)));
        }
        self.writer.wake();
    }

    /// Sends a frame about a transfer. Does nothing on a closed connection.
    pub(super) fn send_notice(&self, kind: Kind, number: u32) {
        let _ = self.send_message(kind, i64::from(number), &());
    }

    /// Closes the connection; pending parts fail with the reason.
    pub(crate) fn close(&self, why: impl std::fmt::Display) {
        {
            let mut queue = self.queue.lock().expect(UNPOISONED);
            let reason = status!(Unavailable, "the connection to {} broke: {why}", self.address);
            let closed = Some(queue.closed.take().unwrap_or(reason));
            *queue = Queue { closed, ..Queue::default() };
        }
        self.running.lock().expect(UNPOISONED).clear();
        self.writer.wake();
    }

    fn reason(&self) -> Status {
        let closed = self.queue.lock().expect(UNPOISONED).closed.clone();
        closed.unwrap_or_else(|| status!(Unavailable, "the connection to {} broke", self.address))
    }

    /// Runs the connection until it breaks or is closed; `deliver` handles incoming frames.
    pub(super) async fn carry<S: AsyncRead + AsyncWrite>(
        self: &Arc<Self>,
        socket: S,
        memory: Option<PeerMemory>,
        intake: &Arc<Intake>,
        deliver: impl Deliver,
    ) {
        if memory.is_some() {
            let address = std::ptr::from_ref(&self.secret).addr() as u64;
            let _ = self.send_message(Kind::Proof, 0, &Proof { address, value: self.secret });
        }
        let (reading, writing) = tokio::io::split(socket);
        let reading = pin!(read_all(reading, memory, self, intake, deliver));
        let writing = pin!(self.write_all(writing));
        // Poll the writer first: it soon has to wait, while a peer that sends much could keep the reader busy.
        match select(writing, reading).await {
            Either::Left((why, _)) | Either::Right((why, _)) => self.close(why.message()),
        }
    }

    async fn write_all(&self, mut socket: impl AsyncWrite + Unpin) -> Status {
        let mut batch = VecDeque::new();
        loop {
            if batch.is_empty()
                && let Err(closed) = poll_fn(|context| self.poll_batch(context, &mut batch)).await
            {
                return closed;
            }
            let written = poll_fn(|context| {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let mut count = 0;
                for (slice, bytes) in slices.iter_mut().zip(&batch) {
                    *slice = IoSlice::new(bytes);
                    count += 1;
                }
                Pin::new(&mut socket).poll_write_vectored(context, &slices[..count])
            });
            match written.await {
                Ok(written @ 1..) => advance(&mut batch, written),
                Ok(0) => return status!(Unavailable, "the socket accepts no more data"),
                Err(error) => return status!(Unavailable, "{error}"),
            }
        }
    }

    /// Fills `batch` with the data to write next: all queued frames, then one piece of a content.
    fn poll_batch(&self, context: &mut Context<'_>, batch: &mut VecDeque<Bytes>) -> Poll<Result<()>> {
        self.writer.register(context.waker());
        let mut queue = self.queue.lock().expect(UNPOISONED);
        if let Some(reason) = &queue.closed {
            return Poll::Ready(Err(reason.clone()));
        }
        if let Some((number, mut content)) = queue.transfers.pop_front() {
            let piece = content.split_to(content.len().min(PIECE_BYTES));
            Head::put(4 + piece.len(), Kind::Piece, 0, &mut queue.tail);
            queue.tail.put_u32_le(number);
            let before = queue.tail.split().freeze();
            queue.ready.extend([before, piece]);
            if !content.is_empty() {
                queue.transfers.push_back((number, content));
            }
        } else if !queue.tail.is_empty() {
            let before = queue.tail.split().freeze();
            queue.ready.push_back(before);
        }
        std::mem::swap(batch, &mut queue.ready);
        if batch.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

fn advance(batch: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(first) = batch.front_mut() {
        if first.len() > written {
            return first.advance(written);
        }
        written -= first.len();
        batch.pop_front();
    }
}

/// A part that the peer runs; dropping it cancels the part unless it has ended.
struct PendingRun<'a> {
    link: &'a Link,
    step: i64,
    under_way: bool,
}

impl Drop for PendingRun<'_> {
    fn drop(&mut self) {
        if self.under_way {
            self.link.running.lock().expect(UNPOISONED).remove(&self.step);
            let _ = self.link.send_message(Kind::Cancel, self.step, &());
        }
    }
}

/// The caller's handle to a direct connection, which closes with the last handle.
pub(crate) struct LinkHandle(Arc<Link>);

impl LinkHandle {
    /// Returns the connection without keeping it open.
    pub(crate) fn link(&self) -> Arc<Link> {
        self.0.clone()
    }
}

impl std::ops::Deref for LinkHandle {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.0
    }
}

impl Drop for LinkHandle {
    fn drop(&mut self) {
        self.0.close("it is no longer needed");
    }
}

/// Greets the task at the other end of a new socket. Returns the connection and the future that runs it.
pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: S,
    memory: Option<PeerMemory>,
    address: Arc<str>,
    intake: Arc<Intake>,
    deliver: impl Fn(i64, RendezvousKey, Result<Parcel>) + Send,
) -> Result<(Arc<LinkHandle>, impl Future<Output = ()>)> {
    let mut reply = [0; WELCOME.len()];
    let greeted = async {
        socket.write_all(GREETING).await?;
        socket.read_exact(&mut reply).await
    };
    match timeout(GREETING_WAIT, greeted).await {
        Ok(Ok(_)) if reply == *WELCOME => {}
        Ok(Ok(_)) => bail!(Unavailable, "{address} is not a Ferroflow task"),
        Err(_) => bail!(Unavailable, "{address} did not reply to the greeting"),
        Ok(Err(error)) => bail!(Unavailable, "{address} does not accept a direct connection: {error}"),
    }
    let link = Link::new(address);
    let handle = Arc::new(LinkHandle(link.clone()));
    let carry = async move {
        let caller = CallerSide { link: link.clone(), deliver };
        link.carry(socket, memory, &intake, caller).await;
    };
    Ok((handle, carry))
}

/// The handler of the caller's side.
struct CallerSide<D> {
    link: Arc<Link>,
    deliver: D,
}

impl<D: Fn(i64, RendezvousKey, Result<Parcel>) + Send> Deliver for CallerSide<D> {
    fn tensor(&mut self, step: i64, key: RendezvousKey, parcel: Result<Parcel>) {
        (self.deliver)(step, key, parcel);
    }

    fn message(&mut self, kind: Kind, step: i64, body: &[u8]) -> Result<()> {
        match (kind, RunGraphResponse::decode(body)) {
            (Kind::Ended, Ok(response)) => self.link.on_part_ended(step, response),
            (kind, _) => bail!(Internal, "unexpected {kind:?}"),
        }
        Ok(())
    }
}
