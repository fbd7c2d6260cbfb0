//! Sessions of Rust programs: in this process, on our servers directly and over sockets, and on stock's servers.

use crate::{ports, stock};
use ferroflow::device_setter::{GreedyLoadBalancing, ReplicaDeviceSetter};
use ferroflow::{
    ClusterSpec, Code, DType, Graph, Output, Result, RunOptions, Server, Session, SessionOptions, Status,
    Target, Tensor, ops,
};
use std::process::Command;
use std::time::Duration;

/// Runs a body against every kind of master, stock's included if it is there.
fn on_every_target(body: impl Fn(&Target) -> Result<()>) {
    let server = Server::local().unwrap();
    let stock = stock::Server::start(None);
    let mut targets = vec![
        ("in process", Target::local().unwrap()),
        ("own server", server.target().clone()),
        ("own server over a socket", Target::from(server.target().to_string())),
    ];
    targets.extend(stock.as_ref().map(|stock| ("stock's server", Target::from(stock.target()))));
    for (name, target) in targets {
        body(&target).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

fn placeholder(graph: &Graph, name: &str) -> Result<Output> {
    ops::Placeholder::new(DType::Float).shape([None]).name(name).build(&graph.scope())
}

fn code<T>(result: Result<T>) -> Option<Code> {
    result.err().map(|error: Status| error.code())
}

#[test]
fn steps_feed_fetch_and_grow_on_every_kind_of_master() {
    on_every_target(|target| {
        let graph = Graph::new();
        let s = graph.scope();
        let x = placeholder(&graph, "x")?;
        let doubled = (&x * 2.0)?;
        let session = Session::connect(target, &graph)?;
        let value: Tensor = [1.0f32, 2.5].into();
        let out = session.run(&[(&x, value.clone())], &[&doubled, &doubled])?;
        assert_eq!((out[0].flat::<f32>()?, out[1].flat::<f32>()?), (&[2.0, 5.0][..], &[2.0, 5.0][..]));

        // Nodes that come later are part of the next step.
        let sum = ops::sum(&s, &doubled, [0])?;
        let text = s.constant(vec![bytes::Bytes::from("a"), bytes::Bytes::new()])?;
        let large = s.constant(vec![1i64; 100_000])?;
        let out = session.run(&[(&x, value.clone())], &[&sum, &text, &large])?;
        assert_eq!(out[0].to_scalar::<f32>()?, 7.0);
        assert_eq!(out[1].flat::<bytes::Bytes>()?[0], "a");
        assert_eq!(out[2].flat::<i64>()?.iter().sum::<i64>(), 100_000);
        assert_eq!(
            session.run(&[(&x, vec![1.0f32; 300_000].into())], &[&sum])?[0].to_scalar::<f32>()?,
            600_000.0
        );

        let prepared = session.prepare(&[&x], &[&sum, &doubled, &sum], &[])?;
        for _ in 0..3 {
            let out = prepared.run(std::slice::from_ref(&value))?;
            assert_eq!((out[0].to_scalar::<f32>()?, out[2].to_scalar::<f32>()?), (7.0, 7.0));
            assert_eq!(out[1].flat::<f32>()?, [2.0, 5.0]);
        }
        drop(prepared);
        let traced =
            session.step().feed(&x, &value).fetch(&sum).options(RunOptions::new().trace(true)).run()?;
        assert!(!traced.metadata.step_stats.unwrap_or_default().dev_stats.is_empty());
        assert!(session.devices()?.iter().any(|device| device.name.ends_with("/device:CPU:0")));
        session.close()
    });
}

#[test]
fn mistakes_and_failures_have_stock_codes_and_name_the_thing() {
    on_every_target(|target| {
        let graph = Graph::new();
        let s = graph.scope();
        let x = placeholder(&graph, "x")?;
        let doubled = (&x * 2.0)?;
        let zero = s.constant(0i32)?;
        let quotient = ops::floor_div(&s, 1, &zero)?;
        let session = Session::connect(target, &graph)?;
        assert_eq!(code(session.eval(&doubled)), Some(Code::InvalidArgument));
        assert_eq!(code(session.eval(&quotient)), Some(Code::InvalidArgument));

        let wrong = session.run(&[(&x, 1i32.into())], &[&doubled]).unwrap_err();
        assert!(wrong.message().contains("'x:0'") && wrong.message().contains("int32"), "{wrong}");
        let wrong = session.run(&[(&x, 1.0f32.into())], &[&doubled]).unwrap_err();
        assert!(wrong.message().contains("Cannot feed value of shape"), "{wrong}");
        let other = Graph::new();
        let stranger = other.scope().named_constant("stranger", 1.0f32)?;
        let wrong = session.eval(&stranger).unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument);
        assert!(
            wrong.message().contains("'stranger:0'") && wrong.message().contains("another graph"),
            "{wrong}"
        );

        let queue = s.op("FIFOQueueV2").attr("component_types", vec![DType::Float]).build()?.output(0)?;
        let dequeue =
            s.op("QueueDequeueV2").input(&queue).attr("component_types", vec![DType::Float]).build()?;
        let options = RunOptions::new().timeout(Duration::from_millis(200));
        let late = session.step().target(&dequeue).options(options).run();
        assert_eq!(code(late), Some(Code::DeadlineExceeded));
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| session.execute(&dequeue));
            // Closing cancels the step, whether it has started by then or not.
            session.close()?;
            let ended = code(waiting.join().expect("the step does not panic"));
            assert!(
                matches!(ended, Some(Code::Cancelled | Code::FailedPrecondition | Code::Aborted)),
                "{ended:?}"
            );
            Ok::<(), Status>(())
        })?;
        let closed = session.eval(&doubled).unwrap_err();
        assert_eq!(closed.code(), Code::FailedPrecondition);
        assert!(closed.message().contains("closed"), "{closed}");
        Ok(())
    });
}

