//! Memory for what arrives on a connection: charged before it is held, and never more than a few times what has come, so
//! that a length alone gets nothing.

use ferroflow_core::memory::{Charge, MemoryBudget};
use ferroflow_core::tensor::{Buffer, BufferPool};
use ferroflow_core::{Result, Status, status};
use std::sync::Arc;

/// Contents of fewer bytes get their memory at once.
const FIRST_BYTES: usize = 1 << 20;
/// By how much the memory of others grows whenever it is full. What was there is copied, a third of the content in all.
const GROWTH: usize = 4;

/// Where the memory for incoming messages comes from, and the budget of the connection on which they come.
pub(crate) struct Intake {
    pool: Arc<BufferPool>,
    connection: MemoryBudget,
}

impl Intake {
    /// Memory from this pool; messages on their way hold at most `limit` bytes per connection.
    pub(crate) fn new(pool: Arc<BufferPool>, limit: usize) -> Arc<Intake> {
        let connection = pool.budget().part(limit);
        Arc::new(Intake { pool, connection })
    }

    /// The same for another connection.
    pub(crate) fn for_connection(&self) -> Arc<Intake> {
        Intake::new(self.pool.clone(), self.connection.limit())
    }

    /// A charge for bytes outside the pool, none yet.
    pub(crate) fn charge(&self) -> Charge {
        self.connection.charge(0).expect("nothing can be had")
    }

    /// A charge for bytes that the pool charges to the server, none yet.
    pub(crate) fn charge_part(&self) -> Charge {
        self.connection.charge_part(0).expect("nothing can be had")
    }

    /// Memory for bytes that are at hand.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.pool.try_allocate(bytes).ok_or_else(|| no_memory(bytes))
    }

    /// Prepares for a content of this many bytes.
    pub(crate) fn expect(&self, length: usize) -> Result<Content> {
        self.expect_growing(length, length.min(FIRST_BYTES))
    }

    /// Prepares for a content that is read at once, where it is.
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
    status!(ResourceExhausted, "no memory for a tensor of {bytes} bytes that is on its way")
}

/// The content of a tensor on its way in.
pub(crate) struct Content {
    buffer: Buffer,
    pool: Arc<BufferPool>,
    length: usize,
    filled: usize,
    charge: Charge,
}

impl Content {
    /// How many bytes have yet to come.
    pub(crate) fn missing(&self) -> usize {
        self.length - self.filled
    }

    /// Room for the next bytes: some of it as long as any are missing.
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

    /// So many bytes of the room have come.
    pub(crate) fn advance(&mut self, count: usize) {
        self.filled += count;
    }

    /// Nothing has come after all.
    pub(crate) fn restart(&mut self) {
        self.filled = 0;
    }

    /// The content, which has come as a whole, and what it costs the connection.
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
        // More than any machine has; whoever announces it has yet to send it.
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
