//! Statuses in gRPC trailers: code, escaped message, payloads.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD_NO_PAD};
use ferroflow_core::{Code, Status};
use ferroflow_proto::tensorflow::distributed_runtime::GrpcPayloadContainer;
use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use prost::Message;

/// Longer messages are truncated, as in stock: clients refuse header lists above 16 KiB.
const MAX_MESSAGE_BYTES: usize = 3072;

/// The bytes that gRPC requires to be escaped in a message: everything outside printable ASCII, and the escape
/// character.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The payload that marks a status as derived from another failure, in stock too.
const DERIVED: &str = "type.googleapis.com/tensorflow.DerivedStatus";

/// A base64 engine that accepts binary metadata with or without padding.
const PADDED_OR_NOT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the trailers that end a call.
pub(crate) fn to_trailers(outcome: Result<(), &Status>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let Err(status) = outcome else {
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        return trailers;
    };
    trailers.insert("grpc-status", HeaderValue::from(status.code() as u16));
    if !status.message().is_empty() {
        let escaped = percent_encode(cut(status.message()).as_bytes(), ESCAPED).to_string();
        trailers.insert("grpc-message", escaped.parse().expect("escaped text is printable ASCII"));
    }
    if !status.payloads().is_empty() || status.is_derived() {
        let payloads = status.payloads().iter().map(|(url, value)| (url.clone(), value.clone().into()));
        let mut container = GrpcPayloadContainer { payloads: payloads.collect() };
        if status.is_derived() {
            container.payloads.insert(DERIVED.to_owned(), Default::default());
        }
        let encoded = STANDARD_NO_PAD.encode(container.encode_to_vec());
        trailers.insert("grpc-status-details-bin", encoded.parse().expect("base64 is printable ASCII"));
    }
    trailers
}

/// Returns the failure that headers or trailers report, if any.
pub(crate) fn from_trailers(trailers: &HeaderMap) -> Option<Status> {
    let text = |name| trailers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let number: i32 = trailers.get("grpc-status")?.to_str().ok()?.parse().unwrap_or(Code::Unknown as i32);
    if number == 0 {
        return None;
    }
    let message = percent_encoding::percent_decode_str(text("grpc-message").unwrap_or_default());
    let mut status =
        Status::new(Code::from_number(number).unwrap_or(Code::Unknown), message.decode_utf8_lossy());
    let details = text("grpc-status-details-bin").and_then(|value| PADDED_OR_NOT.decode(value).ok());
    let container = details.and_then(|details| GrpcPayloadContainer::decode(&*details).ok());
    for (url, value) in container.unwrap_or_default().payloads {
        status = if url == DERIVED { status.derived() } else { status.with_payload(url, value) };
    }
    Some(status)
}

fn cut(message: &str) -> std::borrow::Cow<'_, str> {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message.into();
    }
    let end = (0..=MAX_MESSAGE_BYTES).rev().find(|&end| message.is_char_boundary(end)).unwrap_or_default();
    format!("{} ... [truncated]", &message[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::status;

    #[test]
    fn every_code_survives_a_round_trip() {
        for code in Code::ALL {
            let status = Status::new(code, "naïve 100%\n\ttext").with_payload("type.example/Detail", [8, 5]);
            assert_eq!(from_trailers(&to_trailers(Err(&status))), Some(status.clone()));
            let derived = status.derived();
            assert_eq!(from_trailers(&to_trailers(Err(&derived))), Some(derived));
        }
        assert_eq!(from_trailers(&to_trailers(Ok(()))), None);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let status = status!(Internal, "{}", "é".repeat(3000));
        let cut = from_trailers(&to_trailers(Err(&status))).unwrap();
        assert_eq!(cut.message(), format!("{} ... [truncated]", "é".repeat(1536)));
    }
}