#[test]
fn a_step_is_exchanged_over_several_calls() {
    on_every_target(|target| {
        let graph = Graph::new();
        let s = graph.scope();
        let (a, b) = (placeholder(&graph, "a")?, placeholder(&graph, "b")?);
        let noise = s.op("RandomUniform").attr("dtype", DType::Float).input([2i32]).build()?.output(0)?;
        let first = (&a + &noise)?;
        let second = (&first + &b)?;
        let session = Session::connect(target, &graph)?;
        let run = session.partial_run(&[&a, &b], &[&first, &second], &[])?;
        let one = run.run(&[(&a, [0.0f32, 0.0].into())], &[&first])?;
        let undeclared = run.run(&[], &[&noise]).unwrap_err();
        assert_eq!(undeclared.code(), Code::InvalidArgument);
        assert!(undeclared.message().contains("RandomUniform:0"), "{undeclared}");
        // What the first part fetched is fed to the second, and the noise is that of the first.
        let two = run.run(&[(&b, one[0].clone())], &[&second])?;
        for (one, two) in one[0].flat::<f32>()?.iter().zip(two[0].flat::<f32>()?) {
            assert_eq!(one + one, *two);
        }
        // All was exchanged, so the run is over.
        assert_eq!(code(run.run(&[], &[&second])), Some(Code::InvalidArgument));

        let early = session.partial_run(&[&a, &b], &[&second], &[])?;
        assert_eq!(code(early.run(&[(&a, [1.0f32].into())], &[&second])), Some(Code::InvalidArgument));
        session.close()?;
        assert_eq!(code(early.run(&[], &[])), Some(Code::FailedPrecondition));
        Ok(())
    });
}

#[test]
fn containers_are_emptied_and_sessions_end_with_them() {
    on_every_target(|target| {
        let graph = Graph::new();
        let s = graph.scope();
        let variable = s.op("VarHandleOp").attr("dtype", DType::Float).attr("shared_name", "to_be_emptied");
        let variable = variable.shape_attr("shape", [0i64; 0]).build()?.output(0)?;
        let assign = s.op("AssignVariableOp").input(&variable).input(3.0f32).build()?;
        let read = s.op("ReadVariableOp").input(&variable).attr("dtype", DType::Float).build()?.output(0)?;
        let session = Session::connect(target, &graph)?;
        session.execute(&assign)?;
        Session::reset(target, &[], &SessionOptions::new())?;
        let ended = code(session.eval(&read));
        assert!(matches!(ended, Some(Code::Aborted | Code::Cancelled)), "{ended:?}");
        assert_eq!(code(Session::connect(target, &graph)?.eval(&read)), Some(Code::FailedPrecondition));
        Ok(())
    });
}

#[test]
fn sessions_of_a_server_share_state_unless_they_are_isolated() {
    on_every_target(|target| {
        let graph = Graph::new();
        let s = graph.scope();
        let variable = s.op("VarHandleOp").attr("dtype", DType::Float).attr("shared_name", "shared_state");
        let variable = variable.shape_attr("shape", [0i64; 0]).build()?.output(0)?;
        let assign = s.op("AssignVariableOp").input(&variable).input(3.0f32).build()?;
        let read = s.op("ReadVariableOp").input(&variable).attr("dtype", DType::Float).build()?.output(0)?;
        let (one, two) = (Session::connect(target, &graph)?, Session::connect(target, &graph)?);
        let alone = Session::with_options(target, &graph, SessionOptions::new().isolate(true))?;
        one.execute(&assign)?;
        assert_eq!(two.eval(&read)?.to_scalar::<f32>()?, 3.0);
        assert_eq!(code(alone.eval(&read)), Some(Code::FailedPrecondition));
        Ok(())
    });
}

