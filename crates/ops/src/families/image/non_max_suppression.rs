//! Non-maximum suppression: of boxes that overlap, the one with the highest score.

use crate::numeric::Float;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, f16, kernels};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

pub(crate) const OPS: &[&Op] = &[
    &NON_MAX_SUPPRESSION,
    &NON_MAX_SUPPRESSION_V2,
    &NON_MAX_SUPPRESSION_V3,
    &NON_MAX_SUPPRESSION_V4,
    &NON_MAX_SUPPRESSION_V5,
    &NON_MAX_SUPPRESSION_WITH_OVERLAPS,
    &COMBINED_NON_MAX_SUPPRESSION,
];

static NON_MAX_SUPPRESSION: Op = Op {
    name: "NonMaxSuppression",
    gradient: Gradient::Stop,
    inputs: &["boxes: float", "scores: float", "max_output_size: int32"],
    outputs: &["selected_indices: int32"],
    attrs: &["iou_threshold: float = 0.5"],
    shape: suppression_shape,
    kernels: kernels![any first_kernel],
    ..Op::PURE
};

static NON_MAX_SUPPRESSION_V2: Op = Op {
    name: "NonMaxSuppressionV2",
    inputs: &["boxes: T", "scores: T", "max_output_size: int32", "iou_threshold: T_threshold"],
    attrs: &["T: {half, float} = DT_FLOAT", "T_threshold: {half, float} = DT_FLOAT"],
    kernels: kernels![box_kernel: f16, f32],
    ..NON_MAX_SUPPRESSION
};

static NON_MAX_SUPPRESSION_V3: Op = Op {
    name: "NonMaxSuppressionV3",
    gradient: Gradient::Undefined,
    inputs: &[
        "boxes: T",
        "scores: T",
        "max_output_size: int32",
        "iou_threshold: T_threshold",
        "score_threshold: T_threshold",
    ],
    ..NON_MAX_SUPPRESSION_V2
};

static NON_MAX_SUPPRESSION_V4: Op = Op {
    name: "NonMaxSuppressionV4",
    outputs: &["selected_indices: int32", "valid_outputs: int32"],
    attrs: &[
        "T: {half, float} = DT_FLOAT",
        "T_threshold: {half, float} = DT_FLOAT",
        "pad_to_max_output_size: bool = false",
    ],
    ..NON_MAX_SUPPRESSION_V3
};

static NON_MAX_SUPPRESSION_V5: Op = Op {
    name: "NonMaxSuppressionV5",
    gradient: Gradient::Undefined,
    inputs: &[
        "boxes: T",
        "scores: T",
        "max_output_size: int32",
        "iou_threshold: T",
        "score_threshold: T",
        "soft_nms_sigma: T",
    ],
    outputs: &["selected_indices: int32", "selected_scores: T", "valid_outputs: int32"],
    attrs: &["T: {half, float} = DT_FLOAT", "pad_to_max_output_size: bool = false"],
    ..NON_MAX_SUPPRESSION_V2
};

static NON_MAX_SUPPRESSION_WITH_OVERLAPS: Op = Op {
    name: "NonMaxSuppressionWithOverlaps",
    inputs: &[
        "overlaps: float",
        "scores: float",
        "max_output_size: int32",
        "overlap_threshold: float",
        "score_threshold: float",
    ],
    attrs: &[],
    shape: overlaps_shape,
    kernels: kernels![any overlaps_kernel],
    ..NON_MAX_SUPPRESSION
};

static COMBINED_NON_MAX_SUPPRESSION: Op = Op {
    name: "CombinedNonMaxSuppression",
    inputs: &[
        "boxes: float",
        "scores: float",
        "max_output_size_per_class: int32",
        "max_total_size: int32",
        "iou_threshold: float",
        "score_threshold: float",
    ],
    outputs: &[
        "nmsed_boxes: float",
        "nmsed_scores: float",
        "nmsed_classes: float",
        "valid_detections: int32",
    ],
    attrs: &["pad_per_class: bool = false", "clip_boxes: bool = true"],
    shape: combined_shape,
    kernels: kernels![any combined_kernel],
    ..Op::PURE
};

