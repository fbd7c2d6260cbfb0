//! Moving averages of variables, which often evaluate better than the variables themselves.

use super::Scalar;
use super::slots::{create_slot, value};
use crate::arithmetic::{add, cast, div, mul, sub};
use crate::initializers;
use crate::variables::{Variable, collections, global_variables, trainable_variables, variables_in};
use ferroflow_core::scope::{CollectionItem, Graph, Operation, Output, Scope};
use ferroflow_core::{DType, Result, Tensor, bail, status};
use ferroflow_ops::builders as ops;
use prost::Message;

/// Exponential moving averages, in variables named `<variable>/ExponentialMovingAverage`.
///
/// In every step an average becomes `decay · average + (1 - decay) · variable`.
///
/// ```
/// use ferroflow::optimizers::ExponentialMovingAverage;
/// use ferroflow::{Graph, Variable, initializers};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let w = Variable::new(&s, "w", [3], initializers::ones())?;
/// let mut averages = ExponentialMovingAverage::new(0.99);
/// let update = averages.apply(&s, &[w.clone()])?;
/// assert_eq!(averages.average(&w).unwrap().name(), "w/ExponentialMovingAverage");
/// # let _ = update;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ExponentialMovingAverage {
    decay: Scalar,
    updates: Option<Variable>,
    zero_debias: bool,
    name: String,
    averages: Vec<(Variable, Variable)>,
    outputs: Vec<(Output, Variable)>,
}

/// State of debiasing for an average that starts with zero.
struct Debias {
    biased: Variable,
    local_step: Variable,
}