#[test]
fn servers_and_targets_that_cannot_be_are_refused() -> Result<()> {
    let server = Server::local()?;
    let mut cluster = ClusterSpec::new();
    cluster.add("worker", 0, &server.address().to_string())?;
    let taken = Server::new(&cluster, "worker", 0).map(drop).unwrap_err();
    assert!(taken.message().contains("choose another port"), "{taken}");
    let absent = Server::new(&cluster, "ps", 1).map(drop).unwrap_err();
    assert_eq!(absent.code(), Code::InvalidArgument);
    assert!(absent.message().contains("/job:ps/replica:0/task:1 is not a task of the cluster"), "{absent}");
    let graph = Graph::new();
    graph.scope().constant(1.0f32)?;
    assert_eq!(code(Session::connect("grpc://nowhere", &graph)), Some(Code::InvalidArgument));

    // Whoever waits for a task says for which.
    let free = ports::address();
    let alone = ClusterSpec::from_json(&format!(r#"{{"ps": ["127.0.0.1:1"], "worker": ["{free}"]}}"#))?;
    let worker = Server::new(&alone, "worker", 0)?;
    for target in [worker.target().clone(), Target::from(worker.target().to_string())] {
        let options = SessionOptions::new().open_timeout(Duration::from_millis(300));
        let missing = Session::with_options(target, &graph, options).unwrap_err();
        assert_eq!(missing.code(), Code::DeadlineExceeded);
        assert!(missing.message().contains("/job:ps/replica:0/task:0 did not come"), "{missing}");
    }

    let target = server.target().clone();
    let session = Session::connect(&target, &graph)?;
    let address = target.to_string();
    server.stop();
    let options = SessionOptions::new().open_timeout(Duration::from_millis(300));
    let gone = Session::with_options(address.as_str(), &graph, options).unwrap_err();
    assert_eq!(gone.code(), Code::DeadlineExceeded);
    assert!(gone.message().contains(&address), "{gone}");
    assert_eq!(code(session.devices()), Some(Code::Unavailable));
    assert_eq!(code(Session::connect(&target, &graph)), Some(Code::Unavailable));
    Ok(())
}

#[test]
fn a_graph_spans_our_task_and_stocks() {
    let json = format!(r#"{{"ps": ["{}"], "worker": ["{}"]}}"#, ports::address(), ports::address());
    let Some(_ps) = stock::Server::start(Some((&json, "ps", 0))) else { return };
    let worker = Server::new(&ClusterSpec::from_json(&json).unwrap(), "worker", 0).unwrap();
    let run = || -> Result<f32> {
        let graph = Graph::new();
        let s = graph.scope();
        let far = s.device("/job:ps/task:0").constant(20.0f32)?;
        let far = (&far + 1.0)?;
        let near = ops::mul(&s.device("/job:worker/task:0"), &far, 2.0)?;
        Session::connect(&worker, &graph)?.eval(&near)?.to_scalar()
    };
    assert_eq!(run().unwrap(), 42.0);
}

#[test]
fn replicas_place_their_nodes_as_stock_does() {
    let Some(python) = stock::python() else { return };
    let output = Command::new(python).arg(stock::root().join("oracle/devices.py")).output().unwrap();
    let expected = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !expected.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let ours = || -> Result<String> {
        let mut cluster = ClusterSpec::new();
        cluster.add_hosts("ps", "a:1,b:1,c:1")?;
        cluster.add_hosts("worker", "d:1,e:1")?;
        let setters = [
            ("round_robin", ReplicaDeviceSetter::new(&cluster).worker_device("/job:worker/task:1")),
            ("greedy", ReplicaDeviceSetter::new(&cluster).strategy(GreedyLoadBalancing::by_bytes(3))),
            ("unmerged", ReplicaDeviceSetter::new(&cluster).merge_devices(false)),
            ("none", ReplicaDeviceSetter::with_ps_tasks(0)),
        ];
        let mut lines = String::new();
        for (name, setter) in setters {
            let graph = Graph::new();
            let s = setter.apply(&graph.scope());
            let variable = |s: &ferroflow::Scope, name: &str, rows: i64| {
                let node = s.op("VariableV2").name(name).attr("dtype", DType::Float);
                node.shape_attr("shape", [rows, 10]).build()
            };
            for (i, rows) in [100, 5, 5, 50, 200, 1].into_iter().enumerate() {
                variable(&s, &format!("v{i}"), rows)?;
            }
            s.named_constant("c", 1.0f32)?;
            variable(&s.device("/device:CPU:0"), "on_cpu", 2)?;
            variable(&s.device("/job:worker/task:0"), "on_worker", 2)?;
            s.device("/task:7").named_constant("on_task", 1.0f32)?;
            for operation in graph.operations() {
                lines.push_str(&format!("{name} {} {}\n", operation.name(), operation.device()));
            }
        }
        Ok(lines)
    };
    assert_eq!(ours().unwrap(), expected);
}
