//! Typed builders of ops, from their declarations.
//!
//! Which ops there are is read from the families' source, what they look like from the op list of stock, which a test
//! holds equal to the declarations: so a builder can be generated before the crate that needs it compiles.

use super::outputs::Outputs;
use anyhow::{Context, Result, ensure};
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const OPS: &str = "testdata/ops.pbtxt";
const FAMILIES: &str = "crates/ops/src/families";
const BUILDERS: &str = "crates/ops/src/builders/generated";

/// Writes a module per group of families.
pub(super) fn builders(root: &Path, descriptors: &[u8], outputs: &mut Outputs) -> Result<()> {
    let ops = declarations(root, descriptors)?;
    let mut modules = String::new();
    for (group, names) in groups(&root.join(FAMILIES))? {
        let mut code = String::from(
            "use ferroflow_core::attr::ToAttr;\n\
             use ferroflow_core::scope::{Input, Operation, Output, Scope, Settings};\n\
             use ferroflow_core::{DType, Result, Tensor, ToPartialShape};\n",
        );
        for name in names.iter().filter(|name| !name.starts_with('_')) {
            let op = ops.get(name).with_context(|| format!("{OPS} has no op {name}"))?;
            op.write(&mut code);
        }
        outputs.source(
            Path::new(BUILDERS).join(format!("{group}.rs")),
            "//! Builders.",
            "the ops' declarations",
            &code,
        )?;
        writeln!(modules, "mod {group};")?;
        writeln!(modules, "pub use {group}::*;")?;
    }
    outputs.source(
        Path::new(BUILDERS).join("mod.rs"),
        "//! Builders by group.",
        "the ops' declarations",
        &modules,
    )
}

/// The names of ops, by group of families.
fn groups(families: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut groups = BTreeMap::new();
    for group in families.read_dir().context(FAMILIES)? {
        let group = group?;
        let mut names = BTreeSet::new();
        for family in group.path().read_dir()? {
            let text = fs::read_to_string(family?.path())?;
            let tests = text.find("#[cfg(test)]").unwrap_or(text.len());
            let declared = text[..tests].match_indices("name: \"").filter_map(|(at, start)| {
                let rest = &text[at + start.len()..];
                rest.split_once('"').map(|(name, _)| name.to_owned())
            });
            names.extend(declared.filter(|name| !name.is_empty()));
        }
        groups.insert(group.file_name().to_string_lossy().into_owned(), names);
    }
    Ok(groups)
}

fn declarations(root: &Path, descriptors: &[u8]) -> Result<BTreeMap<String, Op>> {
    let pool = DescriptorPool::decode(descriptors)?;
    let list = pool.get_message_by_name("tensorflow.OpList").context("no message OpList")?;
    let text = fs::read_to_string(root.join(OPS)).context(OPS)?;
    let list = DynamicMessage::parse_text_format(list, &text).context(OPS)?;
    messages(&list, "op").iter().map(|op| Ok((string(op, "name"), Op::read(op)?))).collect()
}

struct Op {
    name: String,
    inputs: Vec<Arg>,
    outputs: Vec<Arg>,
    attrs: Vec<Attr>,
}

struct Arg {
    name: String,
    /// As declarations spell it.
    ty: String,
    list: bool,
    /// The attributes that it determines if it is an input.
    determines: Vec<String>,
}

struct Attr {
    name: String,
    kind: String,
    /// As declarations spell it.
    text: String,
    optional: bool,
}

impl Op {
    fn read(op: &DynamicMessage) -> Result<Op> {
        let args = |field| messages(op, field).iter().map(Arg::read).collect();
        let attrs = messages(op, "attr").iter().map(Attr::read).collect();
        let op =
            Op { name: string(op, "name"), inputs: args("input_arg"), outputs: args("output_arg"), attrs };
        let mut names = BTreeSet::new();
        for name in
            op.given().map(|attr| snake(&attr.name)).chain(op.inputs.iter().map(|arg| snake(&arg.name)))
        {
            ensure!(names.insert(name.clone()), "{}: two parameters are named {name}", op.name);
        }
        Ok(op)
    }

