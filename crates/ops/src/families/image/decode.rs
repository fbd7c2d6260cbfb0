//! Image files decoded to pixels.

use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels, status};
use ferroflow_io::image::{Frames, decode_bmp, decode_gif, decode_png, decode_webp};
use ferroflow_io::jpeg::{self, DecodeOptions};

pub(crate) const OPS: &[&Op] = &[
    &DECODE_JPEG,
    &DECODE_AND_CROP_JPEG,
    &EXTRACT_JPEG_SHAPE,
    &DECODE_PNG,
    &DECODE_GIF,
    &DECODE_BMP,
    &DECODE_WEBP,
    &DECODE_IMAGE,
];

static DECODE_JPEG: Op = Op {
    name: "DecodeJpeg",
    inputs: &["contents: string"],
    outputs: &["image: uint8"],
    attrs: &[
        "channels: int = 0",
        "ratio: int = 1",
        "fancy_upscaling: bool = true",
        "try_recover_truncated: bool = false",
        "acceptable_fraction: float = 1",
        "dct_method: string = ''",
    ],
    shape: image_shape,
    kernels: kernels![any decode_kernel],
    // A picture takes a millisecond or more.
    large_from: 32,
    ..Op::PURE
};

static DECODE_AND_CROP_JPEG: Op = Op {
    name: "DecodeAndCropJpeg",
    inputs: &["contents: string", "crop_window: int32"],
    shape: crop_shape,
    ..DECODE_JPEG
};

static EXTRACT_JPEG_SHAPE: Op = Op {
    name: "ExtractJpegShape",
    outputs: &["image_shape: output_type"],
    attrs: &["output_type: {int32, int64} = DT_INT32"],
    shape: jpeg_shape_shape,
    kernels: kernels![any jpeg_shape_kernel],
    large_from: Op::PURE.large_from,
    ..DECODE_JPEG
};

static DECODE_PNG: Op = Op {
    name: "DecodePng",
    outputs: &["image: dtype"],
    attrs: &["channels: int = 0", "dtype: {uint8, uint16} = DT_UINT8"],
    ..DECODE_JPEG
};

static DECODE_GIF: Op = Op { name: "DecodeGif", attrs: &[], shape: gif_shape, ..DECODE_JPEG };

static DECODE_BMP: Op = Op { name: "DecodeBmp", attrs: &["channels: int = 0"], ..DECODE_JPEG };

static DECODE_WEBP: Op = Op {
    name: "DecodeWebP",
    outputs: &["image: dtype"],
    attrs: &["channels: int = 0", "dtype: {uint8} = DT_UINT8"],
    shape: webp_shape,
    ..DECODE_JPEG
};

static DECODE_IMAGE: Op = Op {
    name: "DecodeImage",
    outputs: &["image: dtype"],
    attrs: &[
        "channels: int = 0",
        "dtype: {uint8, uint16, float} = DT_UINT8",
        "expand_animations: bool = true",
    ],
    shape: any_image_shape,
    ..DECODE_JPEG
};

fn channels(s: &ShapeCx<'_>) -> Result<i64> {
    match s.attr::<i64>("channels")? {
        0 => Ok(UNKNOWN_DIM),
        channels => {
            ensure!(channels > 0, InvalidArgument, "channels must be non-negative, got {channels}");
            Ok(channels)
        }
    }
}

fn image_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.output(0, [UNKNOWN_DIM, UNKNOWN_DIM, channels(s)?])
}

fn crop_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    let window = s.rank(1, 1)?;
    s.merge_dims(window.dims().unwrap_or_default()[0], 4)?;
    let known = |dim: i64| if dim < 0 { UNKNOWN_DIM } else { dim };
    let (height, width) = match s.constant_i64s(1)?.as_deref() {
        Some(&[_, _, height, width]) => (known(height), known(width)),
        _ => (UNKNOWN_DIM, UNKNOWN_DIM),
    };
    s.output(0, [height, width, channels(s)?])
}

fn jpeg_shape_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.output(0, [3])
}

fn gif_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.output(0, [UNKNOWN_DIM, UNKNOWN_DIM, UNKNOWN_DIM, 3])
}

fn webp_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.output(0, [UNKNOWN_DIM, UNKNOWN_DIM, UNKNOWN_DIM, channels(s)?])
}

fn any_image_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    let channels = channels(s)?;
    if s.attr("expand_animations")? {
        return Ok(());
    }
    s.output(0, [UNKNOWN_DIM, UNKNOWN_DIM, channels])
}

