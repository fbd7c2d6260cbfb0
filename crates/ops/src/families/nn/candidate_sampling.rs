//! Candidate samplers: classes drawn for losses over many classes, each with the number of times it was to be expected.

use crate::numeric::philox::{KernelStream, Words};
use crate::numeric::sampling::{AliasTable, WeightedPicker};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::step::StepCx;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels, status};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

pub(crate) const OPS: &[&Op] = &[
    &UNIFORM_CANDIDATE_SAMPLER,
    &LOG_UNIFORM_CANDIDATE_SAMPLER,
    &LEARNED_UNIGRAM_CANDIDATE_SAMPLER,
    &THREAD_UNSAFE_UNIGRAM_CANDIDATE_SAMPLER,
    &FIXED_UNIGRAM_CANDIDATE_SAMPLER,
    &ALL_CANDIDATE_SAMPLER,
    &COMPUTE_ACCIDENTAL_HITS,
];

static UNIFORM_CANDIDATE_SAMPLER: Op = Op {
    name: "UniformCandidateSampler",
    inputs: &["true_classes: int64"],
    outputs: &["sampled_candidates: int64", "true_expected_count: float", "sampled_expected_count: float"],
    attrs: &[
        "num_true: int >= 1",
        "num_sampled: int >= 1",
        "unique: bool",
        "range_max: int >= 1",
        "seed: int = 0",
        "seed2: int = 0",
    ],
    shape: sampler_shape,
    kernels: kernels![any uniform_kernel],
    accuracy: Accuracy::Random,
    restartable: true,
    ..Op::STATEFUL
};

static LOG_UNIFORM_CANDIDATE_SAMPLER: Op = Op {
    name: "LogUniformCandidateSampler",
    kernels: kernels![any log_uniform_kernel],
    ..UNIFORM_CANDIDATE_SAMPLER
};

static LEARNED_UNIGRAM_CANDIDATE_SAMPLER: Op = Op {
    name: "LearnedUnigramCandidateSampler",
    kernels: kernels![any learned_kernel],
    ..UNIFORM_CANDIDATE_SAMPLER
};

/// The same: a lock that nobody else wants costs nothing.
static THREAD_UNSAFE_UNIGRAM_CANDIDATE_SAMPLER: Op =
    Op { name: "ThreadUnsafeUnigramCandidateSampler", ..LEARNED_UNIGRAM_CANDIDATE_SAMPLER };

static FIXED_UNIGRAM_CANDIDATE_SAMPLER: Op = Op {
    name: "FixedUnigramCandidateSampler",
    attrs: &[
        "num_true: int >= 1",
        "num_sampled: int >= 1",
        "unique: bool",
        "range_max: int >= 1",
        "vocab_file: string = ''",
        "distortion: float = 1.0",
        "num_reserved_ids: int = 0",
        "num_shards: int >= 1 = 1",
        "shard: int >= 0 = 0",
        "unigrams: list(float) = []",
        "seed: int = 0",
        "seed2: int = 0",
    ],
    kernels: kernels![any fixed_kernel],
    ..UNIFORM_CANDIDATE_SAMPLER
};

static ALL_CANDIDATE_SAMPLER: Op = Op {
    name: "AllCandidateSampler",
    attrs: &[
        "num_true: int >= 1",
        "num_sampled: int >= 1",
        "unique: bool",
        "seed: int = 0",
        "seed2: int = 0",
    ],
    kernels: kernels![any all_kernel],
    accuracy: Accuracy::Exact,
    ..UNIFORM_CANDIDATE_SAMPLER
};

static COMPUTE_ACCIDENTAL_HITS: Op = Op {
    name: "ComputeAccidentalHits",
    inputs: &["true_classes: int64", "sampled_candidates: int64"],
    outputs: &["indices: int32", "ids: int64", "weights: float"],
    attrs: &["num_true: int", "seed: int = 0", "seed2: int = 0"],
    shape: hits_shape,
    kernels: kernels![any hits_kernel],
    ..Op::PURE
};

fn sampler_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (sampled, num_true): (i64, i64) = (s.attr("num_sampled")?, s.attr("num_true")?);
    let batch = s.rank(0, 2)?.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    s.output(0, [sampled])?;
    s.output(1, [batch, num_true])?;
    s.output(2, [sampled])
}

fn hits_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let num_true: i64 = s.attr("num_true")?;
    if let Some(dims) = s.rank(0, 2)?.dims() {
        s.merge_dims(dims[1], num_true)?;
    }
    s.rank(1, 1)?;
    (0..3).try_for_each(|output| s.output(output, [UNKNOWN_DIM]))
}

