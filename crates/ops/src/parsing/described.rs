//! Messages that are described at run time: where their descriptors come from, and the fields that an op wants of them.

use bytes::Bytes;
use ferroflow_core::{DType, Result, Status, bail, ensure, status};
use ferroflow_io::{file, path};
use prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value};
use std::sync::LazyLock;

/// The messages that this program itself knows, which are TensorFlow's.
static LOCAL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(ferroflow_proto::FILE_DESCRIPTOR_SET)
        .expect("a test of ferroflow-proto decodes it")
});

/// A message type by its name. The source is `local://`, a file with a `FileDescriptorSet`, or `bytes://` and such a set.
pub(crate) fn message(source: &Bytes, name: &str) -> Result<MessageDescriptor> {
    let pool = if source.as_ref() == b"local://" { LOCAL.clone() } else { described(source)? };
    let found = pool.get_message_by_name(name);
    found.ok_or_else(|| status!(InvalidArgument, "No descriptor found for message type {name}"))
}

fn described(source: &Bytes) -> Result<DescriptorPool> {
    let set = match source.strip_prefix(b"bytes://") {
        Some(set) => Bytes::copy_from_slice(set),
        None => descriptor_file(source)?,
    };
    DescriptorPool::decode(set).map_err(|error| {
        status!(
            InvalidArgument,
            "descriptor_source does not represent a serialized FileDescriptorSet with everything that it imports: {error}"
        )
    })
}

fn descriptor_file(source: &Bytes) -> Result<Bytes> {
    let shown = String::from_utf8_lossy(source);
    let missing = |error: &Status| {
        status!(
            InvalidArgument,
            "descriptor_source must be local://, the name of a file, or bytes:// and a serialized FileDescriptorSet, \
             got {shown}: {}",
            error.message()
        )
    };
    let read = || file::read(path::resolve_path(shown.as_ref())?);
    read().map(Bytes::from).map_err(|error| missing(&error))
}

/// The type of a field, as its descriptor names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    Enum,
    String,
    Bytes,
    Message,
    Group,
}

impl FieldType {
    fn new(kind: &Kind, is_group: bool) -> FieldType {
        match kind {
            Kind::Double => FieldType::Double,
            Kind::Float => FieldType::Float,
            Kind::Int32 => FieldType::Int32,
            Kind::Int64 => FieldType::Int64,
            Kind::Uint32 => FieldType::Uint32,
            Kind::Uint64 => FieldType::Uint64,
            Kind::Sint32 => FieldType::Sint32,
            Kind::Sint64 => FieldType::Sint64,
            Kind::Fixed32 => FieldType::Fixed32,
            Kind::Fixed64 => FieldType::Fixed64,
            Kind::Sfixed32 => FieldType::Sfixed32,
            Kind::Sfixed64 => FieldType::Sfixed64,
            Kind::Bool => FieldType::Bool,
            Kind::Enum(_) => FieldType::Enum,
            Kind::String => FieldType::String,
            Kind::Bytes => FieldType::Bytes,
            Kind::Message(_) if is_group => FieldType::Group,
            Kind::Message(_) => FieldType::Message,
        }
    }

    /// The word for it in `.proto` files.
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The word for the C++ type of its values, which stock's messages have.
    fn cpp_name(self) -> &'static str {
        match self {
            FieldType::Double => "double",
            FieldType::Float => "float",
            FieldType::Int32 | FieldType::Sint32 | FieldType::Sfixed32 => "int32",
            FieldType::Int64 | FieldType::Sint64 | FieldType::Sfixed64 => "int64",
            FieldType::Uint32 | FieldType::Fixed32 => "uint32",
            FieldType::Uint64 | FieldType::Fixed64 => "uint64",
            FieldType::Bool => "bool",
            FieldType::Enum => "enum",
            FieldType::String | FieldType::Bytes => "string",
            FieldType::Message | FieldType::Group => "message",
        }
    }

    /// Returns whether tensors of this type hold such values.
    pub(crate) fn fits(self, dtype: DType) -> bool {
        match self.cpp_name() {
            "double" => dtype == DType::Double,
            "float" => matches!(dtype, DType::Float | DType::Double),
            "int32" => matches!(dtype, DType::Int32 | DType::Int64),
            "int64" => dtype == DType::Int64,
            "uint32" => matches!(dtype, DType::Uint32 | DType::Uint64),
            "uint64" => dtype == DType::Uint64,
            "bool" => dtype == DType::Bool,
            "enum" => dtype == DType::Int32,
            _ => dtype == DType::String,
        }
    }

    /// The wire type of values that are not packed.
    pub(crate) fn wire_type(self) -> u32 {
        match self {
            FieldType::Double | FieldType::Fixed64 | FieldType::Sfixed64 => 1,
            FieldType::String | FieldType::Bytes | FieldType::Message => 2,
            FieldType::Group => 3,
            FieldType::Float | FieldType::Fixed32 | FieldType::Sfixed32 => 5,
            _ => 0,
        }
    }
}

