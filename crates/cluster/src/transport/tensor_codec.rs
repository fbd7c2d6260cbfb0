//! Codecs for the messages that carry tensors, which go directly between frames and tensor memory.
//!
//! Only fields that hold tensors are handled here. All others are collected and left to the generated decoders, so
//! there is one definition of their meaning.

use super::reader::{ByteSource, Field, Reader, malformed};
use super::rope::Rope;
use bytes::{BufMut, Bytes, BytesMut};
use ferroflow_core::rendezvous::Parcel;
use ferroflow_core::tensor::{Buffer, Storage, encode_string_list};
use ferroflow_core::{DType, Result, Shape, Tensor, status};
use ferroflow_proto::tensorflow::{
    NamedTensorProto, RunCallableRequest, RunCallableResponse, RunMetadata, RunStepRequest, RunStepResponse,
    TensorProto,
};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// Feeds as read: a well-formed message may still hold invalid tensors, which is the caller's mistake and not a wire
/// error.
pub(crate) type Feeds<T> = Result<Vec<T>>;

/// Reads a `RunStepRequest`; its feeds are returned separately.
pub(crate) async fn read_run_step<F: ByteSource>(
    reader: &mut Reader<F>,
) -> Result<(RunStepRequest, Feeds<(String, Tensor)>)> {
    const FEED: u32 = 2;
    let (mut rest, mut feeds) = (BytesMut::new(), Ok(Vec::new()));
    let end = reader.end();
    while let Some(field) = reader.field(end).await? {
        if field.is_message(FEED) {
            let end = reader.enter(end).await?;
            let (name, tensor) = read_named_tensor(reader, end).await?;
            add_feed(&mut feeds, tensor.map(|tensor| (name, tensor)));
        } else {
            reader.gather(field, end, &mut rest).await?;
        }
    }
    Ok((reader.decode_gathered(rest.freeze())?, feeds))
}

/// Reads a `RunCallableRequest`; its feeds are returned separately.
pub(crate) async fn read_run_callable<F: ByteSource>(
    reader: &mut Reader<F>,
) -> Result<(RunCallableRequest, Feeds<Tensor>)> {
    const FEED: u32 = 3;
    let (mut rest, mut feeds) = (BytesMut::new(), Ok(Vec::new()));
    let end = reader.end();
    while let Some(field) = reader.field(end).await? {
        if field.is_message(FEED) {
            let end = reader.enter(end).await?;
            add_feed(&mut feeds, read_tensor(reader, end).await?);
        } else {
            reader.gather(field, end, &mut rest).await?;
        }
    }
    Ok((reader.decode_gathered(rest.freeze())?, feeds))
}

/// A tensor received from another task.
pub(crate) struct ReceivedTensor {
    pub(crate) parcel: Parcel,
    /// The time at which the peer sent it, by the peer's clock, in microseconds since 1970.
    pub(crate) sent_micros: i64,
}

/// Reads a `RecvTensorResponse`. As with feeds, an invalid tensor is not a wire error.
pub(crate) async fn read_recv_tensor<F: ByteSource>(
    reader: &mut Reader<F>,
) -> Result<Result<ReceivedTensor>> {
    const TENSOR: u32 = 1;
    const IS_DEAD: Field = Field { number: 2, wire_type: WireType::Varint };
    const SEND_START: Field = Field { number: 3, wire_type: WireType::Varint };
    let (mut tensor, mut dead, mut sent_micros) = (None, false, 0);
    let mut rest = BytesMut::new();
    let end = reader.end();
    while let Some(field) = reader.field(end).await? {
        if field.is_message(TENSOR) {
            let end = reader.enter(end).await?;
            tensor = Some(read_tensor(reader, end).await?);
        } else if field == IS_DEAD {
            dead = reader.varint(end).await? != 0;
        } else if field == SEND_START {
            sent_micros = reader.varint(end).await? as i64;
        } else {
            reader.gather(field, end, &mut rest).await?;
            rest.clear();
        }
    }
    let tensor = tensor.unwrap_or_else(|| Tensor::from_proto(&TensorProto::default()));
    let parcel = tensor.map(|tensor| if dead { Parcel::dead(tensor) } else { Parcel::new(tensor) });
    Ok(parcel.map(|parcel| ReceivedTensor { parcel, sent_micros }))
}

