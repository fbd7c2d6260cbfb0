//! Stochastic dual coordinate ascent for linear models, and the fingerprints by which it knows its examples.
//!
//! Examples are visited in an order that is drawn anew every time, as in stock; the results of a pass over examples that
//! share features depend on it.

use crate::numeric::dual_loss::{Coordinate, DualLoss};
use crate::numeric::hash::fingerprint128;
use crate::numeric::philox::{KernelStream, Words};
use crate::numeric::sampling::AliasTable;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::resource::Variable;
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, kernels, status};
use std::collections::{HashMap, HashSet};

pub(crate) const OPS: &[&Op] = &[&SDCA_OPTIMIZER, &SDCA_OPTIMIZER_V2, &SDCA_SHRINK_L1, &SDCA_FPRINT];

static SDCA_OPTIMIZER: Op = Op {
    name: "SdcaOptimizer",
    gradient: Gradient::Stop,
    inputs: &[
        "sparse_example_indices: num_sparse_features * int64",
        "sparse_feature_indices: num_sparse_features * int64",
        "sparse_feature_values: num_sparse_features_with_values * float",
        "dense_features: num_dense_features * float",
        "example_weights: float",
        "example_labels: float",
        "sparse_indices: num_sparse_features * int64",
        "sparse_weights: num_sparse_features * float",
        "dense_weights: num_dense_features * float",
        "example_state_data: float",
    ],
    outputs: &[
        "out_example_state_data: float",
        "out_delta_sparse_weights: num_sparse_features * float",
        "out_delta_dense_weights: num_dense_features * float",
    ],
    attrs: &[
        "loss_type: {'logistic_loss', 'squared_loss', 'hinge_loss', 'smooth_hinge_loss', 'poisson_loss'}",
        "adaptative: bool = false",
        "num_sparse_features: int >= 0",
        "num_sparse_features_with_values: int >= 0",
        "num_dense_features: int >= 0",
        "l1: float",
        "l2: float",
        "num_loss_partitions: int >= 1",
        "num_inner_iterations: int >= 1",
    ],
    shape: optimizer_shape,
    kernels: kernels![any optimizer_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SDCA_OPTIMIZER_V2: Op = Op {
    name: "SdcaOptimizerV2",
    attrs: &[
        "loss_type: {'logistic_loss', 'squared_loss', 'hinge_loss', 'smooth_hinge_loss', 'poisson_loss'}",
        "adaptive: bool = false",
        "num_sparse_features: int >= 0",
        "num_sparse_features_with_values: int >= 0",
        "num_dense_features: int >= 0",
        "l1: float",
        "l2: float",
        "num_loss_partitions: int >= 1",
        "num_inner_iterations: int >= 1",
    ],
    kernels: kernels![any optimizer_v2_kernel],
    ..SDCA_OPTIMIZER
};

static SDCA_SHRINK_L1: Op = Op {
    name: "SdcaShrinkL1",
    gradient: Gradient::Stop,
    inputs: &["weights: Ref(num_features * float)"],
    attrs: &["num_features: int >= 0", "l1: float", "l2: float"],
    kernels: kernels![any shrink_kernel],
    ..Op::PURE
};

static SDCA_FPRINT: Op = Op {
    name: "SdcaFprint",
    gradient: Gradient::Stop,
    inputs: &["input: string"],
    outputs: &["output: int64"],
    shape: fprint_shape,
    kernels: kernels![any fprint_kernel],
    ..Op::PURE
};

/// Values per example: its dual variable, its primal and dual loss, its weight.
const STATE: usize = 4;

fn optimizer_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let layout = Layout {
        sparse: s.attr::<i64>("num_sparse_features")? as usize,
        with_values: s.attr::<i64>("num_sparse_features_with_values")? as usize,
        dense: s.attr::<i64>("num_dense_features")? as usize,
    };
    s.output(0, [UNKNOWN_DIM, STATE as i64])?;
    for group in 0..layout.sparse + layout.dense {
        let shape = s.input(layout.sparse_weights() + group).clone();
        s.set(1 + group, shape);
    }
    Ok(())
}

fn fprint_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let length = s.rank(0, 1)?.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    s.output(0, [length, 2])
}

