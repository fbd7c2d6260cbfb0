//! An outgoing message: pieces that are written one after the other, large ones from the memory where they are.

use bytes::{BufMut, Bytes, BytesMut};
use ferroflow_core::{Result, ensure};
use prost::Message;
use std::collections::VecDeque;

/// Pieces of at least this size are referenced. Copying shorter ones is cheaper than another entry in a vectored write.
const REFERENCED_BYTES: usize = 16 * 1024;

/// The largest message that other gRPC implementations accept.
const MAX_MESSAGE: usize = i32::MAX as usize;

/// The length of the prefix of a gRPC message: a flag and a length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// A gRPC message under construction.
pub(crate) struct Rope {
    /// Owned bytes, each followed by referenced bytes; the first begins with space for the prefix.
    pieces: Vec<(BytesMut, Bytes)>,
    tail: BytesMut,
    length: usize,
}

impl Rope {
    /// Creates an empty message.
    pub(crate) fn new() -> Rope {
        let mut tail = BytesMut::with_capacity(256);
        tail.put_bytes(0, PREFIX_BYTES);
        Rope { pieces: Vec::new(), tail, length: 0 }
    }

    /// Encodes a message with its generated encoder.
    pub(crate) fn from_message(message: &impl Message) -> Rope {
        let mut rope = Rope::new();
        rope.write(message.encoded_len(), |out| message.encode_raw(out));
        rope
    }

    /// Appends `length` bytes written by `write`.
    pub(crate) fn write(&mut self, length: usize, write: impl FnOnce(&mut BytesMut)) {
        self.tail.reserve(length);
        let before = self.tail.len();
        write(&mut self.tail);
        self.length += self.tail.len() - before;
    }

    /// Appends bytes, by reference if there are many.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if bytes.len() < REFERENCED_BYTES {
            return self.write(bytes.len(), |out| out.put_slice(&bytes));
        }
        self.length += bytes.len();
        self.pieces.push((std::mem::take(&mut self.tail), bytes));
    }

    /// Returns the pieces in sending order, with the prefix filled in.
    pub(crate) fn finish(mut self) -> Result<VecDeque<Bytes>> {
        ensure!(
            self.length <= MAX_MESSAGE,
            Internal,
            "Protobuf is too large to be serialized: it has {} bytes, and a message can have at most {MAX_MESSAGE}",
            self.length
        );
        self.pieces.push((self.tail, Bytes::new()));
        self.pieces[0].0[1..PREFIX_BYTES].copy_from_slice(&(self.length as u32).to_be_bytes());
        let pieces = self.pieces.into_iter().flat_map(|(own, referenced)| [own.freeze(), referenced]);
        Ok(pieces.filter(|piece| !piece.is_empty()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_beyond_the_limit_are_refused() {
        let large = Bytes::from(vec![0; 1 << 24]);
        let mut rope = Rope::new();
        (0..128).for_each(|_| rope.push(large.clone()));
        assert_eq!(rope.finish().unwrap_err().code(), ferroflow_core::Code::Internal);
    }

    #[test]
    fn pieces_keep_their_order_and_large_ones_their_memory() {
        let large = Bytes::from(vec![7; REFERENCED_BYTES]);
        let mut rope = Rope::new();
        rope.push(Bytes::from_static(b"ab"));
        rope.push(large.clone());
        rope.push(large.clone());
        rope.push(Bytes::from_static(b"cd"));
        let pieces = rope.finish().unwrap();
        assert_eq!(pieces.iter().filter(|piece| piece.as_ptr() == large.as_ptr()).count(), 2);
        let all: Vec<u8> = pieces.iter().flatten().copied().collect();
        let length = 4 + 2 * REFERENCED_BYTES;
        assert_eq!(all[..5], [0, 0, 0, (length >> 8) as u8, length as u8]);
        assert_eq!((&all[5..7], &all[all.len() - 2..]), (&b"ab"[..], &b"cd"[..]));
        assert_eq!(all.len(), length + 5);
    }
}
