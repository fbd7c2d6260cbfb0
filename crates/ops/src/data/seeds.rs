//! Seeds of shuffled and random datasets. A generator gives every run of a dataset its seeds; runs share it through the
//! dataset, and iterators through a resource.

use crate::numeric::philox::{Philox, Words, fresh_seed};
use ferroflow_core::resource::Resource;
use std::sync::Mutex;

/// The seeds that a node gives; both 0 stand for seeds that nobody can foresee.
pub(crate) fn seeds(seed: i64, seed2: i64) -> (i64, i64) {
    if seed == 0 && seed2 == 0 { (fresh_seed() as i64, fresh_seed() as i64) } else { (seed, seed2) }
}

/// A stream of random words.
pub(crate) fn words((seed, seed2): (i64, i64)) -> Words {
    Words::new(Philox::from_seeds(seed as u64, seed2 as u64))
}

/// The seeds of one run after another.
pub(crate) enum SeedGenerator {
    /// Every run has the same.
    Fixed(i64, i64),
    /// Every run has the next two words of a stream.
    Random(Mutex<Words>),
}

impl SeedGenerator {
    /// A generator that starts from a node's seeds.
    pub(crate) fn new(seed: i64, seed2: i64, reshuffles: bool) -> SeedGenerator {
        let (seed, seed2) = seeds(seed, seed2);
        if reshuffles {
            SeedGenerator::Random(Mutex::new(words((seed, seed2))))
        } else {
            SeedGenerator::Fixed(seed, seed2)
        }
    }

    /// The seeds of the next run.
    pub(crate) fn next(&self) -> (i64, i64) {
        match self {
            SeedGenerator::Fixed(seed, seed2) => (*seed, *seed2),
            SeedGenerator::Random(words) => {
                let mut words = words.lock().expect("no panic while seeds are drawn");
                (words.next() as i64, words.next() as i64)
            }
        }
    }
}

impl Resource for SeedGenerator {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data20SeedGeneratorManagerE"
    }
}
