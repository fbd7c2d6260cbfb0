//! Mistakes of Rust programs. Each is an error that names the thing and what to do about it; nothing panics.

use crate::monitored::cluster;
use crate::ports;
use crate::savers::Directory;
use ferroflow::data::{Dataset, csv, csv_rows, tf_record};
use ferroflow::initializers as init;
use ferroflow::layers::{Conv2d, Dense, Lstm};
use ferroflow::optimizers::{Adam, GradientDescent, Optimizer};
use ferroflow::server::TaskConfig;
use ferroflow::strategy::{ClusterCoordinator, ParameterServerStrategy};
use ferroflow::train::{MonitoredTrainingSession, Saver, StopAtStep};
use ferroflow::variables::{collections, global_variables_initializer};
use ferroflow::{
    ClusterSpec, Code, DType, Graph, Import, Output, ReplicaDeviceSetter, Result, Server, Session,
    SessionOptions, Target, Tensor, TensorSpec, Variable, cond, gradients, ops, while_loop,
};
use std::time::Duration;

/// Expects a failure with this code whose message holds every one of these texts.
#[track_caller]
fn refused<T>(result: Result<T>, code: Code, texts: &[&str]) {
    let Err(error) = result.map(drop) else { panic!("a mistake was let through: expected {texts:?}") };
    let missing: Vec<&&str> = texts.iter().filter(|text| !error.message().contains(**text)).collect();
    assert!(error.code() == code && missing.is_empty(), "{code:?} with {missing:?} was expected: {error}");
}

fn placeholder(graph: &Graph, dims: impl IntoIterator<Item = i64>) -> Output {
    let dims: Vec<i64> = dims.into_iter().collect();
    ops::Placeholder::new(DType::Float).shape(dims).name("x").build(&graph.scope()).unwrap()
}

#[test]
fn tensors_of_another_graph() -> Result<()> {
    let (graph, other) = (Graph::new(), Graph::new());
    let s = graph.scope();
    let (own, stranger) =
        (placeholder(&graph, [2]), other.scope().named_constant("stranger", [1.0f32, 2.0])?);
    let session = Session::new(&graph)?;
    let texts = ["'stranger:0'", "another graph", "open a session on its graph"];
    refused(session.eval(&stranger), Code::InvalidArgument, &texts);
    refused(session.run(&[(&stranger, [1.0f32, 2.0].into())], &[&own]), Code::InvalidArgument, &texts);
    let texts = ["'stranger'", "another graph", "open a session on its graph"];
    refused(session.execute(stranger.op()), Code::InvalidArgument, &texts);
    refused(session.prepare(&[&stranger], &[&own], &[]), Code::InvalidArgument, &["'stranger:0'"]);
    let texts = ["'stranger:0'", "another graph", "misuse.rs"];
    refused(&own + &stranger, Code::InvalidArgument, &texts);
    refused(ops::mat_mul(&s, &own, &stranger), Code::InvalidArgument, &texts);
    let texts = ["'stranger", "another graph"];
    refused(s.control([stranger.op()]).constant(1.0f32), Code::InvalidArgument, &texts);
    refused(s.colocate_with(&stranger).constant(1.0f32), Code::InvalidArgument, &texts);
    refused(gradients(&s, [&own], [&stranger]), Code::InvalidArgument, &texts);
    refused(
        cond(&s, true, |_| Ok(vec![own.clone()]), |_| Ok(vec![stranger.clone()])),
        Code::InvalidArgument,
        &texts,
    );
    let weight = Variable::new(&other.scope(), "stranger_w", [1], init::zeros())?;
    let texts = ["'stranger_w", "another graph"];
    refused(Saver::builder().variables([weight.clone()]).build(&graph), Code::InvalidArgument, &texts);
    let grads = [(Some((&own).into()), weight)];
    refused(Adam::new(0.1).apply_gradients(&s, &grads, None), Code::InvalidArgument, &texts);
    Ok(())
}

