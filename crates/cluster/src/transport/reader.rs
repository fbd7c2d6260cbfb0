//! Reads a protobuf message while its frames arrive.
//!
//! The message is never assembled as a whole: the reader yields fields as they come, and the bytes of large ones are
//! copied once, from the frame to their destination. The functions are async, so a frame border may lie anywhere and
//! the compiler keeps the state.

use super::intake::Intake;
use super::wire_cost;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use ferroflow_core::memory::Charge;
use ferroflow_core::{Result, Status, bail, status};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Messages below this size cannot decode to anything large.
const ESTIMATED_BYTES: usize = 1 << 10;

/// A source of the bytes of a message.
pub(crate) trait ByteSource {
    /// Polls for the next bytes; `None` after the last.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>>;
}

/// The key of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) wire_type: WireType,
}

impl Field {
    pub(crate) fn is_message(self, number: u32) -> bool {
        self == Field { number, wire_type: WireType::LengthDelimited }
    }
}

/// A reader of an incoming message. Positions count from its first byte.
pub(crate) struct Reader<F> {
    frames: F,
    current: Bytes,
    position: u64,
    length: u64,
    /// Memory for tensors.
    intake: Arc<Intake>,
    /// The charge for the message outside its tensors, held as long as the call.
    gathered: Charge,
    /// The charge for its tensors.
    contents: Charge,
}

impl<F: ByteSource> Reader<F> {
    /// Creates a reader of a message of `length` bytes. `current` holds the first of them, and perhaps bytes after the
    /// message.
    pub(crate) fn new(frames: F, current: Bytes, length: u64, intake: &Arc<Intake>) -> Reader<F> {
        let (gathered, contents) = (intake.charge(), intake.charge_part());
        Reader { frames, current, position: 0, length, intake: intake.clone(), gathered, contents }
    }

    /// The bytes that follow the message, and their charge.
    pub(crate) fn into_rest(self) -> (F, Bytes, Charge) {
        (self.frames, self.current, self.gathered)
    }

    /// Returns the source of memory for tensors.
    pub(crate) fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Returns the charge for the message outside its tensors.
    pub(crate) fn gathered(&mut self) -> &mut Charge {
        &mut self.gathered
    }

    /// Returns the charge for the message's tensors.
    pub(crate) fn contents(&mut self) -> &mut Charge {
        &mut self.contents
    }

    /// Returns the position at which the message ends.
    pub(crate) fn end(&self) -> u64 {
        self.length
    }

    /// Returns the source of further bytes.
    pub(crate) fn frames_mut(&mut self) -> &mut F {
        &mut self.frames
    }

    /// Returns the current position.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Reads the key of the next field of the message that ends at `end`; `None` at its end.
    pub(crate) async fn field(&mut self, end: u64) -> Result<Option<Field>> {
        if self.position == end {
            return Ok(None);
        }
        let key = self.varint(end).await?;
        let (number, wire_type) = ((key >> 3) as u32, WireType::try_from(key & 7));
        match wire_type {
            Ok(wire_type) if key <= u64::from(u32::MAX) && number > 0 => {
                Ok(Some(Field { number, wire_type }))
            }
            _ => Err(malformed(format_args!("{key} is not the key of a field"))),
        }
    }

    /// Reads the length of a nested message or string; returns the position at which it ends.
    pub(crate) async fn enter(&mut self, end: u64) -> Result<u64> {
        let length = self.varint(end).await?;
        let left = end - self.position;
        if length > left {
            return Err(malformed(format_args!("a field of {length} bytes in a message with {left} left")));
        }
        Ok(self.position + length)
    }

    /// Reads a varint.
    pub(crate) async fn varint(&mut self, end: u64) -> Result<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            if self.position == end {
                return Err(malformed("the message ends within a field"));
            }
            if self.current.is_empty() {
                self.refill().await?;
            }
            let byte = self.current.get_u8();
            self.position += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a varint of more than 64 bits"))
    }

    /// Appends the field with its key to `out`, for a decoder that needs contiguous bytes.
    pub(crate) async fn gather(&mut self, field: Field, end: u64, out: &mut BytesMut) -> Result<()> {
        encode_key(field.number, field.wire_type, out);
        let length = match field.wire_type {
            WireType::Varint => {
                encode_varint(self.varint(end).await?, out);
                return Ok(());
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => {
                let length = self.enter(end).await? - self.position;
                encode_varint(length, out);
                length
            }
            WireType::StartGroup | WireType::EndGroup => {
                return Err(malformed(format_args!(
                    "field {} is a group, which is not supported",
                    field.number
                )));
            }
        };
        if length > end - self.position {
            return Err(malformed("the message ends within a field"));
        }
        self.append(length, out).await
    }

    /// Reads up to `end` as one buffer, shared with the frame if one frame holds all of it.
    pub(crate) async fn bytes(&mut self, end: u64) -> Result<Bytes> {
        let length = end - self.position;
        if length <= self.current.len() as u64 {
            self.position = end;
            return Ok(self.current.split_to(length as usize));
        }
        let mut out = BytesMut::new();
        self.append(length, &mut out).await?;
        Ok(out.freeze())
    }

    /// Fills `out`.
    pub(crate) async fn fill(&mut self, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            let piece = self.piece(out.len() as u64).await?;
            out[..piece.len()].copy_from_slice(&piece);
            out = &mut out[piece.len()..];
        }
        Ok(())
    }

    /// Reads the rest as one message.
    pub(crate) async fn decode<M: Message + Default>(&mut self) -> Result<M> {
        let bytes = self.bytes(self.length).await?;
        self.decode_gathered(bytes)
    }

    /// Decodes contiguous bytes of the message after charging the memory that this needs.
    pub(crate) fn decode_gathered<M: Message + Default>(&mut self, bytes: Bytes) -> Result<M> {
        if bytes.len() >= ESTIMATED_BYTES {
            self.gathered.add(wire_cost::decoded(&bytes))?;
        }
        decode(bytes)
    }

    async fn append(&mut self, mut length: u64, out: &mut BytesMut) -> Result<()> {
        while length > 0 {
            let piece = self.piece(length).await?;
            length -= piece.len() as u64;
            self.gathered.add(piece.len())?;
            out.put(piece);
        }
        Ok(())
    }

    /// Returns at least one and at most `limit` bytes. The caller has checked that the message has that many.
    async fn piece(&mut self, limit: u64) -> Result<Bytes> {
        if self.current.is_empty() {
            self.refill().await?;
        }
        let length = limit.min(self.current.len() as u64);
        self.position += length;
        Ok(self.current.split_to(length as usize))
    }

    async fn refill(&mut self) -> Result<()> {
        while self.current.is_empty() {
            match poll_fn(|cx| self.frames.poll_frame(cx)).await {
                Some(frame) => self.current = frame?,
                None => bail!(
                    Internal,
                    "the request ends after {} of the {} bytes of its message",
                    self.position,
                    self.length
                ),
            }
        }
        Ok(())
    }
}

/// Decodes contiguous bytes.
pub(crate) fn decode<M: Message + Default>(bytes: Bytes) -> Result<M> {
    M::decode(bytes).map_err(malformed)
}

/// The status of a malformed message. The code and the first words are stock's.
pub(crate) fn malformed(why: impl std::fmt::Display) -> Status {
    status!(Internal, "Unable to parse request: {why}")
}
