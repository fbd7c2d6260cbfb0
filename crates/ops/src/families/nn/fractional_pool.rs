//! Pools whose regions differ by one element in size, so that an image shrinks by a ratio that is not whole.

use crate::builders as ops;
use crate::numeric::Real;
use crate::numeric::philox::{Philox, Words, fresh_seed};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{PartialShape, Result, Shape, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] =
    &[&FRACTIONAL_MAX_POOL, &FRACTIONAL_AVG_POOL, &FRACTIONAL_MAX_POOL_GRAD, &FRACTIONAL_AVG_POOL_GRAD];

static FRACTIONAL_MAX_POOL: Op = Op {
    name: "FractionalMaxPool",
    inputs: &["value: T"],
    outputs: &["output: T", "row_pooling_sequence: int64", "col_pooling_sequence: int64"],
    attrs: &[
        "pooling_ratio: list(float) >= 4",
        "pseudo_random: bool = false",
        "overlapping: bool = false",
        "deterministic: bool = false",
        "seed: int = 0",
        "seed2: int = 0",
        "T: {float, double, int32, int64}",
    ],
    shape: pool_shape,
    kernels: kernels![max_pool_kernel: f32, f64, i32, i64],
    gradient: Gradient::Fn(max_pool_grad),
    accuracy: Accuracy::Random,
    ..Op::PURE
};

static FRACTIONAL_AVG_POOL: Op = Op {
    name: "FractionalAvgPool",
    kernels: kernels![avg_pool_kernel: f32, f64, i32, i64],
    gradient: Gradient::Fn(avg_pool_grad),
    ..FRACTIONAL_MAX_POOL
};

static FRACTIONAL_MAX_POOL_GRAD: Op = Op {
    name: "FractionalMaxPoolGrad",
    inputs: &[
        "orig_input: T",
        "orig_output: T",
        "out_backprop: T",
        "row_pooling_sequence: int64",
        "col_pooling_sequence: int64",
    ],
    outputs: &["output: T"],
    attrs: &["overlapping: bool = false", "T: {float, double, int32, int64}"],
    shape: max_grad_shape,
    kernels: kernels![max_grad_kernel: f32, f64, i32, i64],
    ..Op::PURE
};

static FRACTIONAL_AVG_POOL_GRAD: Op = Op {
    name: "FractionalAvgPoolGrad",
    inputs: &[
        "orig_input_tensor_shape: int64",
        "out_backprop: T",
        "row_pooling_sequence: int64",
        "col_pooling_sequence: int64",
    ],
    shape: avg_grad_shape,
    kernels: kernels![avg_grad_kernel: f32, f64, i32, i64],
    accuracy: Accuracy::Rounding,
    ..FRACTIONAL_MAX_POOL_GRAD
};

fn check_ratios(ratios: &[f32]) -> Result<[f32; 4]> {
    let Ok(ratios) = <[f32; 4]>::try_from(ratios) else {
        ferroflow_core::bail!(InvalidArgument, "pooling_ratio field must specify 4 dimensions");
    };
    let small = ratios.iter().find(|ratio| ratio.is_nan() || **ratio < 1.0);
    ensure!(
        small.is_none(),
        InvalidArgument,
        "pooling_ratio cannot be smaller than 1, got: {}",
        small.copied().unwrap_or_default()
    );
    Ok(ratios)
}

/// Stock divides in single precision.
fn pooled(size: i64, ratio: f32) -> i64 {
    (size as f32 / ratio).floor() as i64
}

fn pool_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank(0, 4)?;
    let ratios = check_ratios(&s.attr::<Vec<f32>>("pooling_ratio")?)?;
    let dims = input.dims().map_or([UNKNOWN_DIM; 4], |dims| [dims[0], dims[1], dims[2], dims[3]]);
    let mut output = dims;
    for (dim, ratio) in output.iter_mut().zip(ratios).filter(|(dim, _)| **dim != UNKNOWN_DIM) {
        *dim = pooled(*dim, ratio);
    }
    s.output(0, output)?;
    // Stock announces one element less than there are.
    s.output(1, [UNKNOWN_DIM])?;
    s.output(2, [UNKNOWN_DIM])
}