#[test]
fn values_that_do_not_fit() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let x = placeholder(&graph, [-1, 2]);
    let y = (&x * 2.0)?;
    let session = Session::new(&graph)?;
    let feed = |value: Tensor| session.run(&[(&x, value)], &[&y]);
    refused(feed(vec![1i32].into()), Code::InvalidArgument, &["'x:0'", "int32", "float", "convert"]);
    refused(feed([1.0f32].into()), Code::InvalidArgument, &["'x:0'", "[1]", "[?,2]"]);
    refused(session.eval(&y), Code::InvalidArgument, &["'x'", "feed"]);
    let twice = session.step().feed(&x, Tensor::zeros(DType::Float, [1, 2]));
    let twice = twice.feed(&x, Tensor::zeros(DType::Float, [1, 2]));
    refused(twice.fetch(&y).run(), Code::InvalidArgument, &["x:0", "fed"]);
    let prepared = session.prepare(&[&x], &[&y], &[])?;
    refused(prepared.run(&[]), Code::InvalidArgument, &["1 feeds", "0 values"]);
    refused(prepared.run(&[1i32.into()]), Code::InvalidArgument, &["'x:0'", "int32", "float"]);

    let integers = s.constant([1i32, 2])?;
    refused(&x + &integers, Code::InvalidArgument, &["int32", "float", "ops::cast", "misuse.rs"]);
    refused(
        ops::mat_mul(&s, &x, &s.constant(vec![1.0f32; 3])?),
        Code::InvalidArgument,
        &["MatMul", "[?,2]", "[3]", "misuse.rs"],
    );
    let text = ops::cast(&s, &x, DType::String)?;
    refused(session.eval(&text), Code::Unimplemented, &["Cast", "string"]);
    refused(s.op("MatMul").input(&x).build(), Code::InvalidArgument, &["MatMul", "a, b", "1 were given"]);
    refused(s.op("MatMull").input(&x).build(), Code::NotFound, &["MatMull"]);
    let unknown = s.op("MatMul").input(&x).input(&x).attr("transposed", true).build();
    refused(unknown, Code::InvalidArgument, &["'transposed'", "transpose_a, transpose_b"]);
    let wrong = s.op("MatMul").input(&x).input(&x).attr("transpose_a", 3i64).build();
    refused(wrong, Code::InvalidArgument, &["transpose_a", "bool"]);
    refused(graph.output("y:0"), Code::NotFound, &["'y'"]);
    refused(graph.output("x:1"), Code::OutOfRange, &["'x'", "1 outputs"]);
    refused(graph.output("x:first"), Code::InvalidArgument, &["'x:first'", "<operation>:<number>"]);
    refused(Tensor::new([2, 2], vec![1.0f32]), Code::InvalidArgument, &["1", "[2,2]"]);
    refused(s.device("/job:").constant(1.0f32), Code::InvalidArgument, &["/job:"]);
    refused(s.scope("a b").constant(1.0f32), Code::InvalidArgument, &["a b"]);
    Ok(())
}

#[test]
fn names_that_are_taken() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    Variable::new(&s, "w", [2], init::zeros())?;
    let again = Variable::new(&s, "w", [2], init::zeros());
    refused(again, Code::AlreadyExists, &["Variable w already exists", "another name"]);
    refused(s.op("NoOp").name("w/").build(), Code::AlreadyExists, &["'w'"]);
    // A plain name gets a number instead.
    assert_eq!(s.named_constant("w", 1.0f32)?.name(), "w_1:0");
    let def = graph.to_graph_def();
    let file = std::env::temp_dir().join(format!("ferroflow-no-graph-{}", std::process::id()));
    refused(graph.import_graph_file(&file), Code::NotFound, &["ferroflow-no-graph"]);
    std::fs::write(&file, "node {}").unwrap();
    let texts = ["ferroflow-no-graph", "MetaGraphDef", "binary"];
    refused(graph.import_meta_graph_file(&file), Code::DataLoss, &texts);
    std::fs::remove_file(&file).unwrap();
    refused(Import::new().build(&s, &def), Code::InvalidArgument, &["'w'", "prefix"]);
    Ok(())
}

