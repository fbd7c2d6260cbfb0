//! Clusters of points: which centers are nearest, and which points to start from.

use crate::linalg::product::{Gemm, MatrixView};
use crate::numeric::philox::{Philox, Words};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Op, shapes};
use ferroflow_core::{Result, Shape, Tensor, ensure, kernels};
use std::collections::HashSet;

pub(crate) const OPS: &[&Op] =
    &[&NEAREST_NEIGHBORS, &KMEANS_PLUS_PLUS_INITIALIZATION, &KMC2_CHAIN_INITIALIZATION];

static NEAREST_NEIGHBORS: Op = Op {
    name: "NearestNeighbors",
    inputs: &["points: float", "centers: float", "k: int64"],
    outputs: &["nearest_center_indices: int64", "nearest_center_distances: float"],
    kernels: kernels![any nearest_neighbors_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static KMEANS_PLUS_PLUS_INITIALIZATION: Op = Op {
    name: "KmeansPlusPlusInitialization",
    inputs: &["points: float", "num_to_sample: int64", "seed: int64", "num_retries_per_sample: int64"],
    outputs: &["samples: float"],
    kernels: kernels![any plus_plus_kernel],
    ..Op::PURE
};

static KMC2_CHAIN_INITIALIZATION: Op = Op {
    name: "KMC2ChainInitialization",
    inputs: &["distances: float", "seed: int64"],
    outputs: &["index: int64"],
    shape: shapes::scalar,
    kernels: kernels![any chain_kernel],
    ..Op::PURE
};

fn matrix<'a>(cx: &'a KernelCx<'_>, input: usize, name: &str) -> Result<&'a Tensor> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 2, InvalidArgument, "Input {name} should be a matrix.");
    Ok(tensor)
}

fn number(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<i64> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 0, InvalidArgument, "Input {name} should be a scalar.");
    tensor.to_scalar()
}

/// Half of the squared length of every row.
fn half_squares(rows: &[f32], width: usize, count: usize) -> Vec<f32> {
    (0..count).map(|row| 0.5 * rows[row * width..][..width].iter().map(|x| x * x).sum::<f32>()).collect()
}

fn nearest_neighbors_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (points, centers) = (matrix(cx, 0, "points")?, matrix(cx, 1, "centers")?);
        let k = number(cx, 2, "k")?;
        let (count, width) = (points.shape().dim(0), points.shape().dim(1));
        let (num_centers, center_width) = (centers.shape().dim(0), centers.shape().dim(1));
        ensure!(count > 0, InvalidArgument, "Expected points.rows() > 0.");
        ensure!(
            width == center_width,
            InvalidArgument,
            "Expected point_dimensions == center_dimensions: {width} vs {center_width}."
        );
        ensure!(k >= 0, InvalidArgument, "Expected k >= 0, got {k}");
        let k = (k as usize).min(num_centers);
        let mut indices = cx.alloc::<i64>(Shape::matrix(count, k))?;
        let mut distances = cx.alloc::<f32>(Shape::matrix(count, k))?;
        if k == 0 {
            return Ok([indices, distances].into());
        }
        let (points, centers) = (points.flat::<f32>()?, centers.flat::<f32>()?);
        let squares = half_squares(points, width, count);
        let center_squares = half_squares(centers, width, num_centers);
        let (index_slots, distance_slots) = (indices.flat_mut::<i64>()?, distances.flat_mut::<f32>()?);
        // As many points at a time as keep the products small.
        let block = ((1 << 20) / num_centers).clamp(1, count);
        let mut products = vec![0.0f32; block * num_centers];
        for start in (0..count).step_by(block) {
            cx.step().check_cancelled()?;
            let rows = block.min(count - start);
            let products = &mut products[..rows * num_centers];
            let left = MatrixView::new(&points[start * width..][..rows * width], rows, width, false);
            f32::multiply(cx.threads(), left, MatrixView::new(centers, num_centers, width, true), products);
            for (row, products) in products.chunks(num_centers).enumerate() {
                let partial = center_squares.iter().zip(products).map(|(square, product)| square - product);
                let mut order: Vec<(f32, usize)> = partial.zip(0..).collect();
                let by = |a: &(f32, usize), b: &(f32, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
                if k < num_centers {
                    order.select_nth_unstable_by(k - 1, by);
                    order.truncate(k);
                }
                order.sort_unstable_by(by);
                for (at, (partial, center)) in order.into_iter().enumerate() {
                    let place = (start + row) * k + at;
                    index_slots[place] = center as i64;
                    distance_slots[place] = (2.0 * (squares[start + row] + partial) as f64) as f32;
                }
            }
        }
        Ok([indices, distances].into())
    })
}