fn max_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.rank(0, 4)?;
    s.set(0, shape);
    Ok(())
}

fn avg_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = match s.constant(0) {
        Some(_) => s.constant_shape(0)?,
        None => PartialShape::of_rank(4)?,
    };
    s.set(0, shape);
    Ok(())
}

/// Attributes of the pools.
struct Pool {
    ratios: [f32; 4],
    pseudo_random: bool,
    overlapping: bool,
    seeds: Option<(u64, u64)>,
}

impl Pool {
    fn new(init: &Init<'_>) -> Result<Pool> {
        let ratios = check_ratios(&init.attr::<Vec<f32>>("pooling_ratio")?)?;
        ensure!(
            ratios[0] == 1.0 && ratios[3] == 1.0,
            Unimplemented,
            "Fractional {} pooling is not yet supported on the batch nor channel dimension.",
            if init.op == FRACTIONAL_AVG_POOL.name { "average" } else { "max" }
        );
        let (seed, seed2): (i64, i64) = (init.attr("seed")?, init.attr("seed2")?);
        let deterministic: bool = init.attr("deterministic")?;
        ensure!(
            deterministic || (seed == 0 && seed2 == 0),
            InvalidArgument,
            "Both seed and seed2 should be 0 if deterministic is false."
        );
        // Regions that are drawn once stay the same in every step.
        let seeds = match (seed, seed2) {
            (0, 0) => (fresh_seed(), fresh_seed()),
            _ => (seed as u64, seed2 as u64),
        };
        Ok(Pool {
            ratios,
            pseudo_random: init.attr("pseudo_random")?,
            overlapping: init.attr("overlapping")?,
            seeds: deterministic.then_some(seeds),
        })
    }

    /// The regions of the only input.
    fn regions(&self, cx: &KernelCx<'_>) -> Result<Regions> {
        let input = cx.input(0)?;
        ensure!(input.rank() == 4, InvalidArgument, "tensor_in must be 4-dimensional");
        let mut sizes = [[0; 4]; 2];
        for (dim, ratio) in self.ratios.iter().enumerate() {
            let size = input.shape().dim(dim);
            ensure!(
                size as f32 >= *ratio,
                InvalidArgument,
                "Pooling ratio is higher than input dimension size for dimension {dim}. Input dim size: {size} \
                 pooling ratio: {ratio}"
            );
            sizes[0][dim] = size;
            sizes[1][dim] = pooled(size as i64, *ratio).max(1) as usize;
        }
        let [input, output] = sizes;
        let (seed, seed2) = self.seeds.unwrap_or_else(|| (fresh_seed(), fresh_seed()));
        let mut philox = Philox::from_seeds(seed, seed2);
        let rows = self.sequence(&mut philox, input[1], output[1]);
        let columns = self.sequence(&mut philox, input[2], output[2]);
        Ok(Regions { input, output, rows, columns, overlapping: self.overlapping })
    }

    /// Where the regions along one dimension start, and where the last one ends.
    fn sequence(&self, philox: &mut Philox, input: usize, output: usize) -> Vec<i64> {
        let lengths =
            if self.pseudo_random { spread(philox, input, output) } else { shuffled(philox, input, output) };
        let mut starts = vec![0i64];
        starts.extend(lengths.iter().scan(0, |sum, length| {
            *sum += length;
            Some(*sum)
        }));
        starts
    }
}

