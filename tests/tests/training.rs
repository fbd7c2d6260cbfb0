//! Initial values, losses, metrics and small models have stock's values step by step: `oracle/training.py` wrote them.

mod losses;
mod models;

use ferroflow::initializers as init;
use ferroflow::metrics::{self, Curve};
use ferroflow::variables::{self, Partitioner};
use ferroflow::{DType, Graph, Operation, Output, Shape, Tensor, Variable, ops};
use ferroflow_runtime::PlanOptions;
use ferroflow_testing::local::Local;
use ferroflow_testing::suite::{Runtime, Session};
use std::collections::BTreeMap;

/// Values by name.
pub(crate) type Values = BTreeMap<String, Vec<f64>>;

/// Stock's values after each step of a case.
pub(crate) fn expected(case: &str) -> Vec<Values> {
    let text = std::fs::read_to_string(ferroflow_testing::golden::testdata().join("training.tsv")).unwrap();
    let mut steps: Vec<Values> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, step, key, values] = fields[..] else { panic!("{line}") };
        if name != case {
            continue;
        }
        let step: usize = step.parse().unwrap();
        steps.resize_with(steps.len().max(step + 1), Values::new);
        let values = values.split(' ').map(|value| match value {
            "True" => 1.0,
            "False" => 0.0,
            value => value.parse().unwrap(),
        });
        steps[step].insert(key.to_owned(), values.collect());
    }
    assert!(!steps.is_empty(), "stock knows no case {case}");
    steps
}

/// Numbers that are neither equal nor round: the oracle makes them the same way.
pub(crate) fn iota<const N: usize>(dims: [i64; N]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let values = (0..shape.elements()).map(|i| ((i * 7 % 11) as f32 - 5.0) / 8.0).collect();
    Tensor::new(shape, values).unwrap()
}

/// The rows in reverse order.
pub(crate) fn reversed(tensor: &Tensor) -> Tensor {
    let width = tensor.elements() / tensor.shape().dim(0);
    let rows = tensor.flat::<f32>().unwrap().chunks(width).rev();
    Tensor::new(tensor.shape().clone(), rows.flatten().copied().collect()).unwrap()
}

/// A session with initialized variables.
pub(crate) struct Running(Box<dyn Session>);

impl Running {
    pub(crate) fn start(graph: &Graph) -> Running {
        let s = graph.scope();
        let init = variables::global_variables_initializer(&s).unwrap();
        let local = variables::local_variables_initializer(&s).unwrap();
        let runtime = Local::new(ferroflow::registry(), PlanOptions::default()).unwrap();
        let mut running = Running(runtime.session(&graph.to_graph_def()).unwrap());
        running.run(&[], &[], &[&init]);
        running.run(&[], &[], &[&local]);
        running
    }

    pub(crate) fn run(
        &mut self,
        feeds: &[(&Output, Tensor)],
        fetches: &[&Output],
        targets: &[&Operation],
    ) -> Vec<Tensor> {
        let feeds = feeds.iter().map(|(output, value)| (output.name(), value.clone())).collect();
        let fetches: Vec<String> = fetches.iter().map(|output| output.name()).collect();
        let targets: Vec<String> = targets.iter().map(|operation| operation.name()).collect();
        self.0.run(feeds, &fetches, &targets).unwrap()
    }

    pub(crate) fn values(&mut self, variables: &[Variable]) -> Values {
        let fetches: Vec<&Output> = variables.iter().map(Variable::value).collect();
        let names = variables.iter().map(Variable::name);
        names.zip(self.run(&[], &fetches, &[])).map(|(name, value)| (name, numbers(&value))).collect()
    }
}

pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::Float => tensor.flat::<f32>().unwrap().iter().map(|x| *x as f64).collect(),
        DType::Int64 => tensor.flat::<i64>().unwrap().iter().map(|x| *x as f64).collect(),
        other => panic!("{other}"),
    }
}

/// Fails unless all values that stock has are there and within rounding.
pub(crate) fn compare(case: &str, step: usize, expected: &Values, found: &Values) {
    for (name, stock) in expected {
        let Some(ours) = found.get(name) else {
            panic!("{case}, step {step}: {name} is missing in {:?}", found.keys())
        };
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 2e-6 + 2e-5 * a.abs();
        let same = stock.len() == ours.len() && stock.iter().zip(ours).all(close);
        assert!(same, "{case}, step {step}: {name}\n  stock: {stock:?}\n  ours:  {ours:?}");
    }
}

