//! The examples, run as their readers run them but in threads: what they compute is what stock computes, and stock goes
//! on with what they saved.

#![allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the examples share modules, and each is a program of its own"
)]

#[path = "../../crates/ferroflow/examples/between_graph.rs"]
pub(crate) mod between_graph;
#[path = "../../crates/ferroflow/examples/coordinator.rs"]
mod coordinator;
#[path = "../../crates/ferroflow/examples/evaluation.rs"]
mod evaluation;
#[path = "../../crates/ferroflow/examples/hello.rs"]
mod hello;
#[path = "../../crates/ferroflow/examples/lstm.rs"]
mod lstm;
#[path = "../../crates/ferroflow/examples/shared_counter.rs"]
mod shared_counter;
#[path = "../../crates/ferroflow/examples/sync_replicas.rs"]
mod sync_replicas;
#[path = "../../crates/ferroflow/examples/tf_config.rs"]
mod tf_config;
#[path = "../../crates/ferroflow/examples/wide_and_deep.rs"]
mod wide_and_deep;

use crate::monitored::cluster;
use crate::savers::Directory;
use crate::stock;
use ferroflow::server::TaskConfig;
use ferroflow::{ClusterSpec, Result};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// Stock's side of the examples: one process for all tests, which ends when its input does, with this one.
struct Oracle {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    _process: Child,
}