/// Lengths at equal distances from a random start.
fn spread(philox: &mut Philox, input: usize, output: usize) -> Vec<i64> {
    let (alpha, least) = (input as f64 / output as f64, (input / output) as f64);
    // Beyond these, the first or the last region would be too long or too short.
    let first = (least + 2.0) / alpha - 1.0;
    let last = (input as f64 + 1.0 - least) / alpha - (output as f64 - 1.0);
    let start = Words::new(*philox).next_f64() * first.min(last);
    philox.skip(1);
    let bound = |i: usize| match i {
        0 => 1,
        _ if i == output => input as i64 + 1,
        _ => (alpha * (i as f64 + start)).ceil() as i64,
    };
    (0..output).map(|i| bound(i + 1) - bound(i)).collect()
}

/// Lengths in random order: as many long ones as are needed, then short ones.
fn shuffled(philox: &mut Philox, input: usize, output: usize) -> Vec<i64> {
    let (short, long) = ((input / output) as i64, input % output);
    let mut lengths: Vec<i64> = (0..output).map(|i| short + (i < long) as i64).collect();
    let mut words = Words::new(*philox);
    philox.skip((output as u64).div_ceil(4));
    for at in 0..output - 1 {
        lengths.swap(at, at + (words.next() as usize % (output - at)));
    }
    lengths
}

/// The regions of an image, and its sizes before and after.
struct Regions {
    input: [usize; 4],
    output: [usize; 4],
    rows: Vec<i64>,
    columns: Vec<i64>,
    overlapping: bool,
}

impl Regions {
    fn output_shape(&self) -> Result<Shape> {
        Shape::new(self.output.map(|dim| dim as i64))
    }

    /// The elements of region `i`; neighbors share a border if they overlap.
    fn span(&self, bounds: &[i64], i: usize, size: usize) -> std::ops::Range<usize> {
        let end = if self.overlapping { bounds[i + 1] + 1 } else { bounds[i + 1] };
        let start = (bounds[i].max(0) as usize).min(size);
        start..(end.max(0) as usize).clamp(start, size)
    }

    /// Visits all pairs of an output and an input, both as indices of their first channel, region by region. The last
    /// argument is the size of the region.
    fn each(&self, visit: &mut dyn FnMut(usize, usize, usize)) {
        let [batch, height, width, depth] = self.input;
        for image in 0..batch {
            for row in 0..self.rows.len().saturating_sub(1) {
                for column in 0..self.columns.len().saturating_sub(1) {
                    let (rows, columns) =
                        (self.span(&self.rows, row, height), self.span(&self.columns, column, width));
                    let out = ((image * self.output[1] + row) * self.output[2] + column) * depth;
                    let count = rows.len() * columns.len();
                    for y in rows {
                        for x in columns.clone() {
                            visit(out, ((image * height + y) * width + x) * depth, count);
                        }
                    }
                }
            }
        }
    }
}

fn max_pool_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let pool = Pool::new(init)?;
    Kernel::sync(move |cx| {
        let regions = pool.regions(cx)?;
        let mut out = cx.alloc::<T>(regions.output_shape()?)?;
        let (slots, input, depth) = (out.flat_mut::<T>()?, cx.flat::<T>(0)?, regions.input[3]);
        slots.fill(T::LEAST);
        regions.each(&mut |to, from, _| {
            for channel in 0..depth {
                slots[to + channel] = slots[to + channel].raised(input[from + channel]);
            }
        });
        Ok([out, Tensor::vector(regions.rows), Tensor::vector(regions.columns)].into())
    })
}

fn avg_pool_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let pool = Pool::new(init)?;
    Kernel::sync(move |cx| {
        let regions = pool.regions(cx)?;
        let mut out = cx.zeros(T::DTYPE, regions.output_shape()?)?;
        let (slots, input, depth) = (out.flat_mut::<T>()?, cx.flat::<T>(0)?, regions.input[3]);
        let mut counts = vec![1usize; slots.len() / depth];
        regions.each(&mut |to, from, count| {
            counts[to / depth] = count;
            for channel in 0..depth {
                slots[to + channel] = slots[to + channel].add(input[from + channel]);
            }
        });
        for (pixel, count) in slots.chunks_mut(depth).zip(counts) {
            for slot in pixel.iter_mut() {
                *slot = slot.div(T::from_f64(count as f64));
            }
        }
        Ok([out, Tensor::vector(regions.rows), Tensor::vector(regions.columns)].into())
    })
}