/// A distribution over classes.
trait Distribution {
    /// Draws a class.
    fn draw(&self, words: &mut Words) -> i64;
    /// The probability of a class.
    fn probability(&self, class: i64) -> f32;
}

struct Uniform(i64);

impl Distribution for Uniform {
    fn draw(&self, words: &mut Words) -> i64 {
        words.below_u64(self.0 as u64) as i64
    }
    fn probability(&self, _: i64) -> f32 {
        (1.0 / self.0 as f64) as f32
    }
}

/// Zipf's law, roughly: class `k` has a share that is proportional to `log((k + 2) / (k + 1))`.
struct LogUniform {
    range: i64,
    log_range: f64,
}

impl Distribution for LogUniform {
    fn draw(&self, words: &mut Words) -> i64 {
        let value = (words.next_f64() * self.log_range).exp() as i64 - 1;
        value % self.range
    }
    fn probability(&self, class: i64) -> f32 {
        (((class as f64 + 2.0) / (class as f64 + 1.0)).ln() / self.log_range) as f32
    }
}

impl Distribution for WeightedPicker {
    fn draw(&self, words: &mut Words) -> i64 {
        self.pick(words) as i64
    }
    fn probability(&self, class: i64) -> f32 {
        self.weight(class as usize) as f32 / self.total() as f32
    }
}

struct Fixed {
    weights: Vec<f32>,
    total: f32,
    table: AliasTable,
}

impl Distribution for Fixed {
    fn draw(&self, words: &mut Words) -> i64 {
        self.table.pick(words) as i64
    }
    fn probability(&self, class: i64) -> f32 {
        self.weights[class as usize] / self.total
    }
}

/// Attributes that all samplers have, and the classes that there are.
struct Sampler {
    num_true: usize,
    num_sampled: i32,
    unique: bool,
    range: i64,
    stream: KernelStream,
}

impl Sampler {
    fn new(init: &Init<'_>, range: &str) -> Result<Sampler> {
        let num_sampled: i64 = init.attr("num_sampled")?;
        let num_sampled = i32::try_from(num_sampled).map_err(|_| {
            status!(InvalidArgument, "Attr num_sampled has value {num_sampled} out of range for an int32")
        })?;
        Ok(Sampler {
            num_true: init.attr("num_true")?,
            num_sampled,
            unique: init.attr("unique")?,
            range: init.attr(range)?,
            stream: KernelStream::new(init)?,
        })
    }

    /// Checks the true classes and makes the outputs; the candidates are drawn afterwards.
    fn outputs(&self, cx: &KernelCx<'_>) -> Result<[Tensor; 3]> {
        let classes = cx.input(0)?;
        ensure!(classes.rank() == 2, InvalidArgument, "true_classes must be a matrix");
        let (batch, columns) = (classes.shape().dim(0), classes.shape().dim(1));
        ensure!(
            columns == self.num_true,
            InvalidArgument,
            "true_classes must have num_true columns, expected: {columns} was: {}",
            self.num_true
        );
        ensure!(
            !self.unique || self.num_sampled as i64 <= self.range,
            InvalidArgument,
            "Sampler's range is too small."
        );
        if let Some(class) = classes.flat::<i64>()?.iter().find(|class| !(0..self.range).contains(*class)) {
            bail!(InvalidArgument, "`true_candidate` out of range [0, {}), received {class}", self.range);
        }
        let sampled = Shape::vector(self.num_sampled as usize);
        Ok([
            cx.alloc::<i64>(sampled.clone())?,
            cx.alloc::<f32>(Shape::matrix(batch, columns))?,
            cx.alloc::<f32>(sampled)?,
        ])
    }

    /// Takes as much off the stream as stock does, which counts in 32 bits.
    fn words(&self) -> Words {
        let words = 2048i32.wrapping_mul(self.num_sampled) as i64;
        Words::new(self.stream.reserve(((words + 3) / 4) as u64))
    }

    fn sample(&self, cx: &KernelCx<'_>, distribution: &dyn Distribution) -> Result<Outputs> {
        let [mut candidates, mut true_counts, mut counts] = self.outputs(cx)?;
        let tries = self.draw(cx.step(), &mut self.words(), distribution, candidates.flat_mut::<i64>()?)?;
        let expected = |class: &i64| self.expected(distribution.probability(*class), tries);
        let fill = |counts: &mut [f32], classes: &[i64]| {
            for (count, class) in counts.iter_mut().zip(classes) {
                *count = expected(class);
            }
        };
        fill(counts.flat_mut()?, candidates.flat()?);
        fill(true_counts.flat_mut()?, cx.flat(0)?);
        Ok([candidates, true_counts, counts].into())
    }

