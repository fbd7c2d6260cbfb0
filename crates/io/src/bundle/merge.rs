//! Merges the checkpoints of several devices into one: data files are renamed, indexes are merged.

use super::entry::{HEADER_KEY, decode_entry, shards_of};
use super::replace::{publish, unused_shards};
use super::{data_path, index_path};
use crate::file;
use crate::path::{checkpoint_prefix, resolve};
use crate::table::TableReader;
use ferroflow_core::{Code, Result, bail, ensure, status};
use ferroflow_proto::tensorflow::BundleEntryProto;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Merges checkpoints and removes the parts. Parts that do not exist are skipped if `allow_missing` is set.
pub fn merge(prefixes: &[String], destination: &str, allow_missing: bool) -> Result<()> {
    let mut entries: BTreeMap<Vec<u8>, BundleEntryProto> = BTreeMap::new();
    let mut files: Vec<PathBuf> = Vec::new();
    let mut present = Vec::new();
    let destination = checkpoint_prefix(destination)?;
    for name in prefixes {
        let prefix = resolve(name).map_err(|error| {
            let (code, message) = (error.code().name(), error.message());
            status!(
                InvalidArgument,
                "allow_missing_files was set to false and {name} did not exist.{code}: {message}"
            )
        })?;
        let table = match TableReader::open(&index_path(prefix)) {
            Ok(table) => table,
            Err(error) if error.code() == Code::NotFound && allow_missing => continue,
            Err(error) if error.code() == Code::NotFound => bail!(
                InvalidArgument,
                "allow_missing_files was set to false and {name} did not exist.NOT_FOUND: {name} not found"
            ),
            Err(error) => return Err(error),
        };
        let first = files.len();
        let shards = shards_of(&table.get(HEADER_KEY)?.unwrap_or_default())?;
        files.extend((0..shards).map(|shard| data_path(prefix, shard, shards)));
        table.for_each(|key, value| {
            if key == HEADER_KEY {
                return Ok(());
            }
            let mut entry = decode_entry(value)?;
            if entry.slices.is_empty() {
                entry.shard_id += first as i32;
            }
            add_entry(&mut entries, key, entry, prefix)
        })?;
        present.push(prefix);
    }
    ensure!(
        !present.is_empty(),
        InvalidArgument,
        "At least one prefix checkpoint file must exist, but none existed."
    );
    if let Some(directory) = PathBuf::from(destination).parent() {
        // If the directory cannot be created, the renames below report an error.
        let _ = file::create_directories(directory);
    }
    let shards = unused_shards(destination, files.len());
    for (shard, path) in files.iter().enumerate() {
        file::rename(path, &data_path(destination, shard, shards))?;
    }
    publish(destination, files.len(), shards, &entries)?;
    for prefix in present.into_iter().filter(|prefix| *prefix != destination) {
        file::remove(index_path(prefix))?;
    }
    Ok(())
}

fn add_entry(
    entries: &mut BTreeMap<Vec<u8>, BundleEntryProto>,
    key: &[u8],
    entry: BundleEntryProto,
    prefix: &str,
) -> Result<()> {
    let Some(known) = entries.get_mut(key) else {
        entries.insert(key.to_vec(), entry);
        return Ok(());
    };
    let name = String::from_utf8_lossy(key);
    ensure!(
        !known.slices.is_empty() && !entry.slices.is_empty(),
        InvalidArgument,
        "Duplicate tensor keyed by {name} encountered, when merging prefix: {prefix}"
    );
    ensure!(
        known.dtype == entry.dtype && known.shape == entry.shape,
        InvalidArgument,
        "slices of {name} disagree about its type or shape, when merging prefix: {prefix}"
    );
    for slice in entry.slices {
        if !known.slices.contains(&slice) {
            known.slices.push(slice);
        }
    }
    Ok(())
}
