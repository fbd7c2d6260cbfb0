//! The fields of summaries and of what they hold.

use super::Field;
use super::Kind::{Bool, Bytes, Fixed32, Fixed64, Int32, Int64, Message, Text, Uint32};
use super::Label::{Many, Once, OneOf};

/// `Summary`.
pub(crate) static SUMMARY: &[Field] = &[Field(1, Many, Message(VALUE))];

/// `Summary.Value`.
pub(crate) static VALUE: &[Field] = &[
    Field(1, Once, Text),
    Field(2, OneOf, Fixed32),
    Field(3, OneOf, Bytes),
    Field(4, OneOf, Message(IMAGE)),
    Field(5, OneOf, Message(HISTOGRAM)),
    Field(6, OneOf, Message(AUDIO)),
    Field(7, Once, Text),
    Field(8, OneOf, Message(&TENSOR)),
    Field(9, Once, Message(METADATA)),
];

/// `SummaryMetadata`.
pub(crate) static METADATA: &[Field] = &[
    Field(1, Once, Message(PLUGIN_DATA)),
    Field(2, Once, Text),
    Field(3, Once, Text),
    Field(4, Once, Int32),
];

static PLUGIN_DATA: &[Field] = &[Field(1, Once, Text), Field(2, Once, Bytes)];

static IMAGE: &[Field] =
    &[Field(1, Once, Int32), Field(2, Once, Int32), Field(3, Once, Int32), Field(4, Once, Bytes)];

static AUDIO: &[Field] = &[
    Field(1, Once, Fixed32),
    Field(2, Once, Int64),
    Field(3, Once, Int64),
    Field(4, Once, Bytes),
    Field(5, Once, Text),
];

static HISTOGRAM: &[Field] = &[
    Field(1, Once, Fixed64),
    Field(2, Once, Fixed64),
    Field(3, Once, Fixed64),
    Field(4, Once, Fixed64),
    Field(5, Once, Fixed64),
    Field(6, Many, Fixed64),
    Field(7, Many, Fixed64),
];

static TENSOR: [Field; 18] = [
    Field(1, Once, Int32),
    Field(2, Once, Message(SHAPE)),
    Field(3, Once, Int32),
    Field(4, Once, Bytes),
    Field(5, Many, Fixed32),
    Field(6, Many, Fixed64),
    Field(7, Many, Int32),
    Field(8, Many, Bytes),
    Field(9, Many, Fixed32),
    Field(10, Many, Int64),
    Field(11, Many, Bool),
    Field(12, Many, Fixed64),
    Field(13, Many, Int32),
    Field(14, Many, Message(RESOURCE)),
    Field(15, Many, Message(&VARIANT)),
    Field(16, Many, Uint32),
    Field(17, Many, Int64),
    Field(18, Once, Bytes),
];

static SHAPE: &[Field] =
    &[Field(2, Many, Message(&[Field(1, Once, Int64), Field(2, Once, Text)])), Field(3, Once, Bool)];

static RESOURCE: &[Field] = &[
    Field(1, Once, Text),
    Field(2, Once, Text),
    Field(3, Once, Text),
    Field(4, Once, Int64),
    Field(5, Once, Text),
    Field(6, Many, Message(&[Field(1, Once, Int32), Field(2, Once, Message(SHAPE))])),
];

static VARIANT: [Field; 3] = [Field(1, Once, Text), Field(2, Once, Bytes), Field(3, Many, Message(&TENSOR))];
