//! The signature language: parses an op's declaration strings and converts them to stock's `OpDef` for comparison.

use crate::attr::Attrs;
use crate::{DType, Result, bail, ensure, status};
use ferroflow_proto::tensorflow::attr_value::{ListValue, Value};
use ferroflow_proto::tensorflow::{AttrValue, OpDef, OpDeprecation, TensorProto, op_def};

use super::Op;

/// A parsed declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct OpSpec {
    /// The op type's name.
    pub name: String,
    /// Inputs.
    pub inputs: Vec<ArgSpec>,
    /// Outputs.
    pub outputs: Vec<ArgSpec>,
    /// Attributes.
    pub attrs: Vec<AttrSpec>,
}

/// One declared input or output, which may stand for several tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct ArgSpec {
    /// The argument's name.
    pub name: String,
    /// Its element type.
    pub ty: ArgType,
    /// The attribute that says how many tensors it stands for.
    pub number_attr: Option<String>,
    /// True if it is a reference.
    pub is_ref: bool,
}

/// The element type of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgType {
    /// Always this type.
    Fixed(DType),
    /// The type that this attribute names.
    Attr(String),
    /// The types that this list attribute names, one tensor each.
    List(String),
}

/// One declared attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct AttrSpec {
    /// The attribute's name.
    pub name: String,
    /// The kind of values.
    pub kind: AttrKind,
    /// True if the attribute is a list of such values.
    pub list: bool,
    /// The default.
    pub default: Option<Value>,
    /// The smallest number, or the shortest list.
    pub minimum: Option<i64>,
    /// The allowed types, if restricted.
    pub types: Vec<DType>,
    /// The allowed strings, if restricted.
    pub strings: Vec<String>,
}

/// The kinds of attribute values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AttrKind {
    String,
    Int,
    Float,
    Bool,
    Type,
    Shape,
    Tensor,
    Func,
}

const KINDS: [(&str, AttrKind); 8] = [
    ("string", AttrKind::String),
    ("int", AttrKind::Int),
    ("float", AttrKind::Float),
    ("bool", AttrKind::Bool),
    ("type", AttrKind::Type),
    ("shape", AttrKind::Shape),
    ("tensor", AttrKind::Tensor),
    ("func", AttrKind::Func),
];

impl AttrKind {
    /// The kind's name in signatures.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).expect("every kind is listed").0
    }
}

/// Sets of types that signatures refer to by name, in stock's order.
mod type_sets {
    use crate::DType::{self, *};
    pub(super) const REAL_NUMBERS: [DType; 12] =
        [Float, Double, Int32, Uint8, Int16, Int8, Int64, Bfloat16, Uint16, Half, Uint32, Uint64];
    pub(super) const NUMBERS: [DType; 19] = [
        Float, Double, Int32, Uint8, Int16, Int8, Complex64, Int64, Qint8, Quint8, Qint32, Bfloat16, Qint16,
        Quint16, Uint16, Complex128, Half, Uint32, Uint64,
    ];
    pub(super) const QUANTIZED: [DType; 5] = [Qint8, Quint8, Qint32, Qint16, Quint16];
}
use type_sets::{NUMBERS, QUANTIZED, REAL_NUMBERS};

impl OpSpec {
    /// Parses a declaration:
    ///
    /// - arguments: `name: T`, `name: float`, `name: N * T`, `name: Tlist`, `name: Ref(T)`;
    /// - attributes: `name: kind`, `name: list(kind)`, `name: {float, double}`, `name: numbertype`,
    ///   `name: {'a', 'b'}`, each with ` >= n` and ` = default` where they apply.
    pub fn parse(op: &Op) -> Result<OpSpec> {
        OpSpec::from_texts(op.name, op.inputs, op.outputs, op.attrs)
    }

    /// Parses a line of [`OpSpec::to_line`] about the op `name`, without the name and its tab.
    pub fn parse_line(name: &str, line: &str) -> Result<OpSpec> {
        let mut fields = line.split('\t').map(|field| -> Vec<&str> {
            field.split(';').map(str::trim).filter(|text| !text.is_empty()).collect()
        });
        let mut field = || fields.next().unwrap_or_default();
        let (inputs, outputs, attrs) = (field(), field(), field());
        OpSpec::from_texts(name, &inputs, &outputs, &attrs)
    }

