//! Checkpoints of iterators.
//!
//! The state of an iterator is that of all its stages, as stock writes it, where all of them have one
//! ([`crate::data::state`]). Otherwise it is the number of elements that were taken from it and the seeds of their order;
//! restoring that runs the dataset again up to the place.

use crate::data::iterator::{IteratorResource, Position, Saved};
use crate::data::seeds::{DrawnSeeds, MAX_DRAWN};
use crate::data::state::Restorer;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, ShapeCx};
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels};
use ferroflow_proto::tensorflow::VariantTensorDataProto;

pub(crate) const OPS: &[&Op] = &[&SERIALIZE_ITERATOR, &DESERIALIZE_ITERATOR];

static SERIALIZE_ITERATOR: Op = Op {
    name: "SerializeIterator",
    inputs: &["resource_handle: resource"],
    outputs: &["serialized: variant"],
    attrs: &["external_state_policy: int = 0"],
    shape: vector,
    kernels: kernels![any serialize_kernel],
    ..Op::STATEFUL
};

static DESERIALIZE_ITERATOR: Op = Op {
    name: "DeserializeIterator",
    inputs: &["resource_handle: resource", "serialized: variant"],
    kernels: kernels![any deserialize_kernel],
    ..Op::STATEFUL
};

fn vector(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [-1])
}

const TYPE_NAME: &str = "tensorflow::IteratorStateVariant";
/// The first word of a state that this crate wrote.
const MAGIC: i64 = 0x6665_7272_6f66_6c6f;

/// The state of an iterator.
struct IteratorState(Vec<i64>);

impl IteratorState {
    fn of(position: Position) -> IteratorState {
        let mut words = vec![MAGIC, position.taken as i64];
        for seeds in position.seeds {
            words.extend([seeds.generator as i64, seeds.seed, seeds.seed2, seeds.drawn as i64]);
        }
        IteratorState(words)
    }

    fn position(words: &[i64]) -> Result<Position> {
        match words {
            [MAGIC, taken, seeds @ ..] if *taken >= 0 && seeds.len() % 4 == 0 => {
                let drawn = |seeds: &[i64]| DrawnSeeds {
                    generator: seeds[0] as usize,
                    seed: seeds[1],
                    seed2: seeds[2],
                    drawn: (seeds[3] as u64).min(MAX_DRAWN),
                };
                let seeds = seeds.chunks_exact(4).map(drawn).collect();
                Ok(Position { taken: *taken as u64, seeds })
            }
            _ => bail!(
                InvalidArgument,
                "the state of the iterator was saved neither by Ferroflow nor by stock TensorFlow"
            ),
        }
    }

    fn from_tensor(tensor: &Tensor) -> Result<Position> {
        ensure!(tensor.elements() > 0, InvalidArgument, "the state of an iterator is empty");
        let variant = &tensor.units::<Variant>()?[0];
        if let Some(state) = variant.downcast::<IteratorState>() {
            return IteratorState::position(&state.0);
        }
        match variant.as_opaque() {
            Some(proto) if proto.type_name == TYPE_NAME && proto.tensors.len() == 1 => {
                IteratorState::position(Tensor::from_proto(&proto.tensors[0])?.flat()?)
            }
            Some(proto) if proto.type_name == TYPE_NAME => IteratorState::position(&[]),
            _ => bail!(
                Internal,
                "Cannot initialize an iterator from tensor {variant:?}. Expected a variant tensor of type \
                 IteratorStateVariant"
            ),
        }
    }
}

impl VariantValue for IteratorState {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        Ok(VariantTensorDataProto {
            type_name: TYPE_NAME.to_owned(),
            tensors: vec![Tensor::vector(self.0.clone()).to_proto()?],
            ..Default::default()
        })
    }
}

fn serialize_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| {
        let iterator = cx.cx().resource::<IteratorResource>(0);
        async move {
            match iterator?.running("Save", "saving it")?.save().await? {
                Saved::State(state) => Ok(state.into_tensor()?.into()),
                Saved::Position(position) => {
                    let variants = vec![Variant::new(IteratorState::of(position))];
                    Ok(Tensor::from_units(DType::Variant, Shape::vector(1), variants)?.into())
                }
            }
        }
    })
}

fn deserialize_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let (iterator, state) = {
            let cx = cx.cx();
            (cx.resource::<IteratorResource>(0)?, cx.input(1)?.clone())
        };
        match Restorer::root(state.units::<Variant>()?)?.filter(|_| state.elements() > 0) {
            Some(from) => iterator.restore_state(&from, cx.step()).await?,
            None => iterator.restore(IteratorState::from_tensor(&state)?, cx.step()).await?,
        }
        Ok(().into())
    })
}
