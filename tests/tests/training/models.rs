//! Small models of every layer learn as stock's do.

use super::{Running, compare, expected, numbers};
use ferroflow::data::digits::Digits;
use ferroflow::initializers as init;
use ferroflow::layers::{
    Activation, BatchNorm, Conv2d, Dense, Gru, Lstm, Padding, PartitionStrategy, Sequence, avg_pool2d,
    dropout, embedding_lookup, flatten, max_pool2d,
};
use ferroflow::optimizers::{Adagrad, Adam, GradientDescent, Momentum, Optimizer, RmsProp};
use ferroflow::variables::{self, Partitioner};
use ferroflow::{DType, Graph, Output, Scope, Tensor, Variable, losses, ops};

/// The first digits, in this shape.
fn digits(dims: [i64; 4]) -> (Tensor, Tensor) {
    let file = crate::stock::root().join("crates/ferroflow/data/digits.csv.gz");
    let digits = Digits::load(file).unwrap();
    let dims: Vec<i64> = dims.into_iter().filter(|dim| *dim > 0).collect();
    let count = dims[0] as usize;
    let pixels = digits.images.flat::<f32>().unwrap()[..count * 64].to_vec();
    let labels = digits.labels.flat::<i64>().unwrap()[..count].to_vec();
    (Tensor::new(dims, pixels).unwrap(), Tensor::vector(labels))
}

/// Trains the model that `build` makes of a batch of images, and compares losses and variables.
fn classify(
    case: &str,
    dims: [i64; 4],
    optimizer: impl Optimizer,
    build: impl Fn(&Scope, &Output) -> ferroflow::Result<Output>,
) {
    let graph = Graph::new();
    graph.set_seed(7);
    let s = graph.scope();
    let (images, labels) = digits(dims);
    let known: Vec<i64> = [-1].into_iter().chain(images.shape().dims()[1..].iter().copied()).collect();
    let x = ops::Placeholder::new(DType::Float).shape(known).build(&s).unwrap();
    let y = ops::Placeholder::new(DType::Int64).shape([-1]).build(&s).unwrap();
    let logits = build(&s, &x).unwrap();
    let loss = losses::sparse_softmax_cross_entropy(&s, &y, &logits).unwrap();
    train(case, &graph, &loss, optimizer, &[(&x, images), (&y, labels)]);
}

fn train(case: &str, graph: &Graph, loss: &Output, optimizer: impl Optimizer, feeds: &[(&Output, Tensor)]) {
    let s = graph.scope();
    let step = ferroflow::global_step(&s).unwrap();
    let s = s.control(variables::update_ops(graph).unwrap());
    let train = optimizer.minimize(&s, loss, Some(&step)).unwrap();
    let all = variables::global_variables(graph).unwrap();
    let mut running = Running::start(graph);
    for (number, stock) in expected(case).iter().enumerate() {
        if !stock.contains_key("loss") {
            let found = running.values(&all);
            compare(case, number, stock, &found);
            continue;
        }
        let values = running.run(feeds, &[loss], &[&train]);
        let found = [("loss".to_owned(), numbers(&values[0]))].into();
        compare(case, number, stock, &found);
    }
}

#[test]
fn dense_layers_with_dropout() {
    classify("mlp", [50, 64, 0, 0], Adam::new(0.01), |s, x| {
        let hidden = Dense::new(16).activation(Activation::Relu).build(s, x)?;
        Dense::new(10).build(s, &dropout(s, &hidden, 0.25, Some(3))?)
    });
}

#[test]
fn batch_normalization() {
    classify("batch_norm", [50, 64, 0, 0], Momentum::new(0.1, 0.9), |s, x| {
        let hidden = BatchNorm::new().build(s, &Dense::new(16).build(s, x)?, true)?;
        Dense::new(10).build(s, &ops::relu(s, &hidden)?)
    });
}

