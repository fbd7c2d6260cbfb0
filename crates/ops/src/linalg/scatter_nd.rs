//! Writing slices of a tensor by index tuples: where they go, and how updates combine with what is there.

use crate::support::index::ints;
use ferroflow_core::{Result, Shape, Tensor, bail};

/// The treatment of an index tuple that points outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadIndices {
    /// The op fails.
    Refuse,
    /// Its update is left out.
    Ignore,
}

impl BadIndices {
    /// Reads the attribute `bad_indices_policy`.
    pub(crate) fn from_policy(policy: &str) -> Result<BadIndices> {
        match policy {
            "" | "DEFAULT" | "ERROR" => Ok(BadIndices::Refuse),
            "IGNORE" => Ok(BadIndices::Ignore),
            other => bail!(InvalidArgument, "Unknown bad_indices_policy: {other}"),
        }
    }
}

/// The destinations of slices: the number of each update's slice, in slices of `slice` elements.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The slice that each update goes to; `None` leaves it out.
    pub(crate) slices: Vec<Option<usize>>,
    /// Elements per slice.
    pub(crate) slice: usize,
}

impl Places {
    /// The places that `indices` (tuples along the last dimension) name in a tensor of this shape.
    pub(crate) fn new(indices: &Tensor, shape: &Shape, bad: BadIndices) -> Result<Places> {
        let depth = indices.shape().dims().last().map_or(1, |depth| *depth as usize);
        let values = ints(indices)?;
        let slice = shape.dims()[depth..].iter().product::<i64>() as usize;
        if depth == 0 {
            // Every empty tuple names the whole tensor.
            let tuples = indices.shape().dims().iter().rev().skip(1).product::<i64>() as usize;
            return Ok(Places { slices: vec![Some(0); tuples], slice });
        }
        let mut slices = Vec::with_capacity(values.len() / depth);
        for (number, tuple) in values.chunks_exact(depth).enumerate() {
            let mut place = Some(0usize);
            for (value, dim) in tuple.iter().zip(shape.dims()) {
                place = match place {
                    Some(place) if (0..*dim).contains(value) => Some(place * *dim as usize + *value as usize),
                    _ => None,
                };
            }
            if place.is_none() && bad == BadIndices::Refuse {
                let tuple: Vec<String> = tuple.iter().map(i64::to_string).collect();
                let outer = Shape::new(indices.shape().dims()[..indices.rank().max(1) - 1].iter().copied())?;
                bail!(
                    InvalidArgument,
                    "indices{} = [{}] does not index into shape {shape}",
                    super::gather::position(&outer, number),
                    tuple.join(", ")
                );
            }
            slices.push(place);
        }
        Ok(Places { slices, slice })
    }

    /// Lets `combine` change each place's slice by its update, in order.
    pub(crate) fn apply<T>(&self, target: &mut [T], updates: &[T], combine: impl Fn(&mut [T], &[T])) {
        if self.slice == 0 {
            return;
        }
        for (place, update) in self.slices.iter().zip(updates.chunks_exact(self.slice)) {
            if let Some(place) = place {
                combine(&mut target[place * self.slice..(place + 1) * self.slice], update);
            }
        }
    }
}