    fn from_texts(name: &str, inputs: &[&str], outputs: &[&str], attr_texts: &[&str]) -> Result<OpSpec> {
        let fail = |what: &str, text: &str, error: crate::Status| {
            status!(Internal, "declaration of {name}: {what} \"{text}\": {}", error.message())
        };
        let mut attrs = Vec::with_capacity(attr_texts.len());
        for text in attr_texts {
            attrs.push(parse_attr(text).map_err(|error| fail("attribute", text, error))?);
        }
        let args = |texts: &[&str]| -> Result<Vec<ArgSpec>> {
            let parse = |text: &&str| parse_arg(text, &attrs).map_err(|error| fail("argument", text, error));
            texts.iter().map(parse).collect()
        };
        Ok(OpSpec { name: name.to_owned(), inputs: args(inputs)?, outputs: args(outputs)?, attrs })
    }

    /// A signature on one line: the name and, each after a tab, inputs, outputs and the attributes that determine their
    /// types and numbers or name functions. Enough to connect a node, not to run it.
    pub fn to_line(op: &OpDef) -> String {
        let args = |args: &[op_def::ArgDef]| args.iter().map(arg_signature).collect::<Vec<_>>().join("; ");
        let counts = |attr: &&op_def::AttrDef| {
            let names = |arg: &op_def::ArgDef| {
                [&arg.type_attr, &arg.type_list_attr, &arg.number_attr].contains(&&attr.name)
            };
            attr.r#type.contains("func") || op.input_arg.iter().chain(&op.output_arg).any(names)
        };
        let attrs: Vec<String> = op.attr.iter().filter(counts).map(attr_signature).collect();
        let line = [op.name.clone(), args(&op.input_arg), args(&op.output_arg), attrs.join("; ")].join("\t");
        line.trim_end().to_owned()
    }

    /// The attribute with this name.
    pub fn attr(&self, name: &str) -> Option<&AttrSpec> {
        self.attrs.iter().find(|attr| attr.name == name)
    }

    /// The element types (and whether they are references) of the tensors that these arguments stand for.
    pub fn arg_types(args: &[ArgSpec], attrs: &Attrs) -> Result<Vec<(DType, bool)>> {
        let mut types = Vec::with_capacity(args.len());
        for arg in args {
            arg.expand(attrs, &mut types)?;
        }
        Ok(types)
    }

    /// The message form, for comparison with stock and for clients that ask.
    pub fn to_proto(&self, op: &Op) -> OpDef {
        OpDef {
            name: self.name.clone(),
            input_arg: self.inputs.iter().map(ArgSpec::to_proto).collect(),
            output_arg: self.outputs.iter().map(ArgSpec::to_proto).collect(),
            attr: self.attrs.iter().map(AttrSpec::to_proto).collect(),
            deprecation: op.deprecated_at.map(|version| OpDeprecation { version, ..Default::default() }),
            is_aggregate: op.aggregate,
            is_stateful: op.stateful,
            is_commutative: op.commutative,
            allows_uninitialized_input: op.allows_uninitialized_input,
            is_distributed_communication: op.distributed,
            ..Default::default()
        }
    }
}

impl ArgSpec {
    /// Appends the types of the tensors that this argument stands for.
    pub fn expand(&self, attrs: &Attrs, types: &mut Vec<(DType, bool)>) -> Result<()> {
        let count = match &self.number_attr {
            Some(attr) => attrs.get::<usize>(attr)?,
            None => 1,
        };
        // A real message names at least one input or consumer for each tensor, so a larger count is hostile.
        ensure!(count <= 1 << 20, InvalidArgument, "argument '{}' has too many tensors: {count}", self.name);
        match &self.ty {
            ArgType::Fixed(dtype) => types.extend(std::iter::repeat_n((*dtype, self.is_ref), count)),
            ArgType::Attr(attr) => {
                let dtype = attrs.get::<DType>(attr)?;
                types.extend(std::iter::repeat_n((dtype, self.is_ref), count));
            }
            ArgType::List(attr) => {
                types.extend(attrs.get::<Vec<DType>>(attr)?.into_iter().map(|dtype| (dtype, self.is_ref)))
            }
        }
        Ok(())
    }

    fn to_proto(&self) -> op_def::ArgDef {
        let mut proto = op_def::ArgDef { name: self.name.clone(), is_ref: self.is_ref, ..Default::default() };
        match &self.ty {
            ArgType::Fixed(dtype) => proto.r#type = dtype.to_wire(),
            ArgType::Attr(attr) => proto.type_attr = attr.clone(),
            ArgType::List(attr) => proto.type_list_attr = attr.clone(),
        }
        proto.number_attr = self.number_attr.clone().unwrap_or_default();
        proto
    }
}