/// Where inputs begin.
#[derive(Clone, Copy)]
struct Layout {
    sparse: usize,
    with_values: usize,
    dense: usize,
}

impl Layout {
    fn feature_indices(self) -> usize {
        self.sparse
    }
    fn values(self) -> usize {
        2 * self.sparse
    }
    fn dense_features(self) -> usize {
        self.values() + self.with_values
    }
    fn example_weights(self) -> usize {
        self.dense_features() + self.dense
    }
    fn sparse_indices(self) -> usize {
        self.example_weights() + 2
    }
    fn sparse_weights(self) -> usize {
        self.sparse_indices() + self.sparse
    }
    fn state(self) -> usize {
        self.sparse_weights() + self.sparse + self.dense
    }
}

#[derive(Clone, Copy)]
struct Settings {
    layout: Layout,
    loss: DualLoss,
    adaptive: bool,
    partitions: i64,
    regularization: Regularization,
}

#[derive(Clone, Copy)]
struct Regularization {
    l2: f32,
    /// L1 divided by L2: weights that are closer to zero count as zero.
    shrinkage: f64,
}

impl Regularization {
    fn new(init: &Init<'_>) -> Result<Regularization> {
        let (l1, l2): (f32, f32) = (init.attr("l1")?, init.attr("l2")?);
        Ok(Regularization { l2, shrinkage: (l1 / l2) as f64 })
    }

    /// A weight of a sparse feature.
    fn shrink(&self, weight: f64) -> f64 {
        let rest = weight.abs() - self.shrinkage;
        if rest > 0.0 { rest.copysign(weight) } else { 0.0 }
    }

    /// A weight of a dense feature, in single precision as in stock.
    fn shrink_dense(&self, weight: f32) -> f32 {
        let sign = if weight == 0.0 { 0.0 } else { weight.signum() };
        sign * (weight.abs() - self.shrinkage as f32).max(0.0)
    }
}

fn optimizer_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, "adaptative")
}

fn optimizer_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, "adaptive")
}

fn kernel(init: &Init<'_>, adaptive: &str) -> Result<Kernel> {
    let count = |name: &str| Ok::<_, ferroflow_core::Status>(init.attr::<i64>(name)?.max(0) as usize);
    let layout = Layout {
        sparse: count("num_sparse_features")?,
        with_values: count("num_sparse_features_with_values")?,
        dense: count("num_dense_features")?,
    };
    ensure!(layout.sparse + layout.dense > 0, InvalidArgument, "Requires at least one feature to train.");
    let settings = Settings {
        layout,
        loss: DualLoss::from_name(&init.attr::<String>("loss_type")?)?,
        adaptive: init.attr(adaptive)?,
        partitions: init.attr("num_loss_partitions")?,
        regularization: Regularization::new(init)?,
    };
    let stream = KernelStream::fresh();
    Kernel::sync(move |cx| {
        let mut state = cx.take(layout.state())?;
        let mut model = Model::new(cx, settings)?;
        ensure!(
            state.rank() == 2,
            InvalidArgument,
            "example_state_data must be rank 2 but is rank {}",
            state.rank()
        );
        let expected = Shape::matrix(model.examples.len(), STATE);
        ensure!(
            *state.shape() == expected,
            InvalidArgument,
            "Expected shape {expected} for example_state_data, got {}",
            state.shape()
        );
        let rows = state.flat_mut::<f32>()?.as_chunks_mut::<STATE>().0;
        let mut words = Words::new(stream.reserve(rows.len() as u64 + 1));
        let order = if settings.adaptive {
            model.adaptive_order(rows, &mut words)
        } else {
            shuffled(rows.len(), &mut words)
        };
        for (visited, example) in order.into_iter().enumerate() {
            if visited.is_multiple_of(1024) {
                cx.step().check_cancelled()?;
            }
            model.visit(example, &mut rows[example])?;
        }
        let mut outputs = vec![state];
        outputs.extend(model.into_deltas()?);
        Ok(outputs.into())
    })
}

