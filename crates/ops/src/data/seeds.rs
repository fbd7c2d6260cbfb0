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

/// The most runs of a dataset that restoring counts through.
pub(crate) const MAX_DRAWN: u64 = 1 << 24;

/// The seeds of one run after another.
pub(crate) enum SeedGenerator {
    /// Every run has the same.
    Fixed(i64, i64),
    /// Every run has the next two words of a stream.
    Random(Mutex<SeedStream>),
}

/// A stream of seeds.
pub(crate) struct SeedStream {
    seeds: (i64, i64),
    words: Words,
    /// The number of runs that have been given seeds.
    drawn: u64,
}

impl SeedStream {
    fn new(seeds: (i64, i64)) -> SeedStream {
        SeedStream { seeds, words: words(seeds), drawn: 0 }
    }

    fn draw(&mut self) -> (i64, i64) {
        self.drawn += 1;
        (self.words.next() as i64, self.words.next() as i64)
    }
}

/// The seeds that an iterator was given.
#[derive(Clone, Copy)]
pub(crate) struct DrawnSeeds {
    /// The number of their generator, in the order of first use.
    pub(crate) generator: usize,
    pub(crate) seed: i64,
    pub(crate) seed2: i64,
    /// The number of runs that the generator had given seeds to, with this one.
    pub(crate) drawn: u64,
}

impl SeedGenerator {
    /// A generator that starts from a node's seeds.
    pub(crate) fn new(seed: i64, seed2: i64, reshuffles: bool) -> SeedGenerator {
        let (seed, seed2) = seeds(seed, seed2);
        if reshuffles {
            SeedGenerator::Random(Mutex::new(SeedStream::new((seed, seed2))))
        } else {
            SeedGenerator::Fixed(seed, seed2)
        }
    }

    /// The seeds of the next run, for an iterator that can be restored: the same ones as before then.
    pub(crate) fn next(self: &Arc<Self>, cx: &IteratorCx) -> (i64, i64) {
        cx.seeds().next(self)
    }

    /// The number of words that were drawn, as stock counts them.
    pub(crate) fn place(&self) -> i64 {
        match self {
            SeedGenerator::Fixed(..) => 1,
            SeedGenerator::Random(stream) => {
                2 * stream.lock().expect("no panic while seeds are drawn").drawn as i64
            }
        }
    }

    /// Goes to where this many words were drawn, as stock counts them.
    pub(crate) fn go_to(&self, place: i64) {
        self.rewind((place.max(0) as u64 / 2).min(MAX_DRAWN));
    }

    fn draw(&self) -> (i64, i64, u64) {
        match self {
            SeedGenerator::Fixed(seed, seed2) => (*seed, *seed2, 0),
            SeedGenerator::Random(stream) => {
                let mut stream = stream.lock().expect("no panic while seeds are drawn");
                let (seed, seed2) = stream.draw();
                (seed, seed2, stream.drawn)
            }
        }
    }

    /// Goes back, or on, to where this many runs have been given seeds.
    fn rewind(&self, drawn: u64) {
        if let SeedGenerator::Random(stream) = self {
            let mut stream = stream.lock().expect("no panic while seeds are drawn");
            if stream.drawn > drawn {
                *stream = SeedStream::new(stream.seeds);
            }
            while stream.drawn < drawn {
                stream.draw();
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
    drawn: Vec<DrawnSeeds>,
    /// Seeds of an earlier run that are still to be used.
    replayed: VecDeque<DrawnSeeds>,
}

impl SeedLog {
    /// A log that first gives the seeds of an earlier run.
    pub(crate) fn replaying(drawn: Vec<DrawnSeeds>) -> SeedLog {
        SeedLog(Mutex::new(Log { replayed: drawn.into(), ..Log::default() }))
    }

    /// The seeds that were drawn.
    pub(crate) fn drawn(&self) -> Vec<DrawnSeeds> {
        self.lock().drawn.clone()
    }

    fn next(&self, source: &Arc<SeedGenerator>) -> (i64, i64) {
        let address = Arc::as_ptr(source) as usize;
        let mut log = self.lock();
        let known = log.generators.iter().position(|generator| *generator == address);
        let generator = known.unwrap_or_else(|| {
            log.generators.push(address);
            log.generators.len() - 1
        });
        let replayed = log.replayed.iter().position(|seeds| seeds.generator == generator);
        let seeds = match replayed.and_then(|at| log.replayed.remove(at)) {
            Some(replayed) => {
                // What is drawn later is what the earlier run would have drawn.
                source.rewind(replayed.drawn);
                replayed
            }
            None => {
                let (seed, seed2, drawn) = source.draw();
                DrawnSeeds { generator, seed, seed2, drawn }
            }
        };
        log.drawn.push(seeds);
        (seeds.seed, seeds.seed2)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Log> {
        self.0.lock().expect("no panic while seeds are drawn")
    }
}
