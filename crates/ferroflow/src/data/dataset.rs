//! The dataset type, and the transformations that run on the consumer's thread.

use super::stack::{Slices, Stack};
use ferroflow_core::{Result, bail, status};
use std::sync::{Arc, Mutex};

/// Elements of one pass over a dataset. An error is an element too: iteration can go on after it, unless the source itself
/// is broken, in which case it ends there.
pub type Elements<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// A recipe for elements, which can be iterated any number of times. Cloning shares the recipe. See the [module](super)
/// for an example.
pub struct Dataset<T> {
    open: Arc<dyn Fn(u64) -> Elements<T> + Send + Sync>,
}

impl<T> Clone for Dataset<T> {
    fn clone(&self) -> Dataset<T> {
        Dataset { open: self.open.clone() }
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// Creates a dataset from a function that opens a pass, given its number.
    pub(super) fn new(open: impl Fn(u64) -> Elements<T> + Send + Sync + 'static) -> Dataset<T> {
        Dataset { open: Arc::new(open) }
    }

    /// Creates a dataset from a function that makes an iterator, which is called once per pass.
    pub fn from_fn<I>(make: impl Fn() -> I + Send + Sync + 'static) -> Dataset<T>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        Dataset::new(move |_| Box::new(make().into_iter().map(Ok)))
    }

    /// Creates a dataset from a function that makes an iterator of results, which is called once per pass.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// # fn main() -> ferroflow::Result<()> {
    /// let lines = Dataset::try_from_fn(|| ["1", "2"].map(|text| Ok(text.to_owned())));
    /// assert_eq!(lines.collect()?, ["1", "2"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_from_fn<I>(make: impl Fn() -> I + Send + Sync + 'static) -> Dataset<T>
    where
        I: IntoIterator<Item = Result<T>>,
        I::IntoIter: Send + 'static,
    {
        Dataset::new(move |_| Box::new(make().into_iter()))
    }

    /// Creates a dataset from an existing iterator. There is one pass: a second one is a `FailedPrecondition` error.
    pub fn once<I>(iterator: I) -> Dataset<T>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        let iterator = Mutex::new(Some(iterator.into_iter()));
        Dataset::new(move |_| match iterator.lock().expect("nothing panics under this lock").take() {
            Some(iterator) => Box::new(iterator.map(Ok)),
            None => failed(|| {
                bail!(
                    FailedPrecondition,
                    "a dataset made by Dataset::once was iterated twice; use Dataset::from_fn to make its iterator for every pass"
                )
            }),
        })
    }

    /// Creates a dataset of the elements of a vector.
    pub fn from_vec(elements: Vec<T>) -> Dataset<T>
    where
        T: Clone + Sync,
    {
        let elements: Arc<[T]> = elements.into();
        Dataset::new(move |_| {
            let elements = elements.clone();
            Box::new((0..elements.len()).map(move |i| Ok(elements[i].clone())))
        })
    }

    /// Creates a dataset of the slices of tensors along their first dimension: rows of one tensor, or tuples and maps of
    /// rows.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::Tensor;
    /// # fn main() -> ferroflow::Result<()> {
    /// let images = Tensor::new([3, 2], vec![0.0f32, 0.1, 1.0, 1.1, 2.0, 2.1])?;
    /// let labels = Tensor::vector(vec![0i64, 1, 2]);
    /// let examples = Dataset::from_slices((images, labels))?.collect()?;
    /// assert_eq!(examples[1].0.flat::<f32>()?, [1.0, 1.1]);
    /// assert_eq!(examples[1].1.to_scalar::<i64>()?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_slices<S>(slices: S) -> Result<Dataset<T>>
    where
        S: Slices<Item = T> + Send + Sync + 'static,
    {
        let count = slices.count()?;
        let slices = Arc::new(slices);
        Ok(Dataset::new(move |_| {
            let slices = slices.clone();
            Box::new((0..count).map(move |i| slices.slice(i)))
        }))
    }

    /// Returns the elements of the first pass.
    pub fn iter(&self) -> Elements<T> {
        self.epoch(0)
    }

    /// Returns the elements of pass `number`. Shuffled datasets have another order in every pass. [`Dataset::repeat`]
    /// joins passes 0, 1, and so on.
    pub fn epoch(&self, number: u64) -> Elements<T> {
        (self.open)(number)
    }

    /// Returns all elements of the first pass, or its first error.
    pub fn collect(&self) -> Result<Vec<T>> {
        self.iter().collect()
    }

