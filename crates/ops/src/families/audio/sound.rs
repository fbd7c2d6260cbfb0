//! Sound files, spectrograms, and the coefficients that speech is recognized by.

use ferroflow_core::kernel::{Init, Kernel, Outputs, Str};
use ferroflow_core::op::{Accuracy, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{C128, Result, Shape, Tensor, bail, ensure, kernels};
use ferroflow_io::wav::{decode_wav, encode_wav};
use std::f64::consts::PI;

pub(crate) const OPS: &[&Op] = &[&DECODE_WAV, &ENCODE_WAV, &AUDIO_SPECTROGRAM, &MFCC];

static DECODE_WAV: Op = Op {
    name: "DecodeWav",
    inputs: &["contents: string"],
    outputs: &["audio: float", "sample_rate: int32"],
    attrs: &["desired_channels: int = -1", "desired_samples: int = -1"],
    shape: decode_shape,
    kernels: kernels![any decode_kernel],
    ..Op::PURE
};

static ENCODE_WAV: Op = Op {
    name: "EncodeWav",
    inputs: &["audio: float", "sample_rate: int32"],
    outputs: &["contents: string"],
    shape: encode_shape,
    kernels: kernels![any encode_kernel],
    ..Op::PURE
};

static AUDIO_SPECTROGRAM: Op = Op {
    name: "AudioSpectrogram",
    inputs: &["input: float"],
    outputs: &["spectrogram: float"],
    attrs: &["window_size: int", "stride: int", "magnitude_squared: bool = false"],
    shape: spectrogram_shape,
    kernels: kernels![any spectrogram_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static MFCC: Op = Op {
    name: "Mfcc",
    inputs: &["spectrogram: float", "sample_rate: int32"],
    outputs: &["output: float"],
    attrs: &[
        "upper_frequency_limit: float = 4000",
        "lower_frequency_limit: float = 20",
        "filterbank_channel_count: int = 40",
        "dct_coefficient_count: int = 13",
    ],
    shape: mfcc_shape,
    kernels: kernels![any mfcc_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn decode_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    let dim = |attr: &str, name: &str| -> Result<i64> {
        let dim: i64 = s.attr(attr)?;
        ensure!(dim >= -1, InvalidArgument, "{name} must be non-negative, got {dim}");
        Ok(dim)
    };
    let (channels, samples) = (dim("desired_channels", "channels")?, dim("desired_samples", "samples")?);
    s.output(0, [samples, channels])?;
    s.output(1, [])
}

fn encode_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 2)?;
    s.rank(1, 0)?;
    shapes::scalar(s)
}

fn spectrogram_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank(0, 2)?;
    let dims = input.dims().unwrap_or_default();
    let (window, stride): (i64, i64) = (s.attr("window_size")?, s.attr("stride")?);
    check_windows(window, stride)?;
    let rows = if dims[0] == UNKNOWN_DIM { UNKNOWN_DIM } else { windows(dims[0], window, stride) };
    let bins = match (window as u64).checked_next_power_of_two() {
        Some(length) => 1 + length as i64 / 2,
        None => bail!(InvalidArgument, "window size is too large: {window}"),
    };
    s.output(0, [dims[1], rows, bins])
}

fn mfcc_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let spectrogram = s.rank(0, 3)?;
    s.rank(1, 0)?;
    let dims = spectrogram.dims().unwrap_or_default();
    let count: i64 = s.attr("dct_coefficient_count")?;
    s.output(0, [dims[0], dims[1], if count < 0 { UNKNOWN_DIM } else { count }])
}

fn check_windows(window: i64, stride: i64) -> Result<()> {
    ensure!(
        window > 1 && stride > 0,
        InvalidArgument,
        "Spectrogram initialization failed for window size {window} and stride {stride}"
    );
    Ok(())
}

/// The number of windows in a number of samples.
fn windows(samples: i64, window: i64, stride: i64) -> i64 {
    if samples < window { 0 } else { 1 + (samples - window) / stride }
}

fn decode_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (channels, samples): (i64, i64) = (init.attr("desired_channels")?, init.attr("desired_samples")?);
    Kernel::sync(move |cx| {
        let contents = cx.input(0)?;
        ensure!(
            contents.rank() == 0,
            InvalidArgument,
            "contents must be scalar, got shape {}",
            contents.shape()
        );
        let sound = decode_wav(&contents.to_scalar::<Str>()?)?;
        ensure!(channels >= -1, InvalidArgument, "desired_channels must be >= -1, got {channels}");
        ensure!(samples >= -1, InvalidArgument, "desired_samples must be >= -1, got {samples}");
        let in_file = sound.samples.len() / sound.channels;
        let rows = if samples == -1 { in_file } else { samples as usize };
        let columns = if channels == -1 { sound.channels } else { channels as usize };
        let mut audio = cx.zeros(ferroflow_core::DType::Float, Shape::new([rows as i64, columns as i64])?)?;
        if columns > 0 {
            let rows = audio.flat_mut::<f32>()?.chunks_mut(columns);
            for (out, sample) in rows.zip(sound.samples.chunks_exact(sound.channels)) {
                for (channel, out) in out.iter_mut().enumerate() {
                    *out = sample[channel.min(sound.channels - 1)];
                }
            }
        }
        Ok([audio, Tensor::scalar(sound.rate as i32)].into())
    })
}

