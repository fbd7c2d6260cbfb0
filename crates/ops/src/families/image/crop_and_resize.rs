//! Boxes cut out of images and resized to one size, and the gradients.

use crate::builders as ops;
use crate::numeric::Num;
use crate::support::gradient::shape_output;
use crate::support::image::{ImageDims, Pixel, sized_image, with_pixels};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&CROP_AND_RESIZE, &CROP_AND_RESIZE_GRAD_IMAGE, &CROP_AND_RESIZE_GRAD_BOXES];

static CROP_AND_RESIZE: Op = Op {
    name: "CropAndResize",
    gradient: Gradient::Fn(gradient),
    inputs: &["image: T", "boxes: float", "box_ind: int32", "crop_size: int32"],
    outputs: &["crops: float"],
    attrs: &[
        "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}",
        "method: {'bilinear', 'nearest'} = 'bilinear'",
        "extrapolation_value: float = 0",
    ],
    shape: crop_shape,
    kernels: kernels![any crop_kernel],
    ..Op::PURE
};

static CROP_AND_RESIZE_GRAD_IMAGE: Op = Op {
    name: "CropAndResizeGradImage",
    inputs: &["grads: float", "boxes: float", "box_ind: int32", "image_size: int32"],
    outputs: &["output: T"],
    attrs: &["T: {float, half, double}", "method: {'bilinear', 'nearest'} = 'bilinear'"],
    shape: grad_image_shape,
    kernels: kernels![grad_image_kernel: f16, f32, f64],
    // Stock adds up boxes on several threads, in any order.
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static CROP_AND_RESIZE_GRAD_BOXES: Op = Op {
    name: "CropAndResizeGradBoxes",
    inputs: &["grads: float", "image: T", "boxes: float", "box_ind: int32"],
    outputs: &["output: float"],
    attrs: &[
        "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}",
        "method: {'bilinear'} = 'bilinear'",
    ],
    shape: grad_boxes_shape,
    kernels: kernels![any grad_boxes_kernel],
    ..Op::PURE
};

fn crop_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (image, boxes, indices) = (s.rank(0, 4)?, s.rank(1, 2)?, s.rank(2, 1)?);
    let [image, boxes, indices] = [&image, &boxes, &indices].map(|shape| shape.dims().unwrap_or_default());
    let count = s.merge_dims(boxes[0], indices[0])?;
    s.merge_dims(boxes[1], 4)?;
    sized_image(s, count, 3, image[3])
}

fn grad_image_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.constant_shape(3)?;
    ensure!(
        shape.rank().is_none_or(|rank| rank == 4),
        InvalidArgument,
        "Shape must be rank 4 but is rank {}",
        shape.rank().unwrap_or_default()
    );
    let shape = if shape.rank().is_none() { ferroflow_core::PartialShape::of_rank(4)? } else { shape };
    s.set(0, shape);
    Ok(())
}

fn grad_boxes_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(2));
    Ok(())
}

/// Boxes and the images that they are of.
struct Boxes<'a> {
    corners: &'a [[f32; 4]],
    images: &'a [i32],
}

impl<'a> Boxes<'a> {
    fn new(boxes: &'a Tensor, images: &'a Tensor, batch: usize) -> Result<Boxes<'a>> {
        if boxes.elements() == 0 && images.elements() == 0 {
            return Ok(Boxes { corners: &[], images: &[] });
        }
        ensure!(boxes.rank() == 2, InvalidArgument, "boxes must be 2-D{}", boxes.shape());
        ensure!(boxes.shape().dim(1) == 4, InvalidArgument, "boxes must have 4 columns");
        ensure!(images.rank() == 1, InvalidArgument, "box_index must be 1-D{}", images.shape());
        ensure!(
            images.elements() == boxes.shape().dim(0),
            InvalidArgument,
            "box_index has incompatible shape"
        );
        let images = images.flat::<i32>()?;
        ensure!(
            images.iter().all(|image| usize::try_from(*image).is_ok_and(|image| image < batch)),
            OutOfRange,
            "box_index has values outside [0, batch_size)"
        );
        Ok(Boxes { corners: boxes.flat::<f32>()?.as_chunks().0, images })
    }

    fn image(&self, number: usize) -> usize {
        self.images[number] as usize
    }
}

