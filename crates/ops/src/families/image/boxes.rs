//! Boxes drawn into images, and random boxes to crop them by.

use crate::numeric::philox::{KernelStream, Philox, Words, from_seed_input};
use crate::numeric::{Float, Int};
use crate::support::distribution::uniform_f32;
use crate::support::image::ImageDims;
use crate::support::index::input_ints;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{Result, Shape, Tensor, Unit, bail, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &DRAW_BOUNDING_BOXES,
    &DRAW_BOUNDING_BOXES_V2,
    &SAMPLE_DISTORTED,
    &SAMPLE_DISTORTED_V2,
    &STATELESS_SAMPLE_DISTORTED,
    &RANDOM_CROP,
];

static DRAW_BOUNDING_BOXES: Op = Op {
    name: "DrawBoundingBoxes",
    gradient: Gradient::Stop,
    inputs: &["images: T", "boxes: float"],
    outputs: &["output: T"],
    attrs: &["T: {float, half} = DT_FLOAT"],
    shape: draw_shape,
    kernels: kernels![draw_kernel: f16, f32],
    ..Op::PURE
};

static DRAW_BOUNDING_BOXES_V2: Op = Op {
    name: "DrawBoundingBoxesV2",
    gradient: Gradient::Undefined,
    inputs: &["images: T", "boxes: float", "colors: float"],
    shape: draw_v2_shape,
    ..DRAW_BOUNDING_BOXES
};

static SAMPLE_DISTORTED: Op = Op {
    name: "SampleDistortedBoundingBox",
    gradient: Gradient::Stop,
    inputs: &["image_size: T", "bounding_boxes: float"],
    outputs: &["begin: T", "size: T", "bboxes: float"],
    attrs: &[
        "T: {uint8, int8, int16, int32, int64}",
        "seed: int = 0",
        "seed2: int = 0",
        "min_object_covered: float = 0.1",
        "aspect_ratio_range: list(float) = [0.75, 1.33]",
        "area_range: list(float) = [0.05, 1.0]",
        "max_attempts: int = 100",
        "use_image_if_no_bounding_boxes: bool = false",
    ],
    shape: sample_shape,
    kernels: kernels![sample_kernel: u8, i8, i16, i32, i64],
    ..Op::STATEFUL
};

static SAMPLE_DISTORTED_V2: Op = Op {
    name: "SampleDistortedBoundingBoxV2",
    inputs: &["image_size: T", "bounding_boxes: float", "min_object_covered: float"],
    attrs: &[
        "T: {uint8, int8, int16, int32, int64}",
        "seed: int = 0",
        "seed2: int = 0",
        "aspect_ratio_range: list(float) = [0.75, 1.33]",
        "area_range: list(float) = [0.05, 1.0]",
        "max_attempts: int = 100",
        "use_image_if_no_bounding_boxes: bool = false",
    ],
    ..SAMPLE_DISTORTED
};

static STATELESS_SAMPLE_DISTORTED: Op = Op {
    name: "StatelessSampleDistortedBoundingBox",
    gradient: Gradient::Stop,
    inputs: &["image_size: T", "bounding_boxes: float", "min_object_covered: float", "seed: Tseed"],
    outputs: &["begin: T", "size: T", "bboxes: float"],
    attrs: &[
        "T: {uint8, int8, int16, int32, int64}",
        "Tseed: {int32, int64}",
        "aspect_ratio_range: list(float) = [0.75, 1.33]",
        "area_range: list(float) = [0.05, 1.0]",
        "max_attempts: int = 100",
        "use_image_if_no_bounding_boxes: bool = false",
    ],
    shape: sample_shape,
    kernels: kernels![stateless_sample_kernel: u8, i8, i16, i32, i64],
    ..Op::PURE
};

static RANDOM_CROP: Op = Op {
    name: "RandomCrop",
    gradient: Gradient::Stop,
    inputs: &["image: T", "size: int64"],
    outputs: &["output: T"],
    attrs: &["T: {uint8, int8, int16, int32, int64, float, double}", "seed: int = 0", "seed2: int = 0"],
    shape: crop_shape,
    kernels: kernels![any crop_kernel],
    deprecated_at: Some(8),
    ..Op::STATEFUL
};

