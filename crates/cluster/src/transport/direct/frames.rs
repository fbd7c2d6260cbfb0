//! What is said on a direct connection: a greeting, then frames. A frame is a head of fixed size and a body.

use super::super::keys::KeyText;
use super::super::tensor_codec::TensorBytes;
use bytes::{BufMut, Bytes, BytesMut};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::tensor::{Storage, encode_string_list};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use ferroflow_proto::tensorflow::{RunGraphRequest, TensorProto};
use prost::Message;

/// What the caller says first. HTTP/2 starts with another letter.
pub(crate) const GREETING: &[u8; 8] = b"Ferro/2\n";
/// What the other side answers.
pub(super) const WELCOME: &[u8; 8] = b"ferro/2\n";

/// Length of the body, kind, step.
pub(super) const HEAD_BYTES: usize = 16;
/// The largest body; longer ones are of no frame of ours.
pub(super) const MAX_BODY: usize = 256 << 20;

/// What a frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The caller starts a part: a [`RunPart`].
    Run = 1,
    /// The caller gives up a part.
    Cancel = 2,
    /// The caller says that a step is over.
    CleanUp = 3,
    /// A part has ended: a `RunGraphResponse`, as a call of that name would give.
    Ended = 4,
    /// A tensor as a whole.
    Tensor = 5,
    /// A tensor whose content follows in pieces: the transfer's number, the content's length, the tensor's head.
    Announced = 6,
    /// Content of an announced tensor: the transfer's number, bytes.
    Piece = 7,
    /// Where to look whether the sender's memory can be read: a [`Proof`].
    Proof = 8,
    /// The sender can read the receiver's memory.
    Readable = 9,
    /// A tensor whose content the receiver may read from the sender's memory: the transfer's number, the content's
    /// length, its address, the tensor's head.
    Offered = 10,
    /// An offered content has been read. Of this and the next two the step is the transfer's number.
    Taken = 11,
    /// The content that was read was there until then.
    Confirmed = 12,
    /// An offered content could not be read and should come in pieces.
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
            other => bail!(Internal, "{other} is no kind of frame"),
        };
        ensure!(length <= MAX_BODY, Internal, "a frame of {length} bytes");
        Ok(Head { length, kind, step: i64::from_le_bytes(step) })
    }
}

/// Starts a part of a step.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RunPart {
    /// What to run.
    #[prost(message, optional, tag = "1")]
    pub(crate) request: Option<RunGraphRequest>,
    /// The caller's task, with which the part's tensors are exchanged on this connection.
    #[prost(string, tag = "2")]
    pub(crate) caller: String,
    /// Whether the caller is the only one who receives tensors of the part: then the step is over here when it ends.
    #[prost(bool, tag = "3")]
    pub(crate) master_only: bool,
}

/// Something that whoever can read the sender's memory finds there.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Proof {
    /// Where it is.
    #[prost(fixed64, tag = "1")]
    pub(super) address: u64,
    /// What it is.
    #[prost(fixed64, tag = "2")]
    pub(super) value: u64,
}

/// How the content of a tensor is to be understood.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain = 0,
    Strings = 1,
    /// The content is a `TensorProto`.
    Message = 2,
}

const DEAD: u8 = 0x80;

/// A parcel about to be sent: everything but its content, and the content.
pub(super) struct OutgoingParcel {
    tensor: Tensor,
    form: Form,
    dead: bool,
    /// The content, unless it is the tensor's memory.
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

    /// The content, which keeps the tensor alive.
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

/// A tensor's head as it arrived.
pub(super) struct TensorHead<'a> {
    form: Form,
    dead: bool,
    dtype: DType,
    shape: Shape,
    pub(super) key: &'a [u8],
}

impl<'a> TensorHead<'a> {
    /// Reads a head; returns what follows it, too.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<(TensorHead<'a>, &'a [u8])> {
        let Some((&[form, rank, low, high, a, b, c, d], rest)) = bytes.split_first_chunk() else {
            bail!(Internal, "a tensor without a head")
        };
        let key_length = u32::from_le_bytes([a, b, c, d]) as usize;
        let (dims, rest) = rest.split_at_checked(8 * usize::from(rank)).unwrap_or_default();
        let Some((key, content)) = rest.split_at_checked(key_length) else {
            bail!(Internal, "a tensor whose head is cut off")
        };
        let (dims, _) = dims.as_chunks();
        let head = TensorHead {
            form: match form & !DEAD {
                0 => Form::Plain,
                1 => Form::Strings,
                2 => Form::Message,
                other => bail!(Internal, "{other} is no form of a tensor"),
            },
            dead: form & DEAD != 0,
            dtype: DType::from_wire(i32::from(u16::from_le_bytes([low, high])))?,
            shape: Shape::new(dims.iter().map(|dim| i64::from_le_bytes(*dim)))?,
            key,
        };
        Ok((head, content))
    }

    /// The parcel whose content has arrived in memory of its own.
    pub(super) fn with_buffer(&self, content: ferroflow_core::tensor::Buffer) -> Result<Parcel> {
        let tensor = match self.form {
            Form::Plain => Tensor::from_buffer(self.dtype, self.shape.clone(), content)?,
            _ => return self.with_encoded(content.as_slice()),
        };
        Ok(self.parcel(tensor))
    }

    /// Whether the content is the elements' memory.
    pub(super) fn is_plain(&self) -> bool {
        self.form == Form::Plain
    }

    /// The parcel with an encoded content.
    pub(super) fn with_encoded(&self, content: &[u8]) -> Result<Parcel> {
        let proto = match self.form {
            Form::Message => match TensorProto::decode(content) {
                Ok(proto) => proto,
                Err(error) => bail!(Internal, "a tensor cannot be read: {error}"),
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

    /// The same without borrowed parts.
    pub(super) fn into_owned(self) -> TensorHead<'static> {
        TensorHead { key: &[], ..self }
    }
}

/// The keys that came lately, so that they need not be taken apart again.
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
            Err(_) => bail!(Internal, "a rendezvous key that is no text"),
        };
        // KeyCache of iterations do not come again, and long ones are not worth their memory.
        if (key.frame, key.iteration) == (0, 0) && text.len() <= KeyCache::LONGEST {
            if self.0.len() >= KeyCache::KEPT {
                self.0.clear();
            }
            self.0.insert(text.into(), key.clone());
        }
        Ok(key)
    }
}