/// The places in an image of the pixels of a crop, along one direction.
fn places(low: f32, high: f32, image: usize, crop: usize) -> Vec<f32> {
    if crop > 1 {
        let step = (high - low) * (image - 1) as f32 / (crop - 1) as f32;
        (0..crop).map(|at| low * (image - 1) as f32 + at as f32 * step).collect()
    } else {
        vec![(0.5 * f64::from(low + high) * (image - 1) as f64) as f32]
    }
}

/// Whether a place lies in an image; NaN does not.
fn inside(place: f32, size: usize) -> bool {
    place >= 0.0 && place <= (size - 1) as f32
}

fn crop_kernel(init: &Init<'_>) -> Result<Kernel> {
    let nearest = init.attr::<String>("method")? == "nearest";
    let outside: f32 = init.attr("extrapolation_value")?;
    Kernel::sync(move |cx| {
        let (image, boxes, indices, size) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
        let Some(dims) = ImageDims::of(image.shape()) else {
            bail!(InvalidArgument, "input image must be 4-D{}", image.shape());
        };
        ensure!(dims.height > 0 && dims.width > 0, InvalidArgument, "image dimensions must be positive");
        ensure!(boxes.rank() == 2, InvalidArgument, "boxes must be 2-D, got: {}", boxes.shape());
        ensure!(
            indices.rank() == 1,
            InvalidArgument,
            "box_indices must be rank 1 but is shape {}",
            indices.shape()
        );
        ensure!(size.rank() == 1, InvalidArgument, "crop_size must be 1-D{}", size.shape());
        let &[height, width] = size.flat::<i32>()? else {
            bail!(InvalidArgument, "crop_size must have two elements{}", size.shape());
        };
        ensure!(height > 0 && width > 0, InvalidArgument, "crop dimensions must be positive");
        let boxes_of = Boxes::new(boxes, indices, dims.batch)?;
        let (height, width) = (height as usize, width as usize);
        let crops = ImageDims { batch: boxes_of.corners.len(), height, width, ..dims };
        let mut out = cx.alloc::<f32>(crops.shape()?)?;
        ensure!(
            boxes_of.corners.as_flattened().iter().all(|corner| corner.is_finite()),
            InvalidArgument,
            "Boxes contains at least one element that is not finite"
        );
        let crop = Crop { image: dims, crops, nearest, outside };
        let pixels = out.flat_mut::<f32>()?;
        with_pixels!(cx, image, original => crop.fill(cx.threads(), original, &boxes_of, pixels));
        Ok(out.into())
    })
}

struct Crop {
    image: ImageDims,
    crops: ImageDims,
    nearest: bool,
    outside: f32,
}

impl Crop {
    fn fill<T: Pixel>(&self, threads: Threads<'_>, images: &[T], boxes: &Boxes<'_>, out: &mut [f32]) {
        let (dims, crops) = (&self.image, &self.crops);
        if crops.image() == 0 {
            return;
        }
        threads.parallel_rows(out, crops.image(), 8, |first, parts| {
            for (number, out) in parts.chunks_mut(crops.image()).enumerate() {
                let [y1, x1, y2, x2] = boxes.corners[first + number];
                let image = &images[boxes.image(first + number) * dims.image()..][..dims.image()];
                let ys = places(y1, y2, dims.height, crops.height);
                let xs = places(x1, x2, dims.width, crops.width);
                for (out, y) in out.chunks_mut(crops.row()).zip(&ys) {
                    if !inside(*y, dims.height) {
                        out.fill(self.outside);
                        continue;
                    }
                    for (out, x) in out.chunks_mut(dims.channels).zip(&xs) {
                        if inside(*x, dims.width) {
                            self.pixel(image, *y, *x, out);
                        } else {
                            out.fill(self.outside);
                        }
                    }
                }
            }
        });
    }

    fn pixel<T: Pixel>(&self, image: &[T], y: f32, x: f32, out: &mut [f32]) {
        let channels = self.image.channels;
        let at =
            |y: f32, x: f32| &image[(y as usize * self.image.width + x as usize) * channels..][..channels];
        if self.nearest {
            for (out, value) in out.iter_mut().zip(at(y.round(), x.round())) {
                *out = value.single();
            }
            return;
        }
        let (top, bottom, left, right) = (y.floor(), y.ceil(), x.floor(), x.ceil());
        let (down, across) = (y - top, x - left);
        let corners = [at(top, left), at(top, right), at(bottom, left), at(bottom, right)];
        for (channel, out) in out.iter_mut().enumerate() {
            let [top_left, top_right, bottom_left, bottom_right] =
                corners.map(|pixel| pixel[channel].single());
            let top = top_left + (top_right - top_left) * across;
            let bottom = bottom_left + (bottom_right - bottom_left) * across;
            *out = top + (bottom - top) * down;
        }
    }
}

