//! Gradients of every op against stock's, and against differences of the function's values.
//!
//! `GRADIENTS=math/Pow cargo test -p ferroflow-tests gradients` runs the cases of a family whose names start so.

use ferroflow::op::Gradient;
use ferroflow::{DType, Gradients, Graph, Import, Output, Result, Tensor, ops};
use ferroflow_core::status;
use ferroflow_runtime::PlanOptions;
use ferroflow_testing::compare::{Closeness, difference};
use ferroflow_testing::golden::{self, GoldenCase, GoldenFile, GoldenStep};
use ferroflow_testing::local::Local;
use ferroflow_testing::suite::{self, Runtime, Session};
use ferroflow_testing::text;
use std::collections::BTreeMap;

/// Stock's answers for the ops of a family.
fn load(path: &std::path::Path) -> GoldenFile {
    let written = std::fs::read_to_string(path).expect("testdata is part of the repository");
    text::parse("ferroflow.testing.GoldenFile", &written).expect("what stock wrote parses")
}

#[test]
fn gradients_are_stock_s() {
    let only = std::env::var("GRADIENTS").unwrap_or_default();
    let local = Local::new(ferroflow::registry(), PlanOptions::default()).expect("threads start");
    let (mut failures, mut count) = (Vec::new(), 0);
    for entry in std::fs::read_dir(golden::testdata().join("gradients")).expect("testdata is there") {
        let path = entry.expect("the directory can be read").path();
        if path.extension().is_none_or(|extension| extension != "pbtxt") {
            continue;
        }
        let file = load(&path);
        for case in &file.case {
            let name = format!("{}/{}", file.family, case.name);
            if !name.starts_with(&only) {
                continue;
            }
            count += 1;
            if let Err(error) = check(&local, case) {
                failures.push(format!("{name}: {error}"));
            }
        }
    }
    assert!(count > 0, "no case was found");
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

/// Differentiates the case's graph and compares what comes of it.
fn check(local: &Local, case: &GoldenCase) -> Result<()> {
    let Some((step, before)) = case.step.split_last() else { return Ok(()) };
    let graph = Graph::new();
    Import::new().build(&graph.scope(), case.graph.as_ref().expect("a case has a graph"))?;
    let outputs = |names: &[String]| names.iter().map(|name| graph.output(name)).collect::<Result<Vec<_>>>();
    let ys = outputs(&step.target)?;
    let weights = (0..ys.len()).map(|i| graph.output(&format!("dy_{i}"))).collect::<Result<Vec<_>>>()?;
    // A gradient that is rows has two fetches.
    let mut sources: Vec<&str> = step.fetch.iter().map(|fetch| fetch.split(' ').next().unwrap()).collect();
    sources.dedup();
    let xs = sources.iter().map(|name| graph.output(name)).collect::<Result<Vec<_>>>()?;
    let options = Gradients::new().grad_ys(weights.iter().map(|weight| Some(weight.into())));
    let grads = options.build(&graph.scope(), &ys, &xs)?;
    let by_name: BTreeMap<&str, _> = sources.into_iter().zip(grads).collect();

    let mut fetches = Vec::new();
    for fetch in &step.fetch {
        let (source, part) = fetch.split_once(' ').unwrap_or((fetch, "whole"));
        let grad = by_name[source].as_ref();
        let output = match (part, grad) {
            ("none", None) => None,
            ("whole", Some(grad)) if grad.dense().is_some() => grad.dense(),
            ("values", Some(grad)) if grad.sparse().is_some() => grad.sparse().map(|rows| &rows.values),
            ("indices", Some(grad)) if grad.sparse().is_some() => grad.sparse().map(|rows| &rows.indices),
            _ => return Err(status!(Internal, "of {source}, stock gives {part}, ours is {grad:?}")),
        };
        // What is fed cannot be fetched, and a gradient may be what arrives.
        fetches.push(output.map(|output| ops::identity(&graph.scope(), output)).transpose()?);
    }
    let mut session = local.session(&graph.to_graph_def())?;
    for step in before {
        session.run(vec![], &[], &step.target)?;
    }
    let names: Vec<String> = fetches.iter().flatten().map(Output::name).collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut values = session.run(suite::feeds(step)?, &names, &[])?.into_iter();
    let mut dense = Vec::new();
    for ((fetch, output), expected) in step.fetch.iter().zip(&fetches).zip(&step.expected) {
        let Some(output) = output else { continue };
        let (value, expected) = (values.next().expect("a value per fetch"), Tensor::from_proto(expected)?);
        if let Some(difference) = difference(&expected, &value, Closeness::Rounding) {
            return Err(status!(Internal, "{fetch}: {difference}"));
        }
        if !output.shape().admits(value.shape()) {
            return Err(status!(
                Internal,
                "{fetch}: inferred {}, computed {}",
                output.shape(),
                value.shape()
            ));
        }
        if !fetch.contains(' ') {
            dense.push((fetch.as_str(), value));
        }
    }
    if case.name.ends_with("/unsmooth") || ys.iter().any(|y| y.dtype() != DType::Double) {
        return Ok(());
    }
    dense.iter().try_for_each(|(x, grad)| check_slopes(session.as_mut(), step, x, grad))
}

/// Compares a gradient with differences of the weighted sum of the results.
fn check_slopes(session: &mut dyn Session, step: &GoldenStep, x: &str, grad: &Tensor) -> Result<()> {
    let feeds = suite::feeds(step)?;
    let Some(at) = feeds.iter().position(|(name, value)| name == x && value.dtype() == DType::Double) else {
        return Ok(());
    };
    let mut weighted = |feeds: Vec<(String, Tensor)>| -> Result<f64> {
        let weights: Vec<(String, Tensor)> =
            feeds.iter().filter(|(name, _)| name.starts_with("dy_")).cloned().collect();
        let values = session.run(feeds, &step.target, &[])?;
        let mut sum = 0.0;
        for (value, (_, weight)) in values.iter().zip(&weights) {
            sum += value.flat::<f64>()?.iter().zip(weight.flat::<f64>()?).map(|(y, w)| y * w).sum::<f64>();
        }
        Ok(sum)
    };
    let (values, grad) = (feeds[at].1.flat::<f64>()?.to_vec(), grad.flat::<f64>()?.to_vec());
    let largest = grad.iter().fold(1.0, |largest: f64, value| largest.max(value.abs()));
    for (i, slope) in grad.iter().enumerate() {
        let mut moved = |by: f64| {
            let mut values = values.clone();
            values[i] += by;
            let mut feeds = feeds.clone();
            feeds[at].1 = Tensor::new(feeds[at].1.shape().clone(), values)?;
            weighted(feeds)
        };
        let step = 1e-5;
        let difference = (moved(step)? - moved(-step)?) / (2.0 * step);
        if (difference - slope).abs() > 1e-6 * largest {
            return Err(status!(Internal, "{x}[{i}]: slope {slope}, but differences give {difference}"));
        }
    }
    Ok(())
}

#[test]
fn what_stock_differentiates_we_do() {
    let listed = std::fs::read_to_string(golden::testdata().join("gradients/ops.tsv")).expect("it is there");
    let stock: BTreeMap<&str, &str> = listed.lines().filter_map(|line| line.split_once('\t')).collect();
    let (mut missing, mut wrong) = (Vec::new(), Vec::new());
    for entry in ferroflow::registry().all() {
        let name = entry.op.name;
        match (stock.get(name).copied(), entry.op.gradient) {
            (Some("function"), Gradient::Undefined) => missing.push(name),
            (Some("none"), Gradient::Undefined | Gradient::Fn(_)) => wrong.push(name),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "stock lets nothing through these: {wrong:?}");
    assert!(missing.is_empty(), "stock differentiates these: {missing:?}");
}