fn four(shape: &Shape) -> [usize; 4] {
    [shape.dim(0), shape.dim(1), shape.dim(2), shape.dim(3)]
}

/// The bounds that a pool returned.
fn bounds(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<Vec<i64>> {
    let tensor = cx.input(input)?;
    ensure!(
        tensor.rank() == 1,
        InvalidArgument,
        "{name} must be a vector, received shape {}",
        tensor.shape()
    );
    Ok(tensor.flat::<i64>()?.to_vec())
}

fn max_grad_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let overlapping: bool = init.attr("overlapping")?;
    Kernel::sync(move |cx| {
        let (input, output, gradient) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        for (tensor, name) in [(input, "orig_input"), (output, "orig_output")] {
            ensure!(
                tensor.rank() == 4,
                InvalidArgument,
                "{name} should be a tensor of rank 4, got shape {}",
                tensor.shape()
            );
            ensure!(
                tensor.elements() > 0,
                InvalidArgument,
                "{name} must not be empty, got {}",
                tensor.shape()
            );
        }
        let (rows, columns) =
            (bounds(cx, 3, "row_pooling_sequence")?, bounds(cx, 4, "col_pooling_sequence")?);
        ensure!(
            rows.len() * columns.len() <= input.elements(),
            InvalidArgument,
            "Pooling region has more elements than the input tensor. row_pooling_sequence: {} \
             col_pooling_sequence: {} orig_input: {}",
            rows.len(),
            columns.len(),
            input.shape()
        );
        let regions =
            Regions { input: four(input.shape()), output: four(output.shape()), rows, columns, overlapping };
        let same_regions = regions.rows.len() == regions.output[1] + 1
            && regions.columns.len() == regions.output[2] + 1
            && regions.input[0] == regions.output[0]
            && regions.input[3] == regions.output[3];
        ensure!(same_regions, InvalidArgument, "tensor_out_dup is not the same as tensor_out");
        let (values, depth) = (input.flat::<T>()?, regions.input[3]);
        // The first of the largest elements of every region.
        let mut largest: Vec<Option<usize>> = vec![None; output.elements()];
        regions.each(&mut |to, from, _| {
            for channel in 0..depth {
                let slot = &mut largest[to + channel];
                if slot.is_none_or(|slot| values[slot] < values[from + channel]) {
                    *slot = Some(from + channel);
                }
            }
        });
        let expected = output.flat::<T>()?;
        let agree =
            largest.iter().zip(expected).all(|(slot, value)| slot.is_some_and(|at| values[at] == *value));
        ensure!(agree, InvalidArgument, "tensor_out_dup is not the same as tensor_out");
        ensure!(
            gradient.elements() == output.elements(),
            InvalidArgument,
            "out_backprop must have the shape of orig_output: {} vs. {}",
            gradient.shape(),
            output.shape()
        );
        let mut out = cx.zeros(T::DTYPE, input.shape().clone())?;
        let slots = out.flat_mut::<T>()?;
        for (at, gradient) in largest.into_iter().flatten().zip(gradient.flat::<T>()?) {
            slots[at] = slots[at].add(*gradient);
        }
        Ok(out.into())
    })
}

