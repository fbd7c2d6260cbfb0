//! File names as graphs and programs give them: plain paths or `file://` URLs. This is the only place that turns a name
//! into a local path; names of other file systems are refused with stock's message.

use ferroflow_core::{Result, bail, ensure};
use std::path::{Path, PathBuf};

/// The local path in a name: all of a plain path, or the part after the host of a `file://` URL, which may be empty.
pub fn local(name: &str) -> Result<&str> {
    match address(name) {
        None => Ok(name),
        Some(("file", rest)) => Ok(rest.find('/').map_or("", |start| &rest[start..])),
        Some((scheme, _)) => {
            bail!(Unimplemented, "File system scheme '{scheme}' not implemented (file: '{name}')")
        }
    }
}

/// The local path that a name stands for. Names that are not UTF-8 are paths.
pub fn local_path(name: impl AsRef<Path>) -> Result<PathBuf> {
    let name = name.as_ref();
    name.to_str().map_or_else(|| Ok(name.to_owned()), |text| local(text).map(PathBuf::from))
}

/// The path prefix of a checkpoint's files. An empty prefix is refused; stock would write files starting with a dot
/// into the server's working directory.
pub fn checkpoint_prefix(name: &str) -> Result<&str> {
    let prefix = local(name)?;
    ensure!(
        !prefix.is_empty(),
        InvalidArgument,
        "The path of a checkpoint is empty (it was given as '{name}'); name a file, such as /tmp/model.ckpt"
    );
    Ok(prefix)
}

/// The scheme of a URL and the part after `://`. A scheme has at least two characters, as in stock.
fn address(name: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = name.split_once("://")?;
    let first = scheme.bytes().next()?;
    let others = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    (scheme.len() >= 2 && first.is_ascii_alphabetic() && others).then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;

    #[test]
    fn addresses_of_local_files_are_paths() {
        for (name, path) in [
            ("/tmp/model", "/tmp/model"),
            ("model", "model"),
            ("file:///tmp/model", "/tmp/model"),
            ("file://localhost/tmp/a b", "/tmp/a b"),
            ("file:///", "/"),
            ("file:/tmp/model", "file:/tmp/model"),
            ("a://b/c", "a://b/c"),
            ("1x://b", "1x://b"),
            ("x+y://b", "x+y://b"),
            ("", ""),
        ] {
            assert_eq!(local(name).unwrap(), path, "{name}");
            assert_eq!(local_path(name).unwrap(), PathBuf::from(path), "{name}");
        }
    }

    #[test]
    fn other_file_systems_are_refused() {
        for name in ["gs://bucket/model", "s3://bucket/model", "hdfs://host/model", "FILE:///tmp/model"] {
            let refused = local(name).unwrap_err();
            assert_eq!(refused.code(), Code::Unimplemented);
            assert!(refused.message().contains(name), "{}", refused.message());
        }
    }

    #[test]
    fn checkpoints_need_a_name() {
        for name in ["", "file://", "file://host"] {
            assert_eq!(checkpoint_prefix(name).unwrap_err().code(), Code::InvalidArgument, "{name}");
        }
        assert_eq!(checkpoint_prefix("file:///tmp/model").unwrap(), "/tmp/model");
    }
}
