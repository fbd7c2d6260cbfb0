//! File names as graphs and programs give them: plain paths, `file://` URLs, and URLs of files that are reached over a
//! network. This is the only place that turns a name into a path; names of other file systems are refused with stock's
//! message.

use ferroflow_core::{Result, bail, ensure};
use std::path::{Path, PathBuf};

/// The path in a name: all of a plain path or of the URL of a remote file, or the part after the host of a `file://` URL,
/// which may be empty.
pub fn resolve(name: &str) -> Result<&str> {
    match address(name) {
        None => Ok(name),
        Some(_) if ferroflow_remote::is_remote(name) => Ok(name),
        Some(("file", rest)) => Ok(rest.find('/').map_or("", |start| &rest[start..])),
        Some((scheme, _)) => {
            bail!(Unimplemented, "File system scheme '{scheme}' not implemented (file: '{name}')")
        }
    }
}

/// The path that a name stands for. Names that are not UTF-8 are paths of this machine.
pub fn resolve_path(name: impl AsRef<Path>) -> Result<PathBuf> {
    let name = name.as_ref();
    name.to_str().map_or_else(|| Ok(name.to_owned()), |text| resolve(text).map(PathBuf::from))
}

/// Returns whether a resolved path is the URL of a remote file or directory.
pub fn is_remote(path: &Path) -> bool {
    remote_url(path).is_some()
}

/// Returns whether a resolved path means the same whatever the working directory is.
pub fn is_absolute(path: &Path) -> bool {
    path.is_absolute() || is_remote(path)
}

/// The URL of a resolved path, if it is that of a remote file.
pub(crate) fn remote_url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| ferroflow_remote::is_remote(text))
}

/// The path prefix of a checkpoint's files. An empty prefix is refused; stock would write files starting with a dot
/// into the server's working directory.
pub fn checkpoint_prefix(name: &str) -> Result<&str> {
    let prefix = resolve(name)?;
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
            assert_eq!(resolve(name).unwrap(), path, "{name}");
            assert_eq!(resolve_path(name).unwrap(), PathBuf::from(path), "{name}");
            assert_eq!(remote_url(Path::new(path)), None, "{name}");
        }
    }

    #[test]
    fn other_file_systems_are_refused() {
        for name in ["hdfs://host/model", "ram://model", "FILE:///tmp/model"] {
            let refused = resolve(name).unwrap_err();
            assert_eq!(refused.code(), Code::Unimplemented);
            assert!(refused.message().contains(name), "{}", refused.message());
        }
    }

    #[test]
    fn remote_files_keep_their_url() {
        for name in ["gs://bucket/model", "s3://bucket/model", "https://host/model"] {
            let path = resolve_path(name).unwrap();
            assert_eq!(remote_url(&path.join("part")), Some(format!("{name}/part").as_str()));
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
