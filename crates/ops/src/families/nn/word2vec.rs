//! The first kernels for word vectors: examples from a text file, and training against drawn words.

use crate::numeric::philox::{KernelStream, Philox, Words};
use crate::numeric::sampling::AliasTable;
use bytes::Bytes;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, Op};
use ferroflow_core::resource::Variable;
use ferroflow_core::{Result, Shape, Tensor, ensure, kernels, status};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

pub(crate) const OPS: &[&Op] = &[&SKIPGRAM, &NEG_TRAIN];

static SKIPGRAM: Op = Op {
    name: "Skipgram",
    outputs: &[
        "vocab_word: string",
        "vocab_freq: int32",
        "words_per_epoch: int64",
        "current_epoch: int32",
        "total_words_processed: int64",
        "examples: int32",
        "labels: int32",
    ],
    attrs: &[
        "filename: string",
        "batch_size: int",
        "window_size: int = 5",
        "min_count: int = 5",
        "subsample: float = 0.001",
    ],
    kernels: kernels![any skipgram_kernel],
    deprecated_at: Some(19),
    restartable: true,
    ..Op::STATEFUL
};

static NEG_TRAIN: Op = Op {
    name: "NegTrain",
    inputs: &["w_in: Ref(float)", "w_out: Ref(float)", "examples: int32", "labels: int32", "lr: float"],
    attrs: &["vocab_count: list(int)", "num_negative_samples: int"],
    kernels: kernels![any neg_train_kernel],
    accuracy: Accuracy::Rounding,
    deprecated_at: Some(19),
    ..Op::STATEFUL
};

/// Examples are made this many at a time.
const EXAMPLES: usize = 3000;
/// Words of a text that are looked at together; a window does not reach beyond them.
const SENTENCE: usize = 1000;

/// The words of a text by number; 0 stands for all rare words.
struct Corpus {
    words: Vec<Bytes>,
    counts: Vec<i32>,
    text: Vec<usize>,
}

impl Corpus {
    fn read(name: &str, window: i64, min_count: i64) -> Result<Corpus> {
        let path = ferroflow_io::path::resolve_path(name)?;
        let text = ferroflow_io::file::read(&path)?;
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let words = || text.split(is_space).filter(|word| !word.is_empty());
        // In the order of first appearance, which decides among words that are equally frequent.
        let mut numbers: HashMap<&[u8], usize> = HashMap::new();
        let mut counts: Vec<(&[u8], i32)> = Vec::new();
        let mut total = 0i64;
        for word in words() {
            let number = *numbers.entry(word).or_insert(counts.len());
            if number == counts.len() {
                counts.push((word, 0));
            }
            counts[number].1 += 1;
            total += 1;
        }
        ensure!(
            total >= window * 10,
            InvalidArgument,
            "The text file {name} contains too little data: {total} words"
        );
        counts.retain(|(_, count)| *count as i64 >= min_count);
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let frequent: i64 = counts.iter().map(|(_, count)| *count as i64).sum();
        numbers = counts.iter().enumerate().map(|(at, (word, _))| (*word, at + 1)).collect();
        let named = counts.iter().map(|(word, _)| Bytes::copy_from_slice(word));
        Ok(Corpus {
            words: [Bytes::from_static(b"UNK")].into_iter().chain(named).collect(),
            text: words().map(|word| numbers.get(word).copied().unwrap_or_default()).collect(),
            counts: [(total - frequent) as i32].into_iter().chain(counts.iter().map(|(_, c)| *c)).collect(),
        })
    }
}

/// A walk through a text that pairs words with others near them.
struct Walk {
    corpus: Corpus,
    window: u32,
    subsample: f32,
    random: Words,
    epoch: i32,
    processed: i64,
    /// The next word of the text.
    position: usize,
    sentence: Vec<usize>,
    /// The word of the sentence that others are paired with, and which of them are left.
    center: usize,
    others: std::ops::Range<usize>,
    examples: Vec<(i32, i32)>,
    taken: usize,
}

impl Walk {
    fn new(corpus: Corpus, window: u32, subsample: f32) -> Walk {
        let mut walk = Walk {
            position: corpus.text.len(),
            corpus,
            window,
            subsample,
            random: Words::new(Philox::from_state([0, 0], 0)),
            epoch: -1,
            processed: 0,
            sentence: vec![0; SENTENCE],
            center: SENTENCE,
            others: 0..0,
            examples: Vec::with_capacity(EXAMPLES),
            taken: 0,
        };
        walk.refill();
        walk
    }

