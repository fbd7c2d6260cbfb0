//! Losses and their gradients.

use super::{Running, compare, expected, iota, numbers, reversed};
use ferroflow::losses::{self, LossOptions, Reduction};
use ferroflow::{Graph, Output, Tensor, gradients, ops};

#[test]
fn losses_and_their_gradients_are_stocks() {
    let graph = Graph::new();
    let s = graph.scope();
    let labels = iota([4, 3]).flat::<f32>().unwrap().iter().map(|x| (*x > 0.0) as u8 as f32).collect();
    let labels = &s.constant(Tensor::new([4, 3], labels).unwrap()).unwrap();
    let x = &s.constant(reversed(&iota([4, 3]))).unwrap();
    let weights = Tensor::new([4, 1], vec![1.0f32, 0.0, 2.0, 0.5]).unwrap();
    let classes = s.constant([0i64, 2, 1, 2]).unwrap();
    let onehot = vec![1.0f32, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    let onehot = Tensor::new([4, 3], onehot).unwrap();
    let smooth = losses::weighted([1.0f32, 0.0, 2.0, 0.5]).label_smoothing(0.1);
    let weighted =
        |reduction| losses::weighted(&weights).reduction(reduction).mean_squared_error(&s, labels, x);
    let made = [
        ("mean_squared_error", losses::mean_squared_error(&s, labels, x)),
        ("absolute_difference", losses::absolute_difference(&s, labels, x)),
        ("huber_loss", losses::huber_loss(&s, labels, x, 0.5)),
        ("log_loss", losses::log_loss(&s, labels, ops::sigmoid(&s, x))),
        ("hinge_loss", losses::hinge_loss(&s, labels, x)),
        ("sigmoid", losses::sigmoid_cross_entropy(&s, labels, x)),
        ("softmax", losses::softmax_cross_entropy(&s, &onehot, x)),
        ("sparse", losses::sparse_softmax_cross_entropy(&s, &classes, x)),
        ("sigmoid_smooth", LossOptions::default().label_smoothing(0.2).sigmoid_cross_entropy(&s, labels, x)),
        ("softmax_smooth", smooth.softmax_cross_entropy(&s, &onehot, x)),
        ("cosine_distance", losses::cosine_distance(&s, labels, x, 1)),
        ("pairwise", losses::mean_pairwise_squared_error(&s, labels, x)),
        ("pairwise_weighted", losses::weighted(&weights).mean_pairwise_squared_error(&s, labels, x)),
        ("weighted", weighted(Reduction::default())),
        ("weighted_sum", weighted(Reduction::Sum)),
        ("weighted_mean", weighted(Reduction::Mean)),
        ("weighted_batch", weighted(Reduction::SumOverBatchSize)),
        ("weighted_none", weighted(Reduction::None)),
    ];
    let mut fetches = Vec::new();
    for (name, loss) in made {
        let loss = loss.unwrap();
        let grads = gradients(&s, [&loss], [x]).unwrap();
        fetches.push((format!("grad_{name}"), grads[0].as_ref().unwrap().to_dense(&s).unwrap()));
        fetches.push((name.to_owned(), loss));
    }
    let mut running = Running::start(&graph);
    let outputs: Vec<&Output> = fetches.iter().map(|(_, output)| output).collect();
    let values = running.run(&[], &outputs, &[]);
    let names = fetches.iter().map(|(name, _)| name.clone());
    let found = names.zip(values.iter().map(numbers)).collect();
    compare("losses", 0, &expected("losses")[0], &found);
}