impl AttrSpec {
    /// Checks a value against the declaration.
    pub fn check(&self, value: &Value) -> Result<()> {
        let want =
            if self.list { format!("list({})", self.kind.name()) } else { self.kind.name().to_owned() };
        let wrong = || {
            status!(
                InvalidArgument,
                "AttrValue had value with type '{}' when '{want}' expected",
                crate::attr::kind_name(value)
            )
        };
        if self.list {
            let Value::List(list) = value else { return Err(wrong()) };
            let (length, others) = list_lengths(list, self.kind);
            ensure!(
                others == 0,
                InvalidArgument,
                "AttrValue had list values of another kind when '{want}' expected"
            );
            if let Some(minimum) = self.minimum {
                ensure!(
                    length as i64 >= minimum,
                    InvalidArgument,
                    "Length for attr '{}' of {length} must be at least minimum {minimum}",
                    self.name
                );
            }
            list.r#type.iter().try_for_each(|dtype| self.check_type(*dtype))?;
            return list.s.iter().try_for_each(|text| self.check_string(text));
        }
        match (self.kind, value) {
            (AttrKind::Type, Value::Type(dtype)) => self.check_type(*dtype),
            (AttrKind::String, Value::S(text)) => self.check_string(text),
            (AttrKind::Int, Value::I(number)) => {
                if let Some(minimum) = self.minimum {
                    ensure!(
                        *number >= minimum,
                        InvalidArgument,
                        "Value for attr '{}' of {number} must be at least minimum {minimum}",
                        self.name
                    );
                }
                Ok(())
            }
            (AttrKind::Float, Value::F(_))
            | (AttrKind::Bool, Value::B(_))
            | (AttrKind::Shape, Value::Shape(_))
            | (AttrKind::Tensor, Value::Tensor(_))
            | (AttrKind::Func, Value::Func(_)) => Ok(()),
            _ => Err(wrong()),
        }
    }

    fn check_type(&self, number: i32) -> Result<()> {
        let (dtype, is_ref) = DType::from_wire_maybe_ref(number)?;
        ensure!(
            !is_ref,
            InvalidArgument,
            "AttrValue must not have reference type value of {dtype}_ref for attr '{}'",
            self.name
        );
        ensure!(
            self.types.is_empty() || self.types.contains(&dtype),
            InvalidArgument,
            "Value for attr '{}' of {dtype} is not in the list of allowed values: {}",
            self.name,
            self.types.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ")
        );
        Ok(())
    }

    fn check_string(&self, text: &[u8]) -> Result<()> {
        ensure!(
            self.strings.is_empty() || self.strings.iter().any(|allowed| allowed.as_bytes() == text),
            InvalidArgument,
            "Value for attr '{}' of \"{}\" is not in the list of allowed values: {}",
            self.name,
            String::from_utf8_lossy(text),
            self.strings.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ")
        );
        Ok(())
    }

