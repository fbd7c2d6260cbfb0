//! Grayscale dilation of images: a maximum over windows, to each element of which a filter adds its own.

use crate::linalg::window::Extent;
use crate::numeric::Real;
use crate::support::gradient::sibling;
use crate::support::windows::{Padding, Windows};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&DILATION_2D, &BACKPROP_INPUT, &BACKPROP_FILTER];

static DILATION_2D: Op = Op {
    name: "Dilation2D",
    inputs: &["input: T", "filter: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
        "strides: list(int) >= 4",
        "rates: list(int) >= 4",
        "padding: {'SAME', 'VALID'}",
    ],
    shape: dilation_shape,
    gradient: Gradient::Fn(gradient),
    kernels: kernels![dilation_kernel: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..Op::PURE
};

static BACKPROP_INPUT: Op = Op {
    name: "Dilation2DBackpropInput",
    inputs: &["input: T", "filter: T", "out_backprop: T"],
    outputs: &["in_backprop: T"],
    shape: input_shape,
    gradient: Gradient::Undefined,
    kernels: kernels![input_kernel: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..DILATION_2D
};

static BACKPROP_FILTER: Op = Op {
    name: "Dilation2DBackpropFilter",
    inputs: &["input: T", "filter: T", "out_backprop: T"],
    outputs: &["filter_backprop: T"],
    shape: filter_shape,
    gradient: Gradient::Undefined,
    kernels: kernels![filter_kernel: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..DILATION_2D
};

fn dilation_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (input, filter) = (s.rank(0, 4)?, s.rank(1, 3)?);
    let (strides, rates): (Vec<i64>, Vec<i64>) = (s.attr("strides")?, s.attr("rates")?);
    for (name, values) in [("stride", &strides), ("rates", &rates)] {
        ensure!(
            values.len() == 4,
            InvalidArgument,
            "Dilation2D requires the {name} attribute to contain 4 values, but got: {}",
            values.len()
        );
    }
    let padding: String = s.attr("padding")?;
    let windows = windows_of(&strides, &rates, &padding);
    let (Some(input), Some(filter)) = (input.dims(), filter.dims()) else { return Ok(()) };
    if input[1..3].contains(&UNKNOWN_DIM) || filter[..2].contains(&UNKNOWN_DIM) {
        return s.output(0, [input[0], UNKNOWN_DIM, UNKNOWN_DIM, filter[2]]);
    }
    let depth = s.merge_dims(input[3], filter[2])?;
    let rows = windows.output_dim(0, input[1], filter[0])?;
    let columns = windows.output_dim(1, input[2], filter[1])?;
    s.output(0, [input[0], rows, columns, depth])
}

fn input_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(0));
    Ok(())
}

fn filter_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(1));
    Ok(())
}

fn windows_of(strides: &[i64], rates: &[i64], padding: &str) -> Windows {
    let padding = if padding == "SAME" { Padding::Same } else { Padding::Valid };
    Windows { strides: strides[1..3].to_vec(), dilations: rates[1..3].to_vec(), padding }
}

fn kernel_windows(init: &Init<'_>) -> Result<Windows> {
    let (strides, rates): (Vec<i64>, Vec<i64>) = (init.attr("strides")?, init.attr("rates")?);
    ensure!(strides.len() == 4, InvalidArgument, "Sliding window stride field must specify 4 dimensions");
    ensure!(
        strides[0] == 1 && strides[3] == 1,
        Unimplemented,
        "Stride is only supported across spatial dimensions."
    );
    ensure!(rates.len() == 4, InvalidArgument, "Input stride (atrous rate) field must specify 4 dimensions");
    ensure!(
        rates[0] == 1 && rates[3] == 1,
        Unimplemented,
        "Rate is only supported across spatial dimensions."
    );
    ensure!(rates[1] >= 1 && rates[2] >= 1, InvalidArgument, "Dilation rates must be at least 1");
    let padding: String = init.attr("padding")?;
    Ok(windows_of(&strides, &rates, &padding))
}

/// The sizes of one dilation.
struct Plan {
    batch: usize,
    height: Extent,
    width: Extent,
    depth: usize,
}

impl Plan {
    fn new(cx: &KernelCx<'_>, windows: &Windows) -> Result<Plan> {
        let (input, filter) = (cx.input(0)?, cx.input(1)?);
        ensure!(input.rank() == 4, InvalidArgument, "input must be 4-dimensional{}", input.shape());
        ensure!(filter.rank() == 3, InvalidArgument, "filter must be 3-dimensional: {}", filter.shape());
        let (dims, filter) = (input.shape().dims(), filter.shape().dims());
        ensure!(
            dims[3] == filter[2],
            InvalidArgument,
            "input and filter must have the same depth: {} vs {}",
            dims[3],
            filter[2]
        );
        let [_, height, width] = windows.extents(&dims[1..3], &filter[..2])?;
        Ok(Plan { batch: dims[0] as usize, height, width, depth: dims[3] as usize })
    }

    fn output_shape(&self) -> Result<Shape> {
        let sizes = [self.batch, self.height.output, self.width.output, self.depth];
        Shape::new(sizes.map(|size| size as i64))
    }

    fn check_backprop(&self, cx: &KernelCx<'_>) -> Result<()> {
        let backprop = cx.input(2)?;
        ensure!(
            backprop.rank() == 4,
            InvalidArgument,
            "out_backprop must be 4-dimensional{}",
            backprop.shape()
        );
        ensure!(
            *backprop.shape() == self.output_shape()?,
            InvalidArgument,
            "out_backprop has incompatible size."
        );
        Ok(())
    }

