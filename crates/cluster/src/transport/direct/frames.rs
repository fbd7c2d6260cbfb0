//! The frames of a direct connection: their layout, and the encoding of tensors in them. `docs/wire.md` has the
//! specification.

use super::super::keys::KeyText;
use super::super::tensor_codec::TensorBytes;
use bytes::{BufMut, Bytes, BytesMut};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::tensor::{Storage, encode_string_list};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use ferroflow_proto::tensorflow::eager::RunComponentFunctionRequest;
use ferroflow_proto::tensorflow::{RunGraphRequest, TensorProto};
use prost::Message;

/// The first bytes of the caller. HTTP/2 begins with another letter.
pub(crate) const GREETING: &[u8; 8] = b"Ferro/2\n";
/// The reply to the greeting.
pub(super) const WELCOME: &[u8; 8] = b"ferro/2\n";

/// The size of a frame head: body length, kind, step.
pub(super) const HEAD_BYTES: usize = 16;
/// The largest allowed body.
pub(super) const MAX_BODY: usize = 256 << 20;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Starts a part: a [`RunPart`].
    Run = 1,
    /// Cancels a part.
    Cancel = 2,
    /// Ends a step.
    CleanUp = 3,
    /// Reports the end of a part: a `RunGraphResponse`, as the gRPC method returns it.
    Ended = 4,
    /// A complete tensor.
    Tensor = 5,
    /// A tensor whose content follows in pieces: transfer number, content length, zero, tensor head.
    Announced = 6,
    /// A piece of an announced tensor's content: transfer number, bytes.
    Piece = 7,
    /// The address of a value by which the receiver can check whether it can read the sender's memory: a [`Proof`].
    Proof = 8,
    /// Reports that the sender can read the receiver's memory.
    Readable = 9,
    /// A tensor whose content the receiver may read from the sender's memory: transfer number, content length, address,
    /// tensor head.
    Offered = 10,
    /// Reports that an offered content was read. In this and the next two kinds the step field holds the transfer
    /// number.
    Taken = 11,
    /// Confirms that the content was unchanged while it was read.
    Confirmed = 12,
    /// Reports that an offered content cannot be read and must be sent in pieces.
    Refused = 13,
}

/// The head of a frame.
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: Kind,
    pub(super) step: i64,
}

impl Head {
    pub(super) fn put(length: usize, kind: Kind, step: i64, out: &mut BytesMut) {
        out.put_u32_le(length as u32);
        out.put_u32_le(kind as u32);
        out.put_i64_le(step);
    }

    pub(super) fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Head> {
        let [a, b, c, d, e, f, g, h, step @ ..] = *bytes;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let kind = match u32::from_le_bytes([e, f, g, h]) {
            1 => Kind::Run,
            2 => Kind::Cancel,
            3 => Kind::CleanUp,
            4 => Kind::Ended,
            5 => Kind::Tensor,
            6 => Kind::Announced,
            7 => Kind::Piece,
            8 => Kind::Proof,
            9 => Kind::Readable,
            10 => Kind::Offered,
            11 => Kind::Taken,
            12 => Kind::Confirmed,
            13 => Kind::Refused,
            other => bail!(Internal, "malformed frame: {other} is not a kind of frame"),
        };
        ensure!(
            length <= MAX_BODY,
            Internal,
            "malformed frame: a body of {length} bytes, the limit is {MAX_BODY}"
        );
        Ok(Head { length, kind, step: i64::from_le_bytes(step) })
    }
}

/// The request to run a part of a step.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RunPart {
    /// The graph to run and its step.
    #[prost(message, optional, tag = "1")]
    pub(crate) request: Option<RunGraphRequest>,
    /// The caller's task, which exchanges the part's tensors on this connection.
    #[prost(string, tag = "2")]
    pub(crate) caller: String,
    /// True if only the caller receives tensors from the part. The step then ends here with the part.
    #[prost(bool, tag = "3")]
    pub(crate) master_only: bool,
    /// A part of a function to run instead of a graph.
    #[prost(message, optional, tag = "4")]
    pub(crate) component: Option<RunComponentFunctionRequest>,
}

/// A value in the sender's memory that the receiver reads to check its access.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Proof {
    /// The address of the value.
    #[prost(fixed64, tag = "1")]
    pub(super) address: u64,
    /// The value.
    #[prost(fixed64, tag = "2")]
    pub(super) value: u64,
}

/// The encoding of a tensor's content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain = 0,
    Strings = 1,
    /// A serialized `TensorProto`.
    Message = 2,
}

const DEAD: u8 = 0x80;

/// A parcel to send: a head, and its content.
pub(super) struct OutgoingParcel {
    tensor: Tensor,
    form: Form,
    dead: bool,
    /// The content, unless it is the tensor's own memory.
    encoded: Bytes,
}

impl OutgoingParcel {
    pub(super) fn new(parcel: Parcel) -> Result<OutgoingParcel> {
        let Parcel { tensor, dead, .. } = parcel.delivered()?;
        let (form, encoded) = match tensor.storage() {
            Storage::Plain(_) => (Form::Plain, Bytes::new()),
            Storage::Strings(values) => (Form::Strings, encode_string_list(values)),
            Storage::Resources(_) | Storage::Variants(_) => {
                (Form::Message, tensor.to_proto()?.encode_to_vec().into())
            }
        };
        Ok(OutgoingParcel { tensor, form, dead, encoded })
    }

