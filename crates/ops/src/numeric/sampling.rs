//! Draws of integers from distributions, word by word as stock draws them: uniform below a bound, by weights that may
//! change, and by weights that are fixed.

use crate::numeric::philox::Words;

impl Words {
    /// A number in `[0, 1)`.
    pub(crate) fn next_f32(&mut self) -> f32 {
        f32::from_bits(127 << 23 | self.next() & 0x7f_ffff) - 1.0
    }

    /// A number in `[0, 1)`.
    pub(crate) fn next_f64(&mut self) -> f64 {
        let (high, low) = (self.next(), self.next());
        f64::from_bits(1023 << 52 | ((high & 0xf_ffff) as u64) << 32 | low as u64) - 1.0
    }

    /// Two words, the low one first.
    pub(crate) fn next_u64(&mut self) -> u64 {
        let (low, high) = (self.next(), self.next());
        low as u64 | (high as u64) << 32
    }

    /// A number below `bound`, every one as likely as the others; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        if bound == 0 || bound.is_power_of_two() {
            return self.next() & bound.wrapping_sub(1) & if bound == 0 { 0 } else { u32::MAX };
        }
        // So many of the lowest words are rejected that the rest is a multiple of the bound.
        let rejected = u32::MAX % bound + 1;
        loop {
            let word = self.next();
            if word >= rejected {
                return word % bound;
            }
        }
    }

    /// The same, of 64 bits.
    pub(crate) fn below_u64(&mut self, bound: u64) -> u64 {
        if bound == 0 || bound.is_power_of_two() {
            return self.next_u64() & bound.wrapping_sub(1) & if bound == 0 { 0 } else { u64::MAX };
        }
        let rejected = u64::MAX % bound + 1;
        loop {
            let word = self.next_u64();
            if word >= rejected {
                return word % bound;
            }
        }
    }
}

/// Integer weights that may change between draws: a binary tree of sums, the root first.
pub(crate) struct WeightedPicker {
    /// Node `i` has the children `2 i` and `2 i + 1`; the root is node 1. Leaves start in the middle.
    sums: Vec<i32>,
}

impl WeightedPicker {
    /// `count` weights of 1.
    pub(crate) fn new(count: usize) -> WeightedPicker {
        let leaves = count.next_power_of_two();
        let mut sums = vec![0; 2 * leaves];
        sums[leaves..leaves + count].fill(1);
        for node in (1..leaves).rev() {
            sums[node] = sums[2 * node] + sums[2 * node + 1];
        }
        WeightedPicker { sums }
    }

    /// The number of slots that a picker of this many weights keeps.
    pub(crate) fn slots(count: usize) -> usize {
        2 * count.next_power_of_two()
    }

    /// The sum of all weights.
    pub(crate) fn total(&self) -> i32 {
        self.sums[1]
    }

    /// A weight.
    pub(crate) fn weight(&self, index: usize) -> i32 {
        self.sums[self.sums.len() / 2 + index]
    }

    /// Adds 1 to a weight.
    pub(crate) fn increment(&mut self, index: usize) {
        let mut node = self.sums.len() / 2 + index;
        while node > 0 {
            self.sums[node] += 1;
            node /= 2;
        }
    }

    /// Draws an index.
    pub(crate) fn pick(&self, words: &mut Words) -> usize {
        let mut position = words.below(self.total() as u32) as i32;
        let leaves = self.sums.len() / 2;
        let mut node = 1;
        while node < leaves {
            node *= 2;
            if position >= self.sums[node] {
                position -= self.sums[node];
                node += 1;
            }
        }
        node - leaves
    }
}

/// Weights that stay as they are: the alias method, which needs two words per draw.
pub(crate) struct AliasTable {
    /// For each index, the probability of keeping it, and the one to take instead.
    entries: Vec<(f32, usize)>,
}

impl AliasTable {
    pub(crate) fn new(weights: &[f32]) -> AliasTable {
        let count = weights.len();
        let sum: f64 = weights.iter().map(|weight| *weight as f64).sum();
        // Stock multiplies in single precision.
        let share = |weight: &f32| (*weight * count as f32) as f64 / sum;
        let mut shares: Vec<f64> = weights.iter().map(share).collect();
        let mut alternatives: Vec<usize> = (0..count).collect();
        let (mut low, mut high): (Vec<usize>, Vec<usize>) = (0..count).partition(|i| shares[*i] < 1.0);
        while let (Some(poor), Some(rich)) = (low.last().copied(), high.last().copied()) {
            low.pop();
            high.pop();
            alternatives[poor] = rich;
            shares[rich] -= 1.0 - shares[poor];
            if shares[rich] < 1.0 { low.push(rich) } else { high.push(rich) }
        }
        // Rounding may leave some of either kind.
        low.into_iter().chain(high).for_each(|rest| {
            shares[rest] = 1.0;
            alternatives[rest] = rest;
        });
        AliasTable { entries: shares.iter().map(|share| *share as f32).zip(alternatives).collect() }
    }

    /// The number of weights.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Draws an index.
    pub(crate) fn pick(&self, words: &mut Words) -> usize {
        let sought = words.next_f32();
        let index = words.below(self.entries.len() as u32) as usize;
        let (share, alternative) = self.entries[index];
        if sought < share { index } else { alternative }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::philox::Philox;

    #[test]
    fn draws_follow_the_weights() {
        let mut words = Words::new(Philox::from_seeds(1, 2));
        let mut picker = WeightedPicker::new(3);
        (0..97).for_each(|_| picker.increment(1));
        assert_eq!((picker.total(), picker.weight(1)), (100, 98));
        let picked = (0..100).filter(|_| picker.pick(&mut words) == 1).count();
        assert!(picked > 85, "{picked}");
        let table = AliasTable::new(&[0.0, 1.0, 99.0]);
        let picks: Vec<usize> = (0..100).map(|_| table.pick(&mut words)).collect();
        assert!(!picks.contains(&0) && picks.iter().filter(|pick| **pick == 2).count() > 85, "{picks:?}");
        assert_eq!((words.below(1), words.below(0), words.below_u64(1)), (0, 0, 0));
    }
}
