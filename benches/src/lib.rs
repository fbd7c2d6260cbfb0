//! Parts that the benches share: graphs of repeated nodes and a session to run them in.
//!
//! The ratio suite, which compares with stock, lives in `oracle/bench/` and is run by `cargo xtask bench`; the criterion
//! benches here look at single layers.

use ferroflow_core::{DType, Tensor};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NodeDef};
use ferroflow_runtime::PlanOptions;
use ferroflow_testing::local::Local;
use ferroflow_testing::suite::{Runtime, Session};

/// A graph under construction.
#[derive(Default)]
pub struct Nodes(GraphDef);

impl Nodes {
    /// Adds a placeholder.
    pub fn placeholder(&mut self, name: &str, dtype: DType) -> String {
        self.add(name, "Placeholder", &[], &[("dtype", Value::Type(dtype.to_wire()))])
    }

    /// Adds a node and returns its name.
    pub fn add(&mut self, name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Value)]) -> String {
        let attr =
            |(key, value): &(&str, Value)| ((*key).to_owned(), AttrValue { value: Some(value.clone()) });
        self.0.node.push(NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            attr: attrs.iter().map(attr).collect(),
            ..Default::default()
        });
        name.to_owned()
    }

    /// Opens a session on the runtime, without services in between.
    pub fn session(&self) -> Box<dyn Session> {
        let runtime = Local::new(ferroflow_ops::registry(), PlanOptions::default()).expect("threads start");
        runtime.session(&self.0).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The attribute `T` of float ops.
pub fn float() -> (&'static str, Value) {
    ("T", Value::Type(DType::Float.to_wire()))
}

/// A float tensor counting up from 0 in small steps.
pub fn ramp(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    Tensor::new(dims, (0..count).map(|i| i as f32 * 1e-4).collect::<Vec<f32>>())
        .expect("as many values as elements")
}
