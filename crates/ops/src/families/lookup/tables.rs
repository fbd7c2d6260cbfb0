//! Tables of every kind, under a handle, under a reference to their name, or owned by their handle.

use crate::state::ref_handle;
use crate::state::resource_name::ResourceName;
use crate::state::table::{DenseSpec, Table};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Value};
use ferroflow_core::op::{Gradient, KernelRow, Only, Op, OpClass, ShapeCx};
use ferroflow_core::resource::{HandleShape, Resource, ResourceHandle};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};
use std::sync::{Arc, OnceLock};

pub(crate) const OPS: &[&Op] = &[
    &HASH_TABLE,
    &HASH_TABLE_V2,
    &ANONYMOUS_HASH_TABLE,
    &MUTABLE_HASH_TABLE,
    &MUTABLE_HASH_TABLE_V2,
    &ANONYMOUS_MUTABLE_HASH_TABLE,
    &MUTABLE_HASH_TABLE_OF_TENSORS,
    &MUTABLE_HASH_TABLE_OF_TENSORS_V2,
    &ANONYMOUS_MUTABLE_HASH_TABLE_OF_TENSORS,
    &MUTABLE_DENSE_HASH_TABLE,
    &MUTABLE_DENSE_HASH_TABLE_V2,
    &ANONYMOUS_MUTABLE_DENSE_HASH_TABLE,
];

/// Stock's kernels: pairs of types of keys and values.
macro_rules! pairs {
    ($make:ident: $($key:ident -> $($value:ident)|+),+) => {
        &[$($(KernelRow::new("key_dtype", DType::$key, $make).only("value_dtype", Only::Type(DType::$value)),)+)+]
    };
}

/// The kernels of every kind of table.
macro_rules! kernels_of {
    (static $make:ident) => {
        pairs![$make: Int32 -> Float | Double | Int32 | String,
            Int64 -> Float | Double | Int32 | Int64 | String,
            String -> Bool | Float | Double | Int32 | Int64 | String]
    };
    (mutable $make:ident) => {
        pairs![$make: Int32 -> Float | Double | Int32,
            Int64 -> Float | Double | Int32 | Int64 | String | Variant,
            String -> Bool | Float | Double | Int32 | Int64]
    };
    (of_tensors $make:ident) => {
        pairs![$make: Int32 -> Float | Double | Int32,
            Int64 -> Float | Double | Int32 | Int64 | String,
            String -> Bool | Float | Double | Int32 | Int64]
    };
    (dense $make:ident) => {
        pairs![$make: Int32 -> Float | Double | Int32,
            Int64 -> Bool | Float | Double | Int32 | Int64 | Variant,
            String -> Bool | Float | Double | Int32 | Int64 | Resource]
    };
}

static HASH_TABLE_V2: Op = Op {
    name: "HashTableV2",
    gradient: Gradient::Stop,
    outputs: &["table_handle: resource"],
    attrs: &[
        "container: string = ''",
        "shared_name: string = ''",
        "use_node_name_sharing: bool = false",
        "key_dtype: type",
        "value_dtype: type",
    ],
    shape: ferroflow_core::op::shapes::scalar,
    kernels: kernels_of!(static table_kernel),
    class: OpClass::Variable,
    ..Op::STATEFUL
};

static HASH_TABLE: Op = Op {
    name: "HashTable",
    outputs: &["table_handle: Ref(string)"],
    shape: reference_shape,
    ..HASH_TABLE_V2
};

static ANONYMOUS_HASH_TABLE: Op = Op {
    name: "AnonymousHashTable",
    gradient: Gradient::Undefined,
    attrs: &["key_dtype: type", "value_dtype: type"],
    kernels: kernels_of!(static anonymous_kernel),
    ..HASH_TABLE_V2
};

static MUTABLE_HASH_TABLE_V2: Op = Op {
    name: "MutableHashTableV2",
    shape: mutable_shape,
    kernels: kernels_of!(mutable table_kernel),
    ..HASH_TABLE_V2
};