fn draw_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (images, boxes) = (s.rank(0, 4)?, s.rank(1, 3)?);
    let [images, boxes] = [&images, &boxes].map(|shape| shape.dims().unwrap_or_default());
    ensure!(
        matches!(images[3], UNKNOWN_DIM | 1 | 3 | 4),
        InvalidArgument,
        "Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)"
    );
    s.merge_dims(boxes[2], 4)?;
    shapes::unchanged(s)
}

fn draw_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank_at_least(0, 3)?;
    shapes::unchanged(s)
}

fn sample_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (size, boxes) = (s.rank(0, 1)?, s.rank(1, 3)?);
    s.merge_dims(size.dims().unwrap_or_default()[0], 3)?;
    s.merge_dims(boxes.dims().unwrap_or_default()[2], 4)?;
    if s.num_inputs() > 2 {
        s.rank(2, 0)?;
    }
    if s.num_inputs() > 3 {
        let seed = s.rank(3, 1)?;
        s.merge_dims(seed.dims().unwrap_or_default()[0], 2)?;
    }
    s.output(0, [3])?;
    s.output(1, [3])?;
    s.output(2, [1, 1, 4])
}

fn crop_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (image, size) = (s.rank(0, 3)?, s.rank(1, 1)?);
    s.merge_dims(size.dims().unwrap_or_default()[0], 2)?;
    let channels = image.dims().unwrap_or_default()[2];
    let known = |dim: i64| if dim < 0 { UNKNOWN_DIM } else { dim };
    match s.constant_i64s(1)?.as_deref() {
        Some(&[height, width]) => s.output(0, [known(height), known(width), channels]),
        _ => s.output(0, [UNKNOWN_DIM, UNKNOWN_DIM, channels]),
    }
}

/// The colors of boxes unless others are given: yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia.
const COLORS: [[f32; 4]; 10] = [
    [1.0, 1.0, 0.0, 1.0],
    [0.0, 0.0, 1.0, 1.0],
    [1.0, 0.0, 0.0, 1.0],
    [0.0, 1.0, 0.0, 1.0],
    [0.5, 0.0, 0.5, 1.0],
    [0.5, 0.5, 0.0, 1.0],
    [0.5, 0.0, 0.0, 1.0],
    [0.0, 0.0, 0.5, 1.0],
    [0.0, 1.0, 1.0, 1.0],
    [1.0, 0.0, 1.0, 1.0],
];

fn colors(cx: &KernelCx<'_>, depth: usize) -> Result<Vec<Vec<f32>>> {
    if cx.num_inputs() == 3 {
        let colors = cx.input(2)?;
        ensure!(colors.rank() == 2, InvalidArgument, "colors must be a 2-D matrix{}", colors.shape());
        let width = colors.shape().dim(1);
        ensure!(
            width >= depth,
            InvalidArgument,
            "colors must have equal or more channels than the image provided: {}",
            colors.shape()
        );
        if colors.elements() > 0 {
            return Ok(colors.flat::<f32>()?.chunks(width).map(|color| color[..depth].to_vec()).collect());
        }
    }
    let gray = |color: &[f32; 4]| if depth == 1 { vec![1.0] } else { color[..depth].to_vec() };
    Ok(COLORS.iter().map(gray).collect())
}

fn draw_kernel<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (images, boxes) = (cx.input(0)?, cx.input(1)?);
        let Some(dims) = ImageDims::of(images.shape()) else {
            bail!(InvalidArgument, "The rank of the images should be 4");
        };
        let &[batch, count, coordinates] = boxes.shape().dims() else {
            bail!(InvalidArgument, "The rank of the boxes tensor should be 3");
        };
        ensure!(batch as usize == dims.batch, InvalidArgument, "The batch sizes should be the same");
        ensure!(
            matches!(dims.channels, 1 | 3 | 4),
            InvalidArgument,
            "Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)"
        );
        ensure!(
            coordinates == 4,
            InvalidArgument,
            "The size of the third dimension of the box must be 4. Received: {coordinates}"
        );
        let palette: Vec<Vec<T>> = colors(cx, dims.channels)?
            .iter()
            .map(|color| color.iter().map(|part| T::from_f64(f64::from(*part))).collect())
            .collect();
        let mut out = cx.alloc::<T>(images.shape().clone())?;
        let canvas = out.flat_mut::<T>()?;
        canvas.copy_from_slice(images.flat::<T>()?);
        let (boxes, _) = boxes.flat::<f32>()?.as_chunks::<4>();
        for (number, corners) in boxes.iter().enumerate() {
            let (image, of_image) = (number / count as usize, number % count as usize);
            let canvas = &mut canvas[image * dims.image()..][..dims.image()];
            draw(canvas, &dims, *corners, &palette[of_image % palette.len()]);
        }
        Ok(out.into())
    })
}

