//! Seeds of shuffled and random datasets. A generator gives every run of a dataset its seeds; runs share it through the
//! dataset, and iterators through a resource.

use super::IteratorCx;
use crate::numeric::philox::{Philox, Words, fresh_seed};
use ferroflow_core::resource::Resource;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

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

    /// The seeds of the next run, for an iterator that can be restored: the same ones as before then.
    pub(crate) fn next(self: &Arc<Self>, cx: &IteratorCx) -> (i64, i64) {
        cx.seeds().next(Arc::as_ptr(self) as usize, || self.draw())
    }

    fn draw(&self) -> (i64, i64) {
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

/// The seeds that an iterator has drawn, from which it can be run again in the same order.
#[derive(Default)]
pub(crate) struct SeedLog(Mutex<Log>);

#[derive(Default)]
struct Log {
    /// Generators in the order of their first use.
    generators: Vec<usize>,
    drawn: Vec<(usize, i64, i64)>,
    /// Seeds of an earlier run that are still to be used.
    replayed: VecDeque<(usize, i64, i64)>,
}

impl SeedLog {
    /// A log that first gives the seeds of an earlier run.
    pub(crate) fn replaying(drawn: Vec<(usize, i64, i64)>) -> SeedLog {
        SeedLog(Mutex::new(Log { replayed: drawn.into(), ..Log::default() }))
    }

    /// The seeds that were drawn, with the number of their generator.
    pub(crate) fn drawn(&self) -> Vec<(usize, i64, i64)> {
        self.lock().drawn.clone()
    }

    fn next(&self, address: usize, draw: impl FnOnce() -> (i64, i64)) -> (i64, i64) {
        let mut log = self.lock();
        let known = log.generators.iter().position(|generator| *generator == address);
        let generator = known.unwrap_or_else(|| {
            log.generators.push(address);
            log.generators.len() - 1
        });
        let replayed = log.replayed.iter().position(|(of, ..)| *of == generator);
        let replayed = replayed.and_then(|at| log.replayed.remove(at));
        let (seed, seed2) = replayed.map_or_else(draw, |(_, seed, seed2)| (seed, seed2));
        log.drawn.push((generator, seed, seed2));
        (seed, seed2)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Log> {
        self.0.lock().expect("no panic while seeds are drawn")
    }
}