#[test]
fn long_short_term_memory() {
    classify("lstm", [20, 8, 8, 0], GradientDescent::new(0.5), |s, x| {
        Dense::new(10).build(s, &Lstm::new(6).build(s, x)?.last)
    });
}

#[test]
fn gated_recurrent_units() {
    classify("gru", [20, 8, 8, 0], GradientDescent::new(0.5), |s, x| {
        Dense::new(10).build(s, &Gru::new(6).build(s, x)?.last)
    });
}

/// Sequences of up to eight steps, some of them empty, by the last output and by all of them.
fn classify_sequences(case: &str, layer: impl Fn(&Scope, &Output, &Output) -> ferroflow::Result<Sequence>) {
    classify(case, [20, 8, 8, 0], GradientDescent::new(0.5), |s, x| {
        // How many steps there are is not known while the graph is built.
        let x = ops::PlaceholderWithDefault::new([-1, -1, 8]).build(s, x)?;
        let lengths = s.constant((0..20).map(|i| i % 9).collect::<Vec<i32>>())?;
        let sequence = layer(s, &x, &lengths)?;
        let sum = ops::add_v2(s, &sequence.last, ops::sum(s, &sequence.outputs, [1]))?;
        Dense::new(10).build(s, &sum)
    });
}

#[test]
fn long_short_term_memory_in_a_loop() {
    classify_sequences("dynamic_lstm", |s, x, lengths| Lstm::new(6).lengths(lengths).build(s, x));
}

#[test]
fn gated_recurrent_units_in_a_loop() {
    classify_sequences("dynamic_gru", |s, x, lengths| Gru::new(6).lengths(lengths).build(s, x));
    // Without lengths, a loop does what copies of the cell do.
    classify("gru", [20, 8, 8, 0], GradientDescent::new(0.5), |s, x| {
        Dense::new(10).build(s, &Gru::new(6).dynamic().build(s, x)?.last)
    });
}

#[test]
fn convolutions_pooling_and_fused_normalization() {
    classify("cnn", [30, 8, 8, 1], RmsProp::new(0.01), |s, x| {
        let same = Conv2d::new(4, [3, 3]).padding(Padding::Same).activation(Activation::Relu).build(s, x)?;
        let normal = BatchNorm::new().build(s, &same, true)?;
        let pooled = max_pool2d(s, &normal, [2, 2], [2, 2], Padding::Valid)?;
        let valid = Conv2d::new(6, [3, 3]).activation(Activation::Relu).build(s, &pooled)?;
        let pooled = avg_pool2d(s, &valid, [2, 2], [2, 2], Padding::Valid)?;
        Dense::new(10).build(s, &flatten(s, &pooled)?)
    });
}

#[test]
fn partitioned_embeddings() {
    let graph = Graph::new();
    graph.set_seed(7);
    let s = graph.scope();
    let ids = ops::Placeholder::new(DType::Int64).shape([-1, 2]).build(&s).unwrap();
    let table = |name: &str, rows: i64| {
        let spec = Variable::spec(name, [rows, 4]).initializer(init::random_normal(0.0, 1.0));
        spec.partitioned(&s, Partitioner::fixed(3)).unwrap()
    };
    let (first, second) = (table("table", 11), table("other", 9));
    let rows = embedding_lookup(&s, &first, &ids, PartitionStrategy::Div).unwrap();
    let more = embedding_lookup(&s, &second, &ids, PartitionStrategy::Mod).unwrap();
    let rows = ops::add_v2(&s, &rows, &more).unwrap();
    let sums = (ops::sum(&s, &rows, [1]).unwrap() - 1.0).unwrap();
    let loss = ops::mean(&s, ops::square(&s, &sums), [0, 1]).unwrap();
    let feed = vec![0i64, 8, 3, 4, 8, 8, 7, 1, 3, 5];
    let feeds = [(&ids, Tensor::new([5, 2], feed).unwrap())];
    train("embeddings", &graph, &loss, Adagrad::new(0.5), &feeds);
}