    /// Applies `f` to every element.
    pub fn map<U: Send + 'static>(&self, f: impl Fn(T) -> U + Send + Sync + 'static) -> Dataset<U> {
        self.try_map(move |element| Ok(f(element)))
    }

    /// Applies `f`, which may fail, to every element.
    pub fn try_map<U: Send + 'static>(
        &self,
        f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let f = Arc::new(f);
        self.adapt(move |elements| {
            let f = f.clone();
            elements.map(move |element| f(element?))
        })
    }

    /// Keeps the elements for which `keep` returns `true`.
    pub fn filter(&self, keep: impl Fn(&T) -> bool + Send + Sync + 'static) -> Dataset<T> {
        let keep = Arc::new(keep);
        self.adapt(move |elements| {
            let keep = keep.clone();
            elements.filter(move |element| element.as_ref().map_or(true, |element| keep(element)))
        })
    }

    /// Keeps the first `count` elements.
    pub fn take(&self, count: usize) -> Dataset<T> {
        self.adapt(move |elements| elements.take(count))
    }

    /// Drops the first `count` elements.
    pub fn skip(&self, count: usize) -> Dataset<T> {
        self.adapt(move |elements| elements.skip(count))
    }

    /// Pairs every element with its number, from 0.
    pub fn enumerate(&self) -> Dataset<(u64, T)> {
        self.adapt(|elements| {
            let mut number = 0;
            elements.map(move |element| {
                let element = element?;
                number += 1;
                Ok((number - 1, element))
            })
        })
    }

    /// Pairs elements with those of another dataset, until either ends.
    pub fn zip<U: Send + 'static>(&self, other: &Dataset<U>) -> Dataset<(T, U)> {
        let (left, right) = (self.clone(), other.clone());
        Dataset::new(move |epoch| {
            Box::new(left.epoch(epoch).zip(right.epoch(epoch)).map(|(left, right)| Ok((left?, right?))))
        })
    }

    /// Appends the elements of another dataset.
    pub fn chain(&self, other: &Dataset<T>) -> Dataset<T> {
        let (first, second) = (self.clone(), other.clone());
        Dataset::new(move |epoch| {
            let second = second.clone();
            let rest = std::iter::once_with(move || second.epoch(epoch)).flatten();
            Box::new(first.epoch(epoch).chain(rest))
        })
    }

    /// Keeps every `shards`th element from number `index` on, so that workers `0..shards` divide the elements among them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `index` is not less than `shards`.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// # fn main() -> ferroflow::Result<()> {
    /// let worker_1 = Dataset::from_fn(|| 0..7).shard(3, 1)?;
    /// assert_eq!(worker_1.collect()?, [1, 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shard(&self, shards: usize, index: usize) -> Result<Dataset<T>> {
        if index >= shards {
            bail!(InvalidArgument, "Index must be between 0 and {}, got {index}", shards as i64 - 1);
        }
        Ok(self.adapt(move |elements| elements.skip(index).step_by(shards)))
    }

    /// Repeats passes without end.
    pub fn repeat(&self) -> Dataset<T> {
        self.repeated(u64::MAX)
    }

    /// Repeats `count` passes.
    pub fn repeat_times(&self, count: usize) -> Dataset<T> {
        self.repeated(count as u64)
    }

    fn repeated(&self, count: u64) -> Dataset<T> {
        let source = self.clone();
        Dataset::new(move |epoch| {
            let source = source.clone();
            let passes = (0..count).map(move |pass| epoch.wrapping_mul(count).wrapping_add(pass));
            let mut empty = false;
            // A pass without elements would be followed by others like it, forever.
            let passes = passes.map_while(move |pass| {
                let mut elements = (!empty).then(|| source.epoch(pass))?.peekable();
                empty = elements.peek().is_none();
                (!empty).then_some(elements)
            });
            Box::new(passes.flatten())
        })
    }

    /// Stacks groups of `size` elements; the last group may be smaller.
    pub fn batch(&self, size: usize) -> Dataset<T::Batch>
    where
        T: Stack,
    {
        self.grouped(size, false, T::stack)
    }

    /// Stacks groups of exactly `size` elements and drops the rest at the end.
    pub fn batch_exact(&self, size: usize) -> Dataset<T::Batch>
    where
        T: Stack,
    {
        self.grouped(size, true, T::stack)
    }

    /// Stacks groups of `size` elements after padding their tensors with zeros or empty strings to the largest size in each
    /// dimension.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// # fn main() -> ferroflow::Result<()> {
    /// let words = Dataset::from_vec(vec![vec![1i64], vec![2, 3]]);
    /// assert_eq!(words.padded_batch(2).collect()?[0].flat::<i64>()?, [1, 0, 2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn padded_batch(&self, size: usize) -> Dataset<T::Batch>
    where
        T: Stack,
    {
        self.grouped(size, false, T::stack_padded)
    }

    fn grouped<B: Send + 'static>(
        &self,
        size: usize,
        exact: bool,
        stack: fn(Vec<T>) -> Result<B>,
    ) -> Dataset<B> {
        if size == 0 {
            let refused =
                || status!(InvalidArgument, "cannot make batches of 0 elements; the size must be at least 1");
            return Dataset::new(move |_| failed(move || Err(refused())));
        }
        self.adapt(move |mut elements| {
            std::iter::from_fn(move || {
                let group: Result<Vec<T>> = elements.by_ref().take(size).collect();
                match group {
                    Ok(group) if group.is_empty() || exact && group.len() < size => None,
                    group => Some(group.and_then(stack)),
                }
            })
        })
    }

    /// Splits every element into its slices along the first dimension: the reverse of [`Dataset::batch`].
    pub fn unbatch(&self) -> Dataset<T::Item>
    where
        T: Slices + Sync,
        T::Item: Send + 'static,
    {
        self.adapt(|batches| {
            batches.flat_map(|batch| -> Elements<T::Item> {
                match batch.and_then(|batch| Ok((batch.count()?, batch))) {
                    Ok((count, batch)) => Box::new((0..count).map(move |i| batch.slice(i))),
                    Err(status) => failed(move || Err(status)),
                }
            })
        })
    }

    /// Creates a dataset by transforming the passes of this one.
    pub(super) fn adapt<U, I>(&self, f: impl Fn(Elements<T>) -> I + Send + Sync + 'static) -> Dataset<U>
    where
        U: Send + 'static,
        I: Iterator<Item = Result<U>> + Send + 'static,
    {
        let source = self.clone();
        Dataset::new(move |epoch| Box::new(f(source.epoch(epoch))))
    }
}