#[test]
fn slopes_that_are_not_there() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let x = placeholder(&graph, [2]);
    let lost = s.op("NthElement").input(&x).input(0i32).build()?.output(0)?;
    let w = Variable::new(&s, "w", [2], init::ones())?;
    let rounded = ops::unique(&s, &w)?.y;
    let texts = ["No gradient defined", "Unique", "stop_gradient"];
    refused(gradients(&s, [&rounded], [w.handle()]), Code::NotFound, &texts);
    // Through rounding nothing comes back, which stock takes for no gradient as well.
    let floor = ops::floor(&s, &w)?;
    assert!(gradients(&s, [&floor], [w.handle()])?[0].is_none());
    drop(lost);
    let count = ops::size(&s, &x)?;
    refused(gradients(&s, [&count], [&x]), Code::InvalidArgument, &["'Size:0'", "int32", "grad_ys"]);

    let optimizer = GradientDescent::new(0.1);
    let loss = ops::sum(&s, &x, [0])?;
    let texts = ["No gradients provided for any variable: w", "does not depend on"];
    refused(optimizer.minimize(&s, &loss, None), Code::InvalidArgument, &texts);
    refused(optimizer.minimize(&s, &count, None), Code::InvalidArgument, &["Size:0", "int32", "float"]);
    let none = optimizer.compute_gradients(&s, &loss, &[]);
    refused(none, Code::InvalidArgument, &["No variables to optimize", "Variable::new"]);
    refused(
        optimizer.apply_gradients(&s, &[], None),
        Code::InvalidArgument,
        &["No variables", "compute_gradients"],
    );
    let empty = Graph::new();
    let loss = empty.scope().constant(1.0f32)?;
    let texts = ["No variables to optimize", "Variable::new"];
    refused(optimizer.minimize(&empty.scope(), &loss, None), Code::InvalidArgument, &texts);
    Ok(())
}

#[test]
fn branches_and_loops_whose_values_change_kind() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let x = placeholder(&graph, [2]);
    let (float, integer) = (s.constant(1.0f32)?, s.constant(1i32)?);
    let kinds = cond(&s, true, |_| Ok(vec![float.clone()]), |_| Ok(vec![integer.clone()]));
    refused(kinds, Code::InvalidArgument, &["result 0", "float", "int32", "ops::cast"]);
    let counts = cond(&s, true, |_| Ok(vec![float.clone()]), |_| Ok(vec![]));
    refused(counts, Code::InvalidArgument, &["one returns 1 and the other 0"]);
    refused(
        cond(&s, &x, |_| Ok(vec![]), |_| Ok(vec![])),
        Code::InvalidArgument,
        &["condition", "x:0", "[2]"],
    );

    let less = |s: &ferroflow::Scope, v: &[Output]| ops::less(s, &v[0], 3);
    let kinds = while_loop(&s, [&integer], less, |_, _| Ok(vec![float.clone()]));
    refused(kinds, Code::InvalidArgument, &["variable 0", "int32", "float", "ops::cast"]);
    let counts = while_loop(&s, [&integer], less, |_, _| Ok(vec![]));
    refused(counts, Code::InvalidArgument, &["1 variables", "returns 0"]);
    let text = while_loop(&s, [&integer], |_, v| Ok(v[0].clone()), |_, v| Ok(v.to_vec()));
    refused(text, Code::InvalidArgument, &["bool", "int32"]);
    // A shape that grows is not a mistake: what is known of it shrinks.
    let grown = while_loop(&s, [&integer, &x], less, |s, v| {
        Ok(vec![(&v[0] + 1)?, ops::concat_v2(s, [&v[1], &v[1]], 0)?])
    })?;
    assert_eq!(grown[1].shape().dims(), Some(&[-1][..]));
    let wrong = while_loop(&s, [&integer, &x], less, |_, v| Ok(vec![(&v[0] + 1)?, (&v[1] + &v[0])?]));
    refused(wrong, Code::InvalidArgument, &["int32", "float", "misuse.rs"]);
    Ok(())
}

#[test]
fn variables_without_values() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let w = Variable::new(&s, "w", [2], init::zeros())?;
    let init = global_variables_initializer(&s)?;
    let session = Session::new(&graph)?;
    let texts = ["w", "uninitialized"];
    refused(session.eval(w.value()), Code::FailedPrecondition, &texts);
    session.execute(&init)?;
    session.eval(w.value())?;
    let wrong = Variable::spec("v", [3]).initializer(init::constant(1.0));
    wrong.build(&s)?;
    let wrong = Variable::spec("u", [3])
        .initializer(ferroflow::initializers::Initializer::value([1.0f32, 2.0].into()));
    refused(wrong.build(&s), Code::InvalidArgument, &["u", "[3]", "[2]"]);
    refused(Variable::spec("t", [-2]).build(&s), Code::InvalidArgument, &["-2"]);
    refused(w.assign(&s, [1.0f32, 2.0, 3.0]), Code::InvalidArgument, &["[2]", "[3]"]);
    Ok(())
}