    fn refill(&mut self) {
        self.examples.clear();
        self.taken = 0;
        for _ in 0..EXAMPLES {
            let example = self.next_pair();
            self.examples.push(example);
        }
    }

    fn next_example(&mut self) -> (i32, i32) {
        let example = self.examples[self.taken];
        self.taken += 1;
        if self.taken == EXAMPLES {
            self.refill();
        }
        example
    }

    fn next_pair(&mut self) -> (i32, i32) {
        loop {
            if self.others.is_empty() {
                self.processed += 1;
                self.center += 1;
                if self.center >= SENTENCE {
                    self.center = 0;
                    self.next_sentence();
                }
                let reach = 1 + self.random.below(self.window) as usize;
                self.others = self.center.saturating_sub(reach)..SENTENCE.min(self.center + reach + 1);
            }
            match self.others.next() {
                Some(other) if other != self.center => {
                    return (self.sentence[self.center] as i32, self.sentence[other] as i32);
                }
                _ => {}
            }
        }
    }

    /// Reads on; words that are very frequent are left out now and then.
    fn next_sentence(&mut self) {
        let words = self.corpus.text.len();
        let mut filled = 0;
        while filled < SENTENCE {
            if self.position >= words {
                self.epoch += 1;
                self.position = 0;
            }
            let word = self.corpus.text[self.position];
            self.position += 1;
            if self.subsample > 0.0 {
                let (count, share) = (self.corpus.counts[word] as f32, self.subsample * words as f32);
                let keep = ((count / share).sqrt() + 1.0) * share / count;
                if self.random.next_f32() > keep {
                    continue;
                }
            }
            self.sentence[filled] = word;
            filled += 1;
        }
    }
}

fn skipgram_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (batch, window): (i64, i64) = (init.attr("batch_size")?, init.attr("window_size")?);
    let batch = Shape::new([batch])?;
    let width = u32::try_from(window)
        .map_err(|_| status!(InvalidArgument, "window_size must not be negative, got {window}"))?;
    let corpus = Corpus::read(&init.attr::<String>("filename")?, window, init.attr("min_count")?)?;
    ensure!(!corpus.text.is_empty(), InvalidArgument, "The text file contains no words");
    let words = Tensor::vector(corpus.words.clone());
    let (counts, total) = (Tensor::vector(corpus.counts.clone()), corpus.text.len() as i64);
    let walk = Mutex::new(Walk::new(corpus, width, init.attr("subsample")?));
    Kernel::sync(move |cx| {
        let (mut examples, mut labels) = (cx.alloc::<i32>(batch.clone())?, cx.alloc::<i32>(batch.clone())?);
        let (slots, label_slots) = (examples.flat_mut::<i32>()?, labels.flat_mut::<i32>()?);
        // A walk is whole between two examples.
        let mut walk = walk.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, label_slot) in slots.iter_mut().zip(label_slots) {
            (*slot, *label_slot) = walk.next_example();
        }
        Ok([
            words.clone(),
            counts.clone(),
            Tensor::scalar(total),
            Tensor::scalar(walk.epoch),
            Tensor::scalar(walk.processed),
            examples,
            labels,
        ]
        .into())
    })
}

/// The inputs of a training step beside the vectors, checked.
struct Examples<'a> {
    examples: &'a [i32],
    labels: &'a [i32],
    rate: f32,
}

impl<'a> Examples<'a> {
    fn new(cx: &'a KernelCx<'_>) -> Result<Examples<'a>> {
        let (examples, labels, rate) = (cx.input(2)?, cx.input(3)?, cx.input(4)?);
        ensure!(examples.rank() == 1, InvalidArgument, "Must be a vector");
        ensure!(examples.shape() == labels.shape(), InvalidArgument, "examples.shape == labels.shape");
        ensure!(rate.rank() == 0, InvalidArgument, "Must be a scalar");
        Ok(Examples { examples: examples.flat()?, labels: labels.flat()?, rate: rate.to_scalar()? })
    }
}

