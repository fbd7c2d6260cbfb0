//! The memory of a context: many small things, charged to the task's budget in blocks, because a budget does not count
//! what is small.

use ferroflow_core::Result;
use ferroflow_core::memory::{Charge, MemoryBudget};
use std::sync::{Arc, Mutex};

/// The bytes that are charged at a time.
const BLOCK: usize = 64 << 10;

const UNPOISONED: &str = "no panic while an account is locked";

/// The account of one context.
pub(super) struct Account {
    budget: MemoryBudget,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    bytes: usize,
    blocks: Vec<Charge>,
}

/// Bytes of an account, given back when this is dropped.
pub(super) struct Share {
    account: Arc<Account>,
    bytes: usize,
    /// Charge of a large value, which is not part of a block.
    _large: Option<Charge>,
}

impl Account {
    /// An account of this budget.
    pub(super) fn new(budget: MemoryBudget) -> Arc<Account> {
        Arc::new(Account { budget, used: Mutex::default() })
    }

    /// Charges bytes that are about to be held.
    pub(super) fn charge(self: &Arc<Self>, bytes: usize) -> Result<Share> {
        let account = self.clone();
        if bytes >= BLOCK {
            return Ok(Share { account, bytes: 0, _large: Some(self.budget.charge(bytes)?) });
        }
        let mut used = self.used.lock().expect(UNPOISONED);
        if used.bytes + bytes > used.blocks.len() * BLOCK {
            used.blocks.push(self.budget.charge(BLOCK)?);
        }
        used.bytes += bytes;
        Ok(Share { account, bytes, _large: None })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.account.used.lock().expect(UNPOISONED);
        used.bytes -= self.bytes;
        // One block more than needed stays, so that a value that comes and goes costs nothing.
        while used.bytes == 0 && !used.blocks.is_empty()
            || used.blocks.len().saturating_sub(2) * BLOCK > used.bytes
        {
            used.blocks.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_things_count_together_and_are_given_back() {
        let budget = MemoryBudget::process().part(4 * BLOCK);
        let account = Account::new(budget.clone());
        let mut shares: Vec<Share> = Vec::new();
        let refused = loop {
            match account.charge(100) {
                Ok(share) => shares.push(share),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused.code(), ferroflow_core::Code::ResourceExhausted);
        assert!(shares.len() >= 4 * BLOCK / 100 - 1 && budget.held() == 4 * BLOCK);
        assert!(account.charge(2 * BLOCK).is_err());
        shares.truncate(10);
        assert!(budget.held() <= 2 * BLOCK);
        drop(account.charge(2 * BLOCK).unwrap());
        drop(shares);
        assert_eq!(budget.held(), 0);
    }
}