/// Numbers up to `count` in random order.
fn shuffled(count: usize, words: &mut Words) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, words.below(last as u32 + 1) as usize);
    }
    order
}

/// The features of one group that one example has: places of weights, and values if they are not all 1.
struct SparseFeatures<'a> {
    places: Vec<usize>,
    values: Option<&'a [f32]>,
}

impl SparseFeatures<'_> {
    fn iter(&self) -> impl Iterator<Item = (usize, f64)> {
        let value = |k: usize| self.values.map_or(1.0, |values| values[k] as f64);
        self.places.iter().enumerate().map(move |(k, place)| (*place, value(k)))
    }
}

struct Example<'a> {
    weight: f32,
    label: f32,
    sparse: Vec<SparseFeatures<'a>>,
    dense: Vec<&'a [f32]>,
    squared_norm: f64,
}

/// The weights of a group of features, and how far they have moved.
struct Weights<'a> {
    shape: Shape,
    nominals: &'a [f32],
    deltas: Vec<f32>,
}

impl<'a> Weights<'a> {
    fn new(tensor: &'a Tensor) -> Result<Weights<'a>> {
        let nominals = tensor.flat()?;
        Ok(Weights { shape: tensor.shape().clone(), nominals, deltas: vec![0.0; nominals.len()] })
    }
}

/// Everything that a pass over the examples reads and changes.
struct Model<'a> {
    settings: Settings,
    examples: Vec<Example<'a>>,
    sparse: Vec<Weights<'a>>,
    dense: Vec<Weights<'a>>,
}

/// Predictions for an example before this pass and now.
struct Predictions {
    before: f64,
    now: f64,
}