fn avg_grad_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let overlapping: bool = init.attr("overlapping")?;
    Kernel::sync(move |cx| {
        let (shape, gradient) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            shape.rank() == 1 && shape.elements() == 4,
            InvalidArgument,
            "original input tensor shape must be1-dimensional and 4 elements"
        );
        ensure!(gradient.rank() == 4, InvalidArgument, "out_backprop must be 4-dimensional");
        let empty = gradient.shape().dims().iter().find(|dim| **dim == 0);
        ensure!(empty.is_none(), InvalidArgument, "out_backprop must be positive for all dimension, got:0");
        let dims = shape.flat::<i64>()?;
        for (dim, name) in dims.iter().zip(["Batch", "Rows", "Columns", "Depth"]) {
            ensure!(*dim != 0, InvalidArgument, "{name} dimension of input must not be 0");
        }
        let shape = Shape::new(dims.iter().copied())?;
        let (rows, columns) = (cx.flat::<i64>(2)?.to_vec(), cx.flat::<i64>(3)?.to_vec());
        let output = four(gradient.shape());
        for (bounds, count, name) in
            [(&rows, output[1], "row_seq_tensor"), (&columns, output[2], "col_seq_tensor")]
        {
            ensure!(
                bounds.len() > count,
                InvalidArgument,
                "Given out_backprop shape {}, {name} must have at least {} elements, but got {}",
                gradient.shape(),
                count + 1,
                bounds.len()
            );
            let what = if name.starts_with("row") { "Row" } else { "Column" };
            ensure!(
                bounds[..=count].iter().all(|bound| *bound >= 0),
                InvalidArgument,
                "{what} sequence tensor values must not be negative, got {bounds:?}"
            );
        }
        let input = four(&shape);
        ensure!(
            output[0] <= input[0] && output[3] == input[3],
            InvalidArgument,
            "out_backprop {} does not fit an input of shape {shape}",
            gradient.shape()
        );
        let regions = Regions {
            input: [output[0], input[1], input[2], input[3]],
            output,
            rows: rows[..=output[1]].to_vec(),
            columns: columns[..=output[2]].to_vec(),
            overlapping,
        };
        let mut out = cx.alloc::<T>(shape)?;
        let mut sums = vec![0.0f64; out.elements()];
        let gradient = gradient.flat::<T>()?;
        regions.each(&mut |to, from, count| {
            for channel in 0..input[3] {
                sums[from + channel] += gradient[to + channel].to_f64() / count as f64;
            }
        });
        for (slot, sum) in out.flat_mut::<T>()?.iter_mut().zip(sums) {
            *slot = T::from_f64(sum);
        }
        Ok(out.into())
    })
}

fn max_pool_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::FractionalMaxPoolGrad::new().overlapping(g.attr("overlapping")?);
    let dx = node.build(g.scope(), g.input(0), g.output(0)?, g.dy(0)?, g.output(1)?, g.output(2)?)?;
    Ok([dx].into())
}

fn avg_pool_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let shape = ops::Shape::new().out_type(ferroflow_core::DType::Int64).build(s, g.input(0))?;
    let node = ops::FractionalAvgPoolGrad::new().overlapping(g.attr("overlapping")?);
    Ok([node.build(s, shape, g.dy(0)?, g.output(1)?, g.output(2)?)?].into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;

    #[test]
    fn shapes_shrink_by_the_ratio() {
        let node = || Node::new("FractionalMaxPool").attr("pooling_ratio", vec![1.0f32, 1.5, 2.0, 1.0]);
        node().infer("[2,7,?,3]", "[2,4,?,3];[?];[?]");
    }

    #[test]
    fn regions_cover_the_image() {
        for pseudo_random in [false, true] {
            let pool = Pool { ratios: [1.0, 1.7, 1.7, 1.0], pseudo_random, overlapping: false, seeds: None };
            let bounds = pool.sequence(&mut Philox::from_seeds(5, 6), 17, 10);
            assert_eq!((bounds.first(), bounds.last(), bounds.len()), (Some(&0), Some(&17), 11));
            assert!(bounds.windows(2).all(|pair| (1..=2).contains(&(pair[1] - pair[0]))), "{bounds:?}");
        }
    }
}