/// Writes a `RecvTensorResponse`. A dead parcel carries an empty tensor, as in stock.
pub(crate) fn write_recv_tensor(parcel: &Parcel, send_start_micros: i64) -> Result<Rope> {
    const TENSOR: u32 = 1;
    const IS_DEAD: u32 = 2;
    const SEND_START: u32 = 3;
    let nothing;
    let tensor = if parcel.dead {
        nothing = Tensor::zeros(DType::Float, Shape::vector(0));
        &nothing
    } else {
        &parcel.tensor
    };
    let value = EncodedTensor::new(tensor)?;
    let mut rope = Rope::new();
    rope.write(32, |out| {
        if parcel.dead {
            encode_key(IS_DEAD, WireType::Varint, out);
            encode_varint(1, out);
        }
        encode_key(SEND_START, WireType::Varint, out);
        encode_varint(send_start_micros as u64, out);
        put_delimiter(TENSOR, value.encoded_len(), out);
    });
    value.write(&mut rope);
    Ok(rope)
}

fn add_feed<T>(feeds: &mut Feeds<T>, feed: Result<T>) {
    let Ok(list) = feeds else { return };
    match feed {
        Ok(feed) => list.push(feed),
        Err(error) => {
            let position = list.len();
            *feeds = Err(status!(
                InvalidArgument,
                "Invalid TensorProto for feed value {position}: {}",
                error.message()
            ));
        }
    }
}

async fn read_named_tensor<F: ByteSource>(
    reader: &mut Reader<F>,
    end: u64,
) -> Result<(String, Result<Tensor>)> {
    const TENSOR: u32 = 2;
    let (mut rest, mut tensor) = (BytesMut::new(), None);
    while let Some(field) = reader.field(end).await? {
        if field.is_message(TENSOR) {
            if tensor.is_some() {
                return Err(malformed("a name with two tensors"));
            }
            let end = reader.enter(end).await?;
            tensor = Some(read_tensor(reader, end).await?);
        } else {
            reader.gather(field, end, &mut rest).await?;
        }
    }
    let NamedTensorProto { name, .. } = reader.decode_gathered(rest.freeze())?;
    Ok((name, tensor.unwrap_or_else(|| Tensor::from_proto(&TensorProto::default()))))
}

/// Reads a `TensorProto` that ends at `end`. Raw content of plain elements is copied once, into pooled memory.
async fn read_tensor<F: ByteSource>(reader: &mut Reader<F>, end: u64) -> Result<Result<Tensor>> {
    const DTYPE: Field = Field { number: 1, wire_type: WireType::Varint };
    const CONTENT: u32 = 4;
    let (mut rest, mut dtype, mut content) = (BytesMut::new(), None, None);
    while let Some(field) = reader.field(end).await? {
        if field == DTYPE {
            let number = reader.varint(end).await?;
            encode_key(DTYPE.number, DTYPE.wire_type, &mut rest);
            encode_varint(number, &mut rest);
            dtype = DType::from_wire(number as i32).ok();
        } else if field.is_message(CONTENT) && dtype.is_some_and(DType::is_plain) && content.is_none() {
            let end = reader.enter(end).await?;
            content = Some(read_content(reader, end).await?);
        } else {
            reader.gather(field, end, &mut rest).await?;
        }
    }
    let proto: TensorProto = reader.decode_gathered(rest.freeze())?;
    Ok(match content {
        Some(buffer) if !buffer.is_empty() && proto.tensor_content.is_empty() => from_content(&proto, buffer),
        _ => Tensor::from_proto(&proto),
    })
}

fn from_content(proto: &TensorProto, content: Buffer) -> Result<Tensor> {
    let shape = match &proto.tensor_shape {
        Some(shape) => Shape::from_proto(shape)?,
        None => Shape::scalar(),
    };
    Tensor::from_buffer(DType::from_wire(proto.dtype)?, shape, content)
}

async fn read_content<F: ByteSource>(reader: &mut Reader<F>, end: u64) -> Result<Buffer> {
    let mut content = reader.intake().expect((end - reader.position()) as usize)?;
    while content.missing() > 0 {
        let room = content.room()?;
        let count = room.len();
        reader.fill(room).await?;
        content.advance(count);
    }
    let (buffer, charge) = content.finish();
    reader.contents().absorb(charge);
    Ok(buffer)
}