#[test]
fn initial_values_are_stocks() {
    let graph = Graph::new();
    graph.set_seed(42);
    let s = graph.scope();
    let made = [
        ("zeros", init::zeros()),
        ("ones", init::ones()),
        ("constant", init::constant(2.5)),
        ("normal", init::random_normal(1.0, 0.5).seed(3)),
        ("normal_unseeded", init::random_normal(1.0, 0.5)),
        ("truncated", init::truncated_normal(0.0, 0.1)),
        ("uniform", init::random_uniform(-1.0, 3.0).seed(9)),
        ("glorot_uniform", init::glorot_uniform().seed(1)),
        ("glorot_normal", init::glorot_normal().seed(1)),
        ("he_normal", init::he_normal().seed(2)),
        ("he_uniform", init::he_uniform().seed(2)),
        ("lecun_normal", init::lecun_normal().seed(2)),
        ("lecun_uniform", init::lecun_uniform().seed(2)),
        ("identity", init::identity(2.0)),
        ("orthogonal", init::orthogonal(1.5).seed(4)),
    ];
    for (name, initializer) in made {
        Variable::new(&s, name, [4, 3], initializer).unwrap();
    }
    Variable::new(&s, "wide", [2, 3, 8], init::orthogonal(1.0).seed(4)).unwrap();
    Variable::new(&s, "large", [50, 30], init::zeros()).unwrap();
    Variable::spec("kernel", [3, 3, 2, 4]).build(&s).unwrap();
    let parts = Variable::spec("parts", [5, 2]).initializer(init::glorot_uniform().seed(5));
    parts.partitioned(&s, Partitioner::fixed(2)).unwrap();
    let found = Running::start(&graph).values(&variables::global_variables(&graph).unwrap());
    compare("initializers", 0, &expected("initializers")[0], &found);
}

#[test]
fn metrics_are_stocks() {
    let graph = Graph::new();
    let s = graph.scope();
    let x = ops::Placeholder::new(DType::Float).shape([-1]).build(&s).unwrap();
    let y = ops::Placeholder::new(DType::Bool).shape([-1]).build(&s).unwrap();
    let high = ops::greater(&s, &x, 0.5).unwrap();
    let numbers_of_y = &ops::cast(&s, &y, DType::Float).unwrap();
    let weighted = metrics::weighted((&x * 2.0).unwrap());
    let made = [
        ("mean", metrics::mean(&s, &x)),
        ("mean_squared_error", metrics::mean_squared_error(&s, numbers_of_y, &x)),
        ("mean_absolute_error", metrics::mean_absolute_error(&s, numbers_of_y, &x)),
        ("root_mean_squared_error", metrics::root_mean_squared_error(&s, numbers_of_y, &x)),
        ("true_positives", metrics::true_positives(&s, &y, &high)),
        ("false_positives", metrics::false_positives(&s, &y, &high)),
        ("true_negatives", metrics::true_negatives(&s, &y, &high)),
        ("false_negatives", metrics::false_negatives(&s, &y, &high)),
        ("weighted_mean", weighted.mean(&s, &x)),
        ("weighted_accuracy", weighted.accuracy(&s, &y, &high)),
        ("weighted_error", weighted.root_mean_squared_error(&s, numbers_of_y, &x)),
        ("weighted_precision", weighted.precision(&s, &y, &high)),
        ("weighted_recall", weighted.recall(&s, &y, &high)),
        ("weighted_false_positives", weighted.false_positives(&s, &y, &high)),
        ("weighted_auc", weighted.auc(&s, &y, &x, 20, Curve::Roc)),
        ("accuracy", metrics::accuracy(&s, &y, &high)),
        ("precision", metrics::precision(&s, &y, &high)),
        ("recall", metrics::recall(&s, &y, &high)),
        ("auc", metrics::auc(&s, &y, &x, 20, Curve::Roc)),
        ("auc_pr", metrics::auc(&s, &y, &x, 20, Curve::PrecisionRecall)),
    ];
    let made = made.map(|(name, metric)| (name, metric.unwrap()));
    let mut running = Running::start(&graph);
    for (number, stock) in expected("metrics").iter().enumerate() {
        let all = iota([12]);
        let values: Vec<f32> =
            all.flat::<f32>().unwrap()[number * 4..][..4].iter().map(|x| x.abs()).collect();
        let truth: Vec<bool> = (0..4).map(|i| values[(i + 3) % 4] > 0.3).collect();
        let feeds = [(&x, Tensor::vector(values)), (&y, Tensor::vector(truth))];
        let updates: Vec<&Operation> = made.iter().map(|(_, metric)| metric.update.op()).collect();
        running.run(&feeds, &[], &updates);
        let found = made.iter().map(|(name, metric)| {
            let value = running.run(&[], &[&metric.value], &[]);
            ((*name).to_owned(), numbers(&value[0]))
        });
        compare("metrics", number, stock, &found.collect());
    }
}