    /// The attributes that inputs do not determine.
    fn given(&self) -> impl Iterator<Item = &Attr> {
        let determined: BTreeSet<&String> = self.inputs.iter().flat_map(|input| &input.determines).collect();
        self.attrs.iter().filter(move |attr| !determined.contains(&attr.name))
    }

    fn required(&self) -> impl Iterator<Item = &Attr> {
        self.given().filter(|attr| !attr.optional)
    }

    fn write(&self, code: &mut String) {
        let name = &self.name;
        let required: Vec<&Attr> = self.required().collect();
        let parameters = |attrs: &[&Attr]| -> String {
            attrs.iter().map(|attr| format!("{}: {}, ", ident(&attr.name), attr.parameter())).collect()
        };
        let arguments: String = required.iter().map(|attr| format!("{}, ", ident(&attr.name))).collect();
        let inputs: String =
            self.inputs.iter().map(|arg| format!("{}: {}, ", ident(&arg.name), arg.parameter())).collect();
        let passed: String = self.inputs.iter().map(|arg| format!(", {}", ident(&arg.name))).collect();
        let returned = self.returned();
        self.write_outputs(code);
        let mut line = |text: String| {
            code.push_str(&text);
            code.push('\n');
        };
        line(String::new());
        line(self.doc());
        line(if required.is_empty() {
            "#[derive(Clone, Debug, Default)]".into()
        } else {
            "#[derive(Clone, Debug)]".into()
        });
        line(format!("pub struct {name}(Settings);\n\nimpl {name} {{"));
        line("/// A builder with every optional attribute at its default.".into());
        let mutable = if required.is_empty() { "" } else { "mut " };
        line(format!(
            "pub fn new({}) -> Self {{ let {mutable}settings = Settings::default();",
            parameters(&required)
        ));
        for attr in &required {
            line(attr.set("settings", &ident(&attr.name)));
        }
        line(format!("{name}(settings) }}"));
        line("/// Names the node; it is named after the op otherwise.".into());
        line("#[must_use]\npub fn name(mut self, name: &str) -> Self { self.0.name(name); self }".into());
        for attr in self.given().filter(|attr| attr.optional) {
            let method = if attr.name == "name" { "name_attr".to_owned() } else { ident(&attr.name) };
            line(format!("/// Sets `{}`.", attr.text));
            line(format!("#[must_use]\npub fn {method}(mut self, value: {}) -> Self {{", attr.parameter()));
            line(format!("{} self }}", attr.set("self.0", "value")));
        }
        line("/// Adds the node.".into());
        line(format!(
            "#[track_caller]\npub fn build(self, scope: &Scope, {inputs}) -> Result<{returned}> {{"
        ));
        let mut node = format!("self.0.node(scope, \"{name}\")");
        for arg in &self.inputs {
            write!(node, ".{}({})", if arg.list { "inputs" } else { "input" }, ident(&arg.name))
                .expect("strings take all");
        }
        line(match self.outputs.as_slice() {
            [] => format!("{node}.build() }} }}"),
            [one] => format!("{node}.build()?.{}(0) }} }}", one.accessor()),
            many => {
                let fields: String = many
                    .iter()
                    .enumerate()
                    .map(|(i, arg)| format!("{}: operation.{}({i})?, ", ident(&arg.name), arg.accessor()))
                    .collect();
                format!("let operation = {node}.build()?; Ok({name}Outputs {{ {fields} }}) }} }}")
            }
        });
        // The name of a derive macro needs to be told from the struct.
        let link = if name == "Copy" { "struct@Copy" } else { name };
        line(format!("\n/// [`{link}`] with every optional attribute at its default."));
        line(format!(
            "#[track_caller]\npub fn {}(scope: &Scope, {inputs}{}) -> Result<{returned}> {{ {name}::new({arguments}).build(scope{passed}) }}",
            ident(&self.name),
            parameters(&required)
        ));
    }