/// A field of a message, or an extension of it.
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) field_type: FieldType,
    pub(crate) is_repeated: bool,
    pub(crate) is_packed: bool,
    full_name: String,
    default: Value,
}

impl Field {
    /// A field by its name; with `extensions`, an extension by its full name.
    pub(crate) fn find(message: &MessageDescriptor, name: &str, extensions: bool) -> Result<Field> {
        if let Some(field) = message.get_field_by_name(name) {
            return Ok(Field::of_field(&field));
        }
        let extension = if extensions { message.get_extension_by_full_name(name) } else { None };
        let extension = extension.ok_or_else(|| {
            status!(InvalidArgument, "Unknown field: {name} in message type {}", message.full_name())
        })?;
        Ok(Field::of_extension(&extension))
    }

    fn of_field(field: &FieldDescriptor) -> Field {
        Field {
            number: field.number(),
            field_type: FieldType::new(&field.kind(), field.is_group()),
            is_repeated: field.is_list() || field.is_map(),
            is_packed: field.is_packed(),
            full_name: field.full_name().to_owned(),
            default: scalar_default(field.default_value(), &field.kind()),
        }
    }

    fn of_extension(field: &ExtensionDescriptor) -> Field {
        Field {
            number: field.number(),
            field_type: FieldType::new(&field.kind(), field.is_group()),
            is_repeated: field.is_list() || field.is_map(),
            is_packed: field.is_packed(),
            full_name: field.full_name().to_owned(),
            default: scalar_default(field.default_value(), &field.kind()),
        }
    }

    /// Refuses a type of tensor that does not hold the field's values.
    pub(crate) fn check_output(&self, dtype: DType) -> Result<()> {
        ensure!(
            self.field_type.fits(dtype),
            InvalidArgument,
            "Unexpected output type for {}: {} to DT_{}",
            self.full_name,
            self.field_type.cpp_name(),
            dtype.to_string().to_uppercase()
        );
        Ok(())
    }

    /// The value of a field that is not there, as [`Cell`] of this type.
    pub(crate) fn default_cell(&self, dtype: DType) -> Result<Cell> {
        Ok(match &self.default {
            Value::Bool(value) => Cell::Bits(u64::from(*value)),
            Value::I32(value) | Value::EnumNumber(value) => Cell::Bits(*value as i64 as u64),
            Value::I64(value) => Cell::Bits(*value as u64),
            Value::U32(value) => Cell::Bits(u64::from(*value)),
            Value::U64(value) => Cell::Bits(*value),
            Value::F32(value) => Cell::float(*value, dtype),
            Value::F64(value) => Cell::Bits(value.to_bits()),
            Value::String(value) => Cell::Text(Bytes::copy_from_slice(value.as_bytes())),
            Value::Bytes(value) => Cell::Text(value.clone()),
            Value::Message(_) => Cell::Text(Bytes::new()),
            Value::List(_) | Value::Map(_) => bail!(Internal, "a list is not a default value"),
        })
    }
}

fn scalar_default(default: Value, kind: &Kind) -> Value {
    match default {
        Value::List(_) | Value::Map(_) => kind.default_value(),
        scalar => scalar,
    }
}

/// One value: its bits in the type of the tensor that it goes to, or bytes.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Bits(u64),
    Text(Bytes),
}

impl Cell {
    /// A single float, in the precision that the tensor has.
    pub(crate) fn float(value: f32, dtype: DType) -> Cell {
        match dtype {
            DType::Double => Cell::Bits(f64::from(value).to_bits()),
            _ => Cell::Bits(u64::from(value.to_bits())),
        }
    }
}