fn grads_of(cx: &KernelCx<'_>) -> Result<ImageDims> {
    let grads = cx.input(0)?;
    let Some(dims) = ImageDims::of(grads.shape()) else {
        bail!(InvalidArgument, "grads image must be 4-D{}", grads.shape());
    };
    ensure!(dims.height > 0 && dims.width > 0, InvalidArgument, "grads dimensions must be positive");
    Ok(dims)
}

fn grad_image_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let nearest = init.attr::<String>("method")? == "nearest";
    Kernel::sync(move |cx| {
        let crops = grads_of(cx)?;
        let size = cx.input(3)?;
        ensure!(size.rank() == 1, InvalidArgument, "image_size must be 1-D{}", size.shape());
        let &[batch, height, width, depth] = size.flat::<i32>()? else {
            bail!(InvalidArgument, "image_size must have 4 elements{}", size.shape());
        };
        ensure!(height > 0 && width > 0, InvalidArgument, "image dimensions must be positive");
        ensure!(
            crops.channels as i64 == i64::from(depth),
            InvalidArgument,
            "image_size and grads are incompatible"
        );
        ensure!(batch >= 0, InvalidArgument, "image_size has a negative batch size: {batch}");
        let boxes = Boxes::new(cx.input(1)?, cx.input(2)?, batch as usize)?;
        ensure!(
            crops.batch == boxes.corners.len(),
            InvalidArgument,
            "boxes and grads have incompatible shape"
        );
        let dims = ImageDims {
            batch: batch as usize,
            height: height as usize,
            width: width as usize,
            channels: crops.channels,
        };
        let mut out = cx.zeros(T::DTYPE, dims.shape()?)?;
        let (grads, channels) = (cx.flat::<f32>(0)?, dims.channels);
        let spread = |images: &mut [T], number: usize| {
            let [y1, x1, y2, x2] = boxes.corners[number];
            let image = &mut images[boxes.image(number) * dims.image()..][..dims.image()];
            let grads = &grads[number * crops.image()..][..crops.image()];
            let ys = places(y1, y2, dims.height, crops.height);
            let xs = places(x1, x2, dims.width, crops.width);
            for (grads, y) in grads.chunks(crops.row()).zip(&ys).filter(|(_, y)| inside(**y, dims.height)) {
                for (grads, x) in grads.chunks(channels).zip(&xs).filter(|(_, x)| inside(**x, dims.width)) {
                    let mut add = |y: f32, x: f32, share: &dyn Fn(f32) -> f32| {
                        let place = (y as usize * dims.width + x as usize) * channels;
                        for (sum, grad) in image[place..][..channels].iter_mut().zip(grads) {
                            *sum = sum.add(T::from_f64(share(*grad) as f64));
                        }
                    };
                    if nearest {
                        add(y.round(), x.round(), &|grad| grad);
                        continue;
                    }
                    let (down, across) = (y - y.floor(), x - x.floor());
                    add(y.floor(), x.floor(), &|grad| (1.0 - across) * ((1.0 - down) * grad));
                    add(y.floor(), x.ceil(), &|grad| across * ((1.0 - down) * grad));
                    add(y.ceil(), x.floor(), &|grad| (1.0 - across) * (down * grad));
                    add(y.ceil(), x.ceil(), &|grad| across * (down * grad));
                }
            }
        };
        if crops.image() > 0 {
            let images = out.flat_mut::<T>()?;
            for number in 0..crops.batch {
                spread(images, number);
            }
        }
        Ok(out.into())
    })
}

