//! Several datasets read in turns.

use super::dataset::{Dataset, Elements, failed};
use ferroflow_core::Result;
use std::collections::VecDeque;
use std::sync::Arc;

impl<T: Send + 'static> Dataset<T> {
    /// Opens a dataset for every element and takes `block` elements from each of up to `cycle` open datasets in turn. When
    /// one ends, the next takes its turn.
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

    /// Like [`Dataset::interleave`], but reads each open dataset ahead on a background thread. The order is the same.
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
    unopened: Box<dyn Iterator<Item = Elements<U>> + Send>,
    /// Slots of the cycle; an empty one is filled when its turn comes.
    open: VecDeque<Option<Elements<U>>>,
    block: usize,
    /// Number of elements that the first slot may still give.
    left: usize,
}

impl<U> Interleave<U> {
    fn new(
        unopened: Box<dyn Iterator<Item = Elements<U>> + Send>,
        cycle: usize,
        block: usize,
    ) -> Interleave<U> {
        Interleave { unopened, open: (0..cycle).map(|_| None).collect(), block, left: block }
    }

    fn next_slot(&mut self) {
        self.open.rotate_left(1);
        self.left = self.block;
    }
}

impl<U> Iterator for Interleave<U> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        loop {
            let slot = self.open.front_mut()?;
            if slot.is_none() {
                *slot = self.unopened.next();
            }
            let Some(elements) = slot else {
                // All datasets are open or have ended: the cycle becomes smaller.
                self.open.pop_front();
                self.left = self.block;
                continue;
            };
            if self.left == 0 {
                self.next_slot();
                continue;
            }
            match elements.next() {
                Some(element) => {
                    self.left -= 1;
                    return Some(element);
                }
                None => {
                    *slot = None;
                    self.next_slot();
                }
            }
        }
    }
}