/// Writes the `RunStepResponse` of a successful step.
pub(crate) fn write_run_step(fetches: &[(String, Tensor)], metadata: &RunMetadata) -> Result<Rope> {
    const TENSOR: u32 = 1;
    const METADATA: u32 = 2;
    let mut rope = Rope::new();
    for (name, tensor) in fetches {
        put_named_tensor(TENSOR, name, tensor, &mut rope)?;
    }
    put_message(METADATA, metadata, &mut rope);
    Ok(rope)
}

/// Writes a `RunStepRequest` with separate feeds.
pub(crate) fn write_run_step_request(request: &RunStepRequest, feeds: &[(String, Tensor)]) -> Result<Rope> {
    const FEED: u32 = 2;
    let mut rope = Rope::from_message(request);
    for (name, tensor) in feeds {
        put_named_tensor(FEED, name, tensor, &mut rope)?;
    }
    Ok(rope)
}

/// Writes a `RunCallableRequest` with separate feeds.
pub(crate) fn write_run_callable_request(request: &RunCallableRequest, feeds: &[Tensor]) -> Result<Rope> {
    const FEED: u32 = 3;
    let mut rope = Rope::from_message(request);
    for tensor in feeds {
        put_tensor(FEED, tensor, &mut rope)?;
    }
    Ok(rope)
}

/// Reads a `RunStepResponse`; its tensors are returned separately.
pub(crate) async fn read_run_step_response<F: ByteSource>(
    reader: &mut Reader<F>,
) -> Result<(RunStepResponse, Vec<(String, Tensor)>)> {
    const TENSOR: u32 = 1;
    let (mut rest, mut fetches) = (BytesMut::new(), Vec::new());
    let end = reader.end();
    while let Some(field) = reader.field(end).await? {
        if field.is_message(TENSOR) {
            let end = reader.enter(end).await?;
            let (name, tensor) = read_named_tensor(reader, end).await?;
            fetches.push((name, tensor?));
        } else {
            reader.gather(field, end, &mut rest).await?;
        }
    }
    Ok((reader.decode_gathered(rest.freeze())?, fetches))
}

/// Reads a `RunCallableResponse`; its tensors are returned separately.
pub(crate) async fn read_run_callable_response<F: ByteSource>(
    reader: &mut Reader<F>,
) -> Result<(RunCallableResponse, Vec<Tensor>)> {
    const FETCH: u32 = 1;
    let (mut rest, mut fetches) = (BytesMut::new(), Vec::new());
    let end = reader.end();
    while let Some(field) = reader.field(end).await? {
        if field.is_message(FETCH) {
            let end = reader.enter(end).await?;
            fetches.push(read_tensor(reader, end).await??);
        } else {
            reader.gather(field, end, &mut rest).await?;
        }
    }
    Ok((reader.decode_gathered(rest.freeze())?, fetches))
}

/// Writes a `RunCallableResponse`.
pub(crate) fn write_run_callable(fetches: &[Tensor], metadata: &RunMetadata) -> Result<Rope> {
    const FETCH: u32 = 1;
    const METADATA: u32 = 2;
    let mut rope = Rope::new();
    for tensor in fetches {
        put_tensor(FETCH, tensor, &mut rope)?;
    }
    put_message(METADATA, metadata, &mut rope);
    Ok(rope)
}

/// A tensor to write: a message without the content, and the content.
struct EncodedTensor {
    header: TensorProto,
    content: Bytes,
}

impl EncodedTensor {
    fn new(tensor: &Tensor) -> Result<EncodedTensor> {
        Ok(match tensor.storage() {
            Storage::Plain(_) => EncodedTensor {
                header: tensor.header_proto(),
                content: Bytes::from_owner(TensorBytes(tensor.clone())),
            },
            Storage::Strings(values) => {
                EncodedTensor { header: tensor.header_proto(), content: encode_string_list(values) }
            }
            Storage::Resources(_) | Storage::Variants(_) => {
                EncodedTensor { header: tensor.to_proto()?, content: Bytes::new() }
            }
        })
    }

    fn encoded_len(&self) -> usize {
        let content = if self.content.is_empty() { 0 } else { delimited_len(self.content.len()) };
        self.header.encoded_len() + content
    }

    fn write(self, rope: &mut Rope) {
        const CONTENT: u32 = 4;
        rope.write(self.encoded_len() - self.content.len(), |out| {
            self.header.encode_raw(out);
            if !self.content.is_empty() {
                put_delimiter(CONTENT, self.content.len(), out);
            }
        });
        rope.push(self.content);
    }
}

