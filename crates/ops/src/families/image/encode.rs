//! Pixels encoded as image files.

use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Accuracy, Op, ShapeCx, shapes};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels};
use ferroflow_io::image::encode_png_at;
use ferroflow_io::jpeg::{self, EncodeOptions};
use std::sync::Mutex;

pub(crate) const OPS: &[&Op] = &[&ENCODE_JPEG, &ENCODE_JPEG_VARIABLE_QUALITY, &ENCODE_PNG];

static ENCODE_JPEG: Op = Op {
    name: "EncodeJpeg",
    inputs: &["image: uint8"],
    outputs: &["contents: string"],
    attrs: &[
        "format: {'', 'grayscale', 'rgb'} = ''",
        "quality: int = 95",
        "progressive: bool = false",
        "optimize_size: bool = false",
        "chroma_downsampling: bool = true",
        "density_unit: {'in', 'cm'} = 'in'",
        "x_density: int = 300",
        "y_density: int = 300",
        "xmp_metadata: string = ''",
    ],
    shape: encoded_shape,
    kernels: kernels![any jpeg_kernel],
    ..Op::PURE
};

static ENCODE_JPEG_VARIABLE_QUALITY: Op = Op {
    name: "EncodeJpegVariableQuality",
    inputs: &["images: uint8", "quality: int32"],
    attrs: &[],
    kernels: kernels![any variable_quality_kernel],
    ..ENCODE_JPEG
};

static ENCODE_PNG: Op = Op {
    name: "EncodePng",
    inputs: &["image: T"],
    attrs: &["compression: int = -1", "T: {uint8, uint16} = DT_UINT8"],
    shape: png_shape,
    kernels: kernels![any png_kernel],
    // Pixels are packed by another program than stock's: files differ, what they decode to does not.
    accuracy: Accuracy::Random,
    ..ENCODE_JPEG
};

fn encoded_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 3)?;
    shapes::scalar(s)
}

fn png_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let images = s.rank_at_least(0, 3)?;
    if let Some([batch @ .., _, _, _]) = images.dims() {
        s.output(0, batch.iter().copied())?;
    }
    Ok(())
}

/// Height, width and channels of an image for JPEG.
fn jpeg_size(image: &Tensor) -> Result<[usize; 3]> {
    let &[height, width, channels] = image.shape().dims() else {
        bail!(InvalidArgument, "image must be 3-dimensional{}", image.shape());
    };
    ensure!(
        image.elements() < i32::MAX as usize,
        InvalidArgument,
        "Cannot encode images with >= max int32 elements"
    );
    Ok([height, width, channels].map(|dim| dim as usize))
}

fn encoded(image: &Tensor, options: &EncodeOptions) -> Result<Tensor> {
    let [height, width, channels] = jpeg_size(image)?;
    ensure!(
        matches!(channels, 1 | 3),
        InvalidArgument,
        "image must have 1 or 3 channels, got {}",
        image.shape()
    );
    let file = jpeg::encode(height, width, channels, image.flat::<u8>()?, options)?;
    Ok(Tensor::scalar(Str::from(file)))
}

fn check_quality(quality: i64) -> Result<()> {
    ensure!((0..=100).contains(&quality), InvalidArgument, "quality must be in [0,100], got {quality}");
    Ok(())
}

fn jpeg_kernel(init: &Init<'_>) -> Result<Kernel> {
    let format: String = init.attr("format")?;
    let quality: i64 = init.attr("quality")?;
    check_quality(quality)?;
    let density = |name: &str| -> Result<u16> { Ok(init.attr::<i64>(name)? as u16) };
    let options = EncodeOptions {
        quality: quality as i32,
        optimize_size: init.attr("optimize_size")?,
        progressive: init.attr("progressive")?,
        chroma_downsampling: init.attr("chroma_downsampling")?,
        density_unit: if init.attr::<String>("density_unit")? == "cm" { 2 } else { 1 },
        density: [density("x_density")?, density("y_density")?],
        xmp_metadata: init.attr::<Str>("xmp_metadata")?.to_vec(),
    };
    Kernel::sync(move |cx| {
        let image = cx.input(0)?;
        let expected = match format.as_str() {
            "grayscale" => Some(1),
            "rgb" => Some(3),
            _ => None,
        };
        if let Some(expected) = expected {
            ensure!(
                jpeg_size(image)?[2] == expected,
                InvalidArgument,
                "format {format} expects {expected} channels, got {}",
                image.shape()
            );
        }
        Ok(encoded(image, &options)?.into())
    })
}

fn variable_quality_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (image, quality) = (cx.input(0)?, cx.input(1)?);
        jpeg_size(image)?;
        ensure!(quality.rank() == 0, InvalidArgument, "quality must be scalar: {}", quality.shape());
        let quality: i32 = quality.to_scalar()?;
        check_quality(i64::from(quality))?;
        Ok(encoded(image, &EncodeOptions { quality, ..EncodeOptions::default() })?.into())
    })
}

fn png_kernel(init: &Init<'_>) -> Result<Kernel> {
    let compression: i64 = init.attr("compression")?;
    ensure!(
        (-1..=9).contains(&compression),
        InvalidArgument,
        "compression should be in [-1,9], got {compression}"
    );
    let wide = init.input_types[0] == DType::Uint16;
    Kernel::sync(move |cx| {
        let image = cx.input(0)?;
        let [batch @ .., height, width, channels] = image.shape().dims() else {
            bail!(InvalidArgument, "images must be at least rank 3{}", image.shape());
        };
        ensure!(
            image.elements() < i32::MAX as usize,
            InvalidArgument,
            "image cannot have >= int32 max elements"
        );
        ensure!(
            (1..=4).contains(channels),
            InvalidArgument,
            "image must have 1, 2, 3, or 4 channels, got {channels}"
        );
        let size = [*height, *width, *channels].map(|dim| dim as usize);
        let shape = Shape::new(batch.iter().copied())?;
        let bytes = image.bytes()?;
        let length = size.iter().product::<usize>() * if wide { 2 } else { 1 };
        let failed = Mutex::new(Vec::new());
        let mut files = vec![Str::new(); shape.elements()];
        cx.threads().parallel_rows(&mut files, 1, length * 8, |first, files| {
            for (number, file) in files.iter_mut().enumerate() {
                let pixels = &bytes[(first + number) * length..][..length];
                // Samples of two bytes are written the other way round.
                let swapped: Vec<u8> = if wide {
                    pixels.as_chunks::<2>().0.iter().flat_map(|[low, high]| [*high, *low]).collect()
                } else {
                    pixels.to_vec()
                };
                match encode_png_at(size, wide, &swapped, compression) {
                    Ok(bytes) => *file = Str::from(bytes),
                    Err(_) => {
                        failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(first + number)
                    }
                }
            }
        });
        let mut failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        failed.sort_unstable();
        let failed: Vec<String> = failed.iter().map(usize::to_string).collect();
        ensure!(
            failed.is_empty(),
            Internal,
            "PNG encoding failed at the following flattened batch indices: {}",
            failed.join(", ")
        );
        Ok(Tensor::new(shape, files)?.into())
    })
}