/// Checks boxes, scores and the scalars that follow; the lengths of outputs depend on values.
fn suppression_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (boxes, scores) = (s.rank(0, 2)?, s.rank(1, 1)?);
    (2..s.num_inputs()).try_for_each(|input| s.rank(input, 0).map(|_| ()))?;
    let [boxes, scores] = [&boxes, &scores].map(|shape| shape.dims().unwrap_or_default());
    s.merge_dims(boxes[0], scores[0])?;
    s.merge_dims(boxes[1], 4)?;
    selection_shapes(s)
}

fn overlaps_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (overlaps, scores) = (s.rank(0, 2)?, s.rank(1, 1)?);
    (2..5).try_for_each(|input| s.rank(input, 0).map(|_| ()))?;
    let [overlaps, scores] = [&overlaps, &scores].map(|shape| shape.dims().unwrap_or_default());
    s.merge_dims(overlaps[0], scores[0])?;
    s.merge_dims(overlaps[0], overlaps[1])?;
    selection_shapes(s)
}

fn selection_shapes(s: &mut ShapeCx<'_>) -> Result<()> {
    let padded = s.attr::<bool>("pad_to_max_output_size").unwrap_or(false);
    let length = match s.constant_i64(2)? {
        Some(length) if padded => {
            ensure!(
                length >= 0,
                InvalidArgument,
                "Dimension size, given by scalar input 2, must be non-negative but is {length}"
            );
            length
        }
        _ => UNKNOWN_DIM,
    };
    s.output(0, [length])?;
    match s.num_outputs() {
        2 => s.output(1, []),
        3 => s.output(1, [length]).and_then(|()| s.output(2, [])),
        _ => Ok(()),
    }
}

fn combined_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (boxes, scores) = (s.rank(0, 4)?, s.rank(1, 3)?);
    (2..6).try_for_each(|input| s.rank(input, 0).map(|_| ()))?;
    let [boxes, scores] = [&boxes, &scores].map(|shape| shape.dims().unwrap_or_default());
    s.merge_dims(boxes[0], scores[0])?;
    s.merge_dims(boxes[1], scores[1])?;
    s.merge_dims(boxes[3], 4)?;
    ensure!(
        boxes[2] == UNKNOWN_DIM || scores[2] == UNKNOWN_DIM || boxes[2] == 1 || boxes[2] == scores[2],
        InvalidArgument,
        "third dimension of boxes must be either 1 or equal to the third dimension of scores"
    );
    let (per_class, total) = (s.constant_i64(2)?, s.constant_i64(3)?);
    ensure!(total.is_none_or(|total| total > 0), InvalidArgument, "max_total_size should be > 0 ");
    let length = if s.attr::<bool>("pad_per_class")? {
        ensure!(
            per_class.is_none_or(|size| size > 0),
            InvalidArgument,
            "max_output_size_per_class must be > 0 if pad_per_class is set to true "
        );
        match (per_class, total) {
            (Some(per_class), Some(total)) if scores[2] != UNKNOWN_DIM => {
                total.min(per_class.saturating_mul(scores[2]))
            }
            _ => UNKNOWN_DIM,
        }
    } else {
        total.unwrap_or(UNKNOWN_DIM)
    };
    s.output(0, [boxes[0], length, 4])?;
    s.output(1, [boxes[0], length])?;
    s.output(2, [boxes[0], length])?;
    s.output(3, [boxes[0]])
}