#[test]
fn layers_over_shapes_that_they_cannot_take() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let unknown = ops::placeholder(&s, DType::Float)?;
    let texts = ["Placeholder:0", "last dimension"];
    refused(Dense::new(3).build(&s, &unknown), Code::InvalidArgument, &texts);
    let x = placeholder(&graph, [3, -1, 4]);
    let rows = placeholder(&graph, [3, 4]);
    let texts = ["'x_1:0'", "batch, steps, features", "[3,4]"];
    refused(Lstm::new(3).build(&s, &rows), Code::InvalidArgument, &texts);
    let lengths = s.constant([1i32, 2])?;
    let texts = ["'Const:0'", "[2]", "'x:0'", "[3,?,4]"];
    refused(Lstm::new(3).name("lstm").lengths(&lengths).build(&s, &x), Code::InvalidArgument, &texts);
    refused(Conv2d::new(3, [3, 3]).build(&s, &x), Code::InvalidArgument, &["[3,?,4]"]);
    Ok(())
}

#[test]
fn checkpoints_that_cannot_be() -> Result<()> {
    let directory = Directory::new("misuse");
    let build = |variables: &[(&str, &[i64])]| -> Result<(Graph, Saver, Session)> {
        let graph = Graph::new();
        let s = graph.scope();
        for (name, dims) in variables {
            Variable::spec(name, *dims).initializer(init::ones()).build(&s)?;
        }
        let (init, saver) = (global_variables_initializer(&s)?, Saver::new(&graph)?);
        let session = Session::new(&graph)?;
        session.execute(&init)?;
        Ok((graph, saver, session))
    };
    let (_, saver, session) = build(&[("w", &[2, 3])])?;
    let path = saver.save(&session, directory.0.join("model"), None)?;
    let nowhere = directory.0.join("nowhere/model");
    refused(saver.save(&session, &nowhere, None), Code::InvalidArgument, &["nowhere", "create"]);
    refused(saver.restore(&session, &nowhere), Code::NotFound, &["nowhere/model", "latest_checkpoint"]);

    let (_, other, missing) = build(&[("w", &[2, 3]), ("b", &[3])])?;
    refused(other.restore(&missing, &path), Code::NotFound, &[&path, "b", "not found in checkpoint"]);
    let (_, other, reshaped) = build(&[("w", &[3, 2])])?;
    refused(other.restore(&reshaped, &path), Code::InvalidArgument, &[&path, "[3,2]", "[2,3]"]);

    let data = format!("{path}.data-00000-of-00001");
    let bytes = std::fs::read(&data).unwrap();
    std::fs::write(&data, &bytes[..bytes.len() - 4]).unwrap();
    refused(saver.restore(&session, &path), Code::OutOfRange, &[&path, "truncated"]);
    std::fs::write(&data, &bytes).unwrap();
    saver.restore(&session, &path)?;
    let index = format!("{path}.index");
    let bytes = std::fs::read(&index).unwrap();
    std::fs::write(&index, &bytes[..bytes.len() / 2]).unwrap();
    let cut = saver.restore(&session, &path).unwrap_err();
    assert!(cut.message().contains(&path), "{cut}");
    let empty = Saver::new(&Graph::new());
    refused(empty, Code::InvalidArgument, &["No variables to save", "allow_empty"]);
    Ok(())
}

#[test]
fn sessions_that_are_closed_or_lost() -> Result<()> {
    let graph = Graph::new();
    let one = graph.scope().constant(1.0f32)?;
    let session = Session::new(&graph)?;
    let prepared = session.prepare(&[], &[&one], &[])?;
    session.close()?;
    let texts = ["closed", "Session::new"];
    refused(session.eval(&one), Code::FailedPrecondition, &texts);
    refused(prepared.run(&[]), Code::FailedPrecondition, &texts);
    refused(session.prepare(&[], &[&one], &[]), Code::FailedPrecondition, &texts);
    refused(session.devices(), Code::FailedPrecondition, &texts);
    refused(session.close(), Code::FailedPrecondition, &["closed already"]);

    // A server that has gone, seen from its own process and from another.
    let server = Server::local()?;
    let address = server.target().to_string();
    let (near, far) = (Session::connect(&server, &graph)?, Session::connect(address.as_str(), &graph)?);
    far.eval(&one)?;
    server.stop();
    refused(near.eval(&one), Code::Unavailable, &[&address, "stopped"]);
    refused(far.eval(&one), Code::Unavailable, &[address.trim_start_matches("grpc://")]);
    Ok(())
}