static MUTABLE_HASH_TABLE: Op =
    Op { name: "MutableHashTable", kernels: kernels_of!(mutable table_kernel), ..HASH_TABLE };

static ANONYMOUS_MUTABLE_HASH_TABLE: Op = Op {
    name: "AnonymousMutableHashTable",
    shape: mutable_shape,
    kernels: kernels_of!(mutable anonymous_kernel),
    ..ANONYMOUS_HASH_TABLE
};

static MUTABLE_HASH_TABLE_OF_TENSORS_V2: Op = Op {
    name: "MutableHashTableOfTensorsV2",
    attrs: &[
        "container: string = ''",
        "shared_name: string = ''",
        "use_node_name_sharing: bool = false",
        "key_dtype: type",
        "value_dtype: type",
        "value_shape: shape = {}",
    ],
    shape: of_tensors_shape,
    kernels: kernels_of!(of_tensors table_kernel),
    ..HASH_TABLE_V2
};

static MUTABLE_HASH_TABLE_OF_TENSORS: Op = Op {
    name: "MutableHashTableOfTensors",
    outputs: &["table_handle: Ref(string)"],
    shape: reference_shape,
    ..MUTABLE_HASH_TABLE_OF_TENSORS_V2
};

static ANONYMOUS_MUTABLE_HASH_TABLE_OF_TENSORS: Op = Op {
    name: "AnonymousMutableHashTableOfTensors",
    attrs: &["key_dtype: type", "value_dtype: type", "value_shape: shape = {}"],
    shape: of_tensors_shape,
    kernels: kernels_of!(of_tensors anonymous_kernel),
    ..ANONYMOUS_HASH_TABLE
};

static MUTABLE_DENSE_HASH_TABLE_V2: Op = Op {
    name: "MutableDenseHashTableV2",
    inputs: &["empty_key: key_dtype", "deleted_key: key_dtype"],
    attrs: &[
        "container: string = ''",
        "shared_name: string = ''",
        "use_node_name_sharing: bool = false",
        "key_dtype: type",
        "value_dtype: type",
        "value_shape: shape = {}",
        "initial_num_buckets: int = 131072",
        "max_load_factor: float = 0.8",
    ],
    shape: dense_shape,
    kernels: kernels_of!(dense table_kernel),
    ..HASH_TABLE_V2
};

static MUTABLE_DENSE_HASH_TABLE: Op = Op {
    name: "MutableDenseHashTable",
    inputs: &["empty_key: key_dtype"],
    outputs: &["table_handle: Ref(string)"],
    shape: reference_shape,
    ..MUTABLE_DENSE_HASH_TABLE_V2
};

static ANONYMOUS_MUTABLE_DENSE_HASH_TABLE: Op = Op {
    name: "AnonymousMutableDenseHashTable",
    inputs: &["empty_key: key_dtype", "deleted_key: key_dtype"],
    attrs: &[
        "key_dtype: type",
        "value_dtype: type",
        "value_shape: shape = {}",
        "initial_num_buckets: int = 131072",
        "max_load_factor: float = 0.8",
    ],
    shape: dense_shape,
    kernels: kernels_of!(dense anonymous_kernel),
    ..ANONYMOUS_HASH_TABLE
};

fn reference_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [2])
}

/// Lookups infer from the handle what keys and values look like.
fn set_handle(s: &mut ShapeCx<'_>, key: PartialShape, value: PartialShape) -> Result<()> {
    s.set(0, PartialShape::scalar());
    let (key_type, value_type) = (s.attr("key_dtype")?, s.attr("value_dtype")?);
    let key = HandleShape { dtype: key_type, shape: key };
    s.set_handles(0, vec![key, HandleShape { dtype: value_type, shape: value }]);
    Ok(())
}

fn mutable_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    set_handle(s, PartialShape::scalar(), PartialShape::scalar())
}

fn of_tensors_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let value = s.attr("value_shape")?;
    set_handle(s, PartialShape::scalar(), value)
}

fn dense_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (key, value) = (s.rank_at_most(0, 1)?, s.attr("value_shape")?);
    set_handle(s, key, value)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Static,
    Mutable,
    OfTensors,
    Dense,
}

