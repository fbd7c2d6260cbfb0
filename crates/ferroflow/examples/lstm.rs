//! A recurrent network in one process: an LSTM reads handwritten digits row by row, then classifies them.
//!
//! ```text
//! cargo run --release --example lstm -- --steps=500
//! ```

use ferroflow::clip::clip_by_global_norm;
use ferroflow::data::digits::Digits;
use ferroflow::layers::{Dense, Lstm};
use ferroflow::optimizers::{Adam, Optimizer};
use ferroflow::train::{Every, LogTensors, MonitoredTrainingSession, StopAtStep};
use ferroflow::variables::trainable_variables;
use ferroflow::{DType, Flags, Graph, Result, global_step, initializers, losses, ops};

/// Trains, and returns the loss of each step.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<Vec<f32>> {
    let flags = Flags::parse(arguments, &["steps", "dir"])?;
    let graph = Graph::new();
    let s = graph.scope();
    let images = ops::Placeholder::new(DType::Float).shape([-1, 64]).name("images").build(&s)?;
    let labels = ops::Placeholder::new(DType::Int64).shape([-1]).name("labels").build(&s)?;

    // Each image is a sequence of eight rows of eight pixels. The classifier sees the output after the last row.
    let rows = ops::reshape(&s, &images, [-1, 8, 8])?;
    let lstm = Lstm::new(24).kernel_initializer(initializers::glorot_uniform().seed(1));
    let sequence = lstm.build(&s, &rows)?;
    let logits = Dense::new(10).name("logits");
    let logits =
        logits.kernel_initializer(initializers::glorot_uniform().seed(2)).build(&s, &sequence.last)?;
    let loss = losses::sparse_softmax_cross_entropy(&s, &labels, &logits)?;

    // Gradients through many time steps may explode: scale them all down when their joint norm is above 1.
    let step = global_step(&s)?;
    let adam = Adam::new(0.01);
    let variables = trainable_variables(&graph)?;
    let (grads, _) =
        adam.compute_gradients(&s, &loss, &variables)?.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    let (clipped, _) = clip_by_global_norm(&s, &grads, 1.0)?;
    let clipped: Vec<_> = clipped.into_iter().zip(variables).collect();
    let train = adam.apply_gradients(&s, &clipped, Some(&step))?;

    let mut session = MonitoredTrainingSession::new(&graph)
        .hook(StopAtStep::last(flags.get_or("steps", 200)?))
        .hook(LogTensors::new([("step", step.value()), ("loss", &loss)], Every::Steps(20)));
    if let Some(directory) = flags.get("dir") {
        session = session.checkpoint_dir(directory);
    }
    let batches = Digits::bundled()?.examples()?.shuffle(1000, 42).repeat().batch(64).prefetch(2);
    let (mut batches, mut losses) = (batches.iter(), Vec::new());
    session.build()?.run_loop(|session| {
        let Some(batch) = batches.next() else {
            session.request_stop();
            return Ok(());
        };
        let (x, y) = batch?;
        let values = session.run_step(&[(&images, x), (&labels, y)], &[&loss], &[&train])?;
        losses.push(values[0].to_scalar()?);
        Ok(())
    })?;
    Ok(losses)
}

fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}