    /// The numbers of pixels of an image.
    fn pixels(&self) -> usize {
        self.height.input * self.width.input
    }

    /// Calls `cell` with the number of each pixel under a window, and that of the filter's element above it.
    #[inline(always)]
    fn cells(&self, y: usize, x: usize, mut cell: impl FnMut(usize, usize)) {
        for ky in self.height.inside(y) {
            let row = self.height.at(y, ky) * self.width.input;
            for kx in self.width.inside(x) {
                cell(row + self.width.at(x, kx), ky * self.width.filter + kx);
            }
        }
    }

    /// Calls `found` with the place of each result of an image, and the pixel and filter element of its first maximum.
    /// Without an element above the least number, they are those stock starts from.
    fn maxima<T: Real>(&self, image: &[T], filter: &[T], found: &mut dyn FnMut(usize, Option<usize>, usize)) {
        let depth = self.depth;
        for y in 0..self.height.output {
            for x in 0..self.width.output {
                let start =
                    |extent: &Extent, window: usize| (window * extent.stride).saturating_sub(extent.before);
                let (top, left) = (start(&self.height, y), start(&self.width, x));
                let first = (top < self.height.input && left < self.width.input)
                    .then_some(top * self.width.input + left);
                for channel in 0..depth {
                    let (mut best, mut place, mut element) = (T::LEAST, first, 0);
                    self.cells(y, x, |pixel, at| {
                        let value = image[pixel * depth + channel].add(filter[at * depth + channel]);
                        if value > best {
                            (best, place, element) = (value, Some(pixel), at);
                        }
                    });
                    found((y * self.width.output + x) * depth + channel, place, element);
                }
            }
        }
    }
}

fn dilation_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let windows = kernel_windows(init)?;
    Kernel::sync(move |cx| {
        let plan = Plan::new(cx, &windows)?;
        let mut output = cx.alloc::<T>(plan.output_shape()?)?;
        let (input, filter) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?);
        let (depth, width) = (plan.depth, plan.width.output * plan.depth);
        let cost = plan.height.filter * plan.width.filter;
        // A row of results at a time, along which channels are next to each other.
        cx.threads().parallel_rows(output.flat_mut()?, width, cost, |first, part| {
            for (number, out) in part.chunks_exact_mut(width).enumerate() {
                let (image, y) =
                    ((first + number) / plan.height.output, (first + number) % plan.height.output);
                let image = &input[image * plan.pixels() * depth..][..plan.pixels() * depth];
                for (x, out) in out.chunks_exact_mut(depth).enumerate() {
                    out.fill(T::LEAST);
                    plan.cells(y, x, |pixel, at| {
                        let values =
                            image[pixel * depth..][..depth].iter().zip(&filter[at * depth..][..depth]);
                        for (out, (a, b)) in out.iter_mut().zip(values) {
                            let value = a.add(*b);
                            if value > *out {
                                *out = value;
                            }
                        }
                    });
                }
            }
        });
        Ok(output.into())
    })
}

fn input_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let windows = kernel_windows(init)?;
    Kernel::sync(move |cx| {
        let plan = Plan::new(cx, &windows)?;
        plan.check_backprop(cx)?;
        let mut output = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        let (input, filter, backprop) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?, cx.flat::<T>(2)?);
        let (size, results) =
            (plan.pixels() * plan.depth, plan.height.output * plan.width.output * plan.depth);
        let cost = plan.height.filter * plan.width.filter;
        cx.threads().parallel_rows(output.flat_mut()?, size, cost, |first, part| {
            for (number, out) in part.chunks_exact_mut(size).enumerate() {
                let number = first + number;
                out.fill(T::ZERO);
                let backprop = &backprop[number * results..][..results];
                plan.maxima(&input[number * size..][..size], filter, &mut |at, pixel, _| {
                    if let Some(pixel) = pixel {
                        let place = pixel * plan.depth + at % plan.depth;
                        out[place] = out[place].add(backprop[at]);
                    }
                });
            }
        });
        Ok(output.into())
    })
}

fn filter_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let windows = kernel_windows(init)?;
    Kernel::sync(move |cx| {
        let plan = Plan::new(cx, &windows)?;
        plan.check_backprop(cx)?;
        let mut output = cx.alloc::<T>(cx.input(1)?.shape().clone())?;
        let (input, filter, backprop) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?, cx.flat::<T>(2)?);
        let (size, results) =
            (plan.pixels() * plan.depth, plan.height.output * plan.width.output * plan.depth);
        let out = output.flat_mut::<T>()?;
        out.fill(T::ZERO);
        if !out.is_empty() && size > 0 {
            // In stock's order, one image after the other: sums round as there.
            for (number, image) in input.chunks_exact(size).enumerate() {
                plan.maxima(image, filter, &mut |at, _, element| {
                    let place = element * plan.depth + at % plan.depth;
                    out[place] = out[place].add(backprop[number * results + at]);
                });
            }
        }
        Ok(output.into())
    })
}

fn gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let dy = g.dy(0)?;
    let build = |op: &str| {
        let node = sibling(g, op, &["strides", "rates"], &["padding"])?;
        node.input(g.input(0)).input(g.input(1)).input(&dy).build()?.output(0)
    };
    Ok([build("Dilation2DBackpropInput")?, build("Dilation2DBackpropFilter")?].into())
}
