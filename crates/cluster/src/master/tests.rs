//! Tests of sessions whose other tasks stop responding: their ports are open, but nothing answers.

use crate::api::RunStep;
use crate::client::MasterClient;
use crate::spec::{ClusterSpec, TaskName};
use crate::worker::Census;
use crate::{Server, ServerConfig};
use ferroflow_core::{Code, Tensor};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{
    AttrValue, ConfigProto, GraphDef, NodeDef, PartialRunSetupRequest, RunOptions, VersionDef,
};
use futures_util::future::{Either, select};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The limit of everything that must not hang, shorter than the time after which a call to a silent task is given up.
const PATIENCE: Duration = Duration::from_secs(8);

/// A proxy to a server that passes nothing while it is closed.
struct Gate {
    address: SocketAddr,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    fn to(server: SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new((Mutex::new(true), Condvar::new()));
        let gate = open.clone();
        std::thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(server) else { return };
                for (from, to) in [(&from, &to), (&to, &from)] {
                    let (from, to, gate) = (from.try_clone().unwrap(), to.try_clone().unwrap(), gate.clone());
                    std::thread::spawn(move || pass(from, to, &gate));
                }
            }
        });
        Gate { address, open }
    }

    fn set(&self, open: bool) {
        *self.open.0.lock().unwrap() = open;
        self.open.1.notify_all();
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, (open, opened): &(Mutex<bool>, Condvar)) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A parameter server behind a gate, a worker whose master is used, and the address of another worker where something
/// listens but never responds.
struct Cluster {
    ps: Server,
    worker: Server,
    gate: Gate,
    _silent: TcpListener,
    _stop: [oneshot::Sender<()>; 2],
}

impl Cluster {
    fn start() -> Cluster {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (ps, worker, silent) = (listen(), listen(), listen());
        let address = |listener: &TcpListener| listener.local_addr().unwrap();
        let gate = Gate::to(address(&ps));
        let mut spec = ClusterSpec::new();
        spec.add("ps", 0, &gate.address.to_string()).unwrap();
        spec.add("worker", 0, &address(&worker).to_string()).unwrap();
        spec.add("worker", 1, &address(&silent).to_string()).unwrap();
        let start = |job: &str, listener| {
            let config = ServerConfig {
                task: TaskName::new(job, 0),
                cluster: spec.clone(),
                io_threads: 1,
                compute_threads: 1,
                ..Default::default()
            };
            let (stop, stopped) = oneshot::channel::<()>();
            let shutdown = async { drop(stopped.await) };
            (Server::start(config, ferroflow_ops::registry(), vec![listener], shutdown).unwrap(), stop)
        };
        let ((ps, stop_ps), (worker, stop_worker)) = (start("ps", ps), start("worker", worker));
        Cluster { ps, worker, gate, _silent: silent, _stop: [stop_ps, stop_worker] }
    }

    async fn open(&self, graph: GraphDef) -> ferroflow_core::Result<String> {
        self.worker.client().create_session(graph, ConfigProto::default(), self.worker.target()).await
    }

    /// Returns the number of sessions on each of the two servers.
    fn sessions(&self) -> [usize; 2] {
        [&self.ps, &self.worker].map(|server| server.census().sessions)
    }
}

/// Builds a graph whose nodes are on one device.
fn graph_on(device: &str) -> GraphDef {
    let node = |name: &str, op: &str, input: &[&str], attrs: &[(&str, Value)]| NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: input.iter().map(|input| (*input).to_owned()).collect(),
        device: device.to_owned(),
        attr: attrs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) }))
            .collect(),
        ..Default::default()
    };
    let one = Value::Tensor(Box::new(Tensor::scalar(1f32).to_proto().unwrap()));
    let constant = node("c", "Const", &[], &[("dtype", Value::Type(1)), ("value", one)]);
    // Random numbers are not constant-folded, so the step needs the device.
    let shape = Value::Tensor(Box::new(Tensor::vector(vec![2i32]).to_proto().unwrap()));
    let shape = node("shape", "Const", &[], &[("dtype", Value::Type(3)), ("value", shape)]);
    let random =
        node("random", "RandomUniform", &["shape"], &[("T", Value::Type(3)), ("dtype", Value::Type(1))]);
    let sum = node("sum", "AddV2", &["random", "c"], &[("T", Value::Type(1))]);
    let versions = Some(VersionDef { producer: 2474, ..Default::default() });
    GraphDef { node: vec![constant, shape, random, sum], versions, ..Default::default() }
}

