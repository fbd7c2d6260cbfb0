//! Decoders of connectionist temporal classification: the best path, and a search that keeps the best few prefixes.

use super::ctc_loss::log_sum_exp;
use crate::numeric::Math;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::step::StepCx;
use ferroflow_core::{Result, Shape, Tensor, ensure, kernels};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

pub(crate) const OPS: &[&Op] = &[&CTC_GREEDY_DECODER, &CTC_BEAM_SEARCH_DECODER];

static CTC_GREEDY_DECODER: Op = Op {
    name: "CTCGreedyDecoder",
    inputs: &["inputs: T", "sequence_length: int32"],
    outputs: &[
        "decoded_indices: int64",
        "decoded_values: int64",
        "decoded_shape: int64",
        "log_probability: T",
    ],
    attrs: &["merge_repeated: bool = false", "blank_index: int = -1", "T: {float, double} = DT_FLOAT"],
    shape: decoder_shape,
    kernels: kernels![greedy_kernel: f32, f64],
    gradient: Gradient::Stop,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static CTC_BEAM_SEARCH_DECODER: Op = Op {
    name: "CTCBeamSearchDecoder",
    outputs: &[
        "decoded_indices: top_paths * int64",
        "decoded_values: top_paths * int64",
        "decoded_shape: top_paths * int64",
        "log_probability: T",
    ],
    attrs: &[
        "beam_width: int >= 1",
        "top_paths: int >= 1",
        "merge_repeated: bool = true",
        "T: {float, double} = DT_FLOAT",
    ],
    kernels: kernels![beam_search_kernel: f32, f64],
    ..CTC_GREEDY_DECODER
};

fn decoder_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (inputs, lengths) = (s.rank(0, 3)?, s.rank(1, 1)?);
    let inputs = inputs.dims().map_or(UNKNOWN_DIM, |dims| dims[1]);
    let batch = s.merge_dims(inputs, lengths.dims().map_or(UNKNOWN_DIM, |dims| dims[0]))?;
    let paths = s.num_outputs() / 3;
    for path in 0..paths {
        s.output(path, [UNKNOWN_DIM, 2])?;
        s.output(paths + path, [UNKNOWN_DIM])?;
        s.output(2 * paths + path, [2])?;
    }
    s.output(3 * paths, [batch, paths as i64])
}

/// The inputs of a decoder, checked.
struct Sequences<'a, T> {
    data: &'a [T],
    lengths: &'a [i32],
    batch: usize,
    classes: usize,
}

impl<'a, T: Math> Sequences<'a, T> {
    fn new(cx: &'a KernelCx<'_>) -> Result<Sequences<'a, T>> {
        let (inputs, lengths) = (cx.input(0)?, cx.input(1)?);
        ensure!(inputs.rank() == 3, InvalidArgument, "inputs is not a 3-Tensor");
        ensure!(inputs.elements() > 0, InvalidArgument, "inputs must not be empty");
        ensure!(lengths.rank() == 1, InvalidArgument, "sequence_length is not a vector");
        let (steps, batch) = (inputs.shape().dim(0), inputs.shape().dim(1));
        ensure!(
            batch == lengths.elements(),
            FailedPrecondition,
            "len(sequence_length) != batch_size.  len(sequence_length):  {} batch_size: {batch}",
            lengths.elements()
        );
        for (sequence, length) in lengths.flat::<i32>()?.iter().enumerate() {
            ensure!(
                *length as i64 <= steps as i64,
                FailedPrecondition,
                "sequence_length({sequence}) <= {steps}"
            );
        }
        Ok(Sequences {
            data: inputs.flat()?,
            lengths: lengths.flat()?,
            batch,
            classes: inputs.shape().dim(2),
        })
    }

    /// The frames of one sequence, as many as it is long.
    fn frames(&self, row: usize) -> impl Iterator<Item = &'a [T]> {
        let (data, batch, classes) = (self.data, self.batch, self.classes);
        let steps = self.lengths[row].max(0) as usize;
        (0..steps).map(move |step| &data[(step * batch + row) * classes..][..classes])
    }
}

