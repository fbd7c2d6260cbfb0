//! Nodes that save and restore variables, with the names and the structure of TensorFlow's `Saver`, so that either side
//! can run the other's graphs.

use crate::variables::Variable;
use bytes::Bytes;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::scope::{Operation, Output, Scope};
use ferroflow_core::{DType, Result, Tensor};
use std::collections::BTreeMap;

/// Nodes of a saver.
#[derive(Clone, Debug)]
pub(super) struct SaverNodes {
    /// Placeholder of the checkpoint's prefix.
    pub(super) filename: Output,
    /// Saves, and returns the prefix.
    pub(super) save: Output,
    /// Restores the variables.
    pub(super) restore: Operation,
}

/// Adds the nodes of a saver to a scope.
pub(super) fn add_nodes(scope: &Scope, variables: &[Variable], sharded: bool) -> Result<SaverNodes> {
    let mut variables: Vec<Item> = variables.iter().map(Item::new).collect();
    variables.sort_by(|a, b| (&a.key, &a.slice).cmp(&(&b.key, &b.slice)));
    let placeholder = |name: &str, value: Output| {
        let node = scope.op("PlaceholderWithDefault").name(name).input(&value);
        node.shape_attr("shape", [0i64; 0]).build()?.output(0)
    };
    let default = scope.named_constant("filename/input", "model")?;
    let filename = placeholder("Const", placeholder("filename", default)?)?;
    if sharded { add_sharded(scope, filename, variables) } else { add_whole(scope, filename, &variables) }
}

/// A variable, or a part of one, in a checkpoint.
struct Item<'a> {
    variable: &'a Variable,
    key: String,
    slice: String,
}

impl Item<'_> {
    fn new(variable: &Variable) -> Item<'_> {
        match variable.save_slice() {
            Some(slice) => Item { variable, key: slice.full_name.clone(), slice: slice.spec() },
            None => Item { variable, key: variable.name(), slice: String::new() },
        }
    }
}

