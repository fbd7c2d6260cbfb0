//! The registry of the ops that a server knows: a value that is passed in, not a global.

use super::{KernelRow, Only, Op, OpSpec};
use crate::attr::Attrs;
use crate::{DType, Result, Status, bail, status};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// An op and its parsed declaration.
pub struct OpEntry {
    /// The declaration.
    pub op: &'static Op,
    spec: OnceLock<OpSpec>,
    /// The list of stock's kernels; see [`Registry::with_stock_kernels`].
    stock_kernels: &'static str,
}

impl OpEntry {
    /// The parsed declaration. Parsed on first use, so that a server starts without parsing ops that it never runs.
    pub fn spec(&self) -> &OpSpec {
        self.spec.get_or_init(|| OpSpec::parse(self.op).expect("a test parses every declaration"))
    }

    /// The kernel for these attributes, or stock's status for a combination without one.
    pub fn kernel(&self, node: &str, attrs: &Attrs) -> Result<&'static KernelRow> {
        let mut refused = false;
        for row in self.op.kernels {
            if row.attr.is_empty() || attrs.get::<DType>(row.attr)? == row.dtype {
                let fits = match row.only {
                    None => true,
                    Some((attr, Only::Type(dtype))) => attrs.get::<DType>(attr)? == dtype,
                    Some((attr, Only::Text(text))) => attrs.get::<String>(attr)? == text,
                };
                if fits {
                    return Ok(row);
                }
                refused = true;
            }
        }
        let types = type_attrs(self.spec(), attrs);
        // A row that matches the type but refuses the second attribute has the same condition as stock's kernel.
        if !refused && has_kernel(self.stock_kernels, self.op.name, attrs) {
            bail!(
                Unimplemented,
                "Op '{}' of {{{{node {node}}}}} has a kernel for [{types}] in TensorFlow, but not in this server yet",
                self.op.name
            );
        }
        Err(no_kernel_among(&self.registered_kernels(), self.op.name, node, &types))
    }

    fn registered_kernels(&self) -> String {
        if self.op.kernels.is_empty() {
            return NO_KERNELS.to_owned();
        }
        let types = |attr: &str, dtype: DType| format!("; {attr} in [DT_{}]", dtype.name().to_uppercase());
        let line = |row: &KernelRow| {
            let first = if row.attr.is_empty() { String::new() } else { types(row.attr, row.dtype) };
            let second = match row.only {
                None => String::new(),
                Some((attr, Only::Type(dtype))) => types(attr, dtype),
                Some((attr, Only::Text(text))) => format!("; {attr} in [\"{text}\"]"),
            };
            format!("  device='CPU'{first}{second}\n")
        };
        self.op.kernels.iter().map(line).collect()
    }
}

const NO_KERNELS: &str = "  <no registered kernels>\n";

/// Returns whether stock has a kernel for these attributes, as far as each attribute by itself can tell.
fn has_kernel(stock_kernels: &'static str, op: &str, attrs: &Attrs) -> bool {
    let Some(constraints) = line_about(stock_kernels, op) else { return false };
    let allows = |constraint: &str| {
        let Some((attr, types)) = constraint.split_once('=') else { return true };
        attrs.get::<DType>(attr).is_ok_and(|dtype| types.split(',').any(|name| name == dtype.name()))
    };
    constraints.split('\t').all(allows)
}

