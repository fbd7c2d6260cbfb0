//! Nearest centers of points, and first centers to begin with.

use crate::linalg::product::{Gemm, MatrixView};
use crate::numeric::philox::Philox;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Op, shapes};
use ferroflow_core::{Result, Shape, Tensor, ensure, kernels};
use std::collections::BTreeSet;

pub(crate) const OPS: &[&Op] =
    &[&NEAREST_NEIGHBORS, &KMEANS_PLUS_PLUS_INITIALIZATION, &KMC2_CHAIN_INITIALIZATION];

static NEAREST_NEIGHBORS: Op = Op {
    name: "NearestNeighbors",
    inputs: &["points: float", "centers: float", "k: int64"],
    outputs: &["nearest_center_indices: int64", "nearest_center_distances: float"],
    shape: shapes::unknown,
    kernels: kernels![any nearest_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static KMEANS_PLUS_PLUS_INITIALIZATION: Op = Op {
    name: "KmeansPlusPlusInitialization",
    inputs: &["points: float", "num_to_sample: int64", "seed: int64", "num_retries_per_sample: int64"],
    outputs: &["samples: float"],
    shape: shapes::unknown,
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

/// Words of a generator, one after the other.
struct Words {
    generator: Philox,
    rest: Vec<u32>,
}

impl Words {
    fn new(seed: i64) -> Words {
        Words { generator: Philox::from_seeds(seed as u64, 0), rest: Vec::new() }
    }

    fn word(&mut self) -> u32 {
        if self.rest.is_empty() {
            self.rest.extend(self.generator.block());
            self.rest.reverse();
        }
        self.rest.pop().unwrap_or_default()
    }

    /// A number below one, of the bits of a word.
    fn unit(&mut self) -> f32 {
        f32::from_bits((self.word() & 0x7f_ffff) | (127 << 23)) - 1.0
    }

    /// A number below `count`, each as likely.
    fn below(&mut self, count: u64) -> u64 {
        let double = |words: &mut Words| {
            let low = u64::from(words.word());
            low | (u64::from(words.word()) << 32)
        };
        if count.is_power_of_two() {
            return double(self) & (count - 1);
        }
        let left_out = u64::MAX % count + 1;
        loop {
            let value = double(self);
            if value >= left_out {
                return value % count;
            }
        }
    }
}

fn half_squares(rows: &[f32], width: usize) -> Vec<f32> {
    rows.chunks_exact(width).map(|row| 0.5 * row.iter().map(|x| x * x).sum::<f32>()).collect()
}

fn matrix<'a>(tensor: &'a Tensor, name: &str) -> Result<(usize, usize, &'a [f32])> {
    ensure!(tensor.rank() == 2, InvalidArgument, "Input {name} should be a matrix.");
    Ok((tensor.shape().dim(0), tensor.shape().dim(1), tensor.flat::<f32>()?))
}

fn check_scalar(tensor: &Tensor, name: &str) -> Result<()> {
    ensure!(tensor.rank() == 0, InvalidArgument, "Input {name} should be a scalar.");
    Ok(())
}

fn nearest_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (count, width, points) = matrix(cx.input(0)?, "points")?;
        let (centers_count, centers_width, centers) = matrix(cx.input(1)?, "centers")?;
        check_scalar(cx.input(2)?, "k")?;
        ensure!(count > 0, InvalidArgument, "Expected points.rows() > 0.");
        ensure!(
            width == centers_width,
            InvalidArgument,
            "Expected point_dimensions == center_dimensions: {width} vs {centers_width}."
        );
        let k = cx.scalar::<i64>(2)?;
        ensure!(k >= 0, InvalidArgument, "k must not be negative, got {k}");
        let k = (k as usize).min(centers_count);
        let shape = Shape::matrix(count, k);
        let (mut indices, mut distances) = (cx.alloc::<i64>(shape.clone())?, cx.alloc::<f32>(shape)?);
        if k == 0 {
            return Ok([indices, distances].into());
        }
        let (point_squares, squares) = if width == 0 {
            (vec![0.0; count], vec![0.0; centers_count])
        } else {
            (half_squares(points, width), half_squares(centers, width))
        };
        let block = (BLOCK / centers_count).clamp(16, count.max(16));
        let (indices_out, distances_out) = (indices.flat_mut::<i64>()?, distances.flat_mut::<f32>()?);
        let threads = cx.threads();
        let right = MatrixView::new(centers, centers_count, width, true);
        for first in (0..count).step_by(block) {
            let rows = block.min(count - first);
            let left = MatrixView::new(&points[first * width..][..rows * width], rows, width, false);
            let mut products = vec![0.0; rows * centers_count];
            f32::multiply(threads, left, right, &mut products);
            let products = &products;
            threads.parallel_row_pairs(
                (&mut indices_out[first * k..][..rows * k], k),
                (&mut distances_out[first * k..][..rows * k], k),
                2 * centers_count,
                |start, indices, distances| {
                    let rows = indices.chunks_exact_mut(k).zip(distances.chunks_exact_mut(k));
                    for (row, (indices, distances)) in rows.enumerate() {
                        let row = start + row;
                        let products = &products[row * centers_count..][..centers_count];
                        let own = point_squares[first + row];
                        nearest(products, &squares, own, indices, distances);
                    }
                },
            );
        }
        Ok([indices, distances].into())
    })
}