/// The bytes of a plain tensor, which keep it alive while they are being sent.
pub(crate) struct TensorBytes(pub(crate) Tensor);

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes().unwrap_or_default()
    }
}

fn delimited_len(length: usize) -> usize {
    // All fields written here have numbers below 16, so their keys have one byte.
    1 + encoded_len_varint(length as u64) + length
}

fn put_delimiter(number: u32, length: usize, out: &mut BytesMut) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
}

fn put_tensor(number: u32, tensor: &Tensor, rope: &mut Rope) -> Result<()> {
    let value = EncodedTensor::new(tensor)?;
    rope.write(16, |out| put_delimiter(number, value.encoded_len(), out));
    value.write(rope);
    Ok(())
}

fn put_named_tensor(number: u32, name: &str, tensor: &Tensor, rope: &mut Rope) -> Result<()> {
    const NAME: u32 = 1;
    const VALUE: u32 = 2;
    let value = EncodedTensor::new(tensor)?;
    let length = delimited_len(name.len()) + delimited_len(value.encoded_len());
    rope.write(16 + name.len(), |out| {
        put_delimiter(number, length, out);
        put_delimiter(NAME, name.len(), out);
        out.put_slice(name.as_bytes());
        put_delimiter(VALUE, value.encoded_len(), out);
    });
    value.write(rope);
    Ok(())
}