impl ExponentialMovingAverage {
    /// Describes averages that keep the fraction `decay` of themselves in every step.
    pub fn new(decay: impl Into<Scalar>) -> ExponentialMovingAverage {
        ExponentialMovingAverage {
            decay: decay.into(),
            updates: None,
            zero_debias: false,
            name: "ExponentialMovingAverage".to_owned(),
            averages: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Uses a smaller decay in the first steps, which `counter` counts.
    #[must_use]
    pub fn num_updates(mut self, counter: &Variable) -> ExponentialMovingAverage {
        self.updates = Some(counter.clone());
        self
    }

    /// Sets whether to correct for an initial value of zero; `false` by default. Averages of variables start with the
    /// variables, so this concerns [`ExponentialMovingAverage::apply_to_outputs`] only.
    #[must_use]
    pub fn zero_debias(mut self, debias: bool) -> ExponentialMovingAverage {
        self.zero_debias = debias;
        self
    }

    /// Sets the name of its nodes and variables.
    #[must_use]
    pub fn name(mut self, name: &str) -> ExponentialMovingAverage {
        self.name = name.to_owned();
        self
    }

    /// Adds averages of variables, and returns the operation that updates them. Build it in a scope that waits for the
    /// updates of the variables, or run it after them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for variables that are not floating-point.
    #[track_caller]
    pub fn apply(&mut self, scope: &Scope, variables: &[Variable]) -> Result<Operation> {
        let mut updated = Vec::with_capacity(variables.len());
        for variable in variables {
            check_dtype(&variable.name(), variable.dtype())?;
            let average = match self.average(variable) {
                Some(average) => average.clone(),
                None => {
                    let average = self.start(&scope.without_control(), variable)?;
                    self.averages.push((variable.clone(), average.clone()));
                    average
                }
            };
            updated.push((average, Source::Variable(variable), None));
        }
        self.update(scope, &updated)
    }

    /// Adds averages of outputs, such as a loss, which start with zero, and returns the operation that updates them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for outputs that are not floating-point or whose shape is not fully known.
    #[track_caller]
    pub fn apply_to_outputs(&mut self, scope: &Scope, outputs: &[Output]) -> Result<Operation> {
        let mut updated = Vec::with_capacity(outputs.len());
        let outside = scope.without_control();
        for output in outputs {
            check_dtype(&output.name(), output.dtype())?;
            let known = self.outputs.iter().find(|(of, _)| of == output).map(|(_, average)| average.clone());
            let fresh = known.is_none();
            let average = match known {
                Some(average) => average,
                None => {
                    let average = zeros_beside(&outside, output, &self.name)?;
                    self.outputs.push((output.clone(), average.clone()));
                    average
                }
            };
            let debias = (fresh && self.zero_debias).then(|| Debias::new(&outside, &average)).transpose()?;
            updated.push((average, Source::Output(output), debias));
        }
        self.update(scope, &updated)
    }

    /// Adds the average of a variable, which starts with the variable's current or initial value.
    fn start(&self, scope: &Scope, variable: &Variable) -> Result<Variable> {
        let first = value_or_initial(scope, variable)?;
        let start = initializers::from_fn(move |_, _, _, _| Ok(first.clone()));
        let average = create_slot(scope, variable, &self.name, start)?;
        let encoded = variable.to_proto().encode_to_vec().into();
        scope
            .graph()
            .add_to_collection(collections::MOVING_AVERAGE_VARIABLES, CollectionItem::Bytes(encoded));
        Ok(average)
    }

    fn update(&self, scope: &Scope, updated: &[(Variable, Source<'_>, Option<Debias>)]) -> Result<Operation> {
        let inner = scope.scope(&self.name);
        let decay = self.decay_now(&inner)?;
        let mut updates = Vec::with_capacity(updated.len());
        for (average, source, debias) in updated {
            let place = inner.scope("AssignMovingAvg");
            let rest = cast(&place, &sub(&place, 1.0, &decay)?, average.dtype())?;
            updates.push(match debias {
                Some(debias) => debias.update(&place, average, &source.value(&place)?, &rest)?,
                None => {
                    let gap = sub(&place, value(&place, average), source.value(&place))?;
                    let step = mul(&place, &gap, &rest)?;
                    if average.is_resource() {
                        average.assign_sub(&place, &step)?
                    } else {
                        let node = place.colocate_with(average.op()).op("AssignSub").name(place.prefix());
                        node.input(average.handle()).input(&step).build()?
                    }
                }
            });
        }
        inner.group_named(inner.prefix(), &updates)
    }

    fn decay_now(&self, inner: &Scope) -> Result<Output> {
        let decay = self.decay.node(inner, "decay")?;
        let Some(counter) = &self.updates else { return Ok(decay) };
        let count = ops::Cast::new(DType::Float).name("num_updates").build(inner, value(inner, counter))?;
        let grown = div(inner, add(inner, 1.0, &count), add(inner, 10.0, &count))?;
        ops::minimum(inner, &decay, &grown)
    }

    /// Returns the average of a variable, if it has one.
    pub fn average(&self, variable: &Variable) -> Option<&Variable> {
        self.averages.iter().find(|(of, _)| of == variable).map(|(_, average)| average)
    }

    /// Returns the average of an output, if it has one.
    pub fn output_average(&self, output: &Output) -> Option<&Variable> {
        self.outputs.iter().find(|(of, _)| of == output).map(|(_, average)| average)
    }

    /// Returns the name of the variable that holds the average of `variable`, or would hold it.
    pub fn average_name(&self, variable: &Variable) -> String {
        self.average(variable).map_or_else(|| format!("{}/{}", variable.name(), self.name), Variable::name)
    }

    /// Returns the variables of a graph with the names to restore them from, for an evaluation that uses averages instead
    /// of the variables: the names of averages for trainable variables and those with an average, their own for the rest.
    pub fn variables_to_restore(&self, graph: &Graph) -> Result<Vec<(String, Variable)>> {
        let mut averaged = trainable_variables(graph)?;
        averaged.extend(variables_in(graph, collections::MOVING_AVERAGE_VARIABLES)?);
        let mut restored: Vec<(String, Variable)> = Vec::new();
        for variable in averaged {
            if !restored.iter().any(|(_, known)| *known == variable) {
                restored.push((self.average_name(&variable), variable));
            }
        }
        for variable in global_variables(graph)? {
            let name = variable.name();
            if !restored.iter().any(|(known, averaged)| *averaged == variable || *known == name) {
                restored.push((name, variable));
            }
        }
        restored.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(restored)
    }
}

/// A value to average.
enum Source<'a> {
    Variable(&'a Variable),
    Output(&'a Output),
}

impl Source<'_> {
    fn value(&self, scope: &Scope) -> Result<Output> {
        match self {
            Source::Variable(variable) => value(scope, variable),
            Source::Output(output) => Ok((*output).clone()),
        }
    }
}

impl Debias {
    fn new(scope: &Scope, average: &Variable) -> Result<Debias> {
        let beside = |name: &str, dims: &[i64]| {
            Variable::spec(&format!("{}/{name}", average.name()), dims)
                .absolute()
                .dtype(average.dtype())
                .trainable(false)
                .initializer(initializers::zeros())
                .colocate_with(average.op())
                .build(scope)
        };
        Ok(Debias {
            biased: beside("biased", average.shape().dims())?,
            local_step: beside("local_step", &[])?,
        })
    }

    /// Sets the average to the biased one divided by the sum of its weights.
    fn update(&self, place: &Scope, average: &Variable, source: &Output, rest: &Output) -> Result<Operation> {
        let step = mul(place, sub(place, value(place, &self.biased), source), rest)?;
        let biased = self.biased.assign_sub(place, &step)?;
        let one = cast(place, &place.constant(Tensor::scalar(1.0f32))?, average.dtype())?;
        let counted = self.local_step.assign_add(place, &one)?;
        let after = value(&place.control([&counted]), &self.local_step)?;
        let factor = sub(place, 1.0, ops::pow(place, sub(place, 1.0, rest), &after))?;
        let biased = value(&place.control([&biased]), &self.biased)?;
        average.assign(place, div(place, &biased, &factor))
    }
}

fn check_dtype(name: &str, dtype: DType) -> Result<()> {
    super::apply::check_dtype(name, dtype)
        .map_err(|error| error.map_message(|text| format!("cannot keep a moving average: {text}")))
}

/// Adds a variable of zeros for the average of an output.
fn zeros_beside(scope: &Scope, output: &Output, name: &str) -> Result<Variable> {
    let Some(shape) = output.shape().to_shape() else {
        bail!(
            InvalidArgument,
            "the average of '{}' needs a fully known shape, but it is {}; set it with Output::set_shape",
            output.name(),
            output.shape()
        );
    };
    let full = scope.graph().unique_name(&format!("{}/{name}", output.op().name()));
    Variable::spec(&full, shape)
        .absolute()
        .dtype(output.dtype())
        .trainable(false)
        .initializer(initializers::zeros())
        .build(scope)
}

/// Returns the value of a variable that is initialized, its initial value otherwise; also in the step that initializes
/// both.
fn value_or_initial(scope: &Scope, variable: &Variable) -> Result<Output> {
    let initial = variable.initial_value().ok_or_else(|| {
        status!(
            InvalidArgument,
            "variable {} has no initial value, so its average cannot be initialized",
            variable.name()
        )
    })?;
    let device = variable.op().device();
    let scope = if device.is_empty() { scope.clone() } else { scope.device(&device) };
    let known = variable.is_initialized(&scope)?;
    let branch = scope.scope("cond");
    let chosen = ops::Identity::new().name("pred_id").build(&branch, &known)?;
    let beside = branch.colocate_with(variable.op());
    let read = if variable.is_resource() {
        let switch = beside.scope("Read").op("Switch").name("ReadVariableOp/Switch");
        let handle = switch.input(variable.handle()).input(&chosen).build()?.output(1)?;
        let read = branch.op("ReadVariableOp").name("Read/ReadVariableOp").input(&handle);
        ops::identity(&branch, read.attr("dtype", variable.dtype()).build()?.output(0))?
    } else {
        let switch = beside.op("RefSwitch").name("read/Switch").input(variable.handle()).input(&chosen);
        ops::Identity::new().name("read").build(&branch, switch.build()?.output(1))?
    };
    let beside = branch.colocate_with(initial);
    let initial = beside.op("Switch").name("Switch_1").input(initial).input(&chosen).build()?.output(0)?;
    Ok(ops::merge(&branch, [&initial, &read])?.output)
}
