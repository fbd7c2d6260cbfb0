//! Reads a protobuf message while its frames arrive.
//!
//! The message is never gathered as a whole: a reader hands out fields as they come, and the bytes of large ones are
//! copied once, from the frame they arrived in to where they are wanted. Written as async functions, so that a frame
//! border may lie anywhere and the compiler keeps the state.

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

/// Messages of fewer bytes cannot become large, whatever is in them.
const ESTIMATED_BYTES: usize = 1 << 10;

/// Where the bytes of a message come from.
pub(crate) trait Frames {
    /// The next bytes; `None` after the last.
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

/// A message on its way in. Positions count from its first byte.
pub(crate) struct Reader<F> {
    frames: F,
    current: Bytes,
    position: u64,
    length: u64,
    /// Memory for what comes.
    intake: Arc<Intake>,
    /// What is held of the message outside tensors, as long as the call takes.
    gathered: Charge,
    /// What its tensors hold.
    contents: Charge,
}

impl<F: Frames> Reader<F> {
    /// A reader of a message of `length` bytes, of which `current` holds the first (and perhaps more that follow it).
    pub(crate) fn new(frames: F, current: Bytes, length: u64, intake: &Arc<Intake>) -> Reader<F> {
        let (gathered, contents) = (intake.charge(), intake.charge_part());
        Reader { frames, current, position: 0, length, intake: intake.clone(), gathered, contents }
    }

    /// What follows the message, and what is charged for it.
    pub(crate) fn into_rest(self) -> (F, Bytes, Charge) {
        (self.frames, self.current, self.gathered)
    }

    /// Memory for what comes.
    pub(crate) fn intake(&self) -> &Intake {
        &self.intake
    }

    /// What is held of the message outside tensors.
    pub(crate) fn gathered(&mut self) -> &mut Charge {
        &mut self.gathered
    }

    /// What the message's tensors hold.
    pub(crate) fn contents(&mut self) -> &mut Charge {
        &mut self.contents
    }

    /// Where the message ends.
    pub(crate) fn end(&self) -> u64 {
        self.length
    }

    /// What follows the bytes that have been read or are at hand.
    pub(crate) fn frames_mut(&mut self) -> &mut F {
        &mut self.frames
    }

    /// How much has been read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next field of the message that ends at `end`; `None` at its end.
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
            _ => Err(malformed(format_args!("{key} is no key of a field"))),
        }
    }

    /// Enters a nested message or a string: reads its length and returns where it ends.
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
                return Err(malformed("the message ends within a number"));
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
        Err(malformed("a number of more than 64 bits"))
    }

    /// Appends the field, key included, to `out`, for a decoder that wants contiguous bytes.
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
                return Err(malformed(format_args!("field {} is a group", field.number)));
            }
        };
        if length > end - self.position {
            return Err(malformed("the message ends within a number"));
        }
        self.append(length, out).await
    }

    /// Reads to `end` as one piece; shares the frame's memory if one frame holds it all.
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

    /// Reads the rest as a message of this type.
    pub(crate) async fn decode<M: Message + Default>(&mut self) -> Result<M> {
        let bytes = self.bytes(self.length).await?;
        self.decode_gathered(bytes)
    }

    /// Decodes a part of the message that is at hand as a whole, after charging what that will take.
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

    /// At least one and at most `limit` bytes. The caller has checked that the message has as many.
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

/// Decodes a message that is at hand as a whole.
pub(crate) fn decode<M: Message + Default>(bytes: Bytes) -> Result<M> {
    M::decode(bytes).map_err(malformed)
}

/// The status of a message that is not what its type says. Code and first words are stock's.
pub(crate) fn malformed(why: impl std::fmt::Display) -> Status {
    status!(Internal, "Unable to parse request: {why}")
}