/// Stock's answer to a request of `oracle/examples.py`; `None` without stock.
fn ask(request: &Value) -> Option<Value> {
    static ORACLE: OnceLock<Option<Mutex<Oracle>>> = OnceLock::new();
    let oracle = ORACLE.get_or_init(|| {
        let mut command = Command::new(stock::python()?);
        command.arg(stock::root().join("oracle/examples.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the interpreter starts");
        let requests = process.stdin.take().expect("the input is a pipe");
        let answers = BufReader::new(process.stdout.take().expect("the output is a pipe"));
        Some(Mutex::new(Oracle { requests, answers, _process: process }))
    });
    let mut oracle = oracle.as_ref()?.lock().expect("a test failed while stock answered");
    writeln!(oracle.requests, "{request}").expect("stock reads");
    let mut line = String::new();
    oracle.answers.read_line(&mut line).expect("stock writes text");
    Some(serde_json::from_str(&line).unwrap_or_else(|_| panic!("stock does not answer {request}")))
}

/// Flags of a cluster on free ports.
fn hosts(ps: usize, workers: usize) -> (Vec<String>, ClusterSpec) {
    let (_, spec) = cluster(ps, workers);
    let hosts = |job: &str| {
        let tasks = spec.tasks().filter(|(task, _)| task.job == job);
        let addresses: Vec<&str> = tasks.map(|(_, address)| address).collect();
        format!("--{job}_hosts={}", addresses.join(","))
    };
    (vec![hosts("ps"), hosts("worker")], spec)
}

fn task(hosts: &[String], job: &str, index: usize, more: &[String]) -> Vec<String> {
    let own = [format!("--job_name={job}"), format!("--task_index={index}")];
    hosts.iter().chain(&own).chain(more).cloned().collect()
}

/// Starts a server of an example, for as long as this process lives.
macro_rules! serve {
    ($example:ident, $flags:expr) => {{
        let flags = $flags;
        std::thread::spawn(move || $example::run(flags).map(drop));
    }};
}

/// Runs an example's parameter servers, and its workers to their end.
macro_rules! run {
    ($example:ident, $ps:expr, $workers:expr, $more:expr) => {{
        let (more, (hosts, _)): (Vec<String>, _) = ($more, hosts($ps, $workers));
        for index in 0..$ps {
            serve!($example, task(&hosts, "ps", index, &more));
        }
        std::thread::scope(|threads| {
            let worker = |index| {
                let flags = task(&hosts, "worker", index, &more);
                threads.spawn(move || $example::run(flags))
            };
            let workers: Vec<_> = (0..$workers).map(worker).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Result<Vec<_>>>()
        })
    }};
}

/// Whether two numbers are the same within rounding, which training makes larger.
fn close(ours: f64, stock: f64) -> bool {
    (ours - stock).abs() < 2e-4 * (1.0 + stock.abs())
}

fn numbers(values: &Value) -> Vec<f64> {
    let values = values.as_array().expect("a list").iter();
    values.map(|value| value.as_f64().expect("a number")).collect()
}

/// Trains stock's model of this name. The losses must be the same, and the checkpoint that was left in the directory must
/// have the variables that stock's model has after the same steps.
fn compare(name: &str, losses: &[f32], directory: &Directory) {
    let request = json!({"do": "train", "name": name, "steps": losses.len(), "directory": directory.text()});
    let Some(answer) = ask(&request) else { return };
    let expected = numbers(&answer["losses"]);
    for (step, (ours, stock)) in losses.iter().zip(expected).enumerate() {
        assert!(close(f64::from(*ours), stock), "step {step}: {ours}, stock {stock}");
    }
    assert_eq!(answer["same_names"], true, "{:?}", answer["restored"].as_object().map(|all| all.keys()));
    for (variable, trained) in answer["trained"].as_object().expect("stock has variables") {
        let (trained, restored) = (numbers(trained), numbers(&answer["restored"][variable]));
        assert_eq!(trained.len(), restored.len(), "{variable}");
        for (stock, ours) in trained.into_iter().zip(restored) {
            assert!(close(ours, stock), "{variable}: {ours}, stock {stock}");
        }
    }
}

/// Flags of a run that leaves a checkpoint.
fn flags(steps: usize, directory: &Directory) -> Vec<String> {
    vec![format!("--steps={steps}"), format!("--dir={}", directory.text())]
}

/// Every command of the guide and of the examples' own first lines names an example that cargo finds from the root.
#[test]
fn cargo_finds_the_examples_by_the_commands_that_the_guide_gives() {
    let root = stock::root();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(root);
    let metadata = cargo.output().unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let default = metadata["workspace_default_members"].as_array().unwrap();
    let packages =
        metadata["packages"].as_array().unwrap().iter().filter(|package| default.contains(&package["id"]));
    let targets: Vec<&Value> = packages.flat_map(|package| package["targets"].as_array().unwrap()).collect();
    let named = |kind: &str| -> Vec<&str> {
        let of_kind = targets.iter().filter(|target| target["kind"] == json!([kind]));
        of_kind.map(|target| target["name"].as_str().unwrap()).collect()
    };
    // `cargo run` without a name runs the one binary.
    assert_eq!(named("bin"), ["ferroflow"]);
    let examples = named("example");
    let mut commands = 0;
    let directory = root.join("crates/ferroflow/examples");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    for file in files.chain([root.join("docs/from-tensorflow.md"), root.join("README.md")]) {
        let text = std::fs::read_to_string(&file).unwrap();
        for name in text.split("--example ").skip(1) {
            let name = name.split([' ', '`', '\n']).next().unwrap();
            assert!(name == "NAME" || examples.contains(&name), "{}: no example {name}", file.display());
            commands += 1;
        }
        for name in text.split("/examples/").skip(1).filter_map(|name| name.split_once(".rs)")) {
            assert!(examples.contains(&name.0), "{}: no example {}", file.display(), name.0);
        }
    }
    assert!(commands > examples.len());
}

#[test]
fn hello_comes_back() -> Result<()> {
    assert_eq!(hello::run()?, "Hello, distributed TensorFlow!");
    Ok(())
}

#[test]
fn workers_count_together_and_with_stocks() -> Result<()> {
    let totals = run!(shared_counter, 1, 2, vec!["--count=50".to_owned()])?;
    assert_eq!(totals.iter().max(), Some(&100));

    if stock::python().is_none() {
        return Ok(());
    }
    let (hosts, spec) = hosts(1, 2);
    let more = ["--count=30".to_owned()];
    serve!(shared_counter, task(&hosts, "ps", 0, &more));
    let addresses: Vec<&str> = spec.tasks().map(|(_, address)| address).collect();
    let cluster = json!({"ps": addresses[..1], "worker": addresses[1..]});
    let (ours, stocks) = std::thread::scope(|threads| {
        let ours = threads.spawn(|| shared_counter::run(task(&hosts, "worker", 0, &more)));
        let stocks = ask(&json!({"do": "count", "cluster": cluster, "task": 1, "steps": 20}));
        (ours.join().unwrap(), stocks)
    });
    // Whoever ends last sees all.
    assert_eq!(stocks.and_then(|total| total.as_i64()).max(Some(ours?)), Some(50));
    Ok(())
}

#[test]
fn a_replica_in_step_has_stocks_losses() -> Result<()> {
    let directory = Directory::new("sync_replicas");
    let losses = run!(sync_replicas, 1, 1, flags(100, &directory))?.remove(0);
    assert_eq!(losses.len(), 100);
    compare("sync_replicas", &losses, &directory);
    Ok(())
}

#[test]
fn replicas_in_step_take_the_steps_of_one() -> Result<()> {
    // Their gradients are equal, so the average is that of one.
    let seen = run!(sync_replicas, 1, 2, vec!["--steps=100".to_owned()])?;
    let Some(answer) = ask(&json!({"do": "train", "name": "sync_replicas", "steps": 105})) else {
        return Ok(());
    };
    let curve = numbers(&answer["losses"]);
    for losses in seen {
        for loss in losses {
            assert!(curve.iter().any(|stock| close(f64::from(loss), *stock)), "{loss} is none of {curve:?}");
        }
    }
    Ok(())
}

#[test]
fn the_between_graph_trainer_has_stocks_losses() -> Result<()> {
    let directory = Directory::new("between_graph");
    let losses = run!(between_graph, 1, 1, flags(60, &directory))?.remove(0);
    assert_eq!(losses.len(), 60);
    compare("between_graph", &losses, &directory);
    Ok(())
}

#[test]
fn tasks_find_their_place_in_tf_config() -> Result<()> {
    let (_, spec) = hosts(1, 1);
    let addresses: Vec<&str> = spec.tasks().map(|(_, address)| address).collect();
    let task = |job: &str| {
        let cluster = json!({"ps": [addresses[0]], "chief": [addresses[1]]});
        let text = json!({"cluster": cluster, "task": {"type": job, "index": 0}}).to_string();
        TaskConfig::from_tf_config(&text)
    };
    let ps = task("ps")?;
    std::thread::spawn(move || tf_config::run(ps, []).map(drop));
    let directory = Directory::new("tf_config");
    let losses = tf_config::run(task("chief")?, flags(40, &directory))?;
    assert_eq!(losses.len(), 40);
    compare("between_graph", &losses, &directory);

    // A program that is told nothing trains alone.
    let alone = tf_config::run(TaskConfig::from_tf_config("{}")?, ["--steps=3".to_owned()])?;
    assert_eq!(alone, losses[..3]);
    Ok(())
}

#[test]
fn checkpoints_are_judged_while_training_goes_on() -> Result<()> {
    let directory = Directory::new("evaluation");
    let judged = std::thread::scope(|threads| {
        let judge = threads.spawn(|| evaluation::run(flags(80, &directory)));
        let more = flags(80, &directory).into_iter().chain(["--save_steps=40".to_owned()]).collect();
        run!(between_graph, 1, 1, more)?;
        judge.join().unwrap()
    })?;
    let last = judged.last().expect("there was a checkpoint");
    let Some(answer) = ask(&json!({"do": "evaluate", "directory": directory.text()})) else {
        return Ok(());
    };
    let [step, loss, accuracy] = numbers(&answer)[..] else { panic!("stock says {answer}") };
    assert_eq!((last.step, step), (80, 80.0));
    assert!(close(f64::from(last.loss), loss), "{last:?}, stock {answer}");
    assert!(close(f64::from(last.accuracy), accuracy), "{last:?}, stock {answer}");
    Ok(())
}

#[test]
fn the_recurrent_network_has_stocks_losses() -> Result<()> {
    let directory = Directory::new("lstm");
    let losses = lstm::run(flags(30, &directory))?;
    assert_eq!(losses.len(), 30);
    compare("lstm", &losses, &directory);
    Ok(())
}

#[test]
fn the_recommender_has_stocks_losses_and_tables_on_two_servers() -> Result<()> {
    let directory = Directory::new("wide_and_deep");
    let losses = run!(wide_and_deep, 2, 1, flags(60, &directory))?.remove(0);
    assert_eq!(losses.len(), 60);
    compare("wide_and_deep", &losses, &directory);
    Ok(())
}

#[test]
fn a_coordinator_with_one_worker_has_stocks_losses() -> Result<()> {
    let directory = Directory::new("coordinator");
    let (hosts, _) = hosts(1, 1);
    for job in ["ps", "worker"] {
        serve!(coordinator, task(&hosts, job, 0, &[]));
    }
    let losses = coordinator::run(hosts.into_iter().chain(flags(40, &directory)))?;
    assert_eq!(losses.len(), 40);
    compare("coordinator", &losses, &directory);
    Ok(())
}