    /// Fills the candidates; returns how many draws that took.
    fn draw(
        &self,
        step: &StepCx,
        words: &mut Words,
        distribution: &dyn Distribution,
        candidates: &mut [i64],
    ) -> Result<i32> {
        if !self.unique {
            for candidate in candidates.iter_mut() {
                *candidate = distribution.draw(words);
            }
            return Ok(self.num_sampled);
        }
        let (mut used, mut tries) = (HashSet::with_capacity(candidates.len()), 0i32);
        for candidate in candidates {
            loop {
                tries = match tries.checked_add(1) {
                    Some(tries) => tries,
                    None => bail!(
                        ResourceExhausted,
                        "no {} different classes were found in {} draws: too many of them have no weight",
                        self.num_sampled,
                        i32::MAX
                    ),
                };
                if tries & 0xffff == 0 {
                    step.check_cancelled()?;
                }
                let class = distribution.draw(words);
                if used.insert(class) {
                    *candidate = class;
                    break;
                }
            }
        }
        Ok(tries)
    }

    /// The number of times that a class of this probability is to be expected among the candidates: `1 - (1 - p)^tries`
    /// if they are unique.
    fn expected(&self, probability: f32, tries: i32) -> f32 {
        if tries == self.num_sampled {
            return probability * self.num_sampled as f32;
        }
        -(tries as f32 * (-probability).ln_1p()).exp_m1()
    }
}

fn uniform_kernel(init: &Init<'_>) -> Result<Kernel> {
    let sampler = Sampler::new(init, "range_max")?;
    Kernel::sync(move |cx| sampler.sample(cx, &Uniform(sampler.range)))
}

fn log_uniform_kernel(init: &Init<'_>) -> Result<Kernel> {
    let sampler = Sampler::new(init, "range_max")?;
    let distribution = LogUniform { range: sampler.range, log_range: (sampler.range as f64).ln_1p() };
    Kernel::sync(move |cx| sampler.sample(cx, &distribution))
}

fn learned_kernel(init: &Init<'_>) -> Result<Kernel> {
    let sampler = Sampler::new(init, "range_max")?;
    ensure!(
        sampler.range < i32::MAX as i64,
        InvalidArgument,
        "range_max must be less than {} to be learned, got {}",
        i32::MAX,
        sampler.range
    );
    let classes = sampler.range as usize;
    init.device.check_allocation(DType::Int32, &Shape::vector(WeightedPicker::slots(classes)))?;
    let weights = Mutex::new(WeightedPicker::new(classes));
    Kernel::sync(move |cx| {
        // Weights are counted up one by one; there is nothing to repair.
        let mut weights = weights.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = sampler.sample(cx, &*weights)?;
        let room = (i32::MAX - weights.total()) as usize;
        for class in cx.flat::<i64>(0)?.iter().take(room) {
            weights.increment(*class as usize);
        }
        Ok(outputs)
    })
}

fn fixed_kernel(init: &Init<'_>) -> Result<Kernel> {
    let sampler = Sampler::new(init, "range_max")?;
    let (file, unigrams): (String, Vec<f32>) = (init.attr("vocab_file")?, init.attr("unigrams")?);
    ensure!(
        !file.is_empty() || !unigrams.is_empty(),
        InvalidArgument,
        "Must provide either vocab_file or unigrams."
    );
    ensure!(
        file.is_empty() || unigrams.is_empty(),
        InvalidArgument,
        "Must only provide one of vocab_file and unigrams."
    );
    let (weights, total) = if file.is_empty() {
        distorted(init, sampler.range, unigrams.len(), &|id| Ok(unigrams[id]))?
    } else {
        read_weights(init, sampler.range, &file)?
    };
    let table = AliasTable::new(&weights);
    let distribution = Fixed { weights, total, table };
    Kernel::sync(move |cx| sampler.sample(cx, &distribution))
}

/// The weights of this shard, those of reserved ids first, and their sum.
fn distorted(
    init: &Init<'_>,
    range: i64,
    words: usize,
    weight: &dyn Fn(usize) -> Result<f32>,
) -> Result<(Vec<f32>, f32)> {
    let (shards, shard): (i64, i64) = (init.attr("num_shards")?, init.attr("shard")?);
    let (distortion, reserved): (f32, i64) = (init.attr("distortion")?, init.attr("num_reserved_ids")?);
    let check = |count: i64| {
        ensure!(count == range, InvalidArgument, "range is {range} must be equal to weights size  {count}");
        Ok(())
    };
    let reserved = if shard < shards { (reserved.max(0) + shards - 1 - shard) / shards } else { 0 };
    if reserved > range {
        check(reserved)?;
    }
    let mut weights = vec![0.0f32; reserved as usize];
    let mut total = 0.0f32;
    for word in (0..words).filter(|word| (reserved + *word as i64) % shards == shard) {
        let weight = weight(word)?.powf(distortion);
        total += weight;
        weights.push(weight);
    }
    check(weights.len() as i64)?;
    Ok((weights, total))
}