/// The share that two boxes have in common of the area that they cover together.
fn overlap(a: [f32; 4], b: [f32; 4]) -> f32 {
    let sorted =
        |[y1, x1, y2, x2]: [f32; 4]| [smaller(y1, y2), smaller(x1, x2), larger(y1, y2), larger(x1, x2)];
    let (a, b) = (sorted(a), sorted(b));
    let area = |[y1, x1, y2, x2]: [f32; 4]| (y2 - y1) * (x2 - x1);
    let (area_a, area_b) = (area(a), area(b));
    if area_a <= 0.0 || area_b <= 0.0 {
        return 0.0;
    }
    let height = larger(smaller(a[2], b[2]) - larger(a[0], b[0]), 0.0);
    let width = larger(smaller(a[3], b[3]) - larger(a[1], b[1]), 0.0);
    let common = height * width;
    common / (area_a + area_b - common)
}

/// The first operand unless the second compares as smaller, as stock's minimum treats NaN.
fn smaller(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

fn larger(a: f32, b: f32) -> f32 {
    if a < b { b } else { a }
}

/// A box that may be selected; boxes with equal scores come in their order.
#[derive(Clone, Copy)]
struct Candidate {
    score: f32,
    number: usize,
    /// The number of selected boxes that the score is already reduced by.
    compared: usize,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.total_cmp(&other.score).then(other.number.cmp(&self.number))
    }
}

/// The limits of a selection.
struct Limits {
    count: usize,
    similarity: f32,
    score: f32,
    sigma: f32,
}

/// Boxes that were selected, with their scores. Scores are rounded as `round` does after each step.
fn select(
    scores: &[f32],
    limits: &Limits,
    similarity: &dyn Fn(usize, usize) -> f32,
    round: fn(f32) -> f32,
) -> (Vec<i32>, Vec<f32>) {
    let candidates = scores.iter().enumerate().filter(|(_, score)| **score > limits.score);
    let mut candidates: BinaryHeap<Candidate> =
        candidates.map(|(number, score)| Candidate { score: *score, number, compared: 0 }).collect();
    let soft = limits.sigma > 0.0;
    let scale = if soft { round(-0.5 / limits.sigma) } else { 0.0 };
    let (mut selected, mut kept): (Vec<i32>, Vec<f32>) = (Vec::new(), Vec::new());
    while selected.len() < limits.count {
        let Some(mut next) = candidates.pop() else { break };
        let original = next.score;
        let mut suppressed = false;
        for chosen in selected[next.compared..].iter().rev() {
            let similarity = round(similarity(next.number, *chosen as usize));
            let weight = if soft || similarity <= limits.similarity {
                round(round(round(scale * similarity) * similarity).exp())
            } else {
                0.0
            };
            next.score = round(next.score * weight);
            if !soft && similarity > limits.similarity {
                suppressed = true;
                break;
            }
            if next.score <= limits.score {
                break;
            }
        }
        next.compared = selected.len();
        if suppressed {
            continue;
        }
        if next.score == original {
            selected.push(next.number as i32);
            kept.push(next.score);
        } else if next.score > limits.score {
            candidates.push(next);
        }
    }
    (selected, kept)
}

/// A scalar float of either precision.
fn scalar(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<f32> {
    let tensor = cx.input(input)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} must be 0-D, got shape {} (Shape must be rank 0 but is rank {})",
        tensor.shape(),
        tensor.rank()
    );
    Ok(match tensor.dtype() {
        DType::Half => tensor.to_scalar::<f16>()?.to_f32(),
        _ => tensor.to_scalar::<f32>()?,
    })
}

fn count(cx: &KernelCx<'_>) -> Result<usize> {
    let tensor = cx.input(2)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "max_output_size must be 0-D, got shape {} (Shape must be rank 0 but is rank {})",
        tensor.shape(),
        tensor.rank()
    );
    match usize::try_from(tensor.to_scalar::<i32>()?) {
        Ok(count) => Ok(count),
        Err(_) => bail!(InvalidArgument, "output size must be non-negative"),
    }
}

fn check_threshold(threshold: f32) -> Result<()> {
    ensure!((0.0..=1.0).contains(&threshold), InvalidArgument, "iou_threshold must be in [0, 1]");
    Ok(())
}