impl<'a> Model<'a> {
    fn new(cx: &'a KernelCx<'_>, settings: Settings) -> Result<Model<'a>> {
        let layout = settings.layout;
        let weights = |first: usize, count: usize| -> Result<Vec<Weights<'a>>> {
            (first..first + count).map(|input| Weights::new(cx.input(input)?)).collect()
        };
        let sparse = weights(layout.sparse_weights(), layout.sparse)?;
        let dense = weights(layout.sparse_weights() + layout.sparse, layout.dense)?;
        let example_weights: &[f32] = cx.flat(layout.example_weights())?;
        let labels: &[f32] = cx.flat(layout.example_weights() + 1)?;
        ensure!(
            labels.len() == example_weights.len(),
            InvalidArgument,
            "Expected {} example labels but got {}",
            example_weights.len(),
            labels.len()
        );
        let example = |(weight, label): (&f32, &f32)| Example {
            weight: *weight,
            label: *label,
            sparse: Vec::with_capacity(layout.sparse),
            dense: Vec::with_capacity(layout.dense),
            squared_norm: 0.0,
        };
        let examples = example_weights.iter().zip(labels).map(example).collect();
        let mut model = Model { settings, examples, sparse, dense };
        for group in 0..layout.dense {
            let features = cx.input(layout.dense_features() + group)?;
            ensure!(
                features.rank() == 2,
                InvalidArgument,
                "Dense features at index {group} must be rank 2 but is rank {}",
                features.rank()
            );
        }
        for group in 0..layout.sparse {
            model.add_sparse(cx, group)?;
        }
        for group in 0..layout.dense {
            model.add_dense(cx, group)?;
        }
        model.examples.iter_mut().try_for_each(Example::measure)?;
        Ok(model)
    }

    fn add_sparse(&mut self, cx: &'a KernelCx<'_>, group: usize) -> Result<()> {
        let layout = self.settings.layout;
        let rows: &[i64] = cx.flat(group)?;
        let features: &[i64] = cx.flat(layout.feature_indices() + group)?;
        ensure!(
            rows.len() == features.len(),
            InvalidArgument,
            "Found mismatched example_indices and feature_indices [{}] vs [{}]",
            rows.len(),
            features.len()
        );
        let values: Option<&[f32]> =
            if group < layout.with_values { Some(cx.flat(layout.values() + group)?) } else { None };
        ensure!(
            values.is_none_or(|values| values.len() == features.len()),
            InvalidArgument,
            "Expected {} values of sparse features in group {group}, got {}",
            features.len(),
            values.map_or(0, <[f32]>::len)
        );
        let known: &[i64] = cx.flat(layout.sparse_indices() + group)?;
        ensure!(
            known.len() <= self.sparse[group].nominals.len(),
            InvalidArgument,
            "sparse_indices of group {group} has {} elements, but there are {} weights",
            known.len(),
            self.sparse[group].nominals.len()
        );
        let places: HashMap<i64, usize> =
            known.iter().enumerate().map(|(place, index)| (*index, place)).collect();
        // Features of an example stand together, in the order of examples; what is out of order is not seen, as in stock.
        let mut end = 0;
        for (number, example) in self.examples.iter_mut().enumerate() {
            let start = end;
            end += rows[start..].iter().take_while(|row| **row == number as i64).count();
            let place = |feature: &i64| {
                places.get(feature).copied().ok_or_else(|| {
                    status!(InvalidArgument, "Found sparse feature indices out of valid range: {feature}")
                })
            };
            let own = features[start..end].iter().map(place).collect::<Result<_>>()?;
            example
                .sparse
                .push(SparseFeatures { places: own, values: values.map(|values| &values[start..end]) });
        }
        Ok(())
    }

    fn add_dense(&mut self, cx: &'a KernelCx<'_>, group: usize) -> Result<()> {
        let features = cx.input(self.settings.layout.dense_features() + group)?;
        let (rows, width) = (features.shape().dim(0), features.shape().dim(1));
        ensure!(
            (1..=self.dense[group].nominals.len()).contains(&width),
            InvalidArgument,
            "More dense features than we have parameters for: {width}"
        );
        ensure!(
            rows >= self.examples.len(),
            InvalidArgument,
            "Dense features at index {group} have {rows} rows, but there are {} examples",
            self.examples.len()
        );
        for (example, row) in self.examples.iter_mut().zip(features.flat::<f32>()?.chunks(width)) {
            example.dense.push(row);
        }
        Ok(())
    }

    fn predict(&self, example: &Example<'_>) -> Predictions {
        let (regularization, partitions) = (&self.settings.regularization, self.settings.partitions as f32);
        let mut sums = Predictions { before: 0.0, now: 0.0 };
        for (features, weights) in example.sparse.iter().zip(&self.sparse) {
            for (place, value) in features.iter() {
                let nominal = weights.nominals[place];
                let now = nominal + weights.deltas[place] * partitions;
                sums.before += value * regularization.shrink(nominal as f64);
                sums.now += value * regularization.shrink(now as f64);
            }
        }
        for (row, weights) in example.dense.iter().zip(&self.dense) {
            let (mut before, mut now) = (0.0f32, 0.0f32);
            for ((value, nominal), delta) in row.iter().zip(weights.nominals).zip(&weights.deltas) {
                before += value * regularization.shrink_dense(*nominal);
                now += value * regularization.shrink_dense(nominal + delta * partitions);
            }
            sums.before += before as f64;
            sums.now += now as f64;
        }
        sums
    }

    /// Improves the dual variable of one example, and the weights with it.
    fn visit(&mut self, number: usize, state: &mut [f32; STATE]) -> Result<()> {
        let (loss, l2) = (self.settings.loss, self.settings.regularization.l2 as f64);
        let example = &self.examples[number];
        let (label, weight, dual) =
            (loss.label(example.label)? as f64, example.weight as f64, state[0] as f64);
        let predictions = self.predict(example);
        let new_dual = loss.updated_dual(Coordinate {
            label,
            weight,
            dual,
            wx: predictions.now,
            norm: example.squared_norm / l2,
            partitions: self.settings.partitions as f64,
        });
        let step = (new_dual - dual) * weight / l2;
        for (features, weights) in example.sparse.iter().zip(&mut self.sparse) {
            for (place, value) in features.iter() {
                weights.deltas[place] = (weights.deltas[place] as f64 + value * step) as f32;
            }
        }
        for (row, weights) in example.dense.iter().zip(&mut self.dense) {
            for (delta, value) in weights.deltas.iter_mut().zip(*row) {
                *delta += value * step as f32;
            }
        }
        *state = [
            new_dual as f32,
            loss.primal_loss(predictions.before, label, weight) as f32,
            loss.dual_loss(dual, label, weight) as f32,
            example.weight,
        ];
        Ok(())
    }

    /// Examples by how much they promise; each becomes ten times less likely when it is drawn. Those that were never
    /// drawn come last, the most promising first.
    fn adaptive_order(&self, state: &[[f32; STATE]], words: &mut Words) -> Vec<usize> {
        let (loss, l2) = (self.settings.loss, self.settings.regularization.l2 as f64);
        let promise = |(example, state): (&Example<'_>, &[f32; STATE])| {
            // A label that is wrong is reported when its example is visited.
            let label = loss.label(example.label).unwrap_or(example.label) as f64;
            let residue = state[0] as f64 + loss.primal_slope(self.predict(example).now, label);
            let scale = (example.squared_norm + l2 * loss.smoothness()).sqrt();
            (example.weight as f64 * scale * residue.abs()) as f32
        };
        let promises: Vec<f32> = self.examples.iter().zip(state).map(promise).collect();
        let count = promises.len();
        let total: f32 = promises.iter().sum();
        if !(total.is_finite() && total > 0.0 && promises.iter().all(|promise| *promise >= 0.0)) {
            return shuffled(count, words);
        }
        let table = AliasTable::new(&promises);
        let (mut order, mut drawn, mut rejected) = (Vec::with_capacity(count), vec![0i32; count], 0);
        while order.len() < count && rejected < count {
            let example = table.pick(words);
            if words.next_f64() > 0.1f64.powi(drawn[example]) {
                rejected += 1;
                continue;
            }
            drawn[example] += 1;
            order.push(example);
        }
        let mut unseen: Vec<usize> = (0..count).filter(|example| drawn[*example] == 0).collect();
        unseen.sort_by(|a, b| promises[*b].total_cmp(&promises[*a]));
        order.extend(unseen.into_iter().take(count - order.len()));
        order
    }

    fn into_deltas(self) -> Result<Vec<Tensor>> {
        let groups = self.sparse.into_iter().chain(self.dense);
        groups.map(|weights| Tensor::new(weights.shape, weights.deltas)).collect()
    }
}

