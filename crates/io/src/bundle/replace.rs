//! Replacement of a checkpoint under the same prefix: data file names that the old one does not use, and removal of the
//! old files.

use super::entry::{HEADER_KEY, header, shards_of};
use super::{data_path, index_path};
use crate::file::{self, Sink};
use crate::table::{TableReader, TableWriter};
use ferroflow_core::Result;
use ferroflow_proto::tensorflow::BundleEntryProto;
use prost::Message;
use std::collections::BTreeMap;
use std::path::Path;

/// The number of data files to write if `wanted` are needed: one more if the existing checkpoint has the same number.
pub(super) fn unused_shards(prefix: &str, wanted: usize) -> usize {
    // Data files without a readable index need not be kept.
    let table = TableReader::open(&index_path(prefix));
    let header = table.and_then(|table| table.get(HEADER_KEY));
    let present = header.and_then(|header| shards_of(&header.unwrap_or_default()));
    if present.is_ok_and(|present| present == wanted) { wanted + 1 } else { wanted }
}

/// Writes the index, which makes the checkpoint valid. The data files up to `used` exist; the others, which are empty,
/// are created first. Files of the previous checkpoint are removed.
pub(super) fn publish(
    prefix: &str,
    used: usize,
    shards: usize,
    entries: &BTreeMap<Vec<u8>, BundleEntryProto>,
) -> Result<()> {
    for shard in used..shards {
        Sink::create(data_path(prefix, shard, shards))?.finish()?;
    }
    let mut table = TableWriter::create(&index_path(prefix))?;
    table.add(HEADER_KEY, &header(shards))?;
    for (key, entry) in entries {
        table.add(key, &entry.encode_to_vec())?;
    }
    table.finish()?;
    remove_others(prefix, shards);
    Ok(())
}

/// Removes data files of this prefix that belong to another number of files. The checkpoint is valid even if this
/// fails.
fn remove_others(prefix: &str, shards: usize) {
    let path = Path::new(prefix);
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let directory = directory.unwrap_or(Path::new("."));
    for file in file::list(directory).unwrap_or_default() {
        if shards_in_name(&file, name).is_some_and(|n| n != shards) {
            let _ = file::remove(directory.join(file));
        }
    }
}

/// The `n` in `<prefix>.data-<k>-of-<n>`.
fn shards_in_name(file: &str, prefix: &str) -> Option<usize> {
    let (shard, shards) = file.strip_prefix(prefix)?.strip_prefix(".data-")?.split_once("-of-")?;
    let number = |text: &str| if text.len() == 5 { text.parse::<usize>().ok() } else { None };
    number(shard)?;
    number(shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_files_of_the_prefix_are_recognized() {
        assert_eq!(shards_in_name("model.data-00000-of-00002", "model"), Some(2));
        for other in ["model.index", "model-1.data-00000-of-00002", "model.data-00000-of-00002.tempstate1-0"]
        {
            assert_eq!(shards_in_name(other, "model"), None, "{other}");
        }
    }
}