fn add_whole(scope: &Scope, filename: Output, items: &[Item<'_>]) -> Result<SaverNodes> {
    let saved = save(scope, &filename, items)?;
    let save = scope.control([&saved]).colocate_with(&filename);
    let save = save.op("Identity").name("control_dependency").input(&filename).build()?.output(0)?;
    let restored = restore(scope, &scope.device("/device:CPU:0"), &filename, items)?;
    let restore = group_by_device(scope, "restore_all", &restored)?;
    Ok(SaverNodes { filename, save, restore })
}

fn add_sharded(scope: &Scope, filename: Output, items: Vec<Item<'_>>) -> Result<SaverNodes> {
    let mut shards: BTreeMap<String, Vec<Item<'_>>> = BTreeMap::new();
    for item in items {
        shards.entry(item.variable.op().device()).or_default().push(item);
    }
    let cpu = scope.device("/device:CPU:*");
    let on_s3 =
        cpu.op("StaticRegexFullMatch").input(&filename).attr("pattern", "^s3://.*").build()?.output(0)?;
    let (part, in_directory) = (cpu.constant(".part")?, cpu.constant("_temp/part")?);
    let suffix = cpu.op("Select").input(&on_s3).input(&part).input(&in_directory).build()?.output(0)?;
    let directory = cpu.op("StringJoin").inputs([&filename, &suffix]).build()?.output(0)?;
    let count = scope.named_constant("num_shards", shards.len() as i32)?;
    let (mut names, mut saved, mut last) = (Vec::new(), Vec::new(), scope.clone());
    for (number, (device, items)) in shards.iter().enumerate() {
        let shard = on_cpu(scope, device)?;
        let name = shard.op("ShardedFilename").input(&directory).input(number as i32).input(&count);
        let name = name.build()?.output(0)?;
        let written = save(&shard, &name, items)?;
        let written = shard.control([&written]).colocate_with(&name);
        saved.push(written.op("Identity").name("control_dependency").input(&name).build()?);
        names.push(name);
        last = shard;
    }
    let merge = last.scope(&format!("{}MergeV2Checkpoints/", scope.prefix()));
    let prefixes = merge.control(&saved).op("Pack").name("checkpoint_prefixes").inputs(&names);
    let prefixes = prefixes.build()?.output(0)?;
    let merged = last.op("MergeV2Checkpoints").input(&prefixes).input(&filename).build()?;
    let save = last.control([&merged]).control(&saved);
    let save = save.op("Identity").input(&filename).build()?.output(0)?;
    let mut restored = Vec::new();
    for (device, items) in &shards {
        let shard = on_cpu(scope, device)?;
        let assigned = restore(scope, &shard, &filename, items)?;
        restored.push(group_by_device(scope, "restore_shard", &assigned)?);
    }
    let restore = group_by_device(scope, "restore_all", &restored)?;
    Ok(SaverNodes { filename, save, restore })
}

/// Returns a scope on the CPU of a task that has variables.
fn on_cpu(scope: &Scope, device: &str) -> Result<Scope> {
    let cpu = DeviceSpec::parse("/device:CPU:0")?;
    Ok(scope.without_device().device(&DeviceSpec::parse(device)?.overridden_by(&cpu).to_string()))
}

/// Adds a node that writes variables.
fn save(scope: &Scope, filename: &Output, items: &[Item<'_>]) -> Result<Operation> {
    // As in TensorFlow, a reference is saved as it is, unless it is part of a larger variable.
    let values = items.iter().map(|item| {
        if item.variable.is_resource() || !item.slice.is_empty() {
            item.variable.value()
        } else {
            item.variable.handle()
        }
    });
    let save = scope.op("SaveV2").input(filename).input(keys(items)).input(slices(items));
    let dtypes: Vec<DType> = items.iter().map(|item| item.variable.dtype()).collect();
    save.inputs(values).attr("dtypes", dtypes).build()
}

/// Adds a node that reads variables, and nodes that assign their values.
fn restore(scope: &Scope, reader: &Scope, filename: &Output, items: &[Item<'_>]) -> Result<Vec<Operation>> {
    let dtypes: Vec<DType> = items.iter().map(|item| item.variable.dtype()).collect();
    let read = reader.op("RestoreV2").input(filename).input(keys(items)).input(slices(items));
    let read = read.attr("dtypes", dtypes).build()?;
    let mut assigned = Vec::new();
    for (position, item) in items.iter().enumerate() {
        let (variable, value) = (item.variable, read.output(position)?);
        if !variable.is_resource() {
            let at = scope.colocate_with(variable.op());
            assigned.push(at.op("Assign").input(variable.handle()).input(&value).build()?);
            continue;
        }
        let at = scope.without_device().device(&variable.op().device());
        value.set_shape(variable.shape())?;
        let value = at.op("Identity").input(&value).build()?.output(0)?;
        let assign = at.op("AssignVariableOp").input(variable.handle()).input(&value);
        // TensorFlow lets a checkpoint change a variable's shape here, and fails wherever it is used next.
        assigned.push(assign.attr("dtype", variable.dtype()).attr("validate_shape", true).build()?);
    }
    Ok(assigned)
}

fn keys(items: &[Item<'_>]) -> Tensor {
    texts(items.iter().map(|item| &item.key))
}

fn slices(items: &[Item<'_>]) -> Tensor {
    texts(items.iter().map(|item| &item.slice))
}

fn texts<'a>(texts: impl Iterator<Item = &'a String>) -> Tensor {
    Tensor::vector(texts.map(|text| Bytes::copy_from_slice(text.as_bytes())).collect())
}

/// Adds an operation that waits for all of these, through one per device if there are several.
pub(super) fn group_by_device(scope: &Scope, name: &str, operations: &[Operation]) -> Result<Operation> {
    let mut by_device: BTreeMap<String, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        by_device.entry(operation.device()).or_default().push(operation);
    }
    if by_device.len() <= 1 {
        let device = by_device.keys().next().cloned().unwrap_or_default();
        return scope.without_device().device(&device).control(operations).op("NoOp").name(name).build();
    }
    let name = scope.graph().unique_name(&format!("{}{name}", scope.prefix()));
    let inner = scope.scope(&format!("{name}/"));
    let mut groups = Vec::new();
    for (device, operations) in by_device {
        groups.push(inner.without_device().device(&device).control(operations).op("NoOp").build()?);
    }
    scope.control(&groups).op("NoOp").name(&format!("{name}/")).build()
}
