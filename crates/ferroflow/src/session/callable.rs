//! Steps that are prepared once and run repeatedly.

use super::connection::Connection;
use super::options::RunOptions;
use ferroflow_core::scope::Output;
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, status};
use ferroflow_proto::tensorflow::RunMetadata;
use std::sync::Arc;

/// A prepared step, made by [`Session::prepare`](super::Session::prepare). It keeps its session open.
pub struct Callable {
    connection: Arc<Connection>,
    handle: i64,
    feeds: Vec<Feed>,
    /// Position of each fetch among the distinct ones: TensorFlow's masters return a repeated fetch only once.
    positions: Vec<usize>,
}

/// Expected type and shape of a feed.
struct Feed {
    name: String,
    dtype: DType,
    shape: PartialShape,
}

impl Callable {
    pub(super) fn new(
        connection: &Arc<Connection>,
        feeds: &[&Output],
        fetches: Vec<String>,
        targets: Vec<String>,
        options: &RunOptions,
    ) -> Result<Callable> {
        let feeds: Vec<Feed> = feeds
            .iter()
            .map(|output| Feed { name: output.name(), dtype: output.dtype(), shape: output.shape() })
            .collect();
        let names = feeds.iter().map(|feed| feed.name.clone()).collect();
        let mut distinct: Vec<String> = Vec::with_capacity(fetches.len());
        let mut positions = Vec::with_capacity(fetches.len());
        for fetch in fetches {
            let known = distinct.iter().position(|name| *name == fetch);
            positions.push(known.unwrap_or(distinct.len()));
            if known.is_none() {
                distinct.push(fetch);
            }
        }
        let handle = connection.make_callable(names, distinct, targets, options)?;
        Ok(Callable { connection: connection.clone(), handle, feeds, positions })
    }

    /// Runs the step with these values, in the order of its feeds, and returns tensors in the order of its fetches.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number, a type or a shape of the values does not fit; otherwise the first error of a node.
    pub fn run(&self, feeds: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(self.run_with_metadata(feeds)?.0)
    }

    /// Runs the step, and also returns the metadata that its options asked for.
    pub fn run_with_metadata(&self, feeds: &[Tensor]) -> Result<(Vec<Tensor>, RunMetadata)> {
        ensure!(
            feeds.len() == self.feeds.len(),
            InvalidArgument,
            "a prepared step has {} feeds, but got {} values",
            self.feeds.len(),
            feeds.len()
        );
        for (feed, value) in self.feeds.iter().zip(feeds) {
            ensure!(
                feed.dtype == value.dtype() && feed.shape.admits(value.shape()),
                InvalidArgument,
                "cannot feed a {} of shape {} for '{}', which is a {} of shape {}",
                value.dtype(),
                value.shape(),
                feed.name,
                feed.dtype,
                feed.shape
            );
        }
        let (values, metadata) = self.connection.run_callable(self.handle, feeds.to_vec())?;
        let missing = || status!(Internal, "the master did not return all fetches of a prepared step");
        let value = |position: &usize| values.get(*position).cloned().ok_or_else(missing);
        Ok((self.positions.iter().map(value).collect::<Result<_>>()?, metadata))
    }
}

impl Drop for Callable {
    fn drop(&mut self) {
        self.connection.release_callable(self.handle);
    }
}
