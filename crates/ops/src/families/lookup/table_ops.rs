//! Ops on tables of any kind: find, insert, remove, count, import, export.

use crate::state::ref_handle;
use crate::state::table::Table;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, kernels};
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &LOOKUP_TABLE_FIND,
    &LOOKUP_TABLE_FIND_V2,
    &LOOKUP_TABLE_INSERT,
    &LOOKUP_TABLE_INSERT_V2,
    &LOOKUP_TABLE_REMOVE_V2,
    &LOOKUP_TABLE_SIZE,
    &LOOKUP_TABLE_SIZE_V2,
    &LOOKUP_TABLE_EXPORT,
    &LOOKUP_TABLE_EXPORT_V2,
    &LOOKUP_TABLE_IMPORT,
    &LOOKUP_TABLE_IMPORT_V2,
];

static LOOKUP_TABLE_FIND_V2: Op = Op {
    name: "LookupTableFindV2",
    gradient: Gradient::Stop,
    inputs: &["table_handle: resource", "keys: Tin", "default_value: Tout"],
    outputs: &["values: Tout"],
    attrs: &["Tin: type", "Tout: type"],
    shape: find_shape,
    kernels: kernels![any find_kernel],
    restartable: true,
    ..Op::STATEFUL
};

static LOOKUP_TABLE_FIND: Op = Op {
    name: "LookupTableFind",
    inputs: &["table_handle: Ref(string)", "keys: Tin", "default_value: Tout"],
    shape: find_by_reference_shape,
    stateful: false,
    ..LOOKUP_TABLE_FIND_V2
};

static LOOKUP_TABLE_INSERT_V2: Op = Op {
    name: "LookupTableInsertV2",
    gradient: Gradient::Stop,
    inputs: &["table_handle: resource", "keys: Tin", "values: Tout"],
    attrs: &["Tin: type", "Tout: type"],
    shape: handle_shape,
    kernels: kernels![any insert_kernel],
    ..Op::STATEFUL
};

static LOOKUP_TABLE_INSERT: Op = Op {
    name: "LookupTableInsert",
    inputs: &["table_handle: Ref(string)", "keys: Tin", "values: Tout"],
    stateful: false,
    ..LOOKUP_TABLE_INSERT_V2
};

static LOOKUP_TABLE_REMOVE_V2: Op = Op {
    name: "LookupTableRemoveV2",
    inputs: &["table_handle: resource", "keys: Tin"],
    attrs: &["Tin: type"],
    shape: remove_shape,
    kernels: kernels![any remove_kernel],
    ..Op::STATEFUL
};

static LOOKUP_TABLE_SIZE_V2: Op = Op {
    name: "LookupTableSizeV2",
    gradient: Gradient::Stop,
    inputs: &["table_handle: resource"],
    outputs: &["size: int64"],
    shape: size_shape,
    kernels: kernels![any size_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static LOOKUP_TABLE_SIZE: Op = Op {
    name: "LookupTableSize",
    inputs: &["table_handle: Ref(string)"],
    stateful: false,
    ..LOOKUP_TABLE_SIZE_V2
};

static LOOKUP_TABLE_EXPORT_V2: Op = Op {
    name: "LookupTableExportV2",
    inputs: &["table_handle: resource"],
    outputs: &["keys: Tkeys", "values: Tvalues"],
    attrs: &["Tkeys: type", "Tvalues: type"],
    shape: export_shape,
    kernels: kernels![any export_kernel],
    ..Op::STATEFUL
};

static LOOKUP_TABLE_EXPORT: Op = Op {
    name: "LookupTableExport",
    inputs: &["table_handle: Ref(string)"],
    stateful: false,
    ..LOOKUP_TABLE_EXPORT_V2
};

static LOOKUP_TABLE_IMPORT_V2: Op = Op {
    name: "LookupTableImportV2",
    inputs: &["table_handle: resource", "keys: Tin", "values: Tout"],
    attrs: &["Tin: type", "Tout: type"],
    shape: import_shape,
    kernels: kernels![any import_kernel],
    ..Op::STATEFUL
};

static LOOKUP_TABLE_IMPORT: Op = Op {
    name: "LookupTableImport",
    inputs: &["table_handle: Ref(string)", "keys: Tin", "values: Tout"],
    shape: handle_shape,
    stateful: false,
    ..LOOKUP_TABLE_IMPORT_V2
};

/// A reference's two strings, or one handle: stock checks both ranks, of which references have theirs here anyway.
pub(super) fn handle_shape(_: &mut ShapeCx<'_>) -> Result<()> {
    Ok(())
}

fn find_by_reference_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank_at_most(2, 1)?;
    Ok(())
}

/// Refuses types that differ from those that the handle tells.
fn check_types(s: &ShapeCx<'_>, key: &str, value: &str) -> Result<()> {
    let [key_of, value_of] = s.handles(0) else { return Ok(()) };
    for (of, attr) in [(key_of, key), (value_of, value)] {
        let declared: DType = s.attr(attr)?;
        ensure!(
            of.dtype == declared,
            InvalidArgument,
            "Trying to read value with wrong dtype. Expected {} got {declared}",
            of.dtype
        );
    }
    Ok(())
}

fn find_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    check_types(s, "Tin", "Tout")?;
    let [key, value] = s.handles(0) else { return Ok(()) };
    let (key, value) = (key.shape.clone(), value.shape.clone());
    let keys = s.input(1);
    let (Some(suffix), Some(dims)) = (key.dims(), keys.dims()) else { return Ok(()) };
    ensure!(
        dims.len() >= suffix.len(),
        InvalidArgument,
        "Expected keys to have suffix {key} but saw shape: {keys}"
    );
    if let Some(value) = value.dims() {
        s.output(0, dims[..dims.len() - suffix.len()].iter().chain(value).copied())?;
    }
    Ok(())
}

