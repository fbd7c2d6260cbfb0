//! The means of elements under a window, and the gradients.

use crate::linalg::pool::Pool;
use crate::numeric::Float;
use crate::support::gradient::{shape_of, sibling};
use crate::support::pooling::{BadWindow, Pooling, Rules, pool_shape};
use crate::support::windows::{Format, described};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op};
use ferroflow_core::{Result, Shape, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&AVG_POOL, &AVG_POOL_GRAD, &AVG_POOL_3D, &AVG_POOL_3D_GRAD];

const IMAGES: Format = Format { rank: 4, channel: 3, first: 1 };
const VOLUMES: Format = Format { rank: 5, channel: 4, first: 1 };

const IMAGE_ATTRS: &[&str] = &[
    "ksize: list(int) >= 4",
    "strides: list(int) >= 4",
    "padding: {'SAME', 'VALID'}",
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
    "T: {half, bfloat16, float, double}",
];

const VOLUME_ATTRS: &[&str] = &[
    "ksize: list(int) >= 5",
    "strides: list(int) >= 5",
    "padding: {'SAME', 'VALID'}",
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
    "T: {half, bfloat16, float, double}",
];

static AVG_POOL: Op = Op {
    name: "AvgPool",
    gradient: Gradient::Fn(avg_pool_gradient),
    inputs: &["value: T"],
    outputs: &["output: T"],
    attrs: IMAGE_ATTRS,
    shape: |s| pool_shape(s, "NHWC"),
    kernels: kernels![avg_pool: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static AVG_POOL_GRAD: Op = Op {
    name: "AvgPoolGrad",
    gradient: Gradient::Fn(avg_pool_grad_gradient),
    inputs: &["orig_input_shape: int32", "grad: T"],
    outputs: &["output: T"],
    attrs: IMAGE_ATTRS,
    shape: |s| described(s, 0, 4),
    kernels: kernels![avg_pool_grad: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static AVG_POOL_3D: Op = Op {
    name: "AvgPool3D",
    gradient: Gradient::Fn(avg_pool_3d_gradient),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: VOLUME_ATTRS,
    shape: |s| pool_shape(s, "NDHWC"),
    kernels: kernels![avg_pool_3d: bf16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static AVG_POOL_3D_GRAD: Op = Op {
    name: "AvgPool3DGrad",
    gradient: Gradient::Fn(avg_pool_3d_grad_gradient),
    inputs: &["orig_input_shape: int32", "grad: T"],
    outputs: &["output: T"],
    attrs: VOLUME_ATTRS,
    shape: |s| described(s, 0, 5),
    kernels: kernels![avg_pool_3d_grad: bf16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

const MEAN: Rules =
    Rules { kernel: "AvgPoolingOp", strides: "stride", window: BadWindow::FirstAfterBatch, depth: None };

const MEAN_GRADIENT: Rules = Rules {
    kernel: "AvgPoolingGradOp",
    strides: "strides",
    depth: Some("Non-spatial pooling is not yet supported. Volunteers? :)"),
    ..MEAN
};

const VOLUME_MEAN: Rules = Rules {
    kernel: "Pooling3DOp",
    window: BadWindow::Volume,
    depth: Some("Pooling is not yet supported on the depth dimension."),
    ..MEAN
};

const VOLUME_MEAN_GRADIENT: Rules = Rules { kernel: "AvgPooling3dGradOp", ..VOLUME_MEAN };

fn avg_pool<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    pool_kernel::<T>(Pooling::new(init, &MEAN, IMAGES, None)?, Pool::mean)
}

fn avg_pool_3d<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    // In stock's volumes, the least number stands for padding.
    let pooling = Pooling::new(init, &VOLUME_MEAN, VOLUMES, None)?.centered();
    pool_kernel::<T>(pooling, Pool::mean_above_least)
}

fn pool_kernel<T: Float>(pooling: Pooling, mean: fn(&Pool, Threads<'_>, &[T], &mut [T])) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let placed = pooling.place(cx, input.shape())?;
        ensure!(placed.depth == 1, Unimplemented, "Non-spatial pooling is not yet supported. Volunteers? :)");
        let mut out = cx.alloc::<T>(placed.output)?;
        mean(&placed.pool, cx.threads(), input.flat()?, out.flat_mut()?);
        Ok(out.into())
    })
}

fn avg_pool_grad<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    gradient_kernel::<T>(Pooling::new(init, &MEAN_GRADIENT, IMAGES, None)?)
}

fn avg_pool_3d_grad<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    gradient_kernel::<T>(Pooling::new(init, &VOLUME_MEAN_GRADIENT, VOLUMES, None)?)
}

fn gradient_kernel<T: Float>(pooling: Pooling) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let (sizes, gradient) = (cx.input(0)?, cx.input(1)?);
        let rank = pooling.rank();
        ensure!(
            sizes.rank() == 1 && sizes.elements() == rank,
            InvalidArgument,
            "out_backprop must be 1-dimensional and {rank} elements"
        );
        ensure!(gradient.rank() == rank, InvalidArgument, "out_backprop must be {rank}-dimensional");
        let sizes = cx.i64s(0)?;
        if let Some(negative) = sizes.iter().find(|size| **size < 0) {
            bail!(InvalidArgument, "Expected a non-negative size, got {negative}");
        }
        let image = Shape::new(sizes)?;
        let mut placed = pooling.place(cx, &image)?;
        let shape = gradient.shape();
        ensure!(
            shape[0] == image[0] && shape[rank - 1] == image[rank - 1],
            InvalidArgument,
            "Expected grad shape to be {}, but got {shape}",
            placed.output
        );
        // Of images, stock takes as many windows as the gradient has, in or out of the image.
        let extents = &mut placed.pool.grid.extents[5 - rank..];
        for (extent, size) in extents.iter_mut().zip(&shape[1..]) {
            extent.output = *size as usize;
        }
        placed.pool.grid = placed.pool.grid.stretched();
        let mut out = cx.alloc::<T>(image)?;
        placed.pool.mean_gradient::<T>(cx.threads(), gradient.flat()?, out.flat_mut()?);
        Ok(out.into())
    })
}