    fn to_proto(&self) -> op_def::AttrDef {
        let kind = self.kind.name();
        let allowed = if !self.types.is_empty() {
            let types = self.types.iter().map(|dtype| dtype.to_wire()).collect();
            Some(ListValue { r#type: types, ..Default::default() })
        } else if !self.strings.is_empty() {
            let strings = self.strings.iter().map(|text| text.clone().into_bytes().into()).collect();
            Some(ListValue { s: strings, ..Default::default() })
        } else {
            None
        };
        op_def::AttrDef {
            name: self.name.clone(),
            r#type: if self.list { format!("list({kind})") } else { kind.to_owned() },
            default_value: self.default.clone().map(|value| AttrValue { value: Some(value) }),
            has_minimum: self.minimum.is_some(),
            minimum: self.minimum.unwrap_or_default(),
            allowed_values: allowed.map(|list| AttrValue { value: Some(Value::List(Box::new(list))) }),
            ..Default::default()
        }
    }
}

/// The number of values of this kind in a list, and of all other kinds.
fn list_lengths(list: &ListValue, kind: AttrKind) -> (usize, usize) {
    let counts = [
        (AttrKind::String, list.s.len()),
        (AttrKind::Int, list.i.len()),
        (AttrKind::Float, list.f.len()),
        (AttrKind::Bool, list.b.len()),
        (AttrKind::Type, list.r#type.len()),
        (AttrKind::Shape, list.shape.len()),
        (AttrKind::Tensor, list.tensor.len()),
        (AttrKind::Func, list.func.len()),
    ];
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    let own = counts.iter().find(|(k, _)| *k == kind).map_or(0, |(_, count)| *count);
    (own, total - own)
}

fn parse_arg(text: &str, attrs: &[AttrSpec]) -> Result<ArgSpec> {
    let (name, mut ty) = text.split_once(':').ok_or_else(|| status!(Internal, "expected `name: type`"))?;
    ty = ty.trim();
    let mut is_ref = false;
    if let Some(inner) = ty.strip_prefix("Ref(").and_then(|rest| rest.strip_suffix(')')) {
        (ty, is_ref) = (inner.trim(), true);
    }
    let number_attr = match ty.split_once('*') {
        Some((number, rest)) => {
            ty = rest.trim();
            Some(number.trim().to_owned())
        }
        None => None,
    };
    if let Some(number) = &number_attr {
        ensure!(attrs.iter().any(|attr| attr.name == *number), Internal, "no attribute '{number}'");
    }
    let ty = match attrs.iter().find(|attr| attr.name == ty) {
        Some(attr) if attr.list => ArgType::List(ty.to_owned()),
        Some(_) => ArgType::Attr(ty.to_owned()),
        None => match DType::from_name(ty) {
            Some(dtype) => ArgType::Fixed(dtype),
            None => bail!(Internal, "'{ty}' is neither an attribute nor a type"),
        },
    };
    Ok(ArgSpec { name: name.trim().to_owned(), ty, number_attr, is_ref })
}

/// An argument in the signature language.
fn arg_signature(arg: &op_def::ArgDef) -> String {
    let fixed = || DType::from_wire(arg.r#type).map_or("?", DType::name);
    let ty = [&arg.type_attr, &arg.type_list_attr].into_iter().find(|attr| !attr.is_empty());
    let ty = ty.map_or_else(fixed, String::as_str);
    let many = if arg.number_attr.is_empty() { String::new() } else { format!("{} * ", arg.number_attr) };
    if arg.is_ref { format!("{}: Ref({many}{ty})", arg.name) } else { format!("{}: {many}{ty}", arg.name) }
}

/// An attribute in the signature language, without the allowed types.
fn attr_signature(attr: &op_def::AttrDef) -> String {
    let minimum = if attr.has_minimum { format!(" >= {}", attr.minimum) } else { String::new() };
    let default = attr.default_value.as_ref().and_then(|default| default.value.as_ref());
    let default = default.map_or(String::new(), |value| format!(" = {}", crate::attr::attr_text(value)));
    format!("{}: {}{minimum}{default}", attr.name, attr.r#type)
}

fn parse_attr(text: &str) -> Result<AttrSpec> {
    let (name, rest) = text.split_once(':').ok_or_else(|| status!(Internal, "expected `name: kind`"))?;
    let (rest, default) = split_default(rest.trim());
    let (rest, minimum) = match rest.split_once(">=") {
        Some((rest, minimum)) => {
            (rest.trim(), Some(minimum.trim().parse().map_err(|_| status!(Internal, "bad minimum"))?))
        }
        None => (rest, None),
    };
    let (element, list) = match rest.strip_prefix("list(").and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => (inner.trim(), true),
        None => (rest, false),
    };
    let mut spec = AttrSpec {
        name: name.trim().to_owned(),
        kind: AttrKind::Type,
        list,
        default: None,
        minimum,
        types: Vec::new(),
        strings: Vec::new(),
    };
    match element {
        "numbertype" => spec.types = NUMBERS.to_vec(),
        "realnumbertype" => spec.types = REAL_NUMBERS.to_vec(),
        "quantizedtype" => spec.types = QUANTIZED.to_vec(),
        _ => match element.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')) {
            Some(inner) => {
                for item in inner.split(',').map(str::trim) {
                    match unquote(item) {
                        Some(text) => {
                            spec.kind = AttrKind::String;
                            spec.strings.push(text.to_owned());
                        }
                        None => spec.types.push(
                            DType::from_name(item).ok_or_else(|| status!(Internal, "no type '{item}'"))?,
                        ),
                    }
                }
            }
            None => match KINDS.iter().find(|(name, _)| *name == element) {
                Some((_, kind)) => spec.kind = *kind,
                None => bail!(Internal, "no kind '{element}'"),
            },
        },
    }
    if let Some(default) = default {
        spec.default = Some(parse_default(default, spec.kind, list)?);
    }
    Ok(spec)
}

/// Splits at the `=` of a default, but not of `>=`.
fn split_default(text: &str) -> (&str, Option<&str>) {
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        if c == '=' && previous != '>' {
            return (text[..at].trim(), Some(text[at + 1..].trim()));
        }
        previous = c;
    }
    (text, None)
}

fn unquote(text: &str) -> Option<&str> {
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Some(inner);
        }
    }
    None
}