/// Products of points and centers that are held at a time.
const BLOCK: usize = 1 << 20;

/// The nearest centers of a point, the nearest first; of equal ones the first.
fn nearest(products: &[f32], squares: &[f32], own: f32, indices: &mut [i64], distances: &mut [f32]) {
    let k = indices.len();
    let partial = |at: usize| squares[at] - products[at];
    let mut order: Vec<usize> = Vec::new();
    if k == 1 {
        let mut best = 0;
        for at in 1..products.len() {
            if partial(at) < partial(best) {
                best = at;
            }
        }
        order.push(best);
    } else {
        order.extend(0..products.len());
        let by_distance = |a: &usize, b: &usize| partial(*a).total_cmp(&partial(*b)).then(a.cmp(b));
        if k < order.len() {
            order.select_nth_unstable_by(k, by_distance);
            order.truncate(k);
        }
        order.sort_unstable_by(by_distance);
    }
    for (at, from) in order.into_iter().enumerate() {
        indices[at] = from as i64;
        distances[at] = 2.0 * (own + partial(from));
    }
}

fn plus_plus_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (count, width, points) = matrix(cx.input(0)?, "points")?;
        for (input, name) in [(1, "num_to_sample"), (2, "seed"), (3, "num_retries_per_sample")] {
            check_scalar(cx.input(input)?, name)?;
        }
        let (wanted, seed, retries) = (cx.scalar::<i64>(1)?, cx.scalar::<i64>(2)?, cx.scalar::<i64>(3)?);
        ensure!(count > 0, InvalidArgument, "Expected points.rows() > 0.");
        ensure!(wanted > 0, InvalidArgument, "Expected num_to_sample > 0.");
        ensure!(
            wanted <= count as i64,
            InvalidArgument,
            "Expected num_to_sample <= points.rows(). {wanted} vs {count}."
        );
        let retries = if retries >= 0 { retries } else { 2 + (wanted as f64).ln() as i64 };
        let mut output = cx.alloc::<f32>(Shape::matrix(wanted as usize, width))?;
        let squares = if width == 0 { vec![0.0; count] } else { half_squares(points, width) };
        let mut words = Words::new(seed);
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        let mut distances = vec![f32::INFINITY; count];
        let out = output.flat_mut::<f32>()?;
        for number in 0..wanted as usize {
            cx.step().check_cancelled()?;
            let mut sums = distances.clone();
            if number > 0 {
                for at in 1..count {
                    sums[at] += sums[at - 1];
                }
            }
            let mut best: Option<(f32, usize, Vec<f32>)> = None;
            for _ in 0..=retries {
                let next = draw(&mut words, &sums, &chosen, count);
                let from = &points[next * width..][..width];
                let near: Vec<f32> = (0..count)
                    .map(|at| {
                        let own = &points[at * width..][..width];
                        let product: f32 = own.iter().zip(from).map(|(x, y)| x * y).sum();
                        distances[at].min(squares[at] - product + squares[next])
                    })
                    .collect();
                let potential = near.iter().sum::<f32>();
                if best.as_ref().is_none_or(|(least, ..)| potential < *least) {
                    best = Some((potential, next, near));
                }
            }
            let Some((_, next, near)) = best else { continue };
            distances = near;
            chosen.insert(next);
            out[number * width..][..width].copy_from_slice(&points[next * width..][..width]);
        }
        Ok(output.into())
    })
}

/// A point that was not chosen yet, as likely as it is far from the chosen ones.
fn draw(words: &mut Words, sums: &[f32], chosen: &BTreeSet<usize>, count: usize) -> usize {
    if chosen.is_empty() {
        return words.below(count as u64) as usize;
    }
    // Where nothing is left to choose by distance, stock would draw forever.
    for _ in 0..1000 {
        let value = words.unit() * sums[count - 1];
        let at = sums.partition_point(|sum| *sum <= value);
        if !chosen.contains(&at) {
            return at.min(count - 1);
        }
    }
    (0..count).find(|at| !chosen.contains(at)).unwrap_or(0)
}

fn chain_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let distances = cx.input(0)?;
        ensure!(distances.rank() == 1, InvalidArgument, "Input distances should be a vector.");
        check_scalar(cx.input(1)?, "seed")?;
        let distances = distances.flat::<f32>()?;
        ensure!(!distances.is_empty(), InvalidArgument, "Expected distances_tensor.size() > 0.");
        let mut words = Words::new(cx.scalar::<i64>(1)?);
        let mut chosen = 0;
        for at in 1..distances.len() {
            if distances[at] > words.unit() * distances[chosen] {
                chosen = at;
            }
        }
        Ok(Tensor::scalar(chosen as i64).into())
    })
}
