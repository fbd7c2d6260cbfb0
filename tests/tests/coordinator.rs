//! A coordinator that schedules functions on workers, with our parameter servers and stock's, and with losses.

use crate::monitored::cluster;
use crate::savers::Directory;
use crate::{ports, stock};
use ferroflow::data::Dataset;
use ferroflow::discovery::tf_config;
use ferroflow::strategy::{ClusterCoordinator, ParameterServerStrategy};
use ferroflow::variables::{Variable, global_variables_initializer};
use ferroflow::{
    ClusterSpec, Code, DType, Graph, Operation, Result, Server, TaskName, Tensor, TensorSpec, ops,
};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Two counters, on different parameter servers if there are two.
struct Program {
    graph: Graph,
    calls: Variable,
    total: Variable,
    init: Operation,
    strategy: ParameterServerStrategy,
}

impl Program {
    fn new(cluster: &ClusterSpec) -> Result<Program> {
        let strategy = ParameterServerStrategy::new(cluster)?;
        let graph = Graph::new();
        let s = strategy.scope(&graph.scope());
        let calls = Variable::with_value(&s, "calls", 0i64)?;
        let total = Variable::with_value(&s, "total", 0.0f32)?;
        let init = global_variables_initializer(&s)?;
        Ok(Program { graph, calls, total, init, strategy })
    }

    fn coordinator(&self) -> Result<ClusterCoordinator> {
        let coordinator = ClusterCoordinator::new(&self.strategy, &self.graph)?;
        coordinator.execute(&self.init)?;
        Ok(coordinator)
    }
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what} does not happen");
        std::thread::yield_now();
    }
}

#[test]
fn functions_run_on_workers_and_share_variables_on_stocks_ps() {
    let (json, spec) = cluster(2, 2);
    let stocks: Option<Vec<stock::Server>> =
        (0..2).map(|task| stock::Server::start(Some((&json, "ps", task)))).collect();
    let Some(_ps) = stocks else { return };
    let run = || -> Result<()> {
        let _workers = [Server::new(&spec, "worker", 0)?, Server::new(&spec, "worker", 1)?];
        let program = Program::new(&spec)?;
        assert_ne!(program.calls.op().device(), program.total.op().device());
        let coordinator = program.coordinator()?;
        let step = coordinator.function([TensorSpec::new(DType::Float, [-1])?], |s, inputs| {
            let sum = ops::sum(s, &inputs[0], [0])?;
            let added = program.total.assign_add(s, &sum)?;
            Ok((sum, program.calls.assign_add(&s.control([&added]), 1i64)?))
        })?;
        let results: Vec<_> = (0..20)
            .map(|i| coordinator.schedule(&step, [Tensor::vector(vec![i as f32, 1.0])]))
            .collect::<Result<_>>()?;
        coordinator.join()?;
        assert!(coordinator.done());
        for (i, result) in results.iter().enumerate() {
            assert_eq!(coordinator.fetch(result)?[0].to_scalar::<f32>()?, i as f32 + 1.0);
        }
        assert_eq!(coordinator.eval(program.total.value())?.to_scalar::<f32>()?, 210.0);

        // Each worker has its own part of the data.
        let data = coordinator.per_worker_dataset(|worker| {
            Ok(Dataset::from_vec(vec![vec![Tensor::vector(vec![1000.0f32 * (worker + 1) as f32])]]).repeat())
        });
        let seen = coordinator.schedule_next(&step, &data)?;
        coordinator.join()?;
        assert!([1000.0, 2000.0].contains(&seen.fetch()?[0].to_scalar::<f32>()?));
        assert_eq!(coordinator.eval(program.calls.value())?.to_scalar::<i64>()?, 21);
        Ok(())
    };
    run().unwrap();
}

#[test]
fn coordinators_in_rust_and_in_python_share_a_cluster() {
    let Some(python) = stock::python() else { return };
    let (_, spec) = cluster(1, 2);
    let run = || -> Result<()> {
        let _servers = [
            Server::new(&spec, "ps", 0)?,
            Server::new(&spec, "worker", 0)?,
            Server::new(&spec, "worker", 1)?,
        ];
        let program = Program::new(&spec)?;
        let coordinator = program.coordinator()?;
        let count = coordinator.function([], |s, _| program.calls.assign_add(s, 1i64))?;
        let chief = TaskName::new("chief", 0);
        let mut with_chief = spec.clone();
        with_chief.add(&chief.job, chief.task, &ports::address())?;
        let directory = Directory::new("shared-cluster");
        let mut command = Command::new(python);
        command.arg(stock::root().join("examples/coordinator.py")).arg("1");
        command.env("TF_CONFIG", tf_config(&chief, &with_chief).to_string());
        command.current_dir(&directory.0).stdout(Stdio::null());
        let mut other = Interpreter(command.spawn().expect("the interpreter starts"));
        let mut calls = 0;
        let ended = loop {
            for _ in 0..50 {
                coordinator.schedule(&count, Vec::<Tensor>::new())?;
            }
            coordinator.join()?;
            calls += 50;
            if let Some(ended) = other.0.try_wait().expect("the program can be asked for") {
                break ended;
            }
        };
        assert!(ended.success(), "{ended}");
        assert!(directory.0.join("model/checkpoint").exists());
        assert_eq!(coordinator.eval(program.calls.value())?.to_scalar::<i64>()?, calls);
        Ok(())
    };
    run().unwrap();
}