fn parse_default(text: &str, kind: AttrKind, list: bool) -> Result<Value> {
    if !list {
        return parse_value(text, kind);
    }
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.ok_or_else(|| status!(Internal, "expected a list, got {text}"))?;
    let mut values = ListValue::default();
    for item in inner.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match parse_value(item, kind)? {
            Value::S(v) => values.s.push(v),
            Value::I(v) => values.i.push(v),
            Value::F(v) => values.f.push(v),
            Value::B(v) => values.b.push(v),
            Value::Type(v) => values.r#type.push(v),
            Value::Shape(v) => values.shape.push(v),
            other => bail!(Internal, "no list defaults of kind {}", crate::attr::kind_name(&other)),
        }
    }
    Ok(Value::List(Box::new(values)))
}

fn parse_value(text: &str, kind: AttrKind) -> Result<Value> {
    let bad = || status!(Internal, "{text} is not a {}", kind.name());
    Ok(match kind {
        AttrKind::String => Value::S(unquote(text).ok_or_else(bad)?.to_owned().into_bytes().into()),
        AttrKind::Int => Value::I(text.parse().map_err(|_| bad())?),
        AttrKind::Float => Value::F(text.parse().map_err(|_| bad())?),
        AttrKind::Bool => Value::B(text.parse().map_err(|_| bad())?),
        AttrKind::Type => {
            let name = text.strip_prefix("DT_").unwrap_or(text).to_lowercase();
            Value::Type(DType::from_name(&name).ok_or_else(bad)?.to_wire())
        }
        AttrKind::Shape if text == "<unknown>" => Value::Shape(crate::PartialShape::unknown().to_proto()),
        AttrKind::Shape if text == "{}" => Value::Shape(crate::PartialShape::scalar().to_proto()),
        AttrKind::Tensor => Value::Tensor(Box::new(parse_vector(text).ok_or_else(bad)?)),
        AttrKind::Shape | AttrKind::Func => return Err(bad()),
    })
}

/// Parses a vector of small integers in stock's notation, `uint8[255, 0]`.
fn parse_vector(text: &str) -> Option<TensorProto> {
    let (dtype, items) = text.strip_suffix(']')?.split_once('[')?;
    let int_val: Vec<i32> = items.split(',').map(|item| item.trim().parse().ok()).collect::<Option<_>>()?;
    Some(TensorProto {
        dtype: DType::from_name(dtype.trim())?.to_wire(),
        tensor_shape: Some(crate::Shape::vector(int_val.len()).to_proto()),
        int_val,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_becomes_an_op_def() {
        let op = Op {
            name: "X",
            inputs: &["a: N * T", "r: Ref(float)", "l: Tl"],
            outputs: &["b: T"],
            attrs: &[
                "N: int >= 2",
                "T: {half, float} = DT_FLOAT",
                "Tl: list(type) >= 0",
                "mode: {'a', 'b'} = 'a'",
                "dims: list(int) = [1, 2]",
                "shape: shape = <unknown>",
            ],
            ..Op::PURE
        };
        let spec = OpSpec::parse(&op).unwrap();
        let proto = spec.to_proto(&op);
        assert_eq!(proto.input_arg[0].number_attr, "N");
        assert!(proto.input_arg[1].is_ref);
        assert_eq!(proto.input_arg[2].type_list_attr, "Tl");
        assert_eq!(proto.attr[0].minimum, 2);
        assert_eq!(spec.attrs[1].default, Some(Value::Type(1)));
        assert_eq!(spec.attrs[3].strings, ["a", "b"]);
        assert!(spec.attrs[0].check(&Value::I(1)).is_err());
        assert!(spec.attrs[1].check(&Value::Type(DType::Int32.to_wire())).is_err());
        assert!(spec.attrs[4].check(&Value::I(1)).is_err());
    }

    #[test]
    fn a_typo_in_a_declaration_is_reported() {
        let op = Op { name: "X", inputs: &["a: Tt"], attrs: &["T: type"], ..Op::PURE };
        assert!(OpSpec::parse(&op).is_err());
    }
}