fn remove_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.rank_at_least(1, 1)?;
    Ok(())
}

fn size_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, PartialShape::scalar());
    Ok(())
}

fn export_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    check_types(s, "Tkeys", "Tvalues")
}

fn import_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    let (keys, values) = (s.rank(1, 1)?, s.rank_at_least(2, 1)?);
    let first = |shape: &PartialShape| shape.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    s.merge_dims(first(&keys), first(&values))?;
    Ok(())
}

pub(super) fn table(cx: &KernelCx<'_>) -> Result<Arc<Table>> {
    ref_handle::resolve(cx, &cx.step().resources)
}

/// Refuses inputs and outputs of other types than the table has.
pub(super) fn check_signature(
    cx: &KernelCx<'_>,
    expected: &[DType],
    outputs: &[DType],
    expected_outputs: &[DType],
) -> Result<()> {
    let have = (1..cx.num_inputs()).map(|input| cx.input(input).map(Tensor::dtype));
    let have = have.collect::<Result<Vec<DType>>>()?;
    if have == expected && outputs == expected_outputs {
        return Ok(());
    }
    let list = |types: &[DType]| types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
    let handle = if cx.is_ref(0) { "string_ref" } else { "resource" };
    ensure!(
        false,
        InvalidArgument,
        "Signature mismatch, have: {handle}, {}->{} expected: {handle}, {}->{}",
        list(&have),
        list(outputs),
        list(expected),
        list(expected_outputs)
    );
    Ok(())
}

fn find_kernel(init: &Init<'_>) -> Result<Kernel> {
    let declared: Vec<DType> = init.output_types.to_vec();
    Kernel::sync(move |cx| {
        let table = table(cx)?;
        let (key, value) = (table.key_type, table.value_type);
        check_signature(cx, &[key, value], &declared, &[value])?;
        Ok(table.find(cx.threads(), cx.input(1)?, cx.input(2)?)?.into())
    })
}

fn insert_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let table = table(cx)?;
        check_signature(cx, &[table.key_type, table.value_type], &[], &[])?;
        table.insert(cx.device(), cx.input(1)?, cx.input(2)?)?;
        Ok(Outputs::None)
    })
}

fn remove_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let table = table(cx)?;
        check_signature(cx, &[table.key_type], &[], &[])?;
        table.remove(cx.input(1)?)?;
        Ok(Outputs::None)
    })
}

fn size_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(table(cx)?.size() as i64).into()))
}

fn export_kernel(init: &Init<'_>) -> Result<Kernel> {
    let declared = crate::support::declared_types::DeclaredTypes::new(init);
    Kernel::sync(move |cx| {
        let exported = table(cx)?.export(cx.device())?;
        declared.check(&exported)?;
        Ok(exported.into())
    })
}

fn import_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let table = table(cx)?;
        check_signature(cx, &[table.key_type, table.value_type], &[], &[])?;
        table.import(cx.device(), cx.input(1)?, cx.input(2)?)?;
        Ok(Outputs::None)
    })
}