fn step(session: &str) -> RunStep {
    RunStep {
        session_handle: session.to_owned(),
        feeds: Vec::new(),
        fetches: vec!["sum:0".to_owned()],
        targets: Vec::new(),
        options: RunOptions::default(),
        partial_run_handle: String::new(),
        request_id: 0,
    }
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + 4 * PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} never came true");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn run_test(test: impl AsyncFnOnce(&Cluster)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cluster = Cluster::start();
    runtime.block_on(async {
        let test = tokio::time::timeout(8 * PATIENCE, test(&cluster)).await;
        cluster.gate.set(true);
        test.expect("the test hangs");
    });
}

#[test]
fn closing_does_not_stand_still_for_a_silent_task() {
    run_test(async |cluster| {
        let session = cluster.open(graph_on("/job:ps/task:0")).await.unwrap();
        cluster.worker.client().run_step(step(&session)).await.unwrap();
        assert_eq!(cluster.sessions(), [1, 1]);
        cluster.gate.set(false);
        let closing = cluster.worker.client().close_session(&session);
        tokio::time::timeout(PATIENCE, closing).await.expect("nobody waits for the silent task").unwrap();
        assert_eq!(cluster.sessions(), [1, 0]);
        // The messages sent meanwhile arrive when the gate opens.
        cluster.gate.set(true);
        eventually("the end of the session", || cluster.sessions() == [0, 0]).await;
        assert_eq!(cluster.ps.census(), Census::default());
    });
}

#[test]
fn closing_ends_a_step_that_waits_for_a_silent_task_to_register_its_part() {
    run_test(async |cluster| {
        let session = cluster.open(graph_on("/job:ps/task:0")).await.unwrap();
        cluster.gate.set(false);
        let running = cluster.worker.client().run_step(step(&session));
        let closing = async {
            // Any moment between the beginning of the step and its end will do.
            tokio::task::yield_now().await;
            tokio::time::timeout(PATIENCE, cluster.worker.client().close_session(&session)).await
        };
        let (ran, closed) = tokio::join!(running, closing);
        let cancelled = ran.map(drop).unwrap_err();
        assert_eq!(cancelled.code(), Code::Cancelled);
        assert!(cancelled.message().contains("Session::Close()"), "{cancelled}");
        closed.expect("nobody waits for the silent task").unwrap();
        cluster.gate.set(true);
        eventually("the end of the session", || cluster.sessions() == [0, 0]).await;
    });
}

#[test]
fn a_session_that_is_given_up_while_it_waits_for_a_task_leaves_nothing() {
    run_test(async |cluster| {
        let opening = Box::pin(cluster.open(graph_on("/job:worker/task:1")));
        let opened = pin!(eventually("the session", || cluster.sessions() == [1, 1]));
        match select(opening, opened).await {
            Either::Left((ended, _)) => panic!("a silent task cannot join: {ended:?}"),
            Either::Right(((), opening)) => drop(opening),
        }
        eventually("the end of what was given up", || cluster.sessions() == [0, 0]).await;
    });
}

/// Abandoned sessions are kept, as in stock, unless the server is configured to reclaim them.
#[test]
fn sessions_of_programs_that_are_gone_are_reclaimed_on_demand() {
    for reclaim_sessions in [None, Some(Duration::from_millis(50))] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ServerConfig { reclaim_sessions, ..ServerConfig::default() };
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        let server = Server::start(config, ferroflow_ops::registry(), vec![listener], shutdown).unwrap();
        let open = || {
            let program = MasterClient::connect(&server.address().to_string()).unwrap();
            let opening = program.create_session(graph_on(""), ConfigProto::default(), "");
            let handle = program.wait(None, "a session", opening).unwrap();
            (program, handle)
        };
        let (stays, its_session) = open();
        let (goes, abandoned) = open();
        // A partial run outlives its calls, and must not keep the session.
        let setup = PartialRunSetupRequest {
            session_handle: abandoned.clone(),
            fetch: vec!["sum:0".to_owned()],
            ..Default::default()
        };
        goes.wait(None, "a partial run", goes.partial_run_setup(setup)).unwrap();
        // A handle that two programs know is in use as long as one of them is connected.
        let (other, shared) = open();
        stays.wait(None, "a use", stays.extend_session(&shared, GraphDef::default(), 0)).unwrap();
        drop((goes, other));
        let own = server.client();
        let is_open = |handle: &str| own.wait(None, "a look", own.list_devices(handle)).is_ok();
        if reclaim_sessions.is_some() {
            let deadline = Instant::now() + PATIENCE;
            while is_open(&abandoned) {
                assert!(Instant::now() < deadline, "the session stays");
                std::thread::yield_now();
            }
        } else {
            assert!(is_open(&abandoned), "stock keeps sessions, too");
        }
        assert!(is_open(&its_session) && is_open(&shared));
        drop(stop);
        server.join();
    }
}
