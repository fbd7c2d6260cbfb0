//! Sound as WAV files of 16 bits per sample.

use ferroflow_core::{Result, bail, ensure};

/// Sound: samples from −1 to 1, by time and channel.
#[derive(Debug)]
pub struct Sound {
    /// The number of samples per second.
    pub rate: u32,
    /// The number of channels.
    pub channels: usize,
    /// The samples.
    pub samples: Vec<f32>,
}

/// Encodes samples, by time and channel.
pub fn encode_wav(samples: &[f32], rate: u32, channels: usize) -> Result<Vec<u8>> {
    ensure!(rate > 0, InvalidArgument, "sample_rate must be in (0, 2^32), got: {rate}");
    ensure!(
        (1..=usize::from(u16::MAX)).contains(&channels),
        InvalidArgument,
        "num_channels must be in (0, 2^16), got: {channels}"
    );
    let size = samples.len() * 2;
    let Ok(total) = u32::try_from(44 + size) else {
        bail!(InvalidArgument, "Provided channels and frames cannot be encoded as a WAV.");
    };
    let mut file = Vec::with_capacity(44 + size);
    file.extend(b"RIFF");
    file.extend((total - 8).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    file.extend(1u16.to_le_bytes());
    file.extend((channels as u16).to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend(rate.wrapping_mul(2 * channels as u32).to_le_bytes());
    file.extend(((2 * channels) as u16).to_le_bytes());
    file.extend(16u16.to_le_bytes());
    file.extend(b"data");
    file.extend((size as u32).to_le_bytes());
    for sample in samples {
        // NaN is the least sample, as in stock.
        let scaled = (sample * 32768.0).round();
        let bounded =
            if scaled > f32::from(i16::MIN) { scaled.min(f32::from(i16::MAX)) } else { f32::from(i16::MIN) };
        file.extend((bounded as i16).to_le_bytes());
    }
    Ok(file)
}

/// Chunks that may come before the one that tells the format.
const SKIPPED: [&[u8]; 8] = [b"JUNK", b"bext", b"iXML", b"qlty", b"mext", b"levl", b"link", b"axml"];

struct Reader<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        ensure!(
            self.at <= self.file.len(),
            InvalidArgument,
            "Initial offset is outside data range: {}",
            self.at
        );
        ensure!(
            length <= self.file.len() - self.at,
            InvalidArgument,
            "Data too short when trying to read string"
        );
        self.at += length;
        Ok(&self.file[self.at - length..self.at])
    }

    fn number(&mut self, bytes: usize) -> Result<u32> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        let found = self.take(text.len())?;
        ensure!(
            found == text.as_bytes(),
            InvalidArgument,
            "Header mismatch: Expected {text} but found {}",
            String::from_utf8_lossy(found)
        );
        Ok(())
    }
}

/// Decodes a file.
pub fn decode_wav(file: &[u8]) -> Result<Sound> {
    let mut reader = Reader { file, at: 0 };
    reader.expect("RIFF")?;
    reader.number(4)?;
    reader.expect("WAVE")?;
    let mut chunk = reader.take(4)?;
    while chunk != b"fmt " {
        ensure!(
            SKIPPED.contains(&chunk),
            InvalidArgument,
            "Unexpected field {}",
            String::from_utf8_lossy(chunk)
        );
        let size = reader.number(4)?;
        reader.take(size as usize)?;
        chunk = reader.take(4)?;
    }
    let format_size = reader.number(4)?;
    ensure!(
        matches!(format_size, 16 | 18),
        InvalidArgument,
        "Bad format chunk size for WAV: Expected 16 or 18, but got{format_size}"
    );
    let format = reader.number(2)?;
    ensure!(format == 1, InvalidArgument, "Bad audio format for WAV: Expected 1 (PCM), but got{format}");
    let channels = reader.number(2)?;
    ensure!(
        channels >= 1,
        InvalidArgument,
        "Bad number of channels for WAV: Expected at least 1, but got {channels}"
    );
    let rate = reader.number(4)?;
    let (per_second, per_sample, bits) = (reader.number(4)?, reader.number(2)?, reader.number(2)?);
    ensure!(bits == 16, InvalidArgument, "Can only read 16-bit WAV files, but received {bits}");
    let expected = (bits * channels).div_ceil(8);
    ensure!(
        per_sample == expected,
        InvalidArgument,
        "Bad bytes per sample in WAV header: Expected {expected} but got {per_sample}"
    );
    let expected = u64::from(per_sample) * u64::from(rate);
    ensure!(
        u64::from(per_second) == expected,
        InvalidArgument,
        "Bad bytes per second in WAV header: Expected {expected} but got {per_second} (sample_rate={rate}, \
         bytes_per_sample={per_sample})"
    );
    if format_size == 18 {
        reader.at += 2;
    }
    let mut samples = None;
    while reader.at < file.len() {
        let name = reader.take(4)?;
        let size = reader.number(4)?;
        ensure!(
            size <= i32::MAX as u32,
            InvalidArgument,
            "WAV data chunk '{}' is too large: {size} bytes, but the limit is {}",
            String::from_utf8_lossy(name),
            i32::MAX
        );
        if name != b"data" {
            reader.at += size as usize;
            continue;
        }
        ensure!(samples.is_none(), InvalidArgument, "More than one data chunk found in WAV");
        let length = (size / per_sample * channels * 2) as usize;
        let data = reader.take(length)?;
        let number = |pair: &[u8; 2]| f32::from(i16::from_le_bytes(*pair)) * (1.0 / 32768.0);
        samples = Some(data.as_chunks::<2>().0.iter().map(number).collect());
    }
    match samples {
        Some(samples) => Ok(Sound { rate, channels: channels as usize, samples }),
        None => bail!(InvalidArgument, "No data chunk found in WAV"),
    }
}