fn check_boxes(cx: &KernelCx<'_>) -> Result<()> {
    let boxes = cx.input(0)?;
    ensure!(
        boxes.rank() == 2,
        InvalidArgument,
        "boxes must be 2-D{} (Shape must be rank 2 but is rank {})",
        boxes.shape(),
        boxes.rank()
    );
    ensure!(
        boxes.shape().dim(1) == 4,
        InvalidArgument,
        "boxes must have 4 columns (Dimension must be 4 but is {})",
        boxes.shape().dim(1)
    );
    check_scores(cx, boxes.shape().dim(0))
}

fn check_scores(cx: &KernelCx<'_>, boxes: usize) -> Result<()> {
    let scores = cx.input(1)?;
    ensure!(
        scores.rank() == 1,
        InvalidArgument,
        "scores must be 1-D{} (Shape must be rank 1 but is rank {})",
        scores.shape(),
        scores.rank()
    );
    ensure!(
        scores.elements() == boxes,
        InvalidArgument,
        "scores has incompatible shape (Dimensions must be equal, but are {boxes} and {})",
        scores.elements()
    );
    Ok(())
}

fn first_kernel(init: &Init<'_>) -> Result<Kernel> {
    let similarity: f32 = init.attr("iou_threshold")?;
    Kernel::sync(move |cx| {
        let count = count(cx)?;
        check_threshold(similarity)?;
        check_boxes(cx)?;
        let (boxes, _) = cx.flat::<f32>(0)?.as_chunks::<4>();
        let limits = Limits { count, similarity, score: f32::MIN, sigma: 0.0 };
        let overlaps = |a: usize, b: usize| overlap(boxes[a], boxes[b]);
        let (selected, _) = select(cx.flat(1)?, &limits, &overlaps, |x| x);
        Ok(Tensor::vector(selected).into())
    })
}

fn overlaps_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let count = count(cx)?;
        let similarity = scalar(cx, 3, "overlap_threshold")?;
        let score = scalar(cx, 4, "score_threshold")?;
        let overlaps = cx.input(0)?;
        ensure!(overlaps.rank() == 2, InvalidArgument, "overlaps must be 2-D{}", overlaps.shape());
        let boxes = overlaps.shape().dim(0);
        ensure!(
            overlaps.shape().dim(1) == boxes,
            InvalidArgument,
            "overlaps must be square{}",
            overlaps.shape()
        );
        check_scores(cx, boxes)?;
        let overlaps = overlaps.flat::<f32>()?;
        let limits = Limits { count, similarity, score, sigma: 0.0 };
        let (selected, _) = select(cx.flat(1)?, &limits, &|a, b| overlaps[a * boxes + b], |x| x);
        Ok(Tensor::vector(selected).into())
    })
}