fn encode_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (audio, rate) = (cx.input(0)?, cx.input(1)?);
        ensure!(audio.rank() == 2, InvalidArgument, "audio must be 2-dimensional{}", audio.shape());
        ensure!(
            rate.rank() == 0,
            InvalidArgument,
            "Input sample_rate should be a scalar tensor, got {} instead.",
            rate.shape()
        );
        let rate: i32 = rate.to_scalar()?;
        ensure!(audio.elements() > 0 || audio.shape().dim(0) == 0, InvalidArgument, "audio is null");
        // Stock reads a negative rate as a huge one.
        ensure!(
            rate > 0,
            InvalidArgument,
            "sample_rate must be in (0, 2^32), got: {}",
            i64::from(rate) as u64
        );
        let file = encode_wav(audio.flat()?, rate as u32, audio.shape().dim(1))?;
        Ok(Tensor::scalar(Str::from(file)).into())
    })
}

fn spectrogram_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (window, stride): (i64, i64) = (init.attr("window_size")?, init.attr("stride")?);
    let squared: bool = init.attr("magnitude_squared")?;
    check_windows(window, stride)?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let &[samples, channels] = input.shape().dims() else {
            bail!(InvalidArgument, "input must be 2-dimensional{}", input.shape());
        };
        let rows = windows(samples, window, stride);
        let Some(length) = (window as usize).checked_next_power_of_two() else {
            bail!(InvalidArgument, "window_size is too large: {window}");
        };
        let bins = 1 + length / 2;
        let mut out = cx.alloc::<f32>(Shape::new([channels, rows, bins as i64])?)?;
        if out.elements() == 0 {
            return Ok(out.into());
        }
        let (window, stride, channels) = (window as usize, stride as usize, channels as usize);
        let (samples, rows) = (input.flat::<f32>()?, rows as usize);
        let hann: Vec<f64> =
            (0..window).map(|at| 0.5 - 0.5 * ((2.0 * PI * at as f64) / window as f64).cos()).collect();
        let fourier = Fourier::new(length);
        cx.threads().parallel_rows(out.flat_mut::<f32>()?, bins, 16, |first, outs| {
            let mut values = vec![C128::new(0.0, 0.0); length];
            for (number, out) in outs.chunks_mut(bins).enumerate() {
                let (channel, row) = ((first + number) / rows, (first + number) % rows);
                values.fill(C128::new(0.0, 0.0));
                for (at, weight) in hann.iter().enumerate() {
                    let sample = samples[(row * stride + at) * channels + channel];
                    values[at] = C128::new(f64::from(sample) * weight, 0.0);
                }
                fourier.transform(&mut values);
                for (out, value) in out.iter_mut().zip(&values) {
                    let power = (value.re * value.re + value.im * value.im) as f32;
                    *out = if squared { power } else { power.sqrt() };
                }
            }
        });
        Ok(out.into())
    })
}

/// A Fourier transform whose length is a power of two.
struct Fourier {
    roots: Vec<C128>,
}

impl Fourier {
    fn new(length: usize) -> Fourier {
        let root = |at: usize| {
            let angle = -2.0 * PI * at as f64 / length as f64;
            C128::new(angle.cos(), angle.sin())
        };
        Fourier { roots: (0..length / 2).map(root).collect() }
    }

    fn transform(&self, values: &mut [C128]) {
        let length = values.len();
        let bits = length.trailing_zeros();
        for at in 0..length {
            let other = at.reverse_bits() >> (usize::BITS - bits);
            if at < other {
                values.swap(at, other);
            }
        }
        let mut half = 1;
        while half < length {
            let step = length / (2 * half);
            for block in values.chunks_mut(2 * half) {
                let (left, right) = block.split_at_mut(half);
                for ((left, right), root) in left.iter_mut().zip(right).zip(self.roots.iter().step_by(step)) {
                    let turned = *right * root;
                    (*left, *right) = (*left + turned, *left - turned);
                }
            }
            half *= 2;
        }
    }
}