/// Draws the sides of a box that lie in the image.
fn draw<T: Copy>(canvas: &mut [T], dims: &ImageDims, [y1, x1, y2, x2]: [f32; 4], color: &[T]) {
    let (height, width) = (dims.height as i64, dims.width as i64);
    let place = |share: f32, size: i64| (share * (size - 1) as f32) as i64;
    let (top, bottom) = (place(y1, height), place(y2, height));
    let (left, right) = (place(x1, width), place(x2, width));
    if top > bottom || left > right || top >= height || bottom < 0 || left >= width || right < 0 {
        return;
    }
    let rows = top.max(0)..=bottom.min(height - 1);
    let columns = left.max(0)..=right.min(width - 1);
    let mut dot = |row: i64, column: i64| {
        canvas[(row * width + column) as usize * color.len()..][..color.len()].copy_from_slice(color);
    };
    for row in [top, bottom].into_iter().filter(|row| (0..height).contains(row)) {
        for column in columns.clone() {
            dot(row, column);
        }
    }
    for column in [left, right].into_iter().filter(|column| (0..width).contains(column)) {
        for row in rows.clone() {
            dot(row, column);
        }
    }
}

#[derive(Clone, Copy)]
struct Rectangle {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Rectangle {
    fn area(&self) -> f32 {
        (self.right - self.left).wrapping_mul(self.bottom - self.top) as f32
    }

    fn common(&self, other: &Rectangle) -> Rectangle {
        let common = Rectangle {
            left: self.left.max(other.left),
            top: self.top.max(other.top),
            right: self.right.min(other.right),
            bottom: self.bottom.min(other.bottom),
        };
        if common.left > common.right || common.top > common.bottom {
            return Rectangle { left: 0, top: 0, right: 0, bottom: 0 };
        }
        common
    }
}

/// The attributes of a draw.
struct Sampling {
    covered: Option<f32>,
    aspect: [f32; 2],
    area: [f32; 2],
    attempts: usize,
    whole_image: bool,
}

impl Sampling {
    fn read(init: &Init<'_>) -> Result<Sampling> {
        let range = |attr: &str, name: &str| -> Result<[f32; 2]> {
            match init.attr::<Vec<f32>>(attr)?.as_slice() {
                [low, high] => {
                    ensure!(
                        *low > 0.0 && *high > 0.0,
                        InvalidArgument,
                        "{name} range must be non-negative: [{low}, {high}]"
                    );
                    Ok([*low, *high])
                }
                _ => bail!(InvalidArgument, "{name} range field must specify 2 dimensions"),
            }
        };
        let covered = if init.attrs.has("min_object_covered") {
            let covered: f32 = init.attr("min_object_covered")?;
            ensure!(covered >= 0.0, InvalidArgument, "Min object covered must be non-negative: {covered}");
            Some(covered)
        } else {
            None
        };
        let (aspect, area) = (range("aspect_ratio_range", "Aspect ratio")?, range("area_range", "Area")?);
        ensure!(
            area[0] <= 1.0 && area[1] <= 1.0,
            InvalidArgument,
            "Area range must be less then or equal to 1.0: [{}, {}]",
            area[0],
            area[1]
        );
        let attempts: i64 = init.attr("max_attempts")?;
        ensure!(attempts > 0, InvalidArgument, "Max attempts must be non-negative: {attempts}");
        let whole_image = init.attr("use_image_if_no_bounding_boxes")?;
        Ok(Sampling { covered, aspect, area, attempts: attempts as usize, whole_image })
    }