fn grad_boxes_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let crops = grads_of(cx)?;
        let image = cx.input(1)?;
        let Some(dims) = ImageDims::of(image.shape()) else {
            bail!(InvalidArgument, "input image must be 4-D{}", image.shape());
        };
        ensure!(dims.height > 0 && dims.width > 0, InvalidArgument, "image dimensions must be positive");
        ensure!(dims.channels == crops.channels, InvalidArgument, "image, grads depth differ");
        let boxes = Boxes::new(cx.input(2)?, cx.input(3)?, dims.batch)?;
        ensure!(
            crops.batch == boxes.corners.len(),
            InvalidArgument,
            "boxes and grads have incompatible shape"
        );
        let mut out = cx.zeros(DType::Float, Shape::matrix(crops.batch, 4))?;
        let grads = cx.flat::<f32>(0)?;
        let sums = out.flat_mut::<f32>()?;
        with_pixels!(cx, image, images => {
            cx.threads().parallel_rows(sums, 4, crops.image() * 4, |first, parts| {
                for (number, sums) in parts.chunks_mut(4).enumerate() {
                    let image = &images[boxes.image(first + number) * dims.image()..][..dims.image()];
                    let grads = &grads[(first + number) * crops.image()..][..crops.image()];
                    box_gradient(image, grads, boxes.corners[first + number], (dims, crops), sums);
                }
            });
        });
        Ok(out.into())
    })
}

/// Adds up the gradient of one box's corners, in the order and precision that stock does.
fn box_gradient<T: Pixel>(
    image: &[T],
    grads: &[f32],
    [y1, x1, y2, x2]: [f32; 4],
    (dims, crops): (ImageDims, ImageDims),
    sums: &mut [f32],
) {
    let ratio =
        |image: usize, crop: usize| if crop > 1 { (image - 1) as f32 / (crop - 1) as f32 } else { 0.0 };
    let (height_ratio, width_ratio) = (ratio(dims.height, crops.height), ratio(dims.width, crops.width));
    let (height_step, width_step) = ((y2 - y1) * height_ratio, (x2 - x1) * width_ratio);
    let (bottom_edge, right_edge) = ((dims.height - 1) as f32, (dims.width - 1) as f32);
    let place = |low: f32, high: f32, edge: f32, step: f32, at: usize, count: usize| match count {
        1 => (0.5 * f64::from(low + high) * f64::from(edge)) as f32,
        _ => low * edge + at as f32 * step,
    };
    let channels = dims.channels;
    for y in 0..crops.height {
        let in_y = place(y1, y2, bottom_edge, height_step, y, crops.height);
        if !inside(in_y, dims.height) {
            continue;
        }
        for x in 0..crops.width {
            let in_x = place(x1, x2, right_edge, width_step, x, crops.width);
            if !inside(in_x, dims.width) {
                continue;
            }
            let (down, across) = (in_y - in_y.floor(), in_x - in_x.floor());
            let at = |y: f32, x: f32| (y as usize * dims.width + x as usize) * channels;
            let places = [
                at(in_y.floor(), in_x.floor()),
                at(in_y.floor(), in_x.ceil()),
                at(in_y.ceil(), in_x.floor()),
                at(in_y.ceil(), in_x.ceil()),
            ];
            for channel in 0..channels {
                let [top_left, top_right, bottom_left, bottom_right] =
                    places.map(|place| image[place + channel].single());
                let grad = grads[(y * crops.width + x) * channels + channel];
                let vertical =
                    ((1.0 - across) * (bottom_left - top_left) + across * (bottom_right - top_right)) * grad;
                let horizontal =
                    ((1.0 - down) * (top_right - top_left) + down * (bottom_right - bottom_left)) * grad;
                let mut add =
                    |corners: [usize; 2], slope: f32, edge: f32, at: usize, ratio: f32, count: usize| {
                        if count > 1 {
                            sums[corners[0]] += slope * (edge - at as f32 * ratio);
                            sums[corners[1]] += slope * (at as f32 * ratio);
                        } else {
                            let half = f64::from(slope) * 0.5 * f64::from(edge);
                            for at in corners.iter() {
                                sums[*at] = (f64::from(sums[*at]) + half) as f32;
                            }
                        }
                    };
                add([0, 2], vertical, bottom_edge, y, height_ratio, crops.height);
                add([1, 3], horizontal, right_edge, x, width_ratio, crops.width);
            }
        }
    }
}

/// Boxes get their gradient as if crops were interpolated, as in stock, even where the nearest pixel is taken.
fn gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, image) = (g.scope(), g.input(0));
    let of_image = match image.dtype() {
        DType::Half | DType::Float | DType::Double => {
            let node = ops::CropAndResizeGradImage::new(image.dtype()).method(&g.attr::<String>("method")?);
            Some(node.build(s, g.dy(0)?, g.input(1), g.input(2), shape_output(s, image)?)?)
        }
        _ => None,
    };
    let of_boxes = ops::crop_and_resize_grad_boxes(s, g.dy(0)?, image, g.input(1), g.input(2))?;
    Ok([of_image, Some(of_boxes), None, None].into())
}
