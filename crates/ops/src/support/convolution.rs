//! Convolutions as ops see them: attributes and shapes on one side, the numeric routine on the other.

use crate::linalg::conv::Conv;
use crate::linalg::product::Tile;
use crate::linalg::window::Grid;
use crate::numeric::Num;
use crate::support::widen::{narrowed, widened};
use crate::support::windows::{Attributes, Format, Padding, Windows, output_sizes, per_direction};
use ferroflow_core::kernel::{Init, KernelCx};
use ferroflow_core::op::ShapeCx;
use ferroflow_core::{Code, Result, Shape, Status, Tensor, ensure};

/// Reads strides, dilations and padding.
pub(crate) fn windows(attrs: &impl Attributes, format: Format) -> Result<Windows> {
    Ok(Windows {
        strides: per_direction(attrs, "strides", "strides", format)?,
        dilations: per_direction(attrs, "dilations", "dilations", format)?,
        padding: Padding::read(attrs, format)?,
    })
}

/// The attributes of a kernel. Channels must be last: stock's CPU kernels know nothing else.
pub(crate) fn kernel_windows(init: &Init<'_>, format: Format) -> Result<Windows> {
    let name: String = init.attr("data_format")?;
    if Format::parse(&name) != Some(format) {
        // Stock has two codes for one mistake.
        let (code, last) =
            if format.rank == 4 { (Code::Unimplemented, "NHWC") } else { (Code::InvalidArgument, "NDHWC") };
        let op = init.op;
        let message = format!(
            "The {op} op currently only supports the {last} tensor format on the CPU. The op was given the format: {name}"
        );
        return Err(Status::new(code, message));
    }
    windows(init, format)
}

/// The shape function of convolutions.
pub(crate) fn conv_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let Some(format) = Format::parse(&s.attr::<String>("data_format")?) else { return Ok(()) };
    let (input, filter) = (s.rank(0, format.rank)?, s.rank(1, format.rank)?);
    let windows = windows(&*s, format)?;
    let (input, filter) = (input.dims().unwrap_or_default(), filter.dims().unwrap_or_default());
    let sizes = (0..format.directions())
        .map(|direction| windows.output_dim(direction, input[format.first + direction], filter[direction]));
    let sizes = sizes.collect::<Result<Vec<_>>>()?;
    s.output(0, format.dims(input[0], &sizes, filter[format.rank - 1]))
}

/// Convolves the first input with the second one. `T` is what sums are kept in: 16-bit floats are widened.
pub(crate) fn convolve<T: Tile + Num>(
    cx: &KernelCx<'_>,
    format: Format,
    windows: &Windows,
) -> Result<Tensor> {
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    let (shape, kernel) = (input.shape(), filter.shape());
    let rank = format.rank;
    ensure!(shape.rank() == rank, InvalidArgument, "convolution input must be {rank}-dimensional: {shape}");
    ensure!(
        kernel.rank() == rank,
        InvalidArgument,
        "convolution filter must be {rank}-dimensional: {kernel}"
    );
    let (depth, filter_depth, outputs) = (shape.dim(rank - 1), kernel.dim(rank - 2), kernel.dim(rank - 1));
    ensure!(
        depth > 0 && filter_depth > 0,
        InvalidArgument,
        "the depths of input and filter must be positive: {shape} and {kernel}"
    );
    ensure!(
        depth % filter_depth == 0,
        InvalidArgument,
        "input depth must be evenly divisible by filter depth: {depth} vs {filter_depth}"
    );
    let groups = depth / filter_depth;
    ensure!(
        outputs % groups == 0,
        InvalidArgument,
        "output depth must be evenly divisible by number of groups: {outputs} vs {groups}"
    );
    let extents = windows.extents(&shape[1..rank - 1], &kernel[..rank - 2])?;
    let sizes = output_sizes(&extents, rank - 2);
    let mut out = cx.alloc::<T>(Shape::new(format.dims(shape[0], &sizes, outputs as i64))?)?;
    let dtype = input.dtype();
    if out.elements() > 0 {
        ensure!(
            groups == 1 || rank == 4,
            InvalidArgument,
            "Number of channels in filter ({filter_depth}) must match last dimension of input ({depth})"
        );
        ensure!(
            rank == 4 || windows.dilations.iter().all(|dilation| *dilation == 1),
            InvalidArgument,
            "CPU implementation of Conv3D currently only supports dilated rates of 1."
        );
        ensure!(
            filter.elements() > 0,
            InvalidArgument,
            "filter must not have zero elements (i.e. all dimensions must be non-zero)"
        );
        let grid = Grid { batch: shape.dim(0), extents };
        // In volumes, stock's padding may be less than none.
        let is_centered = rank == 5 && matches!(windows.padding, Padding::Same);
        let conv = Conv {
            grid: if is_centered { grid.centered() } else { grid },
            channels: depth,
            filter_channels: filter_depth,
            outputs,
        };
        let (input, filter) = (widened(cx, input)?, widened(cx, filter)?);
        conv.run::<T>(cx.threads(), input.flat()?, filter.flat()?, out.flat_mut()?);
    }
    narrowed(cx, out, dtype)
}
