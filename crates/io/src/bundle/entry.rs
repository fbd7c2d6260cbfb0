//! Validated entries of a bundle's index.

use super::slice::TensorSlice;
use ferroflow_core::{DType, Result, Shape, ensure, status};
use ferroflow_proto::tensorflow::{BundleEntryProto, BundleHeaderProto, VersionDef};
use prost::Message;

/// The key of the header.
pub(super) const HEADER_KEY: &[u8] = b"";
/// The format version that stock writes and reads.
const VERSION: i32 = 1;

/// The location, type and shape of a tensor.
pub(super) struct Entry {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) shard: usize,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// The masked checksum of the data.
    pub(super) checksum: u32,
    pub(super) slices: Vec<TensorSlice>,
}

impl Entry {
    pub(super) fn decode(bytes: &[u8]) -> Result<Entry> {
        let proto = decode_entry(bytes)?;
        let malformed = || status!(DataLoss, "malformed entry in the checkpoint's index");
        let shape = Shape::from_proto(&proto.shape.unwrap_or_default()).map_err(|_| malformed())?;
        let slices = proto.slices.iter().map(TensorSlice::from_proto).collect::<Result<Vec<_>>>()?;
        for slice in &slices {
            slice.shape_within(&shape).map_err(|_| malformed())?;
        }
        Ok(Entry {
            dtype: DType::from_wire(proto.dtype).map_err(|_| malformed())?,
            shape,
            shard: usize::try_from(proto.shard_id).map_err(|_| malformed())?,
            offset: u64::try_from(proto.offset).map_err(|_| malformed())?,
            size: u64::try_from(proto.size).map_err(|_| malformed())?,
            checksum: proto.crc32c,
            slices,
        })
    }
}

pub(super) fn decode_entry(bytes: &[u8]) -> Result<BundleEntryProto> {
    BundleEntryProto::decode(bytes)
        .map_err(|_| status!(DataLoss, "malformed entry in the checkpoint's index"))
}

pub(super) fn header(shards: usize) -> Vec<u8> {
    let version = VersionDef { producer: VERSION, ..Default::default() };
    BundleHeaderProto { num_shards: shards as i32, version: Some(version), ..Default::default() }
        .encode_to_vec()
}

/// The number of data files, from a header of a supported version.
pub(super) fn shards_of(header: &[u8]) -> Result<usize> {
    let header = BundleHeaderProto::decode(header)
        .map_err(|_| status!(DataLoss, "malformed header in the checkpoint's index"))?;
    ensure!(
        header.endianness == 0,
        Unimplemented,
        "Reading a bundle with different endianness from the reader"
    );
    let version = header.version.unwrap_or_default();
    ensure!(
        version.min_consumer <= VERSION && !version.bad_consumers.contains(&VERSION),
        InvalidArgument,
        "the checkpoint needs a reader of version {}, this is version {VERSION}",
        version.min_consumer
    );
    usize::try_from(header.num_shards)
        .map_err(|_| status!(DataLoss, "malformed header in the checkpoint's index"))
}