/// The points of a sample that is being drawn.
struct Sample<'a> {
    points: &'a [f32],
    width: usize,
    squares: Vec<f32>,
    /// Half of the squared distance of each point to the nearest one of the sample.
    distances: Vec<f32>,
    sums: Vec<f32>,
    chosen: HashSet<usize>,
    words: Words,
}

impl Sample<'_> {
    fn count(&self) -> usize {
        self.squares.len()
    }

    /// Draws a point, far ones more often than near ones.
    fn draw(&mut self, cx: &KernelCx<'_>) -> Result<usize> {
        if self.chosen.is_empty() {
            return Ok(self.words.below_u64(self.count() as u64) as usize);
        }
        for tries in 1u64.. {
            let sought = self.words.next_f32() * self.sums[self.count() - 1];
            let index = self.sums.partition_point(|sum| *sum <= sought).min(self.count() - 1);
            if !self.chosen.contains(&index) || self.chosen.len() == self.count() {
                return Ok(index);
            }
            if tries.is_multiple_of(1024) {
                cx.step().check_cancelled()?;
                // Nothing but points that are there already: the next one will do.
                ensure!(tries < 1 << 20, Internal, "all points are equal to some that were chosen");
            }
        }
        Ok(0)
    }

    /// The distances if this point were added.
    fn with(&self, index: usize) -> Vec<f32> {
        let row = |at: usize| &self.points[at * self.width..][..self.width];
        let own = row(index);
        let distance = |at: usize| {
            let product: f32 = row(at).iter().zip(own).map(|(a, b)| a * b).sum();
            (self.squares[at] - product) + self.squares[index]
        };
        self.distances.iter().enumerate().map(|(at, nearest)| nearest.min(distance(at))).collect()
    }

    /// Adds the best of some points.
    fn add(&mut self, cx: &KernelCx<'_>, retries: i64) -> Result<usize> {
        let (mut best, mut least) = ((0, self.distances.clone()), f32::INFINITY);
        for _ in 0..=retries {
            let index = self.draw(cx)?;
            let distances = self.with(index);
            let sum: f32 = distances.iter().sum();
            if sum < least || retries == 0 {
                (best, least) = ((index, distances), sum);
            }
        }
        self.distances = best.1;
        self.chosen.insert(best.0);
        let sums = self.distances.iter().scan(0.0f32, |sum, distance| {
            *sum += distance;
            Some(*sum)
        });
        self.sums = sums.collect();
        Ok(best.0)
    }
}

fn plus_plus_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let points = matrix(cx, 0, "points")?;
        let wanted = number(cx, 1, "num_to_sample")?;
        let (seed, retries) = (number(cx, 2, "seed")?, number(cx, 3, "num_retries_per_sample")?);
        let (count, width) = (points.shape().dim(0), points.shape().dim(1));
        ensure!(count > 0, InvalidArgument, "Expected points.rows() > 0.");
        ensure!(wanted > 0, InvalidArgument, "Expected num_to_sample > 0.");
        ensure!(
            wanted <= count as i64,
            InvalidArgument,
            "Expected num_to_sample <= points.rows(). {wanted} vs {count}."
        );
        let retries = if retries >= 0 { retries } else { 2 + (wanted as f64).ln() as i64 };
        let mut out = cx.alloc::<f32>(Shape::matrix(wanted as usize, width))?;
        let points = points.flat::<f32>()?;
        let mut sample = Sample {
            points,
            width,
            squares: half_squares(points, width, count),
            distances: vec![f32::INFINITY; count],
            sums: Vec::new(),
            chosen: HashSet::new(),
            words: Words::new(Philox::from_state([0, 0], seed as u64)),
        };
        for row in out.flat_mut::<f32>()?.chunks_mut(width.max(1)).take(wanted as usize) {
            cx.step().check_cancelled()?;
            let index = sample.add(cx, retries)?;
            row.copy_from_slice(&points[index * width..][..width]);
        }
        Ok(out.into())
    })
}

fn chain_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let distances = cx.input(0)?;
        ensure!(distances.rank() == 1, InvalidArgument, "Input distances should be a vector.");
        let seed = number(cx, 1, "seed")?;
        ensure!(distances.elements() > 0, InvalidArgument, "Expected distances_tensor.size() > 0.");
        let distances = distances.flat::<f32>()?;
        let mut words = Words::new(Philox::from_state([0, 0], seed as u64));
        let mut selected = 0;
        for candidate in 1..distances.len() {
            if distances[candidate] > words.next_f32() * distances[selected] {
                selected = candidate;
            }
        }
        Ok(Tensor::scalar(selected as i64).into())
    })
}