    fn sample<T: Int>(&self, cx: &KernelCx<'_>, philox: Philox) -> Result<Outputs> {
        let size = cx.input(0)?;
        ensure!(size.rank() == 1, InvalidArgument, "image_size must be 1-dimensional{}", size.shape());
        ensure!(size.elements() == 3, InvalidArgument, "image_size must contain 3 elements{}", size.shape());
        let size = input_ints(cx, 0)?;
        let side = |side: i64, name: &str| match i32::try_from(side) {
            Ok(side) if (0..i32::MAX).contains(&side) => Ok(side),
            _ => bail!(InvalidArgument, "image {name} cannot be >= int32 max"),
        };
        let (height, width) = (side(size[0], "height")?, side(size[1], "width")?);
        let covered = match self.covered {
            Some(covered) => covered,
            None => {
                let covered = cx.input(2)?;
                ensure!(
                    covered.rank() == 0,
                    InvalidArgument,
                    "min_object_covered must be 0-D, got shape {}",
                    covered.shape()
                );
                let covered: f32 = covered.to_scalar()?;
                ensure!(
                    covered >= 0.0,
                    InvalidArgument,
                    "Min object covered must be non-negative: {covered}"
                );
                covered
            }
        };
        let image = Rectangle { left: 0, top: 0, right: width, bottom: height };
        let objects = self.objects(cx.input(1)?, image)?;
        let mut random = Words::new(philox);
        let found = (0..self.attempts).find_map(|_| {
            let [low, high] = self.aspect;
            let aspect = uniform_f32(random.next()) * (high - low) + low;
            let crop = self.crop(&mut random, width, height, aspect)?;
            let covers = |object: &Rectangle| {
                object.area() >= 1.0 && crop.common(object).area() / object.area() >= covered
            };
            (crop.area() >= 1.0 && objects.iter().any(covers)).then_some(crop)
        });
        let crop = found.unwrap_or(image);
        let vector = |values: [i32; 3]| Tensor::vector(values.map(|x| T::from_i64(i64::from(x))).to_vec());
        let corners = vec![
            crop.top as f32 / height as f32,
            crop.left as f32 / width as f32,
            crop.bottom as f32 / height as f32,
            crop.right as f32 / width as f32,
        ];
        let corners = Tensor::new(Shape::new([1, 1, 4])?, corners)?;
        let size = [crop.bottom - crop.top, crop.right - crop.left, -1];
        Ok([vector([crop.top, crop.left, 0]), vector(size), corners].into())
    }

    /// The objects of which a part must be in the crop.
    fn objects(&self, boxes: &Tensor, image: Rectangle) -> Result<Vec<Rectangle>> {
        ensure!(
            boxes.rank() == 3,
            InvalidArgument,
            "input boxes must be 3-dimensional [batch, num_boxes, coords]: {}",
            boxes.shape()
        );
        ensure!(
            boxes.shape().dim(2) == 4,
            InvalidArgument,
            "bounding boxes must have shape [4] or [*, 4], got {}",
            boxes.shape()
        );
        let (boxes, _) = boxes.flat::<f32>()?.as_chunks::<4>();
        if let Some(outside) = boxes.as_flattened().iter().find(|x| !(0.0..=1.0).contains(*x)) {
            bail!(InvalidArgument, "All bounding box coordinates must be in [0.0, 1.0]: {outside}");
        }
        if boxes.is_empty() {
            ensure!(
                self.whole_image,
                InvalidArgument,
                "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to \
                 not provide any bounding boxes."
            );
            return Ok(vec![image]);
        }
        let scaled = |share: f32, side: i32| (share * side as f32) as i32;
        Ok(boxes
            .iter()
            .map(|[top, left, bottom, right]| Rectangle {
                left: scaled(*left, image.right),
                top: scaled(*top, image.bottom),
                right: scaled(*right, image.right),
                bottom: scaled(*bottom, image.bottom),
            })
            .collect())
    }