/// The second to the fifth version, which differ in their inputs and outputs.
fn box_kernel<T: Float<Math = f32>>(init: &Init<'_>) -> Result<Kernel> {
    let padded = init.attrs.has("pad_to_max_output_size") && init.attr("pad_to_max_output_size")?;
    let (inputs, outputs) = (init.input_types.len(), init.output_types.len());
    let round: fn(f32) -> f32 = |x| T::from_math(x).to_math();
    Kernel::sync(move |cx| {
        let count = count(cx)?;
        let similarity = round(scalar(cx, 3, "iou_threshold")?);
        check_threshold(similarity)?;
        let least = if T::DTYPE == DType::Half { f16::MIN.to_f32() } else { f32::MIN };
        let score = if inputs > 4 { round(scalar(cx, 4, "score_threshold")?) } else { least };
        let sigma = if inputs > 5 { scalar(cx, 5, "soft_nms_sigma")? } else { 0.0 };
        ensure!(sigma >= 0.0, InvalidArgument, "soft_nms_sigma_val must be >= 0");
        check_boxes(cx)?;
        let wide = |input: usize| -> Result<Vec<f32>> {
            Ok(cx.flat::<T>(input)?.iter().map(|x| x.to_math()).collect())
        };
        let (boxes, scores) = (wide(0)?, wide(1)?);
        let (boxes, _) = boxes.as_chunks::<4>();
        let limits = Limits { count, similarity, score, sigma };
        let overlaps = |a: usize, b: usize| overlap(boxes[a], boxes[b]);
        let (selected, kept) = select(&scores, &limits, &overlaps, round);
        let valid = Tensor::scalar(selected.len() as i32);
        let length = if padded { count } else { selected.len() };
        // The memory for what is announced comes from the device, which has a limit.
        let mut indices = cx.zeros(DType::Int32, Shape::vector(length))?;
        indices.flat_mut::<i32>()?[..selected.len()].copy_from_slice(&selected);
        Ok(match outputs {
            1 => indices.into(),
            2 => Outputs::from([indices, valid]),
            _ => {
                let mut scores = cx.zeros(T::DTYPE, Shape::vector(length))?;
                for (out, score) in scores.flat_mut::<T>()?.iter_mut().zip(kept) {
                    *out = T::from_math(score);
                }
                Outputs::from([indices, scores, valid])
            }
        })
    })
}

/// Boxes of one class that were selected. Of boxes with equal scores, stock takes the one that its heap happens to have on
/// top, so the heap is the same here.
fn select_of_class(scores: &[f32], limits: &Limits, similarity: &dyn Fn(usize, usize) -> f32) -> Vec<usize> {
    let mut heap = ScoreHeap { scores, numbers: Vec::new() };
    let candidates = scores.iter().enumerate().filter(|(_, score)| **score > limits.score);
    for (number, _) in candidates {
        heap.push(number);
    }
    let mut selected: Vec<usize> = Vec::new();
    while selected.len() < limits.count {
        let Some(next) = heap.pop() else { break };
        if !selected.iter().rev().any(|chosen| similarity(next, *chosen) > limits.similarity) {
            selected.push(next);
        }
    }
    selected
}

/// A binary heap that moves its elements as C++'s standard library does.
struct ScoreHeap<'a> {
    scores: &'a [f32],
    numbers: Vec<usize>,
}

impl ScoreHeap<'_> {
    fn push(&mut self, number: usize) {
        self.numbers.push(number);
        self.raise(self.numbers.len() - 1, number);
    }

    /// Puts an element into a hole, or above it.
    fn raise(&mut self, mut hole: usize, number: usize) {
        while hole > 0 {
            let parent = (hole - 1) / 2;
            if self.scores[self.numbers[parent]] >= self.scores[number] {
                break;
            }
            self.numbers[hole] = self.numbers[parent];
            hole = parent;
        }
        self.numbers[hole] = number;
    }

    /// Takes the top: the hole goes down to a leaf, then the last element is put there.
    fn pop(&mut self) -> Option<usize> {
        let last = self.numbers.pop()?;
        let Some(top) = self.numbers.first().copied() else { return Some(last) };
        let (length, mut hole) = (self.numbers.len(), 0);
        loop {
            let (left, right) = (2 * hole + 1, 2 * hole + 2);
            let child = match () {
                () if right < length
                    && self.scores[self.numbers[right]] >= self.scores[self.numbers[left]] =>
                {
                    right
                }
                () if left < length => left,
                () => break,
            };
            self.numbers[hole] = self.numbers[child];
            hole = child;
        }
        self.raise(hole, last);
        Some(top)
    }
}

/// A box that was selected for a class.
#[derive(Clone, Copy)]
struct Detection {
    score: f32,
    class: usize,
    corners: [f32; 4],
}

