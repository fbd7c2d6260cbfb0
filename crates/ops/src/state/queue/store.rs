//! The elements of a queue, in the order in which they leave.

use super::heap::Heap;
use crate::numeric::philox::{Philox, Words, fresh_seed};
use ferroflow_core::Tensor;
use std::collections::VecDeque;

/// An element.
pub(crate) type Tuple = Vec<Tensor>;

/// In which order elements leave.
#[derive(Clone)]
pub(crate) enum Order {
    /// As they came.
    First,
    /// At random; `keep` elements stay until the queue is closed. Seeds that are both zero stand for others.
    Shuffled { keep: usize, seeds: (i64, i64) },
    /// The smallest first component first.
    Priority,
}

/// The elements and what they weigh.
pub(super) struct Store {
    elements: Elements,
    bytes: usize,
}

enum Elements {
    First(VecDeque<Tuple>),
    Shuffled { elements: Vec<Tuple>, keep: usize, words: Words },
    Priority(Heap<Tuple>),
}

impl Store {
    pub(super) fn new(order: &Order) -> Store {
        let elements = match order {
            Order::First => Elements::First(VecDeque::new()),
            Order::Shuffled { keep, seeds: (seed, seed2) } => {
                let chosen = if (*seed, *seed2) == (0, 0) {
                    (fresh_seed(), fresh_seed())
                } else {
                    (*seed as u64, *seed2 as u64)
                };
                let words = Words::new(Philox::from_seeds(chosen.0, chosen.1));
                Elements::Shuffled { elements: Vec::new(), keep: *keep, words }
            }
            Order::Priority => Elements::Priority(Heap::default()),
        };
        Store { elements, bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        match &self.elements {
            Elements::First(elements) => elements.len(),
            Elements::Shuffled { elements, .. } => elements.len(),
            Elements::Priority(elements) => elements.len(),
        }
    }

    /// The bytes of all elements.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of elements that may leave now.
    pub(super) fn available(&self, closed: bool) -> usize {
        match &self.elements {
            Elements::Shuffled { elements, keep, .. } if !closed => elements.len().saturating_sub(*keep),
            _ => self.len(),
        }
    }

    /// Whether a batch may be gathered over time. Elements by priority leave together, or the batch would not be sorted.
    pub(super) fn leaves_in_parts(&self) -> bool {
        !matches!(self.elements, Elements::Priority(_))
    }

    pub(super) fn push(&mut self, tuple: Tuple) {
        self.bytes += weight(&tuple);
        match &mut self.elements {
            Elements::First(elements) => elements.push_back(tuple),
            Elements::Shuffled { elements, .. } => elements.push(tuple),
            Elements::Priority(elements) => elements.push(priority(&tuple), tuple),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Tuple> {
        let popped = match &mut self.elements {
            Elements::First(elements) => elements.pop_front(),
            Elements::Shuffled { elements, words, .. } => {
                if elements.is_empty() {
                    return None;
                }
                let at = words.next() as usize % elements.len();
                Some(elements.swap_remove(at))
            }
            Elements::Priority(elements) => elements.pop(),
        };
        self.bytes -= popped.as_ref().map_or(0, weight);
        popped
    }

    /// The element that leaves after `index` others; only where that is known.
    pub(super) fn peek(&self, index: usize) -> Option<&Tuple> {
        match &self.elements {
            Elements::First(elements) => elements.get(index),
            _ => None,
        }
    }

    /// Takes back what a cancelled wait had taken, first element last.
    pub(super) fn give_back(&mut self, taken: Vec<Tuple>) {
        for tuple in taken.into_iter().rev() {
            self.bytes += weight(&tuple);
            match &mut self.elements {
                Elements::First(elements) => elements.push_front(tuple),
                Elements::Shuffled { elements, .. } => elements.push(tuple),
                Elements::Priority(elements) => elements.push(priority(&tuple), tuple),
            }
        }
    }
}

/// The bytes of an element.
pub(super) fn weight(tuple: &Tuple) -> usize {
    tuple.iter().map(Tensor::byte_size).sum()
}

fn priority(tuple: &Tuple) -> i64 {
    tuple.first().and_then(|key| key.to_scalar::<i64>().ok()).unwrap_or_default()
}
