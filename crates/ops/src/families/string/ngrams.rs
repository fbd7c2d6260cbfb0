//! Runs of neighboring strings, joined.

use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&STRING_N_GRAMS];

static STRING_N_GRAMS: Op = Op {
    name: "StringNGrams",
    inputs: &["data: string", "data_splits: Tsplits"],
    outputs: &["ngrams: string", "ngrams_splits: Tsplits"],
    attrs: &[
        "separator: string",
        "ngram_widths: list(int) >= 0",
        "left_pad: string",
        "right_pad: string",
        "pad_width: int",
        "preserve_short_sequences: bool",
        "Tsplits: {int32, int64} = DT_INT64",
    ],
    shape: ngrams_shape,
    kernels: kernels![any ngrams_kernel],
    ..Op::PURE
};

fn ngrams_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [UNKNOWN_DIM])?;
    s.rank(0, 1)?;
    let splits = s.rank(1, 1)?;
    s.set(1, splits);
    Ok(())
}

struct Grams {
    separator: Str,
    left: Str,
    right: Str,
    widths: Vec<i64>,
    pad: i64,
    keep_short: bool,
}

impl Grams {
    /// The padding at either end of runs of a width: never as wide as the run.
    fn pad(&self, width: i64) -> i64 {
        if self.pad < 0 { width - 1 } else { self.pad.min(width - 1) }
    }

    fn count(&self, length: i64, width: i64) -> Result<i64> {
        let pad = self.pad(width);
        ensure!(
            pad <= i64::from(i32::MAX) / 2 - length,
            InvalidArgument,
            "Pad width could lead to integer overflow, got pad_width = {pad}"
        );
        Ok((length + 2 * pad - width + 1).max(0))
    }

    /// Appends `count` runs of a width over these strings.
    fn join(&self, data: &[Str], count: i64, width: i64, out: &mut Vec<Str>) {
        for index in 0..count {
            let pad = self.pad(width);
            let left = (pad - index).max(0);
            let right = (pad - (count - (index + 1))).max(0);
            let tokens = (width - (left + right)).max(0);
            let start = if left > 0 { 0 } else { (index - pad).max(0) as usize };
            let words = data.iter().skip(start).take(tokens as usize);
            let lefts = std::iter::repeat_n(&self.left, left as usize);
            let rights = std::iter::repeat_n(&self.right, right as usize);
            let mut text = Vec::new();
            for (at, word) in lefts.chain(words).chain(rights).enumerate() {
                if at > 0 {
                    text.extend_from_slice(&self.separator);
                }
                text.extend_from_slice(word);
            }
            out.push(text.into());
        }
    }
}

fn ngrams_kernel(init: &Init<'_>) -> Result<Kernel> {
    let grams = Grams {
        separator: init.attr("separator")?,
        left: init.attr("left_pad")?,
        right: init.attr("right_pad")?,
        widths: init.attr("ngram_widths")?,
        pad: init.attr("pad_width")?,
        keep_short: init.attr("preserve_short_sequences")?,
    };
    let dtype: DType = init.attr("Tsplits")?;
    Kernel::sync(move |cx| {
        ensure!(
            grams.widths.iter().all(|width| *width > 0),
            InvalidArgument,
            "ngram_widths must contain positive values"
        );
        let (data, splits) = (cx.flat::<Str>(0)?, cx.i64s(1)?);
        check_splits(&splits, data.len() as i64)?;
        if splits.is_empty() {
            // Stock has as many empty strings as there are words then.
            return Ok([cx.zeros(DType::String, cx.input(0)?.shape().clone())?, cx.input(1)?.clone()].into());
        }
        let (mut out, mut ends) = (Vec::new(), vec![0]);
        for pair in splits.windows(2) {
            let (words, before) = (&data[pair[0] as usize..pair[1] as usize], out.len());
            let length = words.len() as i64;
            if !data.is_empty() {
                for width in &grams.widths {
                    grams.join(words, grams.count(length, *width)?, *width, &mut out);
                }
                if grams.keep_short && length > 0 && out.len() == before {
                    ensure!(
                        grams.pad >= 0,
                        InvalidArgument,
                        "Pad width should be >= 0 when preserve_short_sequences is True and ngram_widths are not \
                         provided, got {}",
                        grams.pad
                    );
                    grams.join(words, 1, length + 2 * grams.pad, &mut out);
                }
            }
            ends.push(out.len() as i64);
        }
        let ends = match dtype {
            DType::Int64 => Tensor::vector(ends),
            _ => Tensor::vector(ends.into_iter().map(|end| end as i32).collect()),
        };
        Ok([Tensor::vector(out), ends].into())
    })
}

fn check_splits(splits: &[i64], length: i64) -> Result<()> {
    let (Some(first), Some(last)) = (splits.first(), splits.last()) else { return Ok(()) };
    ensure!(*first == 0, InvalidArgument, "First split value must be 0, got {first}");
    for pair in splits.windows(2) {
        ensure!(
            (pair[0]..=length).contains(&pair[1]),
            InvalidArgument,
            "Invalid split value {}, must be in [{}, {length}]",
            pair[1],
            pair[0]
        );
    }
    ensure!(
        *last == length,
        InvalidArgument,
        "Last split value must be data size. Expected {length}, got {last}"
    );
    Ok(())
}