/// A program in Python that ends with this value.
struct Interpreter(Child);

impl Drop for Interpreter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_failed_call_is_told_once_and_cancels_those_that_wait() -> Result<()> {
    let (_, spec) = cluster(1, 1);
    let _servers = [Server::new(&spec, "ps", 0)?, Server::new(&spec, "worker", 0)?];
    let program = Program::new(&spec)?;
    let coordinator = program.coordinator()?;
    let divide = coordinator
        .function([TensorSpec::new(DType::Int32, [])?], |s, inputs| ops::floor_div(s, 12, &inputs[0]))?;
    let (good, bad) = (coordinator.schedule(&divide, [3])?, coordinator.schedule(&divide, [0])?);
    let failed = coordinator.join().unwrap_err();
    assert_eq!(failed.code(), Code::InvalidArgument, "{failed}");
    assert_eq!(good.fetch()?[0].to_scalar::<i32>()?, 4);
    assert_eq!(bad.fetch().unwrap_err().code(), Code::InvalidArgument);
    let again = coordinator.schedule(&divide, [4])?;
    coordinator.join()?;
    assert_eq!(again.fetch()?[0].to_scalar::<i32>()?, 3);
    let ended = coordinator.per_worker_dataset(|_| Ok(Dataset::from_vec(Vec::new())));
    coordinator.schedule_next(&divide, &ended)?;
    assert_eq!(coordinator.join().unwrap_err().code(), Code::OutOfRange);
    let wrong = coordinator.schedule(&divide, [1, 2]).map(drop).unwrap_err();
    assert!(wrong.message().contains("2 arguments"), "{wrong}");
    Ok(())
}

#[test]
fn calls_of_a_lost_worker_are_made_by_another() -> Result<()> {
    let (_, spec) = cluster(1, 2);
    let _ps = Server::new(&spec, "ps", 0)?;
    let mut workers = vec![Server::new(&spec, "worker", 0)?, Server::new(&spec, "worker", 1)?];
    let program = Program::new(&spec)?;
    let coordinator = program.coordinator()?;
    eventually("that both workers come", || coordinator.connected_workers() == 2);
    let count = coordinator.function([], |s, _| {
        let counted = program.calls.assign_add(s, 1i64)?;
        Ok((program.calls.read(&s.control([&counted]))?, counted))
    })?;
    let schedule = |calls: usize| -> Result<Vec<_>> {
        (0..calls).map(|_| coordinator.schedule(&count, Vec::<Tensor>::new())).collect()
    };
    let mut results = schedule(200)?;
    workers.remove(1).stop();
    results.extend(schedule(200)?);
    coordinator.join()?;
    for result in &results {
        result.fetch()?;
    }
    assert!(coordinator.eval(program.calls.value())?.to_scalar::<i64>()? >= 400);

    let _back = Server::new(&spec, "worker", 1)?;
    workers.remove(0).stop();
    schedule(10)?;
    coordinator.join()
}

#[test]
fn a_lost_parameter_server_is_named() -> Result<()> {
    let (_, spec) = cluster(2, 1);
    let _worker = Server::new(&spec, "worker", 0)?;
    let (_first, second) = (Server::new(&spec, "ps", 0)?, Server::new(&spec, "ps", 1)?);
    let program = Program::new(&spec)?;
    let coordinator = program.coordinator()?;
    let count = coordinator.function([], |s, _| program.total.assign_add(s, 1.0f32))?;
    coordinator.schedule(&count, Vec::<Tensor>::new())?;
    coordinator.join()?;
    second.stop();
    let value = coordinator.schedule(&count, Vec::<Tensor>::new())?;
    let lost = coordinator.join().unwrap_err();
    assert_eq!(lost.code(), Code::Unavailable);
    assert!(lost.message().starts_with("/job:ps/replica:0/task:1 at"), "{lost}");
    assert!(value.fetch().is_err());
    assert!(coordinator.schedule(&count, Vec::<Tensor>::new()).is_err());
    Ok(())
}

#[test]
fn a_strategy_needs_both_jobs() -> Result<()> {
    let mut spec = ClusterSpec::new();
    spec.add("worker", 0, "localhost:1")?;
    let refused = ParameterServerStrategy::new(&spec).map(drop).unwrap_err();
    assert!(refused.message().contains("needs tasks of jobs 'ps' and 'worker'"), "{refused}");
    Ok(())
}