fn combined_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (pad_per_class, clip): (bool, bool) = (init.attr("pad_per_class")?, init.attr("clip_boxes")?);
    Kernel::sync(move |cx| {
        let (boxes, scores) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            boxes.shape().dims().first() == scores.shape().dims().first(),
            InvalidArgument,
            "boxes and scores must have same batch size"
        );
        let size = |input: usize, name: &str| -> Result<i32> {
            let tensor = cx.input(input)?;
            ensure!(tensor.rank() == 0, InvalidArgument, "{name} must be 0-D, got shape {}", tensor.shape());
            tensor.to_scalar()
        };
        let per_class = size(2, "max_size_per_class")?;
        ensure!(per_class > 0, InvalidArgument, "max_size_per_class must be positive");
        let total = size(3, "max_total_size")?;
        ensure!(total > 0, InvalidArgument, "max_total_size must be > 0");
        let similarity = scalar(cx, 4, "iou_threshold")?;
        let threshold = scalar(cx, 5, "score_threshold")?;
        check_threshold(similarity)?;
        let &[batch, count, per_box, columns] = boxes.shape().dims() else {
            bail!(InvalidArgument, "boxes must be 4-D{}", boxes.shape());
        };
        let &[_, scored, classes] = scores.shape().dims() else {
            bail!(InvalidArgument, "scores must be 3-D{}", scores.shape());
        };
        ensure!(
            per_box == 1 || per_box == classes,
            InvalidArgument,
            "third dimension of boxes must be either 1 or num classes"
        );
        ensure!(columns == 4, InvalidArgument, "boxes must have 4 columns");
        ensure!(scored == count, InvalidArgument, "scores has incompatible shape");
        let [batch, count, per_box, classes] = [batch, count, per_box, classes].map(|dim| dim as usize);
        let (per_class, total) = (per_class as usize, total as usize);
        let length = if pad_per_class {
            total.min(per_class.saturating_mul(classes).min(i32::MAX as usize))
        } else {
            total
        };
        let shape = |dims: &[usize]| Shape::new(dims.iter().map(|dim| *dim as i64));
        let mut out_boxes = cx.zeros(DType::Float, shape(&[batch, length, 4])?)?;
        let mut out_scores = cx.zeros(DType::Float, shape(&[batch, length])?)?;
        let mut out_classes = cx.zeros(DType::Float, shape(&[batch, length])?)?;
        let mut valid = cx.zeros(DType::Int32, Shape::vector(batch))?;
        let (all_boxes, _) = boxes.flat::<f32>()?.as_chunks::<4>();
        let all_scores = scores.flat::<f32>()?;
        let limits = Limits { count: per_class.min(count), similarity, score: threshold, sigma: 0.0 };
        for image in 0..batch {
            cx.step().check_cancelled()?;
            let boxes = &all_boxes[image * count * per_box..][..count * per_box];
            let scores = &all_scores[image * count * classes..][..count * classes];
            let mut found = Vec::new();
            for class in 0..classes {
                let corners = |number: usize| boxes[number * per_box + if per_box > 1 { class } else { 0 }];
                let of_class: Vec<f32> = scores.iter().skip(class).step_by(classes).copied().collect();
                let selected = select_of_class(&of_class, &limits, &|a, b| overlap(corners(a), corners(b)));
                found.extend(selected.into_iter().map(|number| Detection {
                    score: of_class[number],
                    class,
                    corners: corners(number),
                }));
            }
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            found.truncate(length);
            valid.flat_mut::<i32>()?[image] = found.len() as i32;
            for (number, detection) in found.iter().enumerate() {
                let at = image * length + number;
                let corners = if clip {
                    detection.corners.map(|x| larger(smaller(x, 1.0), 0.0))
                } else {
                    detection.corners
                };
                out_boxes.flat_mut::<f32>()?[at * 4..][..4].copy_from_slice(&corners);
                out_scores.flat_mut::<f32>()?[at] = detection.score;
                out_classes.flat_mut::<f32>()?[at] = detection.class as f32;
            }
        }
        Ok([out_boxes, out_scores, out_classes, valid].into())
    })
}