fn neg_train_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (counts, samples): (Vec<i64>, i64) = (init.attr("vocab_count")?, init.attr("num_negative_samples")?);
    let weights: Vec<f32> = counts.iter().map(|count| (*count as f32).powf(0.75)).collect();
    let (table, samples) = (AliasTable::new(&weights), samples.max(0) as u64);
    let stream = KernelStream::fresh();
    Kernel::sync(move |cx| {
        let (w_in, w_out) = (cx.variable(0)?, cx.variable(1)?);
        let given = Examples::new(cx)?;
        let reserved = (given.examples.len() as u64).wrapping_mul(samples).wrapping_mul(2);
        let mut words = Words::new(stream.reserve(reserved));
        Variable::update_all(&[&w_in, &w_out], &mut |values| {
            let [w_in, w_out] = values else { return Ok(()) };
            ensure!(w_in.rank() == 2, InvalidArgument, "Must be a matrix");
            ensure!(w_in.shape() == w_out.shape(), InvalidArgument, "w_in.shape == w_out.shape");
            let (vocabulary, dims) = (w_in.shape().dim(0), w_in.shape().dim(1));
            ensure!(
                vocabulary == table.len(),
                InvalidArgument,
                "vocab_size mismatches: {vocabulary} vs. {}",
                table.len()
            );
            let word = |word: i32| {
                let found = usize::try_from(word).ok().filter(|word| *word < vocabulary);
                found.ok_or_else(|| status!(InvalidArgument, "word {word} is not in [0, {vocabulary})"))
            };
            for (example, label) in given.examples.iter().zip(given.labels) {
                let (example, label) = (word(*example)?, word(*label)?);
                let negatives = (0..samples).map(|_| table.pick(&mut words)).filter(|word| *word != label);
                let pairs = [(label, true)].into_iter().chain(negatives.map(|word| (word, false)));
                let row = &mut w_in.flat_mut::<f32>()?[example * dims..][..dims];
                train(row, w_out.flat_mut()?, &mut { pairs }, given.rate);
            }
            Ok(())
        })?;
        Ok(Outputs::None)
    })
}

/// Moves a word's vector towards that of a word beside it and away from others, and those likewise.
fn train(row: &mut [f32], others: &mut [f32], pairs: &mut dyn Iterator<Item = (usize, bool)>, rate: f32) {
    let mut change = vec![0.0f32; row.len()];
    for (word, beside) in pairs {
        let other = &mut others[word * row.len()..][..row.len()];
        let dot: f32 = row.iter().zip(&*other).map(|(a, b)| a * b).sum();
        let slope = if beside { 1.0 / (dot.exp() + 1.0) } else { -(1.0 / ((-dot).exp() + 1.0)) } * rate;
        for ((change, other), own) in change.iter_mut().zip(other).zip(&*row) {
            *change += *other * slope;
            *other += own * slope;
        }
    }
    for (slot, change) in row.iter_mut().zip(change) {
        *slot += change;
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use bytes::Bytes;
    use ferroflow_core::Code;

    #[test]
    fn pairs_come_from_the_text() {
        let path = std::env::temp_dir().join(format!("corpus-{}", std::process::id()));
        std::fs::write(&path, "b a\tc a\nb a ".repeat(10)).unwrap();
        let node = |window: i64| {
            Node::new("Skipgram")
                .attr("filename", path.to_str().unwrap())
                .attr("batch_size", 7i64)
                .attr("window_size", window)
                .attr("min_count", 15i64)
        };
        let out = node(2).run([]).unwrap();
        let words: Vec<Bytes> = ["UNK", "a", "b"].map(Bytes::from).to_vec();
        assert_eq!(out[0].flat::<Bytes>().unwrap(), words);
        assert_eq!(out[1].flat::<i32>().unwrap(), [10, 30, 20]);
        assert_eq!(out[2].to_scalar::<i64>().unwrap(), 60);
        assert!(out[5].flat::<i32>().unwrap().iter().all(|word| (0..3).contains(word)));
        let refused = node(7).run([]).unwrap_err();
        assert!(refused.message().contains("too little data: 60 words"), "{refused}");
        assert_eq!(node(-1).run([]).unwrap_err().code(), Code::InvalidArgument);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(node(2).run([]).unwrap_err().code(), Code::NotFound);
    }
}