fn put_message(number: u32, message: &impl Message, rope: &mut Rope) {
    let length = message.encoded_len();
    rope.write(delimited_len(length), |out| {
        put_delimiter(number, length, out);
        message.encode_raw(out);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::intake::Intake;
    use ferroflow_core::tensor::BufferPool;
    use ferroflow_proto::tensorflow::RunOptions;
    use futures_util::FutureExt;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    /// Frames that are all available at once.
    struct Ready(VecDeque<Bytes>);

    impl ByteSource for Ready {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn intake() -> Arc<Intake> {
        Intake::new(BufferPool::new(1 << 20), 1 << 30)
    }

    /// Creates a reader of `message` in frames cut at `borders`.
    fn reader(message: &[u8], borders: &[usize]) -> Reader<Ready> {
        let mut borders: Vec<usize> = borders.iter().map(|border| border % (message.len() + 1)).collect();
        borders.extend([0, message.len()]);
        borders.sort();
        let frames = borders.windows(2).map(|pair| Bytes::copy_from_slice(&message[pair[0]..pair[1]]));
        Reader::new(Ready(frames.collect()), Bytes::new(), message.len() as u64, &intake())
    }

    fn read(message: &[u8], borders: &[usize]) -> Result<(RunStepRequest, Feeds<(String, Tensor)>)> {
        let mut reader = reader(message, borders);
        read_run_step(&mut reader).now_or_never().expect("all frames are at hand")
    }

    /// Generates tensors of several dtypes and encodings, valid and invalid.
    fn tensor_proto() -> impl Strategy<Value = TensorProto> {
        let dims = vec(0i64..4, 0..3);
        (0i32..24, dims, any::<u8>(), vec(any::<u8>(), 0..40), vec(any::<i32>(), 0..4), any::<bool>())
            .prop_map(|(dtype, dims, kind, bytes, ints, right)| {
                let shape = Shape::new(dims).unwrap();
                let mut proto =
                    TensorProto { dtype, tensor_shape: Some(shape.to_proto()), ..Default::default() };
                let size = DType::from_wire(dtype).map_or(0, DType::size) * shape.elements();
                match kind % 4 {
                    0 if right => proto.tensor_content = vec![1; size].into(),
                    0 => proto.tensor_content = bytes.into(),
                    1 => proto.int_val = ints,
                    2 => proto.string_val = vec![Bytes::from(bytes)],
                    _ => proto.float_val = ints.iter().map(|v| *v as f32).collect(),
                }
                proto
            })
    }

    fn run_step_request() -> impl Strategy<Value = RunStepRequest> {
        let feed = (".{0,6}", proptest::option::of(tensor_proto()))
            .prop_map(|(name, tensor)| NamedTensorProto { name, tensor });
        let names = || vec("[a-z]{1,4}:[0-9]", 0..3);
        (".{0,16}", vec(feed, 0..4), names(), names(), any::<i64>(), any::<bool>()).prop_map(
            |(session_handle, feed, fetch, target, number, flag)| RunStepRequest {
                session_handle,
                feed,
                fetch,
                target,
                options: flag.then(|| RunOptions { timeout_in_ms: number, ..Default::default() }),
                store_errors_in_response_body: flag,
                request_id: number,
                ..Default::default()
            },
        )
    }

    fn same(a: &Tensor, b: &Tensor) -> bool {
        a.dtype() == b.dtype() && a.shape() == b.shape() && a.to_proto().unwrap() == b.to_proto().unwrap()
    }

    proptest! {
        #[test]
        fn our_decoder_agrees_with_the_generated_one(request in run_step_request(), borders: Vec<usize>) {
            let (rest, feeds) = read(&request.encode_to_vec(), &borders).unwrap();
            let expected: Result<Vec<_>> = request.feed.iter().map(|feed| {
                Ok((feed.name.clone(), Tensor::from_proto(&feed.tensor.clone().unwrap_or_default())?))
            }).collect();
            match (feeds, expected) {
                (Ok(feeds), Ok(expected)) => {
                    prop_assert_eq!(feeds.len(), expected.len());
                    for (feed, expected) in feeds.iter().zip(&expected) {
                        prop_assert_eq!(&feed.0, &expected.0);
                        prop_assert!(same(&feed.1, &expected.1));
                    }
                }
                (feeds, expected) => prop_assert_eq!(feeds.is_err(), expected.is_err()),
            }
            prop_assert_eq!(rest, RunStepRequest { feed: Vec::new(), ..request });
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(message: Vec<u8>, borders: Vec<usize>) {
            let _ = read(&message, &borders);
        }

        #[test]
        fn broken_requests_are_read_or_refused(
            request in run_step_request(), borders: Vec<usize>, at: usize, byte: u8, cut: usize,
        ) {
            let mut message = request.encode_to_vec();
            if !message.is_empty() {
                let at = at % message.len();
                message[at] = byte;
                message.truncate(cut % (message.len() + 1));
            }
            let _ = read(&message, &borders);
        }

        #[test]
        fn responses_are_read_back_by_the_generated_decoder(count in 0usize..40_000, text in ".{0,8}") {
            let plain = Tensor::vector(vec![7u8; count]);
            let strings = Tensor::vector(vec![Bytes::from(text.clone()), Bytes::new()]);
            let fetches = [(text.clone(), plain.clone()), ("s:0".to_owned(), strings.clone())];
            let pieces = write_run_step(&fetches, &RunMetadata::default()).unwrap().finish().unwrap();
            let message: Vec<u8> = pieces.iter().flatten().copied().skip(5).collect();
            let response = RunStepResponse::decode(&*message).unwrap();
            prop_assert_eq!(response.metadata, Some(RunMetadata::default()));
            for (read, (name, tensor)) in response.tensor.iter().zip(&fetches) {
                prop_assert_eq!(&read.name, name);
                prop_assert!(same(&Tensor::from_proto(read.tensor.as_ref().unwrap()).unwrap(), tensor));
            }
            let pieces = write_run_callable(&[plain], &RunMetadata::default()).unwrap().finish().unwrap();
            let message: Vec<u8> = pieces.iter().flatten().copied().skip(5).collect();
            prop_assert_eq!(RunCallableResponse::decode(&*message).unwrap().fetch.len(), 1);
        }
    }

    #[test]
    fn a_length_alone_gets_no_memory() {
        // A feed whose content claims more bytes than its message has.
        let message = [0x12, 9, 0x12, 7, 8, 1, 0x22, 0xff, 0xff, 0xff, 0x7f];
        assert!(read(&message, &[]).is_err());
    }

    #[test]
    fn what_a_decoder_would_make_of_a_message_is_charged_first() {
        // Two bytes per feed on the wire, and some hundred in memory.
        let message: Vec<u8> = std::iter::repeat_n([0x1a, 0], 1 << 16).flatten().collect();
        let intake = Intake::new(BufferPool::new(1 << 20), 1 << 20);
        let mut reader = Reader::new(Ready([message.clone().into()].into()), Bytes::new(), 1 << 17, &intake);
        let read = read_run_step(&mut reader).now_or_never().expect("all frames are at hand");
        assert_eq!(read.unwrap_err().code(), ferroflow_core::Code::ResourceExhausted);
    }
}
