//! Writes checkpoints in TensorFlow's V1 format.

use super::META_KEY;
use crate::bundle::{SliceSpec, TensorSlice};
use crate::path::{is_remote, resolve_path};
use crate::table::TableWriter;
use bytes::Bytes;
use ferroflow_core::tensor::Unit;
use ferroflow_core::{C64, C128, DType, Result, Tensor, bail, ensure, f16};
use ferroflow_proto::tensorflow::{
    SavedSlice, SavedSliceMeta, SavedTensorSliceMeta, SavedTensorSlices, TensorProto, VersionDef,
};
use prost::Message;
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the format that is written; every reader of the format knows it.
const PRODUCER: i32 = 1;
/// A message may not be longer than this.
const LONGEST: usize = 1 << 31;

/// A V1 checkpoint being written. The file appears when it is finished.
#[derive(Default)]
pub struct V1Writer {
    tensors: Vec<SavedSliceMeta>,
    /// Encoded slices by key.
    slices: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl V1Writer {
    /// Adds a tensor, or a slice of one.
    pub fn add(&mut self, name: &str, spec: Option<&SliceSpec>, tensor: &Tensor) -> Result<()> {
        let whole = TensorSlice::whole(tensor.rank());
        let (full, slice) = spec.map_or((tensor.shape(), &whole), |spec| (&spec.full, &spec.slice));
        let dtype = tensor.dtype();
        let known = match self.tensors.iter().position(|meta| meta.name == name) {
            Some(known) => known,
            None => {
                self.tensors.push(SavedSliceMeta {
                    name: name.to_owned(),
                    shape: Some(full.to_proto()),
                    r#type: dtype.to_wire(),
                    slice: Vec::new(),
                });
                self.tensors.len() - 1
            }
        };
        let meta = &mut self.tensors[known];
        ensure!(
            meta.shape == Some(full.to_proto()),
            Internal,
            "Mismatching shapes: trying to add name {name}, shape = {full}, which was added with another shape"
        );
        ensure!(
            meta.r#type == dtype.to_wire(),
            Internal,
            "Mismatching types: trying to add name {name}, type = {dtype}, which was added with another type"
        );
        meta.slice.push(slice.to_proto());
        let data =
            SavedSlice { name: name.to_owned(), slice: Some(slice.to_proto()), data: Some(values(tensor)?) };
        let message = SavedTensorSlices { meta: None, data: Some(data) };
        let length = message.encoded_len();
        ensure!(
            length < LONGEST,
            InvalidArgument,
            "Tensor slice is too large to serialize: {name} needs {length} bytes, the format has room for {LONGEST}; \
             save it in slices or in the second format"
        );
        // Of two equal slices the first one stays, as in stock.
        self.slices.entry(slice.key(name)).or_insert_with(|| message.encode_to_vec());
        Ok(())
    }

    /// Writes the file.
    pub fn finish(self, path: &str) -> Result<()> {
        let versions = VersionDef { producer: PRODUCER, min_consumer: 0, bad_consumers: Vec::new() };
        let meta = SavedTensorSliceMeta { tensor: self.tensors, versions: Some(versions) };
        let path = resolve_path(path)?;
        // Files of this format do not make their directory, in stock either.
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        ensure!(
            is_remote(&path) || directory.is_none_or(Path::is_dir),
            NotFound,
            "{}; No such file or directory",
            path.display()
        );
        let mut table = TableWriter::create(&path)?;
        table.add(META_KEY, &SavedTensorSlices { meta: Some(meta), data: None }.encode_to_vec())?;
        for (key, message) in &self.slices {
            table.add(key, message)?;
        }
        table.finish()
    }
}

/// A tensor's elements in the list of their type; type and shape are in the metadata.
fn values(tensor: &Tensor) -> Result<TensorProto> {
    let mut proto = TensorProto::default();
    match tensor.dtype() {
        DType::Float => proto.float_val = tensor.flat::<f32>()?.to_vec(),
        DType::Double => proto.double_val = tensor.flat::<f64>()?.to_vec(),
        DType::Int32 | DType::Qint32 => proto.int_val = integers(tensor, |x: u32| x as i32)?,
        DType::Int16 => proto.int_val = integers(tensor, |x: u16| x as i16 as i32)?,
        DType::Int8 | DType::Qint8 => proto.int_val = integers(tensor, |x: u8| x as i8 as i32)?,
        DType::Uint16 => proto.int_val = integers(tensor, |x: u16| x as i32)?,
        DType::Uint8 | DType::Quint8 => proto.int_val = integers(tensor, |x: u8| x as i32)?,
        DType::Int64 => proto.int64_val = tensor.flat::<i64>()?.to_vec(),
        DType::Bool => proto.bool_val = tensor.flat::<bool>()?.to_vec(),
        DType::Complex64 => {
            proto.scomplex_val = tensor.flat::<C64>()?.iter().flat_map(|z| [z.re, z.im]).collect();
        }
        DType::Complex128 => {
            proto.dcomplex_val = tensor.flat::<C128>()?.iter().flat_map(|z| [z.re, z.im]).collect();
        }
        DType::Half => proto.half_val = tensor.flat::<f16>()?.iter().map(|x| x.to_bits() as i32).collect(),
        DType::String => proto.string_val = tensor.flat::<Bytes>()?.to_vec(),
        // Stock refuses these with another code than the rest.
        dtype @ (DType::Uint32 | DType::Uint64) => {
            bail!(InvalidArgument, "Tensor slice serialization not implemented for dtype {}", dtype.to_wire())
        }
        dtype => bail!(Unimplemented, "Saving data type {dtype} not yet supported"),
    }
    Ok(proto)
}

/// Small integers by their bits, since quantized ones are stored as plain ones.
fn integers<U: Unit + Copy>(tensor: &Tensor, value: impl Fn(U) -> i32) -> Result<Vec<i32>> {
    Ok(tensor.units::<U>()?.iter().map(|unit| value(*unit)).collect())
}
