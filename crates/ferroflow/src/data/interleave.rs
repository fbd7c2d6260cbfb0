//! Several datasets read in turn.

use super::dataset::{Dataset, Elements, failed};
use ferroflow_core::Result;
use std::collections::VecDeque;
use std::sync::Arc;

impl<T: Send + 'static> Dataset<T> {
    /// Opens a dataset for every element and takes `block` elements from each of up to `cycle` open ones in turn; one
    /// that ends gives its place to the next.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// # fn main() -> ferroflow::Result<()> {
    /// let mixed = Dataset::from_vec(vec![1, 2, 3]).interleave(2, 1, |x| Ok(Dataset::from_vec(vec![x; 2])));
    /// assert_eq!(mixed.collect()?, [1, 2, 1, 2, 3, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn interleave<U: Send + 'static>(
        &self,
        cycle: usize,
        block: usize,
        f: impl Fn(T) -> Result<Dataset<U>> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let (source, f) = (self.clone(), Arc::new(f));
        Dataset::new(move |epoch| {
            let f = f.clone();
            let opened = source.epoch(epoch).map(move |element| -> Elements<U> {
                match element.and_then(|element| f(element)) {
                    Ok(dataset) => dataset.epoch(epoch),
                    Err(status) => failed(move || Err(status)),
                }
            });
            Box::new(Interleave::new(Box::new(opened), cycle.max(1), block.max(1)))
        })
    }

    /// Like [`Dataset::interleave`], with the open datasets read ahead on a background thread each. The order is the
    /// same.
    pub fn par_interleave<U: Send + 'static>(
        &self,
        cycle: usize,
        block: usize,
        f: impl Fn(T) -> Result<Dataset<U>> + Send + Sync + 'static,
    ) -> Dataset<U> {
        self.interleave(cycle, block, move |element| Ok(f(element)?.prefetch(block.max(1))))
    }
}

struct Interleave<U> {
    waiting: Box<dyn Iterator<Item = Elements<U>> + Send>,
    /// The places of the cycle; an empty one is filled when its turn comes.
    open: VecDeque<Option<Elements<U>>>,
    block: usize,
    /// Elements that the first place may still give.
    left: usize,
}

impl<U> Interleave<U> {
    fn new(
        waiting: Box<dyn Iterator<Item = Elements<U>> + Send>,
        cycle: usize,
        block: usize,
    ) -> Interleave<U> {
        Interleave { waiting, open: (0..cycle).map(|_| None).collect(), block, left: block }
    }

    fn turn(&mut self) {
        self.open.rotate_left(1);
        self.left = self.block;
    }
}

impl<U> Iterator for Interleave<U> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        loop {
            let place = self.open.front_mut()?;
            if place.is_none() {
                *place = self.waiting.next();
            }
            let Some(elements) = place else {
                // Nothing waits any more: the cycle becomes smaller.
                self.open.pop_front();
                self.left = self.block;
                continue;
            };
            if self.left == 0 {
                self.turn();
                continue;
            }
            match elements.next() {
                Some(element) => {
                    self.left -= 1;
                    return Some(element);
                }
                None => {
                    *place = None;
                    self.turn();
                }
            }
        }
    }
}