/// The description of the table that a node makes.
struct Maker {
    kind: Kind,
    key_type: DType,
    value_type: DType,
    value_shape: Option<PartialShape>,
    buckets: i64,
    max_load: f32,
}

impl Maker {
    fn new(init: &Init<'_>) -> Result<Maker> {
        let (key_type, value_type): (DType, DType) = (init.attr("key_dtype")?, init.attr("value_dtype")?);
        let kind = match init.op.trim_start_matches("Anonymous") {
            op if op.starts_with("HashTable") => Kind::Static,
            op if op.starts_with("MutableDense") => Kind::Dense,
            op if op.contains("OfTensors") => Kind::OfTensors,
            _ => Kind::Mutable,
        };
        let dense = kind == Kind::Dense;
        Ok(Maker {
            kind,
            key_type,
            value_type,
            value_shape: init.attrs.has("value_shape").then(|| init.attr("value_shape")).transpose()?,
            buckets: if dense { init.attr("initial_num_buckets")? } else { 0 },
            max_load: if dense { init.attr("max_load_factor")? } else { 0.0 },
        })
    }

    fn value_shape(&self) -> Result<Shape> {
        let shape = self.value_shape.clone().unwrap_or_else(PartialShape::scalar);
        match shape.to_shape() {
            Some(shape) => Ok(shape),
            None => bail!(InvalidArgument, "value_shape {shape} is not fully defined"),
        }
    }

    fn make(&self, cx: &KernelCx<'_>) -> Result<Table> {
        let (key, value) = (self.key_type, self.value_type);
        match self.kind {
            Kind::Static => Ok(Table::new_static(key, value)),
            Kind::Mutable => Ok(Table::new_mutable(key, value)),
            Kind::OfTensors => Table::new_of_tensors(key, value, self.value_shape()?),
            Kind::Dense => {
                // The first generation's op has no such input, but stock's kernel asks for it.
                ensure!(
                    cx.num_inputs() == 2,
                    InvalidArgument,
                    "OpKernel used by a dense table has no input with name: deleted_key"
                );
                let spec = DenseSpec {
                    empty_key: cx.input(0)?.clone(),
                    deleted_key: Some(cx.input(1)?.clone()),
                    value_shape: self.value_shape()?,
                    buckets: self.buckets,
                    max_load: self.max_load,
                };
                Table::new_dense(cx.device(), value, spec)
            }
        }
    }

    fn check(&self, table: &Table, name: &str) -> Result<()> {
        ensure!(
            (table.key_type, table.value_type) == (self.key_type, self.value_type),
            InvalidArgument,
            "Conflicting key/value dtypes {}->{} with {}-{} for table {name}",
            self.key_type,
            self.value_type,
            table.key_type,
            table.value_type
        );
        Ok(())
    }
}

fn table_kernel(init: &Init<'_>) -> Result<Kernel> {
    let maker = Maker::new(init)?;
    let place = ResourceName::<Table>::new(init)?;
    let by_reference = init.output_types[0] == DType::String;
    let handle: OnceLock<Value> = OnceLock::new();
    Kernel::sync(move |cx| {
        let table = place.lookup_or_create(cx, || maker.make(cx))?;
        maker.check(&table, &place.name)?;
        if let Some(handle) = handle.get() {
            return Ok(handle.clone().into());
        }
        let device = cx.device().name();
        let made = ref_handle::make(device, &place.container, &place.name, &*table, by_reference)?;
        Ok(handle.get_or_init(|| made).clone().into())
    })
}

fn anonymous_kernel(init: &Init<'_>) -> Result<Kernel> {
    let maker = Maker::new(init)?;
    let device = init.device.name().to_owned();
    Kernel::sync(move |cx| {
        let table: Arc<dyn Resource> = Arc::new(maker.make(cx)?);
        let handle = ResourceHandle::owned(&device, "AnonymousTable", Vec::new(), table);
        Ok(Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])?.into())
    })
}