impl Example<'_> {
    fn measure(&mut self) -> Result<()> {
        let mut norm = 0.0;
        let mut seen = HashSet::new();
        for features in &self.sparse {
            seen.clear();
            for (place, value) in features.iter() {
                ensure!(seen.insert(place), InvalidArgument, "Duplicate index in sparse vector.");
                norm += value * value;
            }
        }
        for row in &self.dense {
            norm += row.iter().map(|value| value * value).sum::<f32>() as f64;
        }
        self.squared_norm = norm;
        Ok(())
    }
}

fn shrink_kernel(init: &Init<'_>) -> Result<Kernel> {
    let regularization = Regularization::new(init)?;
    Kernel::sync(move |cx| {
        for input in 0..cx.num_inputs() {
            let weights = cx.variable(input)?;
            Variable::update_all(&[&weights], &mut |values| {
                for value in values {
                    let weights = value.flat_mut::<f32>()?;
                    for weight in weights.iter_mut() {
                        *weight = regularization.shrink_dense(*weight);
                    }
                }
                Ok(())
            })?;
        }
        Ok(Outputs::None)
    })
}

fn fprint_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.input(0)?;
        ensure!(input.rank() == 1, InvalidArgument, "Input must be a vector, got shape {}", input.shape());
        let mut out = cx.alloc_dtype(DType::Int64, Shape::matrix(input.elements(), 2))?;
        for (text, pair) in input.flat::<Str>()?.iter().zip(out.flat_mut::<i64>()?.as_chunks_mut::<2>().0) {
            let [low, high] = fingerprint128(text);
            // 0 and 1 stay free for other uses.
            let low = if low >= 2 { low } else { low.wrapping_add(!1) };
            *pair = [low as i64, high as i64];
        }
        Ok(out.into())
    })
}