/// Weights from the last column of every line of a file.
fn read_weights(init: &Init<'_>, range: i64, name: &str) -> Result<(Vec<f32>, f32)> {
    let path = ferroflow_io::path::resolve_path(name)?;
    let text = ferroflow_io::file::read(&path)?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.split_terminator('\n').map(|line| line.trim_end_matches('\r'));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    distorted(init, range, lines.len(), &|word| {
        let column = lines[word].rsplit(',').next().unwrap_or_default();
        let weight = column.trim().parse();
        weight.map_err(|_| status!(InvalidArgument, "Wrong vocabulary format at line: {}", lines[word]))
    })
}

fn all_kernel(init: &Init<'_>) -> Result<Kernel> {
    let sampler = Sampler::new(init, "num_sampled")?;
    Kernel::sync(move |cx| {
        let [mut candidates, mut true_counts, mut counts] = sampler.outputs(cx)?;
        for (slot, class) in candidates.flat_mut::<i64>()?.iter_mut().zip(0..) {
            *slot = class;
        }
        true_counts.flat_mut::<f32>()?.fill(1.0);
        counts.flat_mut::<f32>()?.fill(1.0);
        Ok([candidates, true_counts, counts].into())
    })
}

fn hits_kernel(init: &Init<'_>) -> Result<Kernel> {
    let num_true: i64 = init.attr("num_true")?;
    Kernel::sync(move |cx| {
        let (classes, candidates) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            classes.rank() == 2 && classes.shape().dim(1) as i64 == num_true,
            InvalidArgument,
            "true_candidates must be a batch_size * num_true matrix"
        );
        ensure!(
            candidates.rank() == 1,
            InvalidArgument,
            "sampled_candidates must be a vector, which is typically an output from CandidateSampler"
        );
        // Of equal candidates the last one counts.
        let positions: HashMap<i64, i64> = candidates.flat::<i64>()?.iter().copied().zip(0..).collect();
        let found = classes.flat::<i64>()?.iter().enumerate().filter_map(|(at, class)| {
            positions.get(class).map(|position| ((at as i64 / num_true) as i32, *position))
        });
        let (rows, ids): (Vec<i32>, Vec<i64>) = found.unzip();
        let weights = vec![-f32::MAX; rows.len()];
        Ok([Tensor::vector(rows), Tensor::vector(ids), Tensor::vector(weights)].into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    fn classes(values: Vec<i64>) -> Tensor {
        Tensor::new(Shape::matrix(values.len(), 1), values).unwrap()
    }

    #[test]
    fn shapes_follow_the_attributes() {
        let node = Node::new("UniformCandidateSampler").attr("num_true", 2i64).attr("num_sampled", 3i64);
        node.infer("[?,2]", "[3];[?,2];[3]");
        infer("ComputeAccidentalHits", "?;?", "[?];[?];[?]");
        infer_err("ComputeAccidentalHits", "[2];[3]", Code::InvalidArgument);
    }

    #[test]
    fn weights_are_read_from_a_file() {
        let path = std::env::temp_dir().join(format!("vocabulary-{}", std::process::id()));
        std::fs::write(&path, "a,1\n\nb,0\nc,x,0\n").unwrap();
        let node = |range: i64| {
            Node::new("FixedUnigramCandidateSampler")
                .attr("num_true", 1i64)
                .attr("num_sampled", 4i64)
                .attr("unique", false)
                .attr("range_max", range)
                .attr("seed", 3i64)
                .attr("vocab_file", path.to_str().unwrap())
        };
        let out = node(3).run([classes(vec![0, 2])]).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [0, 0, 0, 0]);
        assert_eq!(out[1].flat::<f32>().unwrap(), [4.0, 0.0]);
        assert_eq!(node(4).run([classes(vec![0])]).unwrap_err().code(), Code::InvalidArgument);
        std::fs::write(&path, "a,b\n").unwrap();
        assert!(node(1).run([classes(vec![0])]).unwrap_err().message().contains("at line: a,b"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(node(1).run([classes(vec![0])]).unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn a_cancelled_step_ends_a_search_without_end() {
        let node = Node::new("FixedUnigramCandidateSampler")
            .attr("num_true", 1i64)
            .attr("num_sampled", 2i64)
            .attr("unique", true)
            .attr("range_max", 2i64)
            .attr("seed", 3i64)
            .attr("unigrams", vec![1.0f32, 0.0]);
        assert_eq!(node.cancelled().run([classes(vec![0])]).unwrap_err().code(), Code::Cancelled);
    }
}
