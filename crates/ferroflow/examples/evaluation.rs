//! Evaluation beside training: follows the checkpoints of `between_graph` and evaluates each on held-out digits.
//!
//! ```text
//! cargo run --example evaluation -- --dir=/tmp/digits &
//! cargo run --example between_graph -- --dir=/tmp/digits
//! ```

#[path = "between_graph.rs"]
#[allow(dead_code, reason = "the other example is a program of its own")]
mod between_graph;

use between_graph::{classifier, digits};
use ferroflow::summary::SummaryWriter;
use ferroflow::train::{Checkpoints, Saver};
use ferroflow::variables::local_variables_initializer;
use ferroflow::{Flags, Graph, Result, Session, global_step, metrics, ops};
use std::path::Path;
use std::time::Duration;

/// Metrics of one checkpoint.
#[derive(Debug)]
pub(crate) struct Evaluation {
    pub(crate) step: i64,
    pub(crate) loss: f32,
    pub(crate) accuracy: f32,
}

/// Evaluates checkpoints up to that of step `--steps`, or until none has come for `--timeout` seconds.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<Vec<Evaluation>> {
    let flags = Flags::parse(arguments, &["dir", "steps", "timeout"])?;
    let (directory, last) = (flags.required("dir")?, flags.get_or("steps", 200)?);
    let timeout = Duration::from_secs(flags.get_or("timeout", 60)?);

    // The model alone: no optimizer and no servers. Metrics accumulate over batches in local variables.
    let graph = Graph::new();
    let s = graph.scope();
    let model = classifier(&s)?;
    let step = global_step(&s)?;
    let classes = ops::arg_max(&s, &model.logits, 1)?;
    let accuracy = metrics::accuracy(&s, &model.labels, &classes)?;
    let loss = metrics::mean(&s, &model.loss)?;
    let reset_metrics = local_variables_initializer(&s)?;
    let saver = Saver::new(&graph)?;
    let session = Session::new(&graph)?;

    let batches = digits()?.1.examples()?.batch(90);
    let events = SummaryWriter::create(Path::new(directory).join("eval"))?;
    let mut evaluations = Vec::new();
    for checkpoint in Checkpoints::new(directory, timeout) {
        saver.restore(&session, checkpoint?)?;
        session.execute(&reset_metrics)?;
        for batch in &batches {
            let (x, y) = batch?;
            session.run(&[(&model.images, x), (&model.labels, y)], &[&accuracy.update, &loss.update])?;
        }
        let values = session.run(&[], &[step.value(), &loss.value, &accuracy.value])?;
        let evaluation = Evaluation {
            step: values[0].to_scalar()?,
            loss: values[1].to_scalar()?,
            accuracy: values[2].to_scalar()?,
        };
        println!("{evaluation:?}");
        events.scalar("loss", evaluation.loss, evaluation.step)?;
        events.scalar("accuracy", evaluation.accuracy, evaluation.step)?;
        let done = evaluation.step >= last;
        evaluations.push(evaluation);
        if done {
            break;
        }
    }
    events.flush()?;
    Ok(evaluations)
}

fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}