/// Triangles over frequencies, evenly spaced as ears hear them.
struct FilterBank {
    channels: usize,
    first: usize,
    last: usize,
    /// By bin: the channel on whose falling side it lies, from −1 on, and its share in it.
    bands: Vec<(i64, f64)>,
}

fn mel(frequency: f64) -> f64 {
    1127.0 * (frequency / 700.0).ln_1p()
}

impl FilterBank {
    fn new(bins: usize, rate: f64, channels: usize, low: f64, high: f64) -> Option<FilterBank> {
        if channels < 1
            || rate <= 0.0
            || bins < 2
            || low < 0.0
            || high.is_nan()
            || low.is_nan()
            || high <= low
        {
            return None;
        }
        let spacing = (mel(high) - mel(low)) / (channels + 1) as f64;
        let center = |channel: usize| mel(low) + spacing * (channel + 1) as f64;
        let per_bin = 0.5 * rate / (bins - 1) as f64;
        let (first, last) = ((1.5 + low / per_bin) as usize, (high / per_bin) as usize);
        let mut channel = 0;
        let bands = (0..bins).map(|bin| {
            if bin < first || bin > last {
                return (-2, 0.0);
            }
            let place = mel(bin as f64 * per_bin);
            while channel < channels && center(channel) < place {
                channel += 1;
            }
            let share = match channel {
                0 => (center(0) - place) / (center(0) - mel(low)),
                _ => (center(channel) - place) / (center(channel) - center(channel - 1)),
            };
            (channel as i64 - 1, share)
        });
        let bands = bands.collect();
        Some(FilterBank { channels, first, last, bands })
    }

    fn apply(&self, spectrum: &[f32]) -> Vec<f64> {
        if spectrum.len() <= self.last {
            return Vec::new();
        }
        let mut out = vec![0.0; self.channels];
        let bins = spectrum.iter().zip(&self.bands).take(self.last + 1).skip(self.first);
        for (power, &(channel, share)) in bins {
            let value = f64::from(*power).sqrt();
            let weighted = value * share;
            if let Some(out) = usize::try_from(channel).ok().and_then(|channel| out.get_mut(channel)) {
                *out += weighted;
            }
            if let Some(out) = out.get_mut((channel + 1) as usize) {
                *out += value - weighted;
            }
        }
        out
    }
}

fn mfcc_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (low, high): (f32, f32) = (init.attr("lower_frequency_limit")?, init.attr("upper_frequency_limit")?);
    let channels: i64 = init.attr("filterbank_channel_count")?;
    let count: i64 = init.attr("dct_coefficient_count")?;
    Kernel::sync(move |cx| {
        let (spectrogram, rate) = (cx.input(0)?, cx.input(1)?);
        let &[sounds, rows, bins] = spectrogram.shape().dims() else {
            bail!(InvalidArgument, "spectrogram must be 3-dimensional{}", spectrogram.shape());
        };
        ensure!(
            rate.rank() == 0,
            InvalidArgument,
            "Input sample_rate should be a scalar tensor, got {} instead.",
            rate.shape()
        );
        let rate: i32 = rate.to_scalar()?;
        let bank = match usize::try_from(channels) {
            Ok(wanted) if (1..=channels).contains(&count) && wanted <= 1 << 24 => {
                FilterBank::new(bins as usize, f64::from(rate), wanted, f64::from(low), f64::from(high))
            }
            _ => None,
        };
        let Some(bank) = bank else {
            bail!(
                InvalidArgument,
                "Mfcc initialization failed for channel count {bins}, sample rate {rate} and \
                 filterbank_channel_count {channels}"
            );
        };
        let (channels, count, bins) = (channels as usize, count as usize, bins as usize);
        let mut out = cx.zeros(ferroflow_core::DType::Float, Shape::new([sounds, rows, count as i64])?)?;
        let norm = (2.0 / channels as f64).sqrt();
        let cosine = |at: usize| {
            let (i, j) = (at / channels, at % channels);
            norm * (i as f64 * (PI / channels as f64) * (j as f64 + 0.5)).cos()
        };
        let cosines: Vec<f64> = (0..count * channels).map(cosine).collect();
        let spectra = spectrogram.flat::<f32>()?;
        cx.threads().parallel_rows(out.flat_mut::<f32>()?, count, channels, |first, outs| {
            for (number, out) in outs.chunks_mut(count).enumerate() {
                let energies = bank.apply(&spectra[(first + number) * bins..][..bins]);
                let logs: Vec<f64> = energies.iter().map(|x| x.max(1e-12).ln()).collect();
                for (out, cosines) in out.iter_mut().zip(cosines.chunks(channels)) {
                    *out = cosines.iter().zip(&logs).map(|(cosine, log)| cosine * log).sum::<f64>() as f32;
                }
            }
        });
        Ok(Outputs::from(out))
    })
}