/// The rest of the line that starts with a name and a tab, in a text sorted by name. Such texts are long and rarely
/// consulted, so they are searched in place.
fn line_about(text: &'static str, name: &str) -> Option<&'static str> {
    let mut rest = text;
    while !rest.is_empty() {
        let middle = rest.as_bytes()[..rest.len() / 2].iter().rposition(|byte| *byte == b'\n');
        let start = middle.map_or(0, |newline| newline + 1);
        let line = rest[start..].lines().next().unwrap_or_default();
        let (found, about) = line.split_once('\t').unwrap_or((line, ""));
        match name.cmp(found) {
            Ordering::Equal => return Some(about),
            Ordering::Less => rest = &rest[..start],
            Ordering::Greater => rest = rest.get(start + line.len() + 1..).unwrap_or_default(),
        }
    }
    None
}

fn type_attrs(spec: &OpSpec, attrs: &Attrs) -> String {
    let types = spec.attrs.iter().filter_map(|attr| {
        let dtype = attrs.get::<DType>(&attr.name).ok()?;
        Some(format!("{}=DT_{}", attr.name, dtype.name().to_uppercase()))
    });
    types.collect::<Vec<_>>().join(", ")
}

fn no_kernel_among(registered: &str, op: &str, node: &str, attrs: &str) -> Status {
    no_kernel(op, node, attrs).map_message(|text| {
        format!("{text}\nRegistered devices: [CPU]\nRegistered kernels:\n{registered}\t [[{node}]]")
    })
}

/// Returns whether a pattern, which may start or end with `*`, stands for a name.
fn names(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

/// Stock's error for attributes without a kernel.
pub fn no_kernel(op: &str, node: &str, attrs: &str) -> Status {
    status!(
        InvalidArgument,
        "No OpKernel was registered to support Op '{op}' used by {{{{node {node}}}}} with these attrs: [{attrs}]"
    )
}

/// Ops by name. Cloning shares.
#[derive(Clone, Default)]
pub struct Registry {
    entries: Arc<HashMap<&'static str, Arc<OpEntry>>>,
    /// The list of stock's ops; see [`Registry::with_stock_ops`].
    stock_ops: &'static str,
    stock_kernels: &'static str,
    /// Reasons why ops of stock stay unsupported; see [`Registry::with_out_of_scope`].
    out_of_scope: &'static str,
    thread_setup: Option<fn()>,
}

impl Registry {
    /// A registry of these ops; an error if two have the same name.
    pub fn new(ops: impl IntoIterator<Item = &'static Op>) -> Result<Registry> {
        Registry::default().with(ops)
    }

    /// This registry with more ops.
    pub fn with(&self, ops: impl IntoIterator<Item = &'static Op>) -> Result<Registry> {
        let mut entries = (*self.entries).clone();
        for op in ops {
            let entry = OpEntry { op, spec: OnceLock::new(), stock_kernels: self.stock_kernels };
            if entries.insert(op.name, Arc::new(entry)).is_some() {
                bail!(AlreadyExists, "two ops are named {}", op.name);
            }
        }
        Ok(Registry { entries: Arc::new(entries), ..self.clone() })
    }

    /// This registry, extended by the signatures of ops that it lacks and stock has. Lines are sorted by name; see
    /// [`OpSpec::parse_line`] for their format.
    #[must_use]
    pub fn with_stock_ops(mut self, ops: &'static str) -> Registry {
        self.stock_ops = ops;
        self
    }

    /// This registry, extended by the list of stock's kernels, so that ops added from now on can tell kernels that are
    /// missing here from kernels that stock lacks, too. A line has an op's name and, each after a tab, the element
    /// types that an attribute may have: `Abs`, `T=float,double`.
    #[must_use]
    pub fn with_stock_kernels(mut self, kernels: &'static str) -> Registry {
        self.stock_kernels = kernels;
        self
    }

    /// This registry, extended by the reasons why some ops of stock are not meant to run. Blocks are separated by empty
    /// lines: a title, the reason, and the ops, whose names may start or end with `*`.
    #[must_use]
    pub fn with_out_of_scope(mut self, blocks: &'static str) -> Registry {
        self.out_of_scope = blocks;
        self
    }

    /// The reason why an op of stock is not meant to run.
    fn out_of_scope(&self, name: &str) -> Option<&'static str> {
        self.out_of_scope.split("\n\n").find_map(|block| {
            let (_, rest) = block.split_once('\n')?;
            let (reason, patterns) = rest.split_once('\n')?;
            patterns.split_whitespace().any(|pattern| names(pattern, name)).then_some(reason)
        })
    }

    /// This registry with a function that prepares threads for running its kernels.
    #[must_use]
    pub fn with_thread_setup(mut self, setup: fn()) -> Registry {
        self.thread_setup = Some(setup);
        self
    }

    /// Prepares this thread for running kernels; every such thread calls it once.
    pub fn prepare_thread(&self) {
        if let Some(setup) = self.thread_setup {
            setup();
        }
    }

    /// The op with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<OpEntry>> {
        self.entries.get(name)
    }

    /// Returns whether this registry or stock has an op with this name.
    pub fn declares(&self, name: &str) -> bool {
        self.get(name).is_some() || line_about(self.stock_ops, name).is_some()
    }

    /// The signature of an op that stock has and this registry lacks.
    pub fn unsupported(&self, name: &str) -> Option<OpSpec> {
        let about = line_about(self.stock_ops, name)?;
        Some(OpSpec::parse_line(name, about).expect("a test parses every line"))
    }

    /// The error for a node of an op that this registry lacks: `Unimplemented`, or stock's own error if stock has no
    /// kernel for it either.
    pub fn refuse_unsupported(&self, spec: &OpSpec, node: &str, attrs: &Attrs) -> Status {
        let name = &spec.name;
        // Whatever its types are, if stock has any kernel for it.
        if let Some(reason) = self.out_of_scope(name)
            && line_about(self.stock_kernels, name).is_some()
        {
            return status!(
                Unimplemented,
                "Op type '{name}' of node '{node}' does not run on this server: {reason}"
            );
        }
        if !has_kernel(self.stock_kernels, name, attrs) {
            return no_kernel_among(NO_KERNELS, name, node, &type_attrs(spec, attrs));
        }
        status!(
            Unimplemented,
            "Op type '{name}' of node '{node}' is not supported by this server yet; `ferroflow ops` and \
             docs/compatibility.md list those that are"
        )
    }

    /// The error for a node of an unknown op.
    pub fn unknown(&self, name: &str, node: &str) -> Status {
        status!(
            NotFound,
            "Op type not registered '{name}' in binary running on this host. Make sure the Op and Kernel are \
             registered in the binary running in this process. (node '{node}')"
        )
    }

    /// Every op, by name.
    pub fn all(&self) -> Vec<&Arc<OpEntry>> {
        let mut entries: Vec<_> = self.entries.values().collect();
        entries.sort_by_key(|entry| entry.op.name);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    static ABS: Op = Op {
        name: "Abs",
        inputs: &["x: T"],
        outputs: &["y: T"],
        attrs: &["T: {float, double, half}"],
        ..Op::PURE
    };

    #[test]
    fn kernels_that_stock_has_are_unimplemented_and_others_do_not_exist() {
        let registry =
            Registry::default().with_stock_kernels("Abs\tT=float,double\nAcos\tT=half").with([&ABS]).unwrap();
        let refused = |dtype: DType| {
            let mut attrs = Attrs::default();
            attrs.set("T", ferroflow_proto::tensorflow::attr_value::Value::Type(dtype as i32));
            registry.get("Abs").unwrap().kernel("a", &attrs).err().unwrap().code()
        };
        assert_eq!(refused(DType::Double), Code::Unimplemented);
        assert_eq!(refused(DType::Half), Code::InvalidArgument);
    }

    #[test]
    fn lines_are_found_by_name() {
        let text = "A\nAb\tx: T\nAbc\t\ty\nB_\nBa";
        assert_eq!(line_about(text, "A"), Some(""));
        assert_eq!(line_about(text, "Ab"), Some("x: T"));
        assert_eq!(line_about(text, "Abc"), Some("\ty"));
        assert_eq!(line_about(text, "B_"), Some(""));
        assert_eq!(line_about(text, "Ba"), Some(""));
        for name in ["", "0", "Aa", "Abb", "Abcd", "B", "C"] {
            assert_eq!(line_about(text, name), None, "{name}");
        }
        assert_eq!(line_about("", "A"), None);
    }

    fn never_made(_: &crate::kernel::Init<'_>) -> Result<crate::kernel::Kernel> {
        bail!(Internal, "only looked up")
    }

    static REAL: Op = Op {
        name: "Real",
        inputs: &["input: T"],
        outputs: &["output: Tout"],
        attrs: &["T: {complex64, complex128}", "Tout: {float, double}"],
        kernels: &[
            KernelRow::new("T", DType::Complex64, never_made).only("Tout", Only::Type(DType::Float)),
            KernelRow::new("T", DType::Complex128, never_made).only("Tout", Only::Type(DType::Double)),
        ],
        ..Op::PURE
    };

    #[test]
    fn two_attributes_may_decide_on_a_kernel() {
        let stock = "Real\tT=complex64,complex128\tTout=float,double";
        let registry = Registry::default().with_stock_kernels(stock).with([&REAL]).unwrap();
        let found = |from: DType, to: DType| {
            let mut attrs = Attrs::default();
            attrs.set("T", ferroflow_proto::tensorflow::attr_value::Value::Type(from as i32));
            attrs.set("Tout", ferroflow_proto::tensorflow::attr_value::Value::Type(to as i32));
            registry
                .get("Real")
                .unwrap()
                .kernel("a", &attrs)
                .map(|row| row.dtype)
                .map_err(|error| error.code())
        };
        assert_eq!(found(DType::Complex128, DType::Double), Ok(DType::Complex128));
        assert_eq!(found(DType::Complex64, DType::Double), Err(Code::InvalidArgument));
    }
}