#[test]
fn targets_clusters_and_ports() -> Result<()> {
    let graph = Graph::new();
    graph.scope().constant(1.0f32)?;
    for target in
        ["nowhere", "grpc://host", "grpc://:22", "grpc://host:port", "grpc://host:70000", "http://host:1"]
    {
        refused(Session::connect(target, &graph), Code::InvalidArgument, &[target, "grpc://host:port"]);
    }
    let free = ports::address();
    let options = SessionOptions::new().open_timeout(Duration::from_millis(200));
    let absent = Session::with_options(free.as_str(), &graph, options);
    refused(absent, Code::DeadlineExceeded, &[&free, "server"]);

    let server = Server::local()?;
    let mut spec = ClusterSpec::new();
    spec.add("worker", 0, &server.address().to_string())?;
    let port = server.address().port().to_string();
    refused(Server::new(&spec, "worker", 0), Code::Unknown, &[&port, "choose another port"]);
    let texts = ["/job:ps/replica:0/task:1 is not a task of the cluster", "worker"];
    refused(Server::new(&spec, "ps", 1), Code::InvalidArgument, &texts);
    refused(Server::new(&ClusterSpec::new(), "ps", 0), Code::InvalidArgument, &["no tasks"]);
    refused(ClusterSpec::from_json("{"), Code::InvalidArgument, &["JSON"]);
    refused(
        ClusterSpec::from_json(r#"{"ps": ["nowhere"]}"#),
        Code::InvalidArgument,
        &["nowhere", "host:port"],
    );
    refused(spec.add("worker", 0, "other:1"), Code::InvalidArgument, &["worker", "0"]);
    let config = r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}"#;
    refused(
        TaskConfig::from_tf_config(config),
        Code::InvalidArgument,
        &["/job:ps/replica:0/task:0 is not in"],
    );
    refused(TaskConfig::from_tf_config("3"), Code::InvalidArgument, &["expected an object", "3"]);

    // A device that the cluster does not have.
    let far = Graph::new();
    let node = far.scope().device("/job:ps/task:3").constant(1.0f32)?;
    let session = Session::connect(&server, &far);
    let run = session.and_then(|session| session.eval(&node));
    refused(run, Code::InvalidArgument, &["/job:ps/task:3", "/job:localhost"]);
    let filters = SessionOptions::new().device_filters(["ps"]);
    let malformed = Session::with_options(&server, &graph, filters);
    refused(malformed, Code::InvalidArgument, &["'ps'", "/job:ps"]);

    let setter = ReplicaDeviceSetter::new(&spec).ps_device("/task:0").apply(&graph.scope());
    refused(setter.constant(1.0f32), Code::InvalidArgument, &["'/task:0'", "job"]);
    let strategy = ParameterServerStrategy::new(&spec);
    refused(strategy, Code::InvalidArgument, &["'ps' and 'worker'"]);
    Ok(())
}

#[test]
fn functions_of_a_coordinator() -> Result<()> {
    let (_, spec) = cluster(1, 1);
    let _servers = [Server::new(&spec, "ps", 0)?, Server::new(&spec, "worker", 0)?];
    let strategy = ParameterServerStrategy::new(&spec)?;
    let graph = Graph::new();
    let s = strategy.scope(&graph.scope());
    let total = Variable::with_value(&s, "total", 0.0f32)?;
    let coordinator = ClusterCoordinator::new(&strategy, &graph)?;
    let nothing = coordinator.function([], |_, _| Ok(Vec::<Output>::new()));
    refused(nothing, Code::InvalidArgument, &["must return at least one output or operation"]);
    let add =
        coordinator.function([TensorSpec::new(DType::Float, [])?], |s, x| total.assign_add(s, &x[0]))?;
    let texts = ["1 inputs", "2 arguments"];
    refused(coordinator.schedule(&add, [1.0f32, 2.0]), Code::InvalidArgument, &texts);
    coordinator.schedule(&add, [1i64])?;
    refused(coordinator.join(), Code::InvalidArgument, &["int64", "float"]);
    // The variable was never initialized.
    let value = coordinator.schedule(&add, [1.0f32])?;
    refused(coordinator.join(), Code::NotFound, &["/job:ps/replica:0/task:0", "total"]);
    refused(value.fetch(), Code::NotFound, &["total"]);
    Ok(())
}

