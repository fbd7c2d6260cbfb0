//! Other ways to write bytes down: base 64 in its web-safe alphabet, and serialized tensors.

use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Gradient, Op, shapes};
use ferroflow_core::{DType, Result, Tensor, bail, ensure, kernels, status};
use ferroflow_proto::tensorflow::TensorProto;
use prost::Message;

pub(crate) const OPS: &[&Op] = &[&ENCODE_BASE64, &DECODE_BASE64, &SERIALIZE_TENSOR, &PARSE_TENSOR];

static ENCODE_BASE64: Op = Op {
    name: "EncodeBase64",
    gradient: Gradient::Stop,
    inputs: &["input: string"],
    outputs: &["output: string"],
    attrs: &["pad: bool = false"],
    shape: shapes::unchanged,
    kernels: kernels![any encode_base64_kernel],
    ..Op::PURE
};

static DECODE_BASE64: Op = Op {
    name: "DecodeBase64",
    gradient: Gradient::Stop,
    inputs: &["input: string"],
    outputs: &["output: string"],
    shape: shapes::unchanged,
    kernels: kernels![any decode_base64_kernel],
    ..Op::PURE
};

static SERIALIZE_TENSOR: Op = Op {
    name: "SerializeTensor",
    gradient: Gradient::Stop,
    inputs: &["tensor: T"],
    outputs: &["serialized: string"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any serialize_kernel],
    ..Op::PURE
};

static PARSE_TENSOR: Op = Op {
    name: "ParseTensor",
    gradient: Gradient::Stop,
    inputs: &["serialized: string"],
    outputs: &["output: out_type"],
    attrs: &["out_type: type"],
    kernels: kernels![any parse_kernel],
    ..Op::PURE
};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn encode_base64(bytes: &[u8], pad: bool) -> Str {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0u8; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for at in 0..4 {
            if at <= chunk.len() {
                out.push(ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]);
            } else if pad {
                out.push(b'=');
            }
        }
    }
    out.into()
}

fn decode_base64(text: &[u8]) -> Result<Str> {
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        all => all,
    };
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        ensure!(chunk.len() > 1, InvalidArgument, "Base64 string length out of range.");
        let mut bits = 0u32;
        for digit in chunk {
            let value = ALPHABET.iter().position(|known| known == digit);
            let value =
                value.ok_or_else(|| status!(InvalidArgument, "Invalid character found in base64."))?;
            bits = bits << 6 | value as u32;
        }
        bits <<= 6 * (4 - chunk.len());
        out.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Ok(out.into())
}

/// Bytes in the alphabet that messages use, which is not that of names of files and addresses.
fn standard_base64(bytes: &[u8]) -> String {
    let text = encode_base64(bytes, true);
    String::from_utf8_lossy(&text).replace('-', "+").replace('_', "/")
}

fn encode_base64_kernel(init: &Init<'_>) -> Result<Kernel> {
    let pad: bool = init.attr("pad")?;
    Kernel::sync(move |cx| {
        let mut texts = cx.take(0)?;
        texts.flat_mut::<Str>()?.iter_mut().for_each(|text| *text = encode_base64(text, pad));
        Ok(texts.into())
    })
}

fn decode_base64_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let mut texts = cx.take(0)?;
        for text in texts.flat_mut::<Str>()? {
            *text = decode_base64(text)?;
        }
        Ok(texts.into())
    })
}

fn serialize_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(Str::from(stored_message(cx.input(0)?)?.encode_to_vec())).into()))
}

/// The message of a tensor that will be kept: readers of those know strings as a list of values, not as raw content.
pub(crate) fn stored_message(tensor: &Tensor) -> Result<TensorProto> {
    match tensor.dtype() {
        DType::String => {
            Ok(TensorProto { string_val: tensor.flat::<Str>()?.to_vec(), ..tensor.header_proto() })
        }
        _ => tensor.to_proto(),
    }
}

fn parse_kernel(init: &Init<'_>) -> Result<Kernel> {
    let declared: DType = init.attr("out_type")?;
    Kernel::sync(move |cx| {
        let serialized = cx.input(0)?;
        ensure!(
            serialized.rank() == 0,
            InvalidArgument,
            "Expected `serialized` to be a scalar, got shape: {}",
            serialized.shape()
        );
        let text = serialized.to_scalar::<Str>()?;
        let Ok(proto) = TensorProto::decode(text.clone()) else {
            bail!(
                InvalidArgument,
                "Could not parse `serialized` as TensorProto, base64: {}",
                standard_base64(&text)
            );
        };
        let tensor = Tensor::from_proto(&proto).map_err(|error| {
            status!(InvalidArgument, "Cannot parse tensor from proto: {}", error.message())
        })?;
        ensure!(
            tensor.dtype() == declared,
            InvalidArgument,
            "Type mismatch between parsed tensor ({}) and dtype ({declared})",
            tensor.dtype()
        );
        Ok(tensor.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64_has_rfc_4648_test_values() {
        for (plain, padded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode_base64(plain.as_bytes(), true), padded);
            assert_eq!(decode_base64(padded.as_bytes()).unwrap(), plain);
            assert_eq!(decode_base64(padded.trim_end_matches('=').as_bytes()).unwrap(), plain);
        }
        assert!(decode_base64(b"!!").is_err());
        assert!(decode_base64(b"a").is_err());
    }
}
