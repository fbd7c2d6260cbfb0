//! The elements of a queue, in the order in which they leave.

use crate::philox::{Philox, Words};
use ferroflow_core::Tensor;
use std::collections::{BTreeMap, VecDeque};

/// An element.
pub(crate) type Tuple = Vec<Tensor>;

/// In which order elements leave.
#[derive(Clone)]
pub(crate) enum Order {
    /// As they came.
    First,
    /// At random; `keep` elements stay until the queue is closed.
    Shuffled { keep: usize, seeds: (u64, u64) },
    /// The smallest first component first.
    Priority,
}

pub(super) enum Store {
    First(VecDeque<Tuple>),
    Shuffled {
        elements: Vec<Tuple>,
        keep: usize,
        words: Words,
    },
    /// By priority, then by arrival; elements that are given back come before their equals.
    Priority {
        elements: BTreeMap<(i64, i64), Tuple>,
        arrivals: i64,
        returns: i64,
    },
}

impl Store {
    pub(super) fn new(order: &Order) -> Store {
        match order {
            Order::First => Store::First(VecDeque::new()),
            Order::Shuffled { keep, seeds: (seed, seed2) } => {
                let words = Words::new(Philox::from_seeds(*seed, *seed2));
                Store::Shuffled { elements: Vec::new(), keep: *keep, words }
            }
            Order::Priority => Store::Priority { elements: BTreeMap::new(), arrivals: 0, returns: -1 },
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Store::First(elements) => elements.len(),
            Store::Shuffled { elements, .. } => elements.len(),
            Store::Priority { elements, .. } => elements.len(),
        }
    }

    /// The number of elements that may leave now.
    pub(super) fn available(&self, closed: bool) -> usize {
        match self {
            Store::Shuffled { elements, keep, .. } if !closed => elements.len().saturating_sub(*keep),
            _ => self.len(),
        }
    }

    pub(super) fn push(&mut self, tuple: Tuple) {
        match self {
            Store::First(elements) => elements.push_back(tuple),
            Store::Shuffled { elements, .. } => elements.push(tuple),
            Store::Priority { elements, arrivals, .. } => {
                elements.insert((priority(&tuple), *arrivals), tuple);
                *arrivals += 1;
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<Tuple> {
        match self {
            Store::First(elements) => elements.pop_front(),
            Store::Shuffled { elements, words, .. } => {
                if elements.is_empty() {
                    return None;
                }
                let at = words.next() as usize % elements.len();
                Some(elements.swap_remove(at))
            }
            Store::Priority { elements, .. } => elements.pop_first().map(|(_, tuple)| tuple),
        }
    }

    /// Takes back what a cancelled wait had taken, first element last.
    pub(super) fn give_back(&mut self, taken: Vec<Tuple>) {
        for tuple in taken.into_iter().rev() {
            match self {
                Store::First(elements) => elements.push_front(tuple),
                Store::Shuffled { elements, .. } => elements.push(tuple),
                Store::Priority { elements, returns, .. } => {
                    elements.insert((priority(&tuple), *returns), tuple);
                    *returns -= 1;
                }
            }
        }
    }
}

fn priority(tuple: &Tuple) -> i64 {
    tuple.first().and_then(|key| key.to_scalar::<i64>().ok()).unwrap_or_default()
}
