//! Reads protobuf text into generated messages.

use ferroflow_core::{Result, status};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use std::sync::LazyLock;

const GOLDEN_DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut pool = DescriptorPool::decode(ferroflow_proto::FILE_DESCRIPTOR_SET)
        .expect("the descriptors are generated with the messages");
    pool.decode_file_descriptor_set(GOLDEN_DESCRIPTORS).expect("goldens import only files of the first set");
    pool
});

/// Parses the text form of a message, given its full name such as `tensorflow.GraphDef`.
pub fn parse<M: Message + Default>(full_name: &str, text: &str) -> Result<M> {
    let descriptor = DESCRIPTORS
        .get_message_by_name(full_name)
        .ok_or_else(|| status!(Internal, "no message is called {full_name}"))?;
    let dynamic = DynamicMessage::parse_text_format(descriptor, text)
        .map_err(|error| status!(InvalidArgument, "cannot parse {full_name}: {error}"))?;
    M::decode(dynamic.encode_to_vec().as_slice())
        .map_err(|error| status!(InvalidArgument, "cannot decode {full_name}: {error}"))
}