fn avg_pool_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    gradient(g, &AVG_POOL_GRAD)
}

fn avg_pool_3d_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    gradient(g, &AVG_POOL_3D_GRAD)
}

fn gradient(g: &GradCx<'_>, op: &Op) -> Result<InputGrads> {
    let node = sibling(g, op.name, &["ksize", "strides"], &["padding", "data_format"])?;
    let node = node.input(shape_of(g.scope(), g.input(0))?).input(g.dy(0)?);
    Ok([node.build()?.output(0)?].into())
}

fn avg_pool_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    of_gradient(g, &AVG_POOL)
}

fn avg_pool_3d_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    of_gradient(g, &AVG_POOL_3D)
}

/// Averages the gradient over windows again, because it was shared out evenly.
fn of_gradient(g: &GradCx<'_>, op: &Op) -> Result<InputGrads> {
    let node = sibling(g, op.name, &["ksize", "strides"], &["padding", "data_format"])?;
    Ok([None, Some(node.input(g.dy(0)?).build()?.output(0)?)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::Tensor;

    #[test]
    fn shapes_follow_the_window_or_an_input() {
        let sizes = vec![1i64, 2, 2, 1];
        let node = |op: &str| {
            Node::new(op).attr("ksize", sizes.clone()).attr("strides", sizes.clone()).attr("padding", "SAME")
        };
        node("AvgPool").infer("[?,5,6,3]", "[?,3,3,3]");
        let image = Tensor::vector(vec![2i32, 5, 6, 3]);
        node("AvgPoolGrad").constant(0, image).infer("[4];[2,3,3,3]", "[2,5,6,3]");
    }
}