/// Labels of a sequence, and their probability's logarithm.
type Path<T> = (Vec<i64>, T);

/// Sparse matrices of labels, one for every path of a sequence, and the probabilities.
fn store<T: Math>(decoded: &[Vec<Path<T>>], paths: usize) -> Result<Outputs> {
    let (mut indices, mut values, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
    for path in 0..paths {
        let labels = |row: usize| &decoded[row][path].0;
        let places = (0..decoded.len()).flat_map(|row| (0..labels(row).len()).map(move |at| [row, at]));
        let places: Vec<i64> = places.flatten().map(|place| place as i64).collect();
        indices.push(Tensor::new(Shape::matrix(places.len() / 2, 2), places)?);
        values.push(Tensor::vector((0..decoded.len()).flat_map(labels).copied().collect()));
        let longest = (0..decoded.len()).map(|row| labels(row).len()).max().unwrap_or_default();
        shapes.push(Tensor::vector(vec![decoded.len() as i64, longest as i64]));
    }
    let probabilities = decoded.iter().flatten().map(|(_, probability)| *probability).collect();
    let probabilities = Tensor::new(Shape::matrix(decoded.len(), paths), probabilities)?;
    let all = indices.into_iter().chain(values).chain(shapes).chain([probabilities]);
    Ok(all.collect::<Vec<Tensor>>().into())
}

fn greedy_kernel<T: Math>(init: &Init<'_>) -> Result<Kernel> {
    let (merge_repeated, blank): (bool, i64) = (init.attr("merge_repeated")?, init.attr("blank_index")?);
    Kernel::sync(move |cx| {
        let sequences = Sequences::<T>::new(cx)?;
        let classes = sequences.classes as i64;
        let index = if blank < 0 { blank.saturating_add(classes) } else { blank };
        ensure!(
            (0..classes).contains(&index),
            InvalidArgument,
            "blank_index expected to be between {} and {} but was {blank}",
            -classes,
            classes - 1
        );
        let decode = |row: usize| {
            let (mut labels, mut previous) = (Vec::new(), -1);
            let mut score = <T as num_traits::Zero>::zero();
            for frame in sequences.frames(row) {
                let best =
                    (1..frame.len()).fold(0, |best, at| if frame[at] > frame[best] { at } else { best });
                score = score - frame[best];
                let best = best as i64;
                if best != index && !(merge_repeated && best == previous) {
                    labels.push(best);
                }
                previous = best;
            }
            vec![(labels, score)]
        };
        store(&(0..sequences.batch).map(decode).collect::<Vec<_>>(), 1)
    })
}

/// Logarithms of the probabilities of a prefix: in all, of ending in a blank, and of ending in its last label.
#[derive(Clone, Copy)]
struct Probability<T> {
    total: T,
    blank: T,
    label: T,
}

impl<T: Math> Probability<T> {
    fn zero() -> Probability<T> {
        Probability { total: T::neg_infinity(), blank: T::neg_infinity(), label: T::neg_infinity() }
    }
}

/// A prefix of labels: one label after another prefix.
struct Prefix<T> {
    parent: usize,
    label: i64,
    old: Probability<T>,
    new: Probability<T>,
}

impl<T: Math> Prefix<T> {
    /// Whether the prefix is among those that are kept.
    fn is_active(&self) -> bool {
        self.new.total != T::neg_infinity()
    }
}

/// The empty prefix, which is its own parent.
const ROOT: usize = 0;

/// A kept prefix; the least probable one is the greatest, for the heap.
struct Leaf<T> {
    total: T,
    /// Of equal ones, the last to come is the first to go.
    order: usize,
    prefix: usize,
}

impl<T: Math> Ord for Leaf<T> {
    fn cmp(&self, other: &Leaf<T>) -> Ordering {
        let by_total = other.total.partial_cmp(&self.total).unwrap_or(Ordering::Equal);
        by_total.then(self.order.cmp(&other.order))
    }
}

impl<T: Math> PartialOrd for Leaf<T> {
    fn partial_cmp(&self, other: &Leaf<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Math> PartialEq for Leaf<T> {
    fn eq(&self, other: &Leaf<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T: Math> Eq for Leaf<T> {}

/// The search over one sequence.
struct BeamSearch<T> {
    width: usize,
    prefixes: Vec<Prefix<T>>,
    children: HashMap<(usize, i64), usize>,
    leaves: BinaryHeap<Leaf<T>>,
    pushed: usize,
}

impl<T: Math> BeamSearch<T> {
    fn new(width: usize) -> BeamSearch<T> {
        let zero = <T as num_traits::Zero>::zero();
        let new = Probability { total: zero, blank: zero, label: T::neg_infinity() };
        let root = Prefix { parent: ROOT, label: -1, old: Probability::zero(), new };
        let mut search = BeamSearch {
            width,
            prefixes: vec![root],
            children: HashMap::new(),
            leaves: BinaryHeap::new(),
            pushed: 0,
        };
        search.push(ROOT);
        search
    }

    fn push(&mut self, prefix: usize) {
        self.pushed += 1;
        let total = self.prefixes[prefix].new.total;
        self.leaves.push(Leaf { total, order: self.pushed, prefix });
    }

    /// Whether a prefix of this probability belongs to the best.
    fn is_candidate(&self, total: T) -> bool {
        let room = self.leaves.len() < self.width;
        total > T::neg_infinity() && (room || self.leaves.peek().is_some_and(|worst| total > worst.total))
    }

    /// The kept prefixes, best first.
    fn sorted(&mut self) -> Vec<usize> {
        let leaves = std::mem::take(&mut self.leaves).into_sorted_vec();
        leaves.into_iter().map(|leaf| leaf.prefix).collect()
    }

    /// Takes in the next frame.
    fn step(&mut self, frame: &[T]) {
        let (blank, labels) = frame.split_last().expect("inputs are not empty");
        let max = frame.iter().copied().fold(T::neg_infinity(), |max, x| if x > max { x } else { max });
        let zero = <T as num_traits::Zero>::zero();
        let sum = frame.iter().fold(zero, |sum, x| sum + num_traits::Float::exp(*x - max));
        let norm = max + num_traits::Float::ln(sum);
        let branches = self.sorted();
        for branch in &branches {
            let prefix = &mut self.prefixes[*branch];
            prefix.old = prefix.new;
        }
        for branch in &branches {
            let Prefix { parent, label, old, mut new } = self.prefixes[*branch];
            if *branch != ROOT {
                let parent = &self.prefixes[parent];
                if parent.is_active() {
                    let previous = if label == parent.label { parent.old.blank } else { parent.old.total };
                    new.label = log_sum_exp(new.label, previous);
                }
                new.label = new.label + (labels[label as usize] - norm);
            }
            new.blank = old.total + *blank - norm;
            new.total = log_sum_exp(new.blank, new.label);
            self.prefixes[*branch].new = new;
            self.push(*branch);
        }
        for branch in branches {
            let (old, label) = (self.prefixes[branch].old, self.prefixes[branch].label);
            if !self.is_candidate(old.total) {
                continue;
            }
            for (next, logit) in (0..).zip(labels) {
                let child = self.children.get(&(branch, next)).copied();
                if child.is_some_and(|child| self.prefixes[child].is_active()) {
                    continue;
                }
                let total = *logit - norm + if next == label { old.blank } else { old.total };
                if self.is_candidate(total) {
                    self.grow(branch, next, child, total);
                } else if let Some(child) = child {
                    // One that was kept until now, and whose turn may be to come, has no part in this step any more.
                    self.prefixes[child].old = Probability::zero();
                }
            }
        }
    }

    /// Adds a prefix to the best, in place of the worst if there are enough.
    fn grow(&mut self, parent: usize, label: i64, known: Option<usize>, total: T) {
        if self.leaves.len() == self.width
            && let Some(worst) = self.leaves.pop()
        {
            self.prefixes[worst.prefix].new = Probability::zero();
        }
        let new = Probability { total, blank: T::neg_infinity(), label: total };
        let prefix = match known {
            Some(prefix) => {
                self.prefixes[prefix].new = new;
                prefix
            }
            None => {
                self.prefixes.push(Prefix { parent, label, old: Probability::zero(), new });
                self.children.insert((parent, label), self.prefixes.len() - 1);
                self.prefixes.len() - 1
            }
        };
        self.push(prefix);
    }

    /// The labels of a prefix; of those that follow each other and are equal one, if they are merged.
    fn labels(&self, mut prefix: usize, merge_repeated: bool) -> Vec<i64> {
        let mut labels = Vec::new();
        while prefix != ROOT {
            labels.push(self.prefixes[prefix].label);
            prefix = self.prefixes[prefix].parent;
        }
        labels.reverse();
        if merge_repeated {
            labels.dedup();
        }
        labels
    }

    fn best(&mut self, paths: usize, merge_repeated: bool) -> Result<Vec<Path<T>>> {
        ensure!(paths <= self.width, InvalidArgument, "requested more paths than the beam width.");
        let sorted = self.sorted();
        ensure!(paths <= sorted.len(), InvalidArgument, "Less leaves in the beam search than requested.");
        let path = |prefix: &usize| (self.labels(*prefix, merge_repeated), self.prefixes[*prefix].new.total);
        Ok(sorted.iter().take(paths).map(path).collect())
    }
}

fn beam_search_kernel<T: Math>(init: &Init<'_>) -> Result<Kernel> {
    let (width, paths): (usize, usize) = (init.attr("beam_width")?, init.attr("top_paths")?);
    let merge_repeated: bool = init.attr("merge_repeated")?;
    Kernel::sync(move |cx| {
        let sequences = Sequences::<T>::new(cx)?;
        let mut decoded: Vec<Result<Vec<Path<T>>>> = Vec::new();
        decoded.resize_with(sequences.batch, || Ok(Vec::new()));
        let work = (sequences.data.len() / sequences.batch).saturating_mul(width.min(1 << 16));
        let step: &StepCx = cx.step();
        cx.threads().parallel_rows(&mut decoded, 1, work, |first, rows| {
            for (row, path) in (first..).zip(rows) {
                *path = search(step, sequences.frames(row), width)
                    .and_then(|mut search| search.best(paths, merge_repeated));
            }
        });
        cx.conclude(Ok(()))?;
        store(&decoded.into_iter().collect::<Result<Vec<_>>>()?, paths)
    })
}

fn search<'a, T: Math>(
    step: &StepCx,
    frames: impl Iterator<Item = &'a [T]>,
    width: usize,
) -> Result<BeamSearch<T>> {
    let mut search = BeamSearch::new(width);
    for frame in frames {
        step.check_cancelled()?;
        search.step(frame);
    }
    Ok(search)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_equal_labels_add_up() {
        // "a" in two frames of which the blank is likelier: 1 - 0.7 * 0.6 of all alignments spell it.
        let mut search = BeamSearch::<f64>::new(2);
        search.step(&[0.3f64.ln(), 0.7f64.ln()]);
        search.step(&[0.4f64.ln(), 0.6f64.ln()]);
        let best = search.best(2, true).unwrap();
        assert_eq!((best[0].0.as_slice(), best[1].0.as_slice()), (&[0i64][..], &[][..]));
        assert!((best[0].1 - 0.58f64.ln()).abs() < 1e-6, "{}", best[0].1);
    }
}