    pub(super) fn content(&self) -> &[u8] {
        match self.form {
            Form::Plain => self.tensor.bytes().unwrap_or_default(),
            _ => &self.encoded,
        }
    }

    /// Returns the content, which keeps the tensor alive.
    pub(super) fn into_content(self) -> Bytes {
        match self.form {
            Form::Plain => Bytes::from_owner(TensorBytes(self.tensor)),
            _ => self.encoded,
        }
    }

    pub(super) fn head_len(&self, key: &KeyText<'_>) -> usize {
        8 + 8 * self.tensor.rank() + key.len()
    }

    pub(super) fn put_head(&self, key: &KeyText<'_>, out: &mut BytesMut) {
        let dims = self.tensor.shape().dims();
        out.put_u8(self.form as u8 | if self.dead { DEAD } else { 0 });
        out.put_u8(dims.len() as u8);
        out.put_u16_le(self.tensor.dtype().to_wire() as u16);
        out.put_u32_le(key.len() as u32);
        dims.iter().for_each(|dim| out.put_i64_le(*dim));
        key.put(out);
    }
}

/// A tensor's head as received.
pub(super) struct TensorHead<'a> {
    form: Form,
    dead: bool,
    dtype: DType,
    shape: Shape,
    pub(super) key: &'a [u8],
}

impl<'a> TensorHead<'a> {
    /// Parses a head; returns it and the bytes that follow it.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<(TensorHead<'a>, &'a [u8])> {
        let Some((&[form, rank, low, high, a, b, c, d], rest)) = bytes.split_first_chunk() else {
            bail!(Internal, "malformed frame: a tensor without a head")
        };
        let key_length = u32::from_le_bytes([a, b, c, d]) as usize;
        let (dims, rest) = rest.split_at_checked(8 * usize::from(rank)).unwrap_or_default();
        let Some((key, content)) = rest.split_at_checked(key_length) else {
            bail!(Internal, "malformed frame: the head of a tensor is truncated")
        };
        let (dims, _) = dims.as_chunks();
        let head = TensorHead {
            form: match form & !DEAD {
                0 => Form::Plain,
                1 => Form::Strings,
                2 => Form::Message,
                other => bail!(Internal, "malformed frame: {other} is not an encoding of a tensor"),
            },
            dead: form & DEAD != 0,
            dtype: DType::from_wire(i32::from(u16::from_le_bytes([low, high])))?,
            shape: Shape::new(dims.iter().map(|dim| i64::from_le_bytes(*dim)))?,
            key,
        };
        Ok((head, content))
    }

    /// Builds the parcel from content that was received into its own buffer.
    pub(super) fn with_buffer(&self, content: ferroflow_core::tensor::Buffer) -> Result<Parcel> {
        let tensor = match self.form {
            Form::Plain => Tensor::from_buffer(self.dtype, self.shape.clone(), content)?,
            _ => return self.with_encoded(content.as_slice()),
        };
        Ok(self.parcel(tensor))
    }

    /// Returns whether the content is the elements' memory.
    pub(super) fn is_plain(&self) -> bool {
        self.form == Form::Plain
    }

    /// Builds the parcel from encoded content.
    pub(super) fn with_encoded(&self, content: &[u8]) -> Result<Parcel> {
        let proto = match self.form {
            Form::Message => match TensorProto::decode(content) {
                Ok(proto) => proto,
                Err(error) => bail!(Internal, "malformed frame: {error}"),
            },
            _ => TensorProto {
                dtype: self.dtype.to_wire(),
                tensor_shape: Some(self.shape.to_proto()),
                tensor_content: Bytes::copy_from_slice(content),
                ..Default::default()
            },
        };
        Ok(self.parcel(Tensor::from_proto(&proto)?))
    }

    fn parcel(&self, tensor: Tensor) -> Parcel {
        if self.dead { Parcel::dead(tensor) } else { Parcel::new(tensor) }
    }

    /// Returns the head without its borrowed key.
    pub(super) fn into_owned(self) -> TensorHead<'static> {
        TensorHead { key: &[], ..self }
    }
}

/// A cache of parsed rendezvous keys.
#[derive(Default)]
pub(super) struct KeyCache(std::collections::HashMap<Box<[u8]>, RendezvousKey>);

impl KeyCache {
    const KEPT: usize = 8192;
    const LONGEST: usize = 4096;

    pub(super) fn get(&mut self, text: &[u8]) -> Result<RendezvousKey> {
        if let Some(key) = self.0.get(text) {
            return Ok(key.clone());
        }
        let key = match std::str::from_utf8(text) {
            Ok(text) => RendezvousKey::parse(text)?,
            Err(_) => bail!(Internal, "malformed frame: a rendezvous key that is not UTF-8"),
        };
        // Keys of loop iterations do not come again, and long ones are not worth their memory.
        if (key.frame, key.iteration) == (0, 0) && text.len() <= KeyCache::LONGEST {
            if self.0.len() >= KeyCache::KEPT {
                self.0.clear();
            }
            self.0.insert(text.into(), key.clone());
        }
        Ok(key)
    }
}
