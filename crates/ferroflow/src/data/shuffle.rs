//! Shuffling through a buffer, in TensorFlow's order for the same seed.

use super::dataset::{Dataset, Elements};
use ferroflow_core::Result;
use ferroflow_ops::philox::Philox;

/// TensorFlow's graph seed where only the dataset has a seed.
const DEFAULT_GRAPH_SEED: u64 = 87_654_321;

impl<T: Send + 'static> Dataset<T> {
    /// Draws each element at random from a buffer of `size` elements. If the buffer holds all elements, every order is
    /// equally likely. Each pass has its own order; the seed determines all of them.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// # fn main() -> ferroflow::Result<()> {
    /// let shuffled = Dataset::from_fn(|| 0..100).shuffle(100, 1);
    /// assert_eq!(shuffled.collect()?, shuffled.collect()?);
    /// let second: Vec<i32> = shuffled.epoch(1).collect::<ferroflow::Result<_>>()?;
    /// assert_ne!(shuffled.collect()?, second);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shuffle(&self, size: usize, seed: u64) -> Dataset<T> {
        let source = self.clone();
        Dataset::new(move |epoch| {
            let mut seeds = Words::new(DEFAULT_GRAPH_SEED, seed);
            seeds.skip(2 * epoch);
            let words = Words::new(seeds.next() as u64, seeds.next() as u64);
            Box::new(Shuffle {
                source: source.epoch(epoch),
                buffer: Vec::new(),
                start: 0,
                size: size.max(1),
                words,
            })
        })
    }
}

struct Shuffle<T> {
    source: Elements<T>,
    /// A ring once it is full: the slots from `start` on hold elements, and `start` advances with every draw.
    buffer: Vec<Option<T>>,
    start: usize,
    size: usize,
    words: Words,
}

impl<T> Iterator for Shuffle<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        // The buffer is filled first, then one element replaces each one drawn.
        while self.buffer.len() < self.size + self.start {
            match self.source.next() {
                Some(Ok(element)) => self.buffer.push(Some(element)),
                Some(Err(status)) => return Some(Err(status)),
                None => break,
            }
        }
        let count = self.buffer.len() - self.start;
        if count == 0 {
            return None;
        }
        let drawn = self.start + self.words.next() as usize % count;
        self.buffer.swap(drawn, self.start);
        let element = self.buffer[self.start].take();
        self.start += 1;
        // Drawn slots are released in bulk, so that each element moves once on average.
        if self.start > self.size {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        element.map(Ok)
    }
}

/// Single words of a generator's blocks, in order.
struct Words {
    generator: Philox,
    block: [u32; 4],
    used: usize,
}

impl Words {
    fn new(seed: u64, seed2: u64) -> Words {
        Words { generator: Philox::from_seeds(seed, seed2), block: [0; 4], used: 4 }
    }

    fn skip(&mut self, words: u64) {
        self.generator.skip(words / 4);
        (0..words % 4).for_each(|_| {
            self.next();
        });
    }

    fn next(&mut self) -> u32 {
        if self.used == self.block.len() {
            self.block = self.generator.block();
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }
}