    /// A crop of this aspect ratio, whose area is in the range that was asked for, if there is one.
    fn crop(&self, random: &mut Words, width: i32, height: i32, aspect: f32) -> Option<Rectangle> {
        let [least, most] = self.area;
        if most <= 0.0 || aspect <= 0.0 || width <= 0 || height <= 0 || least > most {
            return None;
        }
        let (least, most) = (least * width as f32 * height as f32, most * width as f32 * height as f32);
        let nearest = |x: f32| x.round_ties_even() as i32;
        let across = |rows: i32| nearest(rows as f32 * aspect);
        let rows = nearest((least / aspect).sqrt());
        let mut most_rows = nearest((most / aspect).sqrt());
        if across(most_rows) > width {
            const EPSILON: f32 = 0.0000001;
            most_rows = ((f64::from(width) + 0.5 - f64::from(EPSILON)) / f64::from(aspect)) as i32;
            if across(most_rows) > width {
                most_rows -= 1;
            }
        }
        most_rows = most_rows.min(height);
        let mut rows = rows.min(most_rows);
        if rows < most_rows {
            rows += uniform(random, (most_rows - rows + 1) as u32) as i32;
        }
        let mut columns = across(rows);
        let mut area = columns.wrapping_mul(rows) as f32;
        if area < least {
            rows += 1;
            columns = across(rows);
            area = columns.wrapping_mul(rows) as f32;
        }
        if area > most {
            rows -= 1;
            columns = across(rows);
            area = columns.wrapping_mul(rows) as f32;
        }
        if area < least || area > most || columns > width || rows > height || columns <= 0 || rows <= 0 {
            return None;
        }
        let top = if rows < height { uniform(random, (height - rows) as u32) as i32 } else { 0 };
        let left = if columns < width { uniform(random, (width - columns) as u32) as i32 } else { 0 };
        Some(Rectangle { left, top, right: left + columns, bottom: top + rows })
    }
}

/// A number below `n`, each as likely as the others.
fn uniform(random: &mut Words, n: u32) -> u32 {
    if n & n.wrapping_sub(1) == 0 {
        return random.next() & n.wrapping_sub(1);
    }
    let rejected = u32::MAX % n + 1;
    loop {
        let word = random.next();
        if word >= rejected {
            return word % n;
        }
    }
}

fn sample_kernel<T: Int>(init: &Init<'_>) -> Result<Kernel> {
    let (sampling, stream) = (Sampling::read(init)?, KernelStream::new(init)?);
    Kernel::sync(move |cx| sampling.sample::<T>(cx, stream.reserve(sampling.attempts as u64)))
}

fn stateless_sample_kernel<T: Int>(init: &Init<'_>) -> Result<Kernel> {
    let sampling = Sampling::read(init)?;
    Kernel::sync(move |cx| sampling.sample::<T>(cx, from_seed_input(cx, 3)?))
}

fn crop_kernel(init: &Init<'_>) -> Result<Kernel> {
    let stream = KernelStream::new(init)?;
    Kernel::sync(move |cx| {
        let (image, size) = (cx.input(0)?, cx.input(1)?);
        let &[height, width, channels] = image.shape().dims() else {
            bail!(InvalidArgument, "input must be 3-dimensional{}", image.shape());
        };
        ensure!(size.rank() == 1, InvalidArgument, "shape_t must be 1-dimensional{}", size.shape());
        let &[rows, columns] = size.flat::<i64>()? else {
            bail!(InvalidArgument, "shape_t must have two elements{}", size.shape());
        };
        ensure!(
            rows >= 0 && columns >= 0,
            InvalidArgument,
            "a crop has no negative size: [{rows},{columns}]"
        );
        ensure!(
            width >= columns,
            FailedPrecondition,
            "width must be >= target_width: width = {width}, target_width = {columns}"
        );
        ensure!(
            height >= rows,
            FailedPrecondition,
            "height must be >= target_height: height = {height}, target_height = {rows}"
        );
        let mut random = Words::new(stream.reserve(1));
        let mut offset = |space: i64| if space > 0 { i64::from(random.next()) % (space + 1) } else { 0 };
        let left = offset(width - columns) as usize;
        let top = offset(height - rows) as usize;
        let mut out = cx.alloc_dtype(image.dtype(), Shape::new([rows, columns, channels])?)?;
        let [width, columns, channels] = [width, columns, channels].map(|dim| dim as usize);
        let cut =
            Cut { start: (top * width + left) * channels, row: width * channels, width: columns * channels };
        match image.dtype().size() {
            1 => cut.copy::<u8>(image, &mut out)?,
            2 => cut.copy::<u16>(image, &mut out)?,
            4 => cut.copy::<u32>(image, &mut out)?,
            _ => cut.copy::<u64>(image, &mut out)?,
        }
        Ok(out.into())
    })
}

/// A part of every row of an image, in elements.
struct Cut {
    start: usize,
    row: usize,
    width: usize,
}

impl Cut {
    fn copy<U: Unit + Copy>(&self, image: &Tensor, out: &mut Tensor) -> Result<()> {
        let image = image.units::<U>()?;
        for (number, out) in out.units_mut::<U>()?.chunks_mut(self.width.max(1)).enumerate() {
            out.copy_from_slice(&image[self.start + number * self.row..][..self.width]);
        }
        Ok(())
    }
}
