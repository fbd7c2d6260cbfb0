//! Memory for incoming messages. It is charged before it is allocated and stays within a small multiple of the bytes
//! that have arrived, so that announcing a length costs nothing.

use ferroflow_core::memory::{Charge, MemoryBudget};
use ferroflow_core::tensor::{Buffer, BufferPool};
use ferroflow_core::{Result, Status, status};
use std::sync::Arc;

/// Contents up to this size get their memory at once.
const FIRST_BYTES: usize = 1 << 20;
/// The factor by which larger contents grow when their memory is full. Copying what has arrived costs a third of the
/// content in all.
const GROWTH: usize = 4;

/// A source of memory for incoming messages, with the budget of one connection.
pub(crate) struct Intake {
    pool: Arc<BufferPool>,
    connection: MemoryBudget,
}

impl Intake {
    /// Creates a source that takes memory from this pool and limits messages in flight to `limit` bytes per connection.
    pub(crate) fn new(pool: Arc<BufferPool>, limit: usize) -> Arc<Intake> {
        let connection = pool.budget().part(limit);
        Arc::new(Intake { pool, connection })
    }

    /// Creates a source with the same limit for another connection.
    pub(crate) fn for_connection(&self) -> Arc<Intake> {
        Intake::new(self.pool.clone(), self.connection.limit())
    }

    /// Returns an empty charge for bytes outside the pool.
    pub(crate) fn charge(&self) -> Charge {
        self.connection.charge(0).expect("a charge of nothing always fits")
    }

    /// Returns an empty charge for bytes that the pool charges to the server as well.
    pub(crate) fn charge_part(&self) -> Charge {
        self.connection.charge_part(0).expect("a charge of nothing always fits")
    }

    /// Allocates memory for bytes that have arrived.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.pool.try_allocate(bytes).ok_or_else(|| no_memory(bytes))
    }

    /// Prepares for a content of this many bytes.
    pub(crate) fn expect(&self, length: usize) -> Result<Content> {
        self.expect_growing(length, length.min(FIRST_BYTES))
    }

    /// Prepares for a content that is read at once from the peer's memory.
    pub(crate) fn expect_whole(&self, length: usize) -> Result<Content> {
        self.expect_growing(length, length)
    }

    fn expect_growing(&self, length: usize, first: usize) -> Result<Content> {
        let mut charge = self.charge_part();
        charge.add(first)?;
        Ok(Content { buffer: self.allocate(first)?, pool: self.pool.clone(), length, filled: 0, charge })
    }
}

fn no_memory(bytes: usize) -> Status {
    status!(ResourceExhausted, "no memory for an incoming tensor of {bytes} bytes")
}

/// The content of an incoming tensor.
pub(crate) struct Content {
    buffer: Buffer,
    pool: Arc<BufferPool>,
    length: usize,
    filled: usize,
    charge: Charge,
}

impl Content {
    /// Returns the number of bytes that have not arrived yet.
    pub(crate) fn missing(&self) -> usize {
        self.length - self.filled
    }

    /// Returns space for the next bytes; it is empty only if the content is complete.
    pub(crate) fn room(&mut self) -> Result<&mut [u8]> {
        if self.filled == self.buffer.len() && self.filled < self.length {
            let larger = self.buffer.len().saturating_mul(GROWTH).min(self.length);
            self.charge.add(larger - self.buffer.len())?;
            let mut buffer = self.pool.try_allocate(larger).ok_or_else(|| no_memory(self.length))?;
            buffer.make_mut()[..self.filled].copy_from_slice(self.buffer.as_slice());
            self.buffer = buffer;
        }
        Ok(&mut self.buffer.make_mut()[self.filled..])
    }

    /// Marks this many bytes of the space as filled.
    pub(crate) fn advance(&mut self, count: usize) {
        self.filled += count;
    }

    /// Discards what has arrived.
    pub(crate) fn restart(&mut self) {
        self.filled = 0;
    }

    /// Returns the complete content and its charge.
    pub(crate) fn finish(self) -> (Buffer, Charge) {
        (self.buffer, self.charge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;

    fn intake(limit: usize) -> Arc<Intake> {
        Intake::new(BufferPool::new(1 << 20), limit)
    }

    #[test]
    fn memory_follows_what_has_come() {
        let intake = intake(usize::MAX);
        // More than any machine has, but only announced.
        let mut content = intake.expect(1 << 45).unwrap();
        assert_eq!(intake.connection.held(), FIRST_BYTES);
        let length = 3 * FIRST_BYTES + 5;
        let mut real = intake.expect(length).unwrap();
        for byte in 0..length {
            real.room().unwrap()[0] = byte as u8;
            real.advance(1);
        }
        assert_eq!((real.missing(), real.room().unwrap().len()), (0, 0));
        let (buffer, charge) = real.finish();
        assert_eq!(buffer.len(), length);
        assert!(buffer.as_slice().iter().enumerate().all(|(at, byte)| *byte == at as u8));
        drop(charge);
        content.advance(FIRST_BYTES);
        content.room().unwrap();
        assert!(intake.connection.held() <= GROWTH * FIRST_BYTES);
        drop(content);
        assert_eq!(intake.connection.held(), 0);
    }

    #[test]
    fn a_connection_has_a_limit_of_its_own() {
        let intake = intake(2 << 20);
        let first = intake.expect(1 << 30).unwrap();
        let second = intake.expect(1 << 30).unwrap();
        assert_eq!(intake.expect(1 << 30).err().map(|error| error.code()), Some(Code::ResourceExhausted));
        assert!(intake.for_connection().expect(1 << 30).is_ok(), "others have their own");
        drop((first, second));
        let mut content = intake.expect(1 << 30).unwrap();
        content.advance(FIRST_BYTES);
        assert_eq!(content.room().unwrap_err().code(), Code::ResourceExhausted);
    }
}