fn jpeg_shape_kernel(init: &Init<'_>) -> Result<Kernel> {
    let wide = init.output_types[0] == DType::Int64;
    Kernel::sync(move |cx| {
        let contents = cx.input(0)?;
        ensure!(
            contents.rank() == 0,
            InvalidArgument,
            "contents must be scalar, got shape {}",
            contents.shape()
        );
        let contents: Str = contents.to_scalar()?;
        let shape = jpeg::shape(&contents);
        let shape =
            shape.ok_or_else(|| status!(InvalidArgument, "Invalid JPEG data, size {}", contents.len()))?;
        Ok(if wide {
            Tensor::vector(shape.map(|dim| dim as i64).to_vec()).into()
        } else {
            Tensor::vector(shape.map(|dim| dim as i32).to_vec()).into()
        })
    })
}

/// The op that decodes: each takes other formats than its own, too, as in stock.
struct Decode {
    op: String,
    channels: usize,
    dtype: DType,
    expand_animations: bool,
    jpeg: DecodeOptions,
}

fn decode_kernel(init: &Init<'_>) -> Result<Kernel> {
    let mut decode = Decode {
        op: init.op.to_owned(),
        channels: 3,
        dtype: init.output_types[0],
        expand_animations: true,
        jpeg: DecodeOptions::default(),
    };
    if init.attrs.has("ratio") {
        let ratio: i64 = init.attr("ratio")?;
        ensure!(matches!(ratio, 1 | 2 | 4 | 8), InvalidArgument, "ratio must be 1, 2, 4, or 8, got {ratio}");
        let method: String = init.attr("dct_method")?;
        ensure!(
            matches!(method.as_str(), "" | "INTEGER_FAST" | "INTEGER_ACCURATE"),
            InvalidArgument,
            "dct_method must be one of {{'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}}"
        );
        decode.jpeg = DecodeOptions {
            ratio: ratio as usize,
            fancy_upscaling: init.attr("fancy_upscaling")?,
            try_recover_truncated: init.attr("try_recover_truncated")?,
            acceptable_fraction: init.attr("acceptable_fraction")?,
            accurate_dct: method == "INTEGER_ACCURATE",
            ..DecodeOptions::default()
        };
    }
    if init.attrs.has("expand_animations") {
        decode.expand_animations = init.attr("expand_animations")?;
    }
    if init.attrs.has("channels") {
        let channels: i64 = init.attr("channels")?;
        ensure!(
            matches!(channels, 0 | 1 | 3 | 4),
            InvalidArgument,
            "`channels` must be 0, 1, 3 or 4 but got {channels}"
        );
        decode.channels = channels as usize;
    }
    Kernel::sync(move |cx| Ok(decode.run(cx)?.into()))
}

impl Decode {
    fn is(&self, op: &str) -> bool {
        self.op == op
    }

    fn run(&self, cx: &KernelCx<'_>) -> Result<Tensor> {
        let contents = cx.input(0)?;
        ensure!(
            contents.rank() == 0,
            InvalidArgument,
            "`contents` must be scalar but got shape{}",
            contents.shape()
        );
        let file: Str = contents.to_scalar()?;
        ensure!(!file.is_empty(), InvalidArgument, "Input is empty.");
        ensure!(
            file.len() <= i32::MAX as usize,
            InvalidArgument,
            "Input contents are too large for int: {}",
            file.len()
        );
        match file.as_ref() {
            [0xff, 0xd8, 0xff, ..] => self.jpeg(cx, &file),
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => self.png(cx, &file),
            [b'G', b'I', b'F', b'8', ..] => self.gif(cx, &file),
            [b'B', b'M', ..] => self.bmp(cx, &file),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', _, ..] => self.webp(cx, &file),
            [0xff, 0x0a, ..] | [0, 0, 0, 0x0c, b'J', b'X', b'L', b' ', 0x0d, 0x0a, 0x87, 0x0a, ..] => {
                bail!(Unimplemented, "{} of a JPEG XL image is not supported", self.op)
            }
            _ => bail!(
                InvalidArgument,
                "Unknown image file format. One of JPEG, JPEG XL, PNG, GIF, BMP, WebP required."
            ),
        }
    }

    /// Refuses a format that this op does not take.
    fn refuse(&self, format: &str, builder: &str) -> Result<()> {
        ensure!(
            !self.is("DecodeBmp"),
            InvalidArgument,
            "Trying to decode {format} format using DecodeBmp op. Use `decode_{builder}` or `decode_image` instead."
        );
        ensure!(
            !self.is("DecodeAndCropJpeg") || format == "JPEG",
            InvalidArgument,
            "DecodeAndCropJpeg operation can run on JPEG only, but detected {format}."
        );
        Ok(())
    }

    /// The shape of an image; of one frame if the op gives frames.
    fn shape(&self, height: usize, width: usize, channels: usize) -> Result<Shape> {
        let dims = [height, width, channels].map(|dim| dim as i64);
        Shape::new(self.is("DecodeGif").then_some(1).into_iter().chain(dims))
    }