    fn returned(&self) -> String {
        match self.outputs.as_slice() {
            [] => "Operation".to_owned(),
            [one] => one.output_type().to_owned(),
            _ => format!("{}Outputs", self.name),
        }
    }

    fn write_outputs(&self, code: &mut String) {
        if self.outputs.len() < 2 {
            return;
        }
        let fields: String = self
            .outputs
            .iter()
            .map(|arg| {
                format!("/// `{}: {}`\npub {}: {},\n", arg.name, arg.ty, ident(&arg.name), arg.output_type())
            })
            .collect();
        let name = &self.name;
        write!(code, "\n/// The outputs of [`{name}`].\n#[derive(Clone, Debug)]\npub struct {name}Outputs {{ {fields} }}\n")
            .expect("strings take all");
    }

    fn doc(&self) -> String {
        let list = |args: &[Arg]| {
            args.iter().map(|arg| format!("{}: {}", arg.name, arg.ty)).collect::<Vec<_>>().join(", ")
        };
        let mut doc = format!("/// `{}({}) -> ({})`", self.name, list(&self.inputs), list(&self.outputs));
        if !self.attrs.is_empty() {
            doc.push_str("\n///\n/// Attributes:");
        }
        for attr in &self.attrs {
            write!(doc, "\n/// - `{}`", attr.text).expect("strings take all");
        }
        doc
    }
}

impl Arg {
    fn read(arg: &DynamicMessage) -> Arg {
        let field = |name| string(arg, name);
        let (type_attr, list_attr, number) =
            (field("type_attr"), field("type_list_attr"), field("number_attr"));
        let mut ty = match (type_attr.as_str(), list_attr.as_str()) {
            ("", "") => dtype(arg.get_field_by_name("type").as_deref()),
            ("", list) => list.to_owned(),
            (attr, _) => attr.to_owned(),
        };
        if !number.is_empty() {
            ty = format!("{number} * {ty}");
        }
        if matches!(arg.get_field_by_name("is_ref").as_deref(), Some(Value::Bool(true))) {
            ty = format!("Ref({ty})");
        }
        let list = !list_attr.is_empty() || !number.is_empty();
        let determines = [type_attr, list_attr, number].into_iter().filter(|attr| !attr.is_empty()).collect();
        Arg { name: field("name"), ty, list, determines }
    }

    fn parameter(&self) -> &'static str {
        if self.list { "impl IntoIterator<Item: Into<Input>>" } else { "impl Into<Input>" }
    }

    fn output_type(&self) -> &'static str {
        if self.list { "Vec<Output>" } else { "Output" }
    }

    fn accessor(&self) -> &'static str {
        if self.list { "output_list" } else { "output_arg" }
    }
}

impl Attr {
    fn read(attr: &DynamicMessage) -> Attr {
        let (name, kind) = (string(attr, "name"), string(attr, "type"));
        let mut text = format!("{name}: {kind}");
        if let Some(Value::Message(allowed)) = attr.get_field_by_name("allowed_values").as_deref()
            && attr.has_field_by_name("allowed_values")
        {
            let allowed = values(allowed);
            let element = kind.strip_prefix("list(").map_or("", |_| "list");
            text = format!("{name}: {element}{{{}}}", allowed.trim_start_matches('[').trim_end_matches(']'));
        }
        if matches!(attr.get_field_by_name("has_minimum").as_deref(), Some(Value::Bool(true))) {
            let minimum =
                attr.get_field_by_name("minimum").and_then(|value| value.as_i64()).unwrap_or_default();
            write!(text, " >= {minimum}").expect("strings take all");
        }
        let optional = attr.has_field_by_name("default_value");
        if let Some(Value::Message(default)) = attr.get_field_by_name("default_value").as_deref()
            && optional
        {
            write!(text, " = {}", values(default)).expect("strings take all");
        }
        Attr { name, kind, text: text.replace('\n', "\\n").replace('\t', "\\t"), optional }
    }

