//! Training loops of Rust programs in clusters: chiefs and workers, hooks, recovery, on our parameter servers and stock's.

use crate::savers::{Directory, quiet};
use crate::{ports, stock};
use ferroflow::optimizers::{GradientDescent, SyncReplicas};
use ferroflow::train::{
    Every, FinalOps, LogTensors, MonitoredTrainingSession, NanGuard, Profiler, Scaffold, StopAtStep,
    SyncReplicasHook, WaitForStep, latest_checkpoint,
};
use ferroflow::variables::{Variable, global_step};
use ferroflow::{
    ClusterSpec, Code, DType, Graph, Operation, Output, ReplicaDeviceSetter, Result, Server, SessionOptions,
    ops,
};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A cluster of free ports.
pub(crate) fn cluster(ps: usize, workers: usize) -> (String, ClusterSpec) {
    quiet();
    let addresses: Vec<String> = (0..ps + workers).map(|_| format!("{:?}", ports::address())).collect();
    let json =
        format!(r#"{{"ps": [{}], "worker": [{}]}}"#, addresses[..ps].join(","), addresses[ps..].join(","));
    let spec = ClusterSpec::from_json(&json).unwrap();
    (json, spec)
}

/// A model whose loss is (w - 3)², and one step of gradient descent on it that counts.
struct Model {
    graph: Graph,
    w: Variable,
    loss: Output,
    train: Operation,
}

impl Model {
    fn new(cluster: Option<(&ClusterSpec, u32)>) -> Result<Model> {
        let graph = Graph::new();
        let s = match cluster {
            Some((cluster, task)) => ReplicaDeviceSetter::new(cluster)
                .worker_device(&format!("/job:worker/task:{task}"))
                .apply(&graph.scope()),
            None => graph.scope(),
        };
        let w = Variable::with_value(&s, "w", 0.0f32)?;
        let step = global_step(&s)?;
        let error = (w.value() - 3.0)?;
        let loss = ops::square(&s, &error)?;
        let moved = w.assign_sub(&s, (&error * 0.1)?)?;
        let train = step.assign_add(&s.control([&moved]), 1i64)?;
        Ok(Model { graph, w, loss, train })
    }
}

#[test]
fn a_chief_saves_and_another_program_resumes() -> Result<()> {
    let directory = Directory::new("monitored");
    let lines = Arc::new(Mutex::new(Vec::new()));
    let mut steps = Vec::new();
    for last in [25, 40] {
        let model = Model::new(None)?;
        let final_ops = FinalOps::new([model.w.value()]);
        let values = final_ops.values();
        let said = lines.clone();
        let log = LogTensors::new([("loss", &model.loss)], Every::Steps(10)).at_end();
        let mut session = MonitoredTrainingSession::new(&model.graph)
            .checkpoint_dir(&directory.0)
            .save_checkpoint(Every::Steps(10))
            .log_step_count(5)
            .hook(StopAtStep::last(last))
            .hook(NanGuard::new(&model.loss))
            .hook(log.sink(move |line| said.lock().unwrap().push(line.to_owned())))
            .hook(Profiler::new(directory.0.join("profile"), Every::Steps(10)))
            .hook(final_ops)
            .build()?;
        let mut count = 0;
        while !session.should_stop() {
            session.execute(&model.train)?;
            count += 1;
        }
        session.close()?;
        steps.push(count);
        assert!(latest_checkpoint(&directory.0)?.unwrap().ends_with(&format!("model.ckpt-{last}")));
        let w: f32 = values.get()[0].to_scalar()?;
        assert!((w - 3.0 * (1.0 - 0.9f32.powi(last as i32))).abs() < 1e-3, "{w}");
    }
    assert_eq!(steps, [25, 15]);
    assert_eq!(lines.lock().unwrap().len(), 3 + 1 + 2 + 1);
    assert!(lines.lock().unwrap()[0].starts_with("loss = 9"));
    let timelines = directory.0.join("profile").read_dir().unwrap().count();
    assert!(timelines >= 2, "{timelines} timelines");
    Ok(())
}

#[test]
fn losses_that_are_no_numbers_end_training() -> Result<()> {
    let model = Model::new(None)?;
    let s = model.graph.scope();
    let nan = ops::log(&s, (&model.loss - 100.0)?)?;
    let mut session = MonitoredTrainingSession::new(&model.graph).hook(NanGuard::new(&nan)).build()?;
    let failed = session.execute(&model.train).unwrap_err();
    assert!(failed.message().contains("NaN loss during training"), "{failed}");
    let mut session =
        MonitoredTrainingSession::new(&model.graph).hook(NanGuard::new(&nan).stop_only()).build()?;
    session.execute(&model.train)?;
    assert!(session.should_stop());
    session.close()
}

#[test]
fn a_worker_waits_for_the_chief_and_both_train_on_stocks_ps() {
    let (json, spec) = cluster(1, 2);
    let Some(_ps) = stock::Server::start(Some((&json, "ps", 0))) else { return };
    let train = |task: u32| -> Result<i64> {
        let server = Server::new(&spec, "worker", task)?;
        let model = Model::new(Some((&spec, task)))?;
        let filters = ["/job:ps".to_owned(), format!("/job:worker/task:{task}")];
        let mut session = MonitoredTrainingSession::new(&model.graph)
            .target(&server)
            .chief(task == 0)
            .options(SessionOptions::new().device_filters(filters))
            .hook(StopAtStep::last(200))
            .max_wait(Duration::from_secs(60))
            .build()?;
        let mut steps = 0;
        while !session.should_stop() {
            session.execute(&model.train)?;
            steps += 1;
        }
        session.close()?;
        Ok(steps)
    };
    let (chief, worker) = std::thread::scope(|threads| {
        // The worker comes first and finds nothing.
        let worker = threads.spawn(|| train(1));
        let chief = threads.spawn(|| train(0));
        (chief.join().unwrap().unwrap(), worker.join().unwrap().unwrap())
    });
    assert!((200..=202).contains(&(chief + worker)), "{chief} + {worker}");
}

#[test]
fn a_worker_without_a_chief_says_what_it_waits_for() -> Result<()> {
    let model = Model::new(None)?;
    let waited = MonitoredTrainingSession::new(&model.graph)
        .chief(false)
        .max_wait(Duration::from_millis(300))
        .build()
        .map(drop)
        .unwrap_err();
    assert_eq!(waited.code(), Code::DeadlineExceeded);
    assert!(waited.message().contains("Variables not initialized: w, global_step"), "{waited}");
    Ok(())
}

#[test]
fn training_goes_on_after_the_ps_was_replaced() -> Result<()> {
    let directory = Directory::new("recovery");
    let (_, spec) = cluster(1, 1);
    let ps = Server::new(&spec, "ps", 0)?;
    let worker = Server::new(&spec, "worker", 0)?;
    let model = Model::new(Some((&spec, 0)))?;
    let mut session = MonitoredTrainingSession::new(&model.graph)
        .target(&worker)
        .checkpoint_dir(&directory.0)
        .save_checkpoint(Every::Steps(10))
        .hook(StopAtStep::last(60))
        .build()?;
    for _ in 0..35 {
        session.execute(&model.train)?;
    }
    ps.stop();
    let ps = Server::new(&spec, "ps", 0)?;
    let mut steps = 35;
    while !session.should_stop() {
        session.execute(&model.train)?;
        steps += 1;
    }
    session.close()?;
    drop(ps);
    // The new ps starts from a checkpoint, so some steps were made twice.
    assert!((61..=75).contains(&steps), "{steps}");
    assert!(latest_checkpoint(&directory.0)?.unwrap().ends_with("model.ckpt-60"));
    Ok(())
}

#[test]
fn a_scaffold_replaces_what_training_starts_from() -> Result<()> {
    let model = Model::new(None)?;
    let s = model.graph.scope();
    let start = ops::Placeholder::new(DType::Float).shape([0i64; 0]).build(&s)?;
    let assign = model.w.assign(&s, &start)?;
    let step = global_step(&s)?;
    let init = s.group([&assign, step.initializer()])?;
    let scaffold = Scaffold::new().init_op(&init).init_feed(&start, 7.0f32);
    let mut session = MonitoredTrainingSession::new(&model.graph).scaffold(scaffold).build()?;
    assert_eq!(session.run(&[], &[model.w.value()])?[0].to_scalar::<f32>()?, 7.0);
    session.close()
}

/// Lets stock's worker and ours train one model; returns how many steps each made.
fn train_with_stock(stock_is_chief: bool) -> Option<(i64, i64)> {
    const LAST: i64 = 300;
    let (json, spec) = cluster(1, 2);
    let python = stock::python()?;
    let _ps = Server::new(&spec, "ps", 0).unwrap();
    let (ours, role) = if stock_is_chief { (1, "chief") } else { (0, "worker") };
    let stocks = run_stock(&python, &json, 1 - ours, role, LAST, &[]);
    let train = || -> Result<i64> {
        let server = Server::new(&spec, "worker", ours)?;
        let model = Model::new(Some((&spec, ours)))?;
        let filters = ["/job:ps".to_owned(), format!("/job:worker/task:{ours}")];
        let mut session = MonitoredTrainingSession::new(&model.graph)
            .target(&server)
            .chief(!stock_is_chief)
            .options(SessionOptions::new().device_filters(filters))
            // Nobody trains alone.
            .hook(WaitForStep::new(1).at_most(Duration::from_secs(60)))
            .hook(StopAtStep::last(LAST))
            .max_wait(Duration::from_secs(60))
            .build()?;
        let mut steps = 0;
        while !session.should_stop() {
            session.execute(&model.train)?;
            steps += 1;
        }
        session.close()?;
        Ok(steps)
    };
    let ours = train().unwrap();
    Some((ours, steps_of(stocks)))
}

/// Starts a worker of stock's.
fn run_stock(python: &Path, cluster: &str, task: u32, role: &str, last: i64, more: &[&str]) -> Child {
    Command::new(python)
        .arg(stock::root().join("oracle/worker.py"))
        .args([cluster, &task.to_string(), role, &last.to_string()])
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter starts")
}

/// The number of steps that stock's worker made.
fn steps_of(worker: Child) -> i64 {
    let said = worker.wait_with_output().expect("the process is ours");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let steps = said.trim().strip_prefix("steps ").and_then(|steps| steps.parse().ok());
    steps.unwrap_or_else(|| panic!("stock says {said:?}"))
}

#[test]
fn our_worker_and_stocks_train_one_model_whoever_is_chief() {
    for stock_is_chief in [true, false] {
        let Some((ours, stocks)) = train_with_stock(stock_is_chief) else { return };
        assert!((300..=302).contains(&(ours + stocks)), "{ours} + {stocks}");
        assert!(ours > 0 && stocks > 0, "{ours} + {stocks}");
    }
}

/// A Ferroflow worker in synchronous training; returns the steps it made and the final w.
fn train_in_step(spec: &ClusterSpec, task: u32, chief: bool, last: i64) -> Result<(i64, f32)> {
    let server = Server::new(spec, "worker", task)?;
    let graph = Graph::new();
    let setter = ReplicaDeviceSetter::new(spec).worker_device(&format!("/job:worker/task:{task}"));
    let s = setter.apply(&graph.scope());
    let w = Variable::with_value(&s, "w", 0.0f32)?;
    let step = global_step(&s)?;
    let loss = (ops::square(&s, (w.value() - 3.0)?)? * 0.5)?;
    let train = SyncReplicas::new(GradientDescent::new(0.1), 2).minimize(&s, &loss, &step)?;
    let filters = ["/job:ps".to_owned(), format!("/job:worker/task:{task}")];
    let mut session = MonitoredTrainingSession::new(&graph)
        .target(&server)
        .chief(chief)
        .options(SessionOptions::new().device_filters(filters))
        .hook(SyncReplicasHook::new(&train, chief))
        .hook(StopAtStep::last(last))
        .max_wait(Duration::from_secs(60))
        .build()?;
    let mut steps = 0;
    while !session.should_stop() {
        session.execute(&train.train)?;
        steps += 1;
    }
    let end = session.session()?.eval(w.value())?.to_scalar()?;
    session.close()?;
    Ok((steps, end))
}

/// Whether w is what this number of steps makes of it, or up to two more: equal gradients have themselves as their average, so
/// this is plain descent. Steps of a worker are no measure: some of its gradients may come too late.
fn is_descent(w: f32, steps: i32) -> bool {
    (steps..steps + 3).any(|steps| (w - 3.0 * (1.0 - 0.9f32.powi(steps))).abs() < 1e-4)
}

#[test]
fn replicas_in_step_apply_averages() {
    let (_, spec) = cluster(1, 2);
    let _ps = Server::new(&spec, "ps", 0).unwrap();
    let ends = std::thread::scope(|threads| {
        let workers = [0, 1].map(|task| {
            let spec = &spec;
            threads.spawn(move || train_in_step(spec, task, task == 0, 30))
        });
        workers.map(|worker| worker.join().unwrap().unwrap())
    });
    for (steps, w) in ends {
        assert!(steps > 0 && is_descent(w, 30), "{steps} {w}");
    }
}

#[test]
fn our_replica_and_stocks_train_in_step_whoever_is_chief() {
    for stock_is_chief in [true, false] {
        let (json, spec) = cluster(1, 2);
        let Some(python) = stock::python() else { return };
        let _ps = Server::new(&spec, "ps", 0).unwrap();
        let (ours, role) = if stock_is_chief { (1, "chief") } else { (0, "worker") };
        let stocks = run_stock(&python, &json, 1 - ours, role, 20, &["sync"]);
        let (ours, w) = train_in_step(&spec, ours, !stock_is_chief, 20).unwrap();
        let stocks = steps_of(stocks);
        assert!(ours > 0 && stocks > 0 && is_descent(w, 20), "{ours} {stocks} {w}");
    }
}