    fn jpeg(&self, cx: &KernelCx<'_>, file: &[u8]) -> Result<Tensor> {
        ensure!(self.channels != 4, InvalidArgument, "JPEG does not support 4 channels");
        let mut options = DecodeOptions { channels: self.channels, ..self.jpeg };
        if self.is("DecodeAndCropJpeg") {
            let window = cx.input(1)?;
            ensure!(
                window.rank() == 1,
                InvalidArgument,
                "crop_window must be 1-D, got shape {}",
                window.shape()
            );
            let Ok(sides) = window.flat::<i32>()?.try_into() else {
                bail!(InvalidArgument, "crop_size must have four elements {}", window.shape());
            };
            options.crop = Some(sides);
        }
        self.refuse("JPEG", "jpeg")?;
        let Some(image) = jpeg::decode(file, &options, cx.threads())? else {
            bail!(InvalidArgument, "jpeg::Uncompress failed. Invalid JPEG data or crop window.");
        };
        cx.conclude(Ok(()))?;
        let shape = self.shape(image.height, image.width, image.channels)?;
        match self.dtype {
            DType::Uint8 => image.pixels.reshaped(shape),
            _ => self.bytes(shape, image.pixels.flat::<u8>()?.to_vec()),
        }
    }

    fn png(&self, cx: &KernelCx<'_>, file: &[u8]) -> Result<Tensor> {
        self.refuse("PNG", "png")?;
        let image = decode_png(file, self.channels, self.dtype != DType::Uint8)?;
        let shape = self.shape(image.height, image.width, image.channels)?;
        cx.device().check_allocation(self.dtype, &shape)?;
        match self.dtype {
            DType::Uint16 => Tensor::new(shape, image.samples),
            DType::Float => {
                let scale = (1.0 / f64::from(u16::MAX)) as f32;
                Tensor::new(shape, image.samples.iter().map(|sample| f32::from(*sample) * scale).collect())
            }
            _ => Tensor::new(shape, image.samples.iter().map(|sample| *sample as u8).collect()),
        }
    }

    fn gif(&self, _: &KernelCx<'_>, file: &[u8]) -> Result<Tensor> {
        ensure!(
            matches!(self.channels, 0 | 3),
            InvalidArgument,
            "channels must be 0 or 3 for GIF, got {}",
            self.channels
        );
        self.refuse("GIF", "gif")?;
        let frames = decode_gif(file, self.expand_animations)?;
        if self.is("DecodePng") || self.is("DecodeJpeg") {
            ensure!(
                frames.count == 1,
                InvalidArgument,
                "Got {} frames, but animated gifs can only be decoded by tf.io.decode_gif or tf.io.decode_image",
                frames.count
            );
            return self.frames(frames, false);
        }
        ensure!(
            self.is("DecodeGif") || self.is("DecodeImage"),
            InvalidArgument,
            "Invalid GIF data (size {}), Bad op type {}",
            file.len(),
            self.op
        );
        self.frames(frames, self.expand_animations)
    }

    fn bmp(&self, _: &KernelCx<'_>, file: &[u8]) -> Result<Tensor> {
        ensure!(
            self.channels != 1,
            InvalidArgument,
            "`channels` must be 0, 3 or 4 for BMP, but got {}",
            self.channels
        );
        if !self.is("DecodeBmp") && !self.is("DecodeImage") {
            self.refuse("BMP", "bmp")?;
            bail!(
                InvalidArgument,
                "Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` instead. Op used: {}",
                self.op
            );
        }
        self.frames(decode_bmp(file, self.channels)?, false)
    }

    fn webp(&self, _: &KernelCx<'_>, file: &[u8]) -> Result<Tensor> {
        ensure!(self.channels != 1, InvalidArgument, "WebP only supports 3 or 4 channels");
        ensure!(self.dtype == DType::Uint8, InvalidArgument, "WebP only supports uint8 for dtype");
        self.frames(decode_webp(file, self.channels, self.expand_animations)?, self.expand_animations)
    }

    fn frames(&self, frames: Frames, several: bool) -> Result<Tensor> {
        let dims = [frames.height, frames.width, frames.channels].map(|dim| dim as i64);
        let shape = Shape::new(several.then_some(frames.count as i64).into_iter().chain(dims))?;
        self.bytes(shape, frames.pixels)
    }

    /// Bytes as the type that was asked for.
    fn bytes(&self, shape: Shape, bytes: Vec<u8>) -> Result<Tensor> {
        match self.dtype {
            DType::Uint16 => Tensor::new(shape, bytes.iter().map(|byte| u16::from(*byte) * 256).collect()),
            DType::Float => {
                let scale = (1.0 / f64::from(u8::MAX)) as f32;
                Tensor::new(shape, bytes.iter().map(|byte| f32::from(*byte) * scale).collect())
            }
            _ => Tensor::new(shape, bytes),
        }
    }
}