    fn parameter(&self) -> &'static str {
        match self.kind.as_str() {
            "bool" => "bool",
            "int" => "i64",
            "float" => "f32",
            "string" => "&str",
            "type" => "DType",
            "shape" => "impl ToPartialShape",
            "tensor" => "impl Into<Tensor>",
            _ => "impl ToAttr",
        }
    }

    fn set(&self, settings: &str, value: &str) -> String {
        match self.kind.as_str() {
            "shape" => format!("{settings}.set_shape(\"{}\", {value});", self.name),
            "tensor" => format!("{settings}.set(\"{}\", {value}.into());", self.name),
            _ => format!("{settings}.set(\"{}\", {value});", self.name),
        }
    }
}

fn messages(message: &DynamicMessage, field: &str) -> Vec<DynamicMessage> {
    let list = message.get_field_by_name(field);
    let list = list.as_deref().and_then(Value::as_list).unwrap_or_default();
    list.iter().filter_map(|value| value.as_message().cloned()).collect()
}

fn string(message: &DynamicMessage, field: &str) -> String {
    message.get_field_by_name(field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn dtype(value: Option<&Value>) -> String {
    let number = value.and_then(Value::as_enum_number).unwrap_or_default();
    dtype_name(number)
}

fn dtype_name(number: i32) -> String {
    const NAMES: [&str; 24] = [
        "?",
        "float",
        "double",
        "int32",
        "uint8",
        "int16",
        "int8",
        "string",
        "complex64",
        "int64",
        "bool",
        "qint8",
        "quint8",
        "qint32",
        "bfloat16",
        "qint16",
        "quint16",
        "uint16",
        "complex128",
        "half",
        "resource",
        "variant",
        "uint32",
        "uint64",
    ];
    NAMES.get(number as usize).map_or_else(|| format!("type {number}"), |name| (*name).to_owned())
}

/// An attribute's value as declarations spell it.
fn values(value: &DynamicMessage) -> String {
    let mut texts = Vec::new();
    let mut list = false;
    for (field, value) in value.fields() {
        match (field.name(), value) {
            ("list", Value::Message(items)) => {
                list = true;
                for (field, items) in items.fields() {
                    texts.extend(
                        items.as_list().unwrap_or_default().iter().map(|item| one_value(field.name(), item)),
                    );
                }
            }
            (name, value) => texts.push(one_value(name, value)),
        }
    }
    if list { format!("[{}]", texts.join(", ")) } else { texts.join(", ") }
}

fn one_value(field: &str, value: &Value) -> String {
    match value {
        Value::Bytes(text) => format!("'{}'", String::from_utf8_lossy(text)),
        Value::EnumNumber(number) => dtype_name(*number),
        Value::Bool(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::Message(shape) if field == "shape" => {
            let unknown = shape.get_field_by_name("unknown_rank");
            if matches!(unknown.as_deref(), Some(Value::Bool(true))) {
                "?".to_owned()
            } else {
                "[]".to_owned()
            }
        }
        Value::Message(message) => message.descriptor().name().to_owned(),
        _ => String::new(),
    }
}

/// A name in Rust case that is not a keyword.
fn ident(name: &str) -> String {
    const TAKEN: [&str; 16] = [
        "as", "const", "continue", "else", "for", "if", "in", "loop", "match", "mod", "ref", "return",
        "scope", "type", "where", "while",
    ];
    let name = snake(name);
    if TAKEN.contains(&name.as_str()) { format!("{name}_") } else { name }
}

/// Snake case as stock's Python has it: `Conv2DBackpropInput` is `conv2d_backprop_input`.
fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (i, c) in chars.iter().enumerate() {
        let starts = i > 0
            && c.is_ascii_uppercase()
            && (chars[i - 1].is_ascii_lowercase() || chars.get(i + 1).is_some_and(char::is_ascii_lowercase));
        if starts && !snake.ends_with('_') {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::snake;

    #[test]
    fn names_are_those_of_the_python_functions() {
        for (op, function) in
            [("MatMul", "mat_mul"), ("Conv2DBackpropInput", "conv2d_backprop_input"), ("LRN", "lrn")]
        {
            assert_eq!(snake(op), function);
        }
    }
}
