//! Rendezvous keys in wire form, encoded without formatting.

use bytes::{BufMut, BytesMut};
use ferroflow_core::rendezvous::RendezvousKey;
use std::borrow::Cow;

/// A key to be encoded.
pub(crate) struct KeyText<'a> {
    key: &'a RendezvousKey,
    incarnation: [u8; 16],
    iteration: Cow<'static, str>,
}

impl<'a> KeyText<'a> {
    pub(crate) fn new(key: &'a RendezvousKey) -> KeyText<'a> {
        let iteration = match (key.frame, key.iteration) {
            (0, 0) => Cow::Borrowed("0:0"),
            (frame, iteration) => Cow::Owned(format!("{frame}:{iteration}")),
        };
        KeyText { key, incarnation: hex(key.source_incarnation()), iteration }
    }

    fn parts(&self) -> [&[u8]; 5] {
        let key = self.key;
        [
            key.source().as_bytes(),
            &self.incarnation,
            key.target().as_bytes(),
            key.edge().as_bytes(),
            self.iteration.as_bytes(),
        ]
    }

    /// Returns the encoded length.
    pub(crate) fn len(&self) -> usize {
        let parts = self.parts();
        parts.iter().map(|part| part.len()).sum::<usize>() + parts.len() - 1
    }

    /// Appends the encoded key.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        for (i, part) in self.parts().into_iter().enumerate() {
            if i > 0 {
                out.put_u8(b';');
            }
            out.put_slice(part);
        }
    }
}

fn hex(number: u64) -> [u8; 16] {
    std::array::from_fn(|i| b"0123456789abcdef"[(number >> (60 - 4 * i)) as usize & 15])
}