/// Returns a pass with one error and nothing else.
pub(super) fn failed<T: Send + 'static>(fail: impl FnOnce() -> Result<T> + Send + 'static) -> Elements<T> {
    Box::new(std::iter::once_with(fail))
}

impl<T: Send + 'static> IntoIterator for &Dataset<T> {
    type Item = Result<T>;
    type IntoIter = Elements<T>;

    fn into_iter(self) -> Elements<T> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;

    fn numbers(end: i64) -> Dataset<i64> {
        Dataset::from_fn(move || 0..end)
    }

    #[test]
    fn elements_pass_through_transformations_in_order() {
        let pairs = numbers(6).filter(|x| x % 2 == 0).map(|x| x * 10).enumerate().skip(1).collect().unwrap();
        assert_eq!(pairs, [(1, 20), (2, 40)]);
        let zipped = numbers(3).zip(&numbers(9).skip(5)).take(2).collect().unwrap();
        assert_eq!(zipped, [(0, 5), (1, 6)]);
        assert_eq!(numbers(2).chain(&numbers(1)).collect().unwrap(), [0, 1, 0]);
    }

    #[test]
    fn repeating_ends_when_there_is_nothing_to_repeat() {
        assert_eq!(numbers(2).repeat_times(2).collect().unwrap(), [0, 1, 0, 1]);
        assert!(numbers(0).repeat().collect().unwrap().is_empty());
        assert_eq!(numbers(2).repeat().take(5).collect().unwrap(), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn the_last_batch_may_be_smaller_or_dropped() {
        let sizes = |batches: Dataset<crate::Tensor>| -> Vec<usize> {
            batches.iter().map(|batch| batch.unwrap().elements()).collect()
        };
        assert_eq!(sizes(numbers(5).batch(2)), [2, 2, 1]);
        assert_eq!(sizes(numbers(5).batch_exact(2)), [2, 2]);
        assert_eq!(numbers(5).batch(2).unbatch().collect().unwrap().len(), 5);
    }

    #[test]
    fn a_second_pass_over_one_iterator_is_an_error() {
        let once = Dataset::once(vec![1, 2]);
        assert_eq!(once.collect().unwrap(), [1, 2]);
        assert_eq!(once.collect().unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(numbers(3).shard(2, 2).err().unwrap().code(), Code::InvalidArgument);
    }

    #[test]
    fn an_error_is_one_element() {
        let odd = numbers(4).try_map(|x| if x == 1 { bail!(InvalidArgument, "one") } else { Ok(x) });
        let good: Vec<i64> = odd.iter().flatten().collect();
        assert_eq!(good, [0, 2, 3]);
        assert_eq!(odd.batch(2).iter().filter(Result::is_err).count(), 1);
    }
}