#[test]
fn input_that_is_not_there_or_broken() -> Result<()> {
    let directory = Directory::new("misuse_data");
    let missing = directory.0.join("missing.csv");
    refused(tf_record([&missing]).collect(), Code::NotFound, &["missing.csv"]);
    refused(csv(&missing).column("a", DType::Float).dataset()?.collect(), Code::NotFound, &["missing.csv"]);
    refused(csv_rows::<(f32, f32)>(&missing).collect(), Code::NotFound, &["missing.csv"]);
    let empty = directory.0.join("empty.csv");
    for header in ["", "a,b\n"] {
        std::fs::write(&empty, header).unwrap();
        let said = ["empty.csv has no rows", "a header and at least one row"];
        refused(csv_rows::<(f32, f32)>(&empty).batch(2).collect(), Code::InvalidArgument, &said);
        refused(csv(&empty).column("a", DType::Float).dataset()?.collect(), Code::InvalidArgument, &said);
    }
    let rows = directory.0.join("rows.csv");
    std::fs::write(&rows, "a,b\n1,2\n3,four\n5\n").unwrap();
    let read = || csv(&rows).column("a", DType::Float).column("b", DType::Int64).dataset();
    let row: Vec<_> = read()?.iter().collect();
    assert!(row[0].is_ok());
    refused(row[1].clone(), Code::InvalidArgument, &["rows.csv", "record 1", "'b'", "int64", "four"]);
    refused(row[2].clone(), Code::InvalidArgument, &["rows.csv", "record 2", "'b'", "missing"]);
    refused(read()?.batch(2).collect(), Code::InvalidArgument, &["record 1"]);
    let column = csv(&rows).column("c", DType::Float).dataset()?.collect();
    refused(column, Code::InvalidArgument, &["rows.csv", "'c'", "a, b"]);
    refused(csv(&rows).dataset(), Code::InvalidArgument, &["no column", "rows.csv"]);
    refused(csv(&rows).column("a", DType::Bool).dataset(), Code::InvalidArgument, &["'a'", "bool"]);
    refused(tf_record([&rows]).collect(), Code::DataLoss, &["rows.csv"]);
    let uneven = Dataset::from_vec(vec![Tensor::vector(vec![1.0f32]), Tensor::vector(vec![1.0f32, 2.0])]);
    refused(uneven.batch(2).collect(), Code::InvalidArgument, &["[1]", "[2]", "padded_batch"]);
    refused(uneven.shard(2, 2), Code::InvalidArgument, &["2"]);
    refused(uneven.batch(0).collect(), Code::InvalidArgument, &["batch"]);
    Ok(())
}

#[test]
fn training_loops_without_what_they_need() -> Result<()> {
    let graph = Graph::new();
    let s = graph.scope();
    let w = Variable::with_value(&s, "w", 1.0f32)?;
    let stop = MonitoredTrainingSession::new(&graph).hook(StopAtStep::last(3)).build();
    refused(stop, Code::InvalidArgument, &["lobal step", "variables::global_step"]);
    let directory = Directory::new("misuse_training");
    let save = MonitoredTrainingSession::new(&graph).checkpoint_dir(&directory.0).build();
    refused(save, Code::InvalidArgument, &["lobal step", "variables::global_step"]);
    let integer = Variable::spec("counter", []).dtype(DType::Float).initializer(init::zeros());
    let step = integer.collections([collections::GLOBAL_VARIABLES]).trainable(false).build(&s)?;
    let loss = ops::square(&s, &w)?;
    let counted = GradientDescent::new(0.1).minimize(&s, &loss, Some(&step));
    refused(counted, Code::InvalidArgument, &["'counter'", "float", "int64", "ferroflow::global_step"]);
    // A worker whose chief never comes says so.
    let (_, spec) = cluster(1, 1);
    let _servers = [Server::new(&spec, "ps", 0)?, Server::new(&spec, "worker", 0)?];
    let target =
        Target::from(format!("grpc://{}", spec.address(&ferroflow::TaskName::new("worker", 0)).unwrap()));
    let waiting = MonitoredTrainingSession::new(&graph)
        .target(target)
        .chief(false)
        .max_wait(Duration::from_millis(300));
    refused(waiting.build(), Code::DeadlineExceeded, &["w", "chief"]);
    Ok(())
}
