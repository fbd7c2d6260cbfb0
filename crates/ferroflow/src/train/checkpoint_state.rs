//! The file `checkpoint` of a directory, which lists its checkpoints in TensorFlow's text format.

use ferroflow_core::{Code, Result, Status, bail, status};
use ferroflow_io::bundle;
use ferroflow_io::file;
use ferroflow_io::path::{is_absolute, is_remote, resolve, resolve_path};
use std::fmt::Write;
use std::path::Path;

/// Name of the file.
const FILE: &str = "checkpoint";

/// Checkpoints of a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckpointState {
    /// Prefix of the latest checkpoint.
    pub latest: String,
    /// Prefixes of all checkpoints that are kept, oldest first; the latest is the last.
    pub all: Vec<String>,
    /// Times when they were written, in seconds since 1970.
    pub timestamps: Vec<f64>,
    /// Time when the last checkpoint that is kept forever was written.
    pub last_preserved: Option<f64>,
}

/// Writes the state of a directory atomically. Paths relative to the working directory become relative to `directory`, so
/// that the directory can be moved.
pub fn write_checkpoint_state(directory: impl AsRef<Path>, state: &CheckpointState) -> Result<()> {
    let directory = resolve_path(directory)?;
    let mut all = state.all.clone();
    if all.last() != Some(&state.latest) {
        all.push(state.latest.clone());
    }
    let stored = |path: &String| {
        if is_absolute(&directory) || is_absolute(Path::new(path)) {
            return path.clone();
        }
        let relative =
            Path::new(path).strip_prefix(&directory).map(|path| path.to_string_lossy().into_owned());
        relative.unwrap_or_else(|_| path.clone())
    };
    let mut text = String::new();
    let _ = writeln!(text, "model_checkpoint_path: \"{}\"", escape(&stored(&state.latest)));
    for path in &all {
        let _ = writeln!(text, "all_model_checkpoint_paths: \"{}\"", escape(&stored(path)));
    }
    if state.timestamps.len() == all.len() {
        for timestamp in &state.timestamps {
            let _ = writeln!(text, "all_model_checkpoint_timestamps: {timestamp:?}");
        }
    }
    if let Some(preserved) = state.last_preserved {
        let _ = writeln!(text, "last_preserved_timestamp: {preserved:?}");
    }
    let path = directory.join(FILE);
    let written = file::write(&path, text.as_bytes());
    written.map_err(|error| status!(Internal, "cannot write {}: {}", path.display(), error.message()))
}

/// Reads the state of a directory, and makes its paths absolute or relative to the working directory; `None` without a
/// file.
///
/// ```no_run
/// use ferroflow::train::read_checkpoint_state;
///
/// if let Some(state) = read_checkpoint_state("/tmp/train_logs")? {
///     println!("the latest of {}: {}", state.all.len(), state.latest);
/// }
/// # Ok::<(), ferroflow::Status>(())
/// ```
///
/// # Errors
///
/// `DataLoss` if the file is malformed, `Internal` if it cannot be read.
pub fn read_checkpoint_state(directory: impl AsRef<Path>) -> Result<Option<CheckpointState>> {
    let directory = resolve_path(directory)?;
    let path = directory.join(FILE);
    let text = match file::read(&path) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) if error.code() == Code::NotFound => return Ok(None),
        Err(error) => bail!(Internal, "cannot read {}: {}", path.display(), error.message()),
    };
    let state = parse(&text).map_err(|error| {
        error.map_message(|message| format!("{} is not a list of checkpoints: {message}", path.display()))
    })?;
    // TensorFlow writes paths as it was given them; those of other file systems stay as they are and are not found.
    let whole = |path: String| {
        let path = resolve(&path).map(str::to_owned).unwrap_or(path);
        if is_absolute(Path::new(&path)) || path.is_empty() {
            path
        } else {
            directory.join(path).to_string_lossy().into_owned()
        }
    };
    let all = state.all.into_iter().map(whole).collect();
    Ok(Some(CheckpointState { latest: whole(state.latest), all, ..state }))
}

/// Returns the prefix of the latest checkpoint of a directory, if its files exist.
///
/// ```
/// assert_eq!(ferroflow::train::latest_checkpoint("/no/such/directory")?, None);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn latest_checkpoint(directory: impl AsRef<Path>) -> Result<Option<String>> {
    let state = read_checkpoint_state(directory)?;
    Ok(state.map(|state| state.latest).filter(|latest| checkpoint_exists(latest)))
}

/// Returns `true` if there is a checkpoint with this prefix, of either format.
pub fn checkpoint_exists(prefix: &str) -> bool {
    bundle::exists(prefix).unwrap_or(false)
        || resolve_path(prefix).is_ok_and(|path| !is_remote(&path) && path.is_file())
}

fn parse(text: &str) -> Result<CheckpointState> {
    let mut state = CheckpointState::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || status!(DataLoss, "the line {line:?} is malformed");
        let (field, value) = line.split_once(':').ok_or_else(wrong)?;
        let value = value.trim();
        let number = || -> Result<f64> { value.parse().map_err(|_| wrong()) };
        match field.trim() {
            "model_checkpoint_path" => state.latest = unescape(value).ok_or_else(wrong)?,
            "all_model_checkpoint_paths" => state.all.push(unescape(value).ok_or_else(wrong)?),
            "all_model_checkpoint_timestamps" => state.timestamps.push(number()?),
            "last_preserved_timestamp" => state.last_preserved = Some(number()?),
            // Fields of later versions are ignored.
            _ => {}
        }
    }
    Ok(state)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' => escaped.push_str("\\\""),
            b'\'' => escaped.push_str("\\'"),
            b'\\' => escaped.push_str("\\\\"),
            b'\n' => escaped.push_str("\\n"),
            b'\r' => escaped.push_str("\\r"),
            b'\t' => escaped.push_str("\\t"),
            0x20..=0x7e => escaped.push(byte as char),
            other => {
                let _ = write!(escaped, "\\{other:03o}");
            }
        }
    }
    escaped
}

/// Returns the text within quotes; `None` if it is malformed.
fn unescape(quoted: &str) -> Option<String> {
    let quote = quoted.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let inner = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    let (mut bytes, mut rest) = (Vec::with_capacity(inner.len()), inner.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escaped, after) = rest.split_first()?;
        rest = after;
        bytes.push(match escaped {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let digits = rest.iter().take(2).take_while(|digit| digit.is_ascii_hexdigit()).count();
                let value = u8::from_str_radix(std::str::from_utf8(&rest[..digits]).ok()?, 16).ok()?;
                rest = &rest[digits..];
                value
            }
            b'0'..=b'7' => {
                let digits = rest.iter().take(2).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
                let value = rest[..digits]
                    .iter()
                    .fold(u32::from(escaped - b'0'), |value, digit| value * 8 + u32::from(digit - b'0'));
                rest = &rest[digits..];
                u8::try_from(value).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Returns the error for a checkpoint that does not exist.
pub(super) fn missing(prefix: &str) -> Status {
    status!(
        NotFound,
        "there is no checkpoint {prefix}: expected {prefix}.index and its data files; find the latest one of a directory \
         with train::latest_checkpoint(directory)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_a_round_trip() {
        for text in ["model.ckpt-1", "naïve \"dir\"\\x\n\t'", ""] {
            assert_eq!(unescape(&format!("\"{}\"", escape(text))).as_deref(), Some(text));
        }
        assert_eq!(unescape("\"a").as_deref(), None);
        assert_eq!(unescape(r#""\x41\101""#).as_deref(), Some("AA"));
    }
}
