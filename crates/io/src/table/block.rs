//! Blocks of a table: entries that share key prefixes with their predecessor, and restart points with full keys.

use ferroflow_core::{Result, Status, status};
use prost::encoding::{decode_varint, encode_varint};

/// The number of entries between two restart points.
const RESTART_INTERVAL: usize = 16;

/// A builder of one block.
#[derive(Default)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut shared = 0;
        if self.restarts.is_empty() || self.since_restart == RESTART_INTERVAL {
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
        } else {
            shared = self.last_key.iter().zip(key).take_while(|(a, b)| a == b).count();
        }
        encode_varint(shared as u64, &mut self.bytes);
        encode_varint((key.len() - shared) as u64, &mut self.bytes);
        encode_varint(value.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.since_restart += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The current size of the block.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len().max(1) + 4
    }

    /// Returns the finished block and resets the builder.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut restarts = std::mem::take(&mut self.restarts);
        if restarts.is_empty() {
            restarts.push(0);
        }
        for restart in &restarts {
            bytes.extend_from_slice(&restart.to_le_bytes());
        }
        bytes.extend_from_slice(&(restarts.len() as u32).to_le_bytes());
        self.since_restart = 0;
        self.last_key.clear();
        bytes
    }
}

/// A block that was read, validated up to its restart points.
pub(super) struct Block {
    bytes: Vec<u8>,
    entries_end: usize,
    restarts: Vec<u32>,
}

fn corrupt() -> Status {
    status!(DataLoss, "corrupted block in the checkpoint's index table")
}

impl Block {
    pub(super) fn new(bytes: Vec<u8>) -> Result<Block> {
        let word = |at: usize| -> Result<u32> {
            let word = bytes.get(at..at + 4).ok_or_else(corrupt)?;
            Ok(u32::from_le_bytes(word.try_into().expect("four bytes")))
        };
        let count = word(bytes.len().checked_sub(4).ok_or_else(corrupt)?)? as usize;
        let trailer = count.checked_mul(4).and_then(|size| size.checked_add(4)).ok_or_else(corrupt)?;
        let entries_end = bytes.len().checked_sub(trailer).ok_or_else(corrupt)?;
        let restarts = (0..count).map(|i| word(entries_end + 4 * i)).collect::<Result<Vec<u32>>>()?;
        if restarts.iter().any(|restart| *restart as usize > entries_end) {
            return Err(corrupt());
        }
        Ok(Block { bytes, entries_end, restarts })
    }

    /// Visits entries from the last restart point before `start` on, until `visit` returns false.
    pub(super) fn scan(
        &self,
        start: Option<&[u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let mut at = match start {
            Some(start) => self.restart_before(start)?,
            None => 0,
        };
        let mut key = Vec::new();
        while at < self.entries_end {
            let (shared, tail, value, next) = self.entry(at)?;
            if shared > key.len() {
                return Err(corrupt());
            }
            key.truncate(shared);
            key.extend_from_slice(tail);
            if !visit(&key, value)? {
                break;
            }
            at = next;
        }
        Ok(())
    }

    fn restart_before(&self, target: &[u8]) -> Result<usize> {
        let (mut low, mut high) = (0, self.restarts.len());
        while high - low > 1 {
            let middle = low.midpoint(high);
            let (shared, key, _, _) = self.entry(self.restarts[middle] as usize)?;
            if shared != 0 {
                return Err(corrupt());
            }
            if key < target { low = middle } else { high = middle }
        }
        Ok(self.restarts.get(low).map_or(0, |restart| *restart as usize))
    }

    /// An entry's shared length, rest of the key, value, and the offset of the next entry.
    fn entry(&self, at: usize) -> Result<(usize, &[u8], &[u8], usize)> {
        let mut rest = self.bytes.get(at..self.entries_end).ok_or_else(corrupt)?;
        let mut number = || decode_varint(&mut rest).map_err(|_| corrupt()).map(|number| number as usize);
        let (shared, tail, value) = (number()?, number()?, number()?);
        let split = rest.split_at_checked(tail).ok_or_else(corrupt)?;
        let (tail, rest) = split;
        let (value, rest) = rest.split_at_checked(value).ok_or_else(corrupt)?;
        Ok((shared, tail, value, self.entries_end - rest.len()))
    }
}
