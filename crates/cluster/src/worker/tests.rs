//! Tests of workers that call each other over loopback: what arrives, what fails, and that nothing is left behind.

mod ages;
mod reclaim;

use super::Census;
use crate::spec::{ClusterSpec, TaskName};
use crate::transport::client::{Channels, Naming, Peers, RemoteWorker};
use crate::transport::direct::{LinkHandle, RunPart};
use crate::transport::intake::Intake;
use crate::transport::io::Io;
use crate::transport::task_status::TaskStatusRequest;
use crate::{Server, ServerConfig};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{Code, Result, Status, Tensor};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{
    AttrValue, CreateWorkerSessionRequest, GraphDef, LoggingRequest, NamedTensorProto, NodeDef,
    RegisterGraphRequest, RunGraphRequest, VersionDef,
};
use futures_util::future::{Either, join_all, select};
use prost::Message;
use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

/// The limit of everything that must not hang.
const PATIENCE: Duration = Duration::from_secs(30);

const SESSION: &str = "session";

/// A server and a client of its worker.
struct Task {
    server: Server,
    remote: Arc<RemoteWorker>,
    device: String,
    incarnation: u64,
    stop: oneshot::Sender<()>,
}

/// Tasks `/job:t/task:0` and up, each on its own port, and a caller that is none of them.
struct Cluster {
    spec: ClusterSpec,
    tasks: Vec<Task>,
    channels: Arc<Channels>,
    /// Stops the caller's I/O thread.
    _stop: oneshot::Sender<()>,
    /// Reserves the tasks' ports.
    _kept: Vec<Socket>,
}

/// Reserves a port that is not assigned to others but that a server may listen on.
fn keep_port() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

impl Cluster {
    async fn start(tasks: u32) -> Cluster {
        let (kept, addresses): (Vec<_>, Vec<_>) = (0..tasks).map(|_| keep_port()).unzip();
        let mut spec = ClusterSpec::new();
        for (task, address) in addresses.iter().enumerate() {
            spec.add("t", task as u32, &address.to_string()).unwrap();
        }
        let (mut io_threads, io) = Io::prepare(1).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        io_threads.remove(0).start(move || async { drop(stopped.await) }).unwrap();
        let channels = Channels::new(io, Intake::new(BufferPool::new(1 << 20), 1 << 30));
        let mut cluster = Cluster { spec, tasks: Vec::new(), channels, _stop: stop, _kept: kept };
        for (task, address) in addresses.into_iter().enumerate() {
            let task = cluster.start_task(task as u32, TcpListener::bind(address).unwrap()).await;
            cluster.tasks.push(task);
        }
        cluster
    }

    async fn start_task(&self, index: u32, listener: TcpListener) -> Task {
        let task = TaskName::new("t", index);
        let config = ServerConfig {
            task: task.clone(),
            cluster: self.spec.clone(),
            io_threads: 2,
            compute_threads: 2,
            ..Default::default()
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        let server = Server::start(config, ferroflow_ops::registry(), vec![listener], shutdown).unwrap();
        let peers = Peers::new(
            &self.channels,
            self.spec.tasks().map(|(task, address)| (task, address.to_owned())),
            Naming::Own,
        );
        let remote = peers.unwrap().worker(&task).unwrap().clone();
        let (request, soon) = (TaskStatusRequest::default(), Instant::now() + PATIENCE);
        let ready = remote.get_status_when_ready(&request, Some(soon)).await;
        let devices = ready.unwrap().device_attributes;
        remote
            .create_session(
                &CreateWorkerSessionRequest { session_handle: SESSION.to_owned(), ..Default::default() },
                String::new(),
            )
            .await
            .unwrap();
        Task { server, remote, device: task.cpu(0), incarnation: devices[0].incarnation, stop }
    }

    fn key(&self, from: usize, to: usize, edge: &str) -> RendezvousKey {
        let (from, to) = (&self.tasks[from], &self.tasks[to]);
        RendezvousKey::new(&from.device, from.incarnation, &to.device, edge)
    }

    /// Builds a node that sends the output of another.
    fn send(&self, name: &str, input: &str, from: usize, to: usize) -> NodeDef {
        self.transfer("_Send", "T", name, &[input], from, to)
    }

    fn recv(&self, name: &str, from: usize, to: usize) -> NodeDef {
        self.transfer("_Recv", "tensor_type", name, &[], from, to)
    }

    fn transfer(
        &self,
        op: &str,
        dtype: &str,
        name: &str,
        inputs: &[&str],
        from: usize,
        to: usize,
    ) -> NodeDef {
        let (from, to) = (&self.tasks[from], &self.tasks[to]);
        transfer(op, dtype, name, inputs, (&from.device, from.incarnation), &to.device)
    }
}

/// Builds a send or receive node whose edge has the node's name.
fn transfer(
    op: &str,
    dtype: &str,
    name: &str,
    inputs: &[&str],
    (from, incarnation): (&str, u64),
    to: &str,
) -> NodeDef {
    let text = |text: &str| Value::S(text.as_bytes().to_vec().into());
    node(
        name,
        op,
        inputs,
        &[
            (dtype, Value::Type(1)),
            ("tensor_name", text(name)),
            ("send_device", text(from)),
            ("send_device_incarnation", Value::I(incarnation as i64)),
            ("recv_device", text(to)),
        ],
    )
}

impl Task {
    async fn register(&self, mut node: Vec<NodeDef>) -> String {
        node.iter_mut().for_each(|node| node.device = self.device.clone());
        let versions = Some(VersionDef { producer: 2474, ..Default::default() });
        let graph_def = Some(GraphDef { node, versions, ..Default::default() });
        let request = RegisterGraphRequest {
            session_handle: SESSION.to_owned(),
            create_worker_session_called: true,
            graph_def,
            ..Default::default()
        };
        self.remote.register_graph(&request).await.unwrap()
    }

    async fn run(&self, graph: &str, step_id: i64) -> Result<()> {
        self.remote.run_graph(&run_request(graph, step_id)).await.map(drop)
    }

    fn census(&self) -> Census {
        self.server.census()
    }
}

fn run_request(graph: &str, step_id: i64) -> RunGraphRequest {
    RunGraphRequest {
        session_handle: SESSION.to_owned(),
        create_worker_session_called: true,
        graph_handle: graph.to_owned(),
        step_id,
        store_errors_in_response_body: true,
        ..Default::default()
    }
}

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Value)]) -> NodeDef {
    let attr = |(name, value): &(&str, Value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) });
    NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|input| (*input).to_owned()).collect(),
        attr: attrs.iter().map(attr).collect(),
        ..Default::default()
    }
}

fn constant(name: &str, value: &Tensor) -> NodeDef {
    node(
        name,
        "Const",
        &[],
        &[("dtype", Value::Type(1)), ("value", Value::Tensor(Box::new(value.to_proto().unwrap())))],
    )
}

fn double(name: &str, input: &str) -> NodeDef {
    node(name, "AddV2", &[input, input], &[("T", Value::Type(1))])
}

/// Builds a NaN and a node that refuses it.
fn failing() -> [NodeDef; 2] {
    let nan = constant("nan", &Tensor::scalar(f32::NAN));
    let message = Value::S(b"bad value".to_vec().into());
    [nan, node("check", "CheckNumerics", &["nan"], &[("T", Value::Type(1)), ("message", message)])]
}

/// Builds a queue that stays empty and a node that waits for it.
fn blocked() -> [NodeDef; 2] {
    let types = ferroflow_proto::tensorflow::attr_value::ListValue { r#type: vec![1], ..Default::default() };
    let queue =
        node("queue", "FIFOQueueV2", &[], &[("component_types", Value::List(Box::new(types.clone())))]);
    [
        queue,
        node("dequeue", "QueueDequeueV2", &["queue"], &[("component_types", Value::List(Box::new(types)))]),
    ]
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} never came true");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn run_test(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(2 * PATIENCE, test).await.expect("the test hangs") });
}

/// Registers a graph that sends 1 + 1 = 2 from task 0 to task 1, and one that sends 4 from there back to the caller.
async fn there_and_back(cluster: &Cluster) -> (String, String) {
    let one = Tensor::vector(vec![1f32; 3]);
    let here = vec![constant("c", &one), double("d", "c"), cluster.send("there", "d", 0, 1)];
    let there = vec![cluster.recv("there", 0, 1), double("d", "there"), cluster.send("back", "d", 1, 0)];
    (cluster.tasks[0].register(here).await, cluster.tasks[1].register(there).await)
}

#[test]
fn tensors_cross_tasks_and_nothing_stays_behind() {
    run_test(async {
        let cluster = Cluster::start(2).await;
        let (here, there) = there_and_back(&cluster).await;
        let [a, b] = &cluster.tasks[..] else { panic!("two tasks") };
        let step = async |id: i64| {
            let back = cluster.key(1, 0, "back");
            let (ran, ran_too, received) =
                tokio::join!(b.run(&there, id), a.run(&here, id), b.remote.recv_tensor(id, &back));
            ran.and(ran_too).unwrap();
            let received = received.unwrap();
            assert_eq!(received.parcel.tensor.flat::<f32>().unwrap(), [4.0; 3]);
            assert!(!received.parcel.dead && received.sent_micros > 0);
            for task in [a, b] {
                task.remote.cleanup_graph(id).await.unwrap();
            }
        };
        join_all((0..200).map(step)).await;
        let idle = Census { sessions: 1, graphs: 1, ..Default::default() };
        assert_eq!((a.census(), b.census()), (idle, idle));
        for task in [a, b] {
            task.remote.delete_session(SESSION).await.unwrap();
            assert_eq!(task.census(), Census::default());
        }
    });
}

#[test]
fn large_tensors_arrive_whole() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let values: Vec<f32> = (0..5_000_000).map(|i| i as f32).collect();
        let [a] = &cluster.tasks[..] else { panic!("one task") };
        let graph = vec![constant("c", &Tensor::vector(values.clone())), cluster.send("out", "c", 0, 0)];
        let graph = a.register(graph).await;
        for id in 0..3 {
            let key = cluster.key(0, 0, "out");
            let (ran, received) = tokio::join!(a.run(&graph, id), a.remote.recv_tensor(id, &key));
            ran.unwrap();
            assert_eq!(received.unwrap().parcel.tensor.flat::<f32>().unwrap(), values);
            a.remote.cleanup_graph(id).await.unwrap();
        }
    });
}

#[test]
fn a_failure_and_its_cause_reach_everything_that_waits_for_the_step() {
    run_test(async {
        let cluster = Cluster::start(2).await;
        let [a, b] = &cluster.tasks[..] else { panic!("two tasks") };
        let mut nodes = failing().to_vec();
        nodes.push(cluster.send("there", "check", 0, 1));
        let (here, there) = (a.register(nodes).await, b.register(vec![cluster.recv("there", 0, 1)]).await);
        let (cause, consequence) = tokio::join!(a.run(&here, 1), b.run(&there, 1));
        let (cause, consequence) = (cause.unwrap_err(), consequence.unwrap_err());
        let text = "bad value : Tensor had NaN values\n\t [[{{node check}}]]";
        assert_eq!((cause.code(), cause.message()), (Code::InvalidArgument, text));
        assert_eq!(consequence.code(), Code::InvalidArgument);
        let remote = "\nAdditional GRPC error information from remote target /job:t/replica:0/task:0 while calling \
                      /tensorflow.WorkerService/RecvTensor:\n:";
        assert!(consequence.message().starts_with(&format!("{text}{remote}")), "{consequence}");
        let late = b.remote.recv_tensor(1, &cluster.key(1, 0, "unsent")).await;
        assert_eq!(late.err().map(|status| status.code()), Some(Code::InvalidArgument));
        for task in [a, b] {
            task.remote.cleanup_graph(1).await.unwrap();
            assert_eq!(task.census(), Census { sessions: 1, graphs: 1, ..Default::default() });
        }
    });
}

#[test]
fn giving_up_a_run_stops_it_everywhere() {
    run_test(async {
        let cluster = Cluster::start(2).await;
        let [a, b] = &cluster.tasks[..] else { panic!("two tasks") };
        let there = b.register(vec![cluster.recv("unsent", 0, 1)]).await;
        let run = Box::pin(b.run(&there, 1));
        let asked = Box::pin(eventually("the request for the tensor", || a.census().receivers == 1));
        drop(select(run, asked).await);
        let idle = Census { sessions: 1, ..Default::default() };
        eventually("the end of the request", || a.census() == idle).await;
        // The step is remembered so that late requests for its tensors learn of its end.
        let late = b.remote.recv_tensor(1, &cluster.key(1, 0, "out")).await.err().unwrap();
        assert_eq!((late.code(), late.is_derived()), (Code::Cancelled, true));
        b.remote.delete_session(SESSION).await.unwrap();
        assert_eq!(b.census(), Census::default());
    });
}

#[test]
fn a_step_that_waits_for_nothing_remote_is_given_up_too() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let [a] = &cluster.tasks[..] else { panic!("one task") };
        let graph = a.register(blocked().to_vec()).await;
        let run = Box::pin(a.run(&graph, 1));
        let began = Box::pin(eventually("the step", || a.census().steps == 1));
        drop(select(run, began).await);
        a.remote.cleanup_graph(1).await.unwrap();
        a.remote.delete_session(SESSION).await.unwrap();
        eventually("nothing", || a.census() == Census::default()).await;
    });
}

#[test]
fn thousands_wait_and_leave_at_once() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let [a] = &cluster.tasks[..] else { panic!("one task") };
        let keys: Vec<_> = (0..3000).map(|i| cluster.key(0, 0, &format!("edge {i}"))).collect();
        let waiting =
            join_all(keys.iter().enumerate().map(|(i, key)| a.remote.recv_tensor(i as i64 % 7, key)));
        let all = eventually("every receiver", || a.census().receivers == keys.len());
        drop(select(Box::pin(waiting), Box::pin(all)).await);
        let idle = Census { sessions: 1, ..Default::default() };
        eventually("no receiver", || a.census() == idle).await;
        // The connection still works.
        let graph = a.register(vec![constant("c", &Tensor::scalar(1f32))]).await;
        a.run(&graph, 9).await.unwrap();
        // Cleaning up ends waits as well.
        let key = cluster.key(0, 0, "unsent");
        let (received, ()) = tokio::join!(a.remote.recv_tensor(10, &key), async {
            eventually("the receiver", || a.census().receivers == 1).await;
            a.remote.cleanup_graph(10).await.unwrap();
        });
        let status = received.err().unwrap();
        assert_eq!((status.code(), status.is_derived()), (Code::Aborted, true));
    });
}

#[test]
fn a_peer_that_dies_is_unavailable_and_one_that_comes_back_is_another() {
    run_test(async {
        let mut cluster = Cluster::start(2).await;
        let there = cluster.tasks[1].register(vec![cluster.recv("unsent", 0, 1)]).await;
        let old_key = cluster.key(0, 1, "unsent");
        let Task { server, remote, stop, .. } = cluster.tasks.remove(0);
        let address: SocketAddr = server.address();
        let b = &cluster.tasks[0];
        let (ran, ()) = tokio::join!(b.run(&there, 1), async {
            eventually("the request for the tensor", || server.census().receivers == 1).await;
            stop.send(()).unwrap();
        });
        let status = ran.unwrap_err();
        assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status}");
        server.join();
        let down = remote.recv_tensor(2, &old_key).await.err().unwrap();
        assert_eq!(down.code(), Code::Unavailable, "{down}");
        assert!(down.message().contains("from remote target /job:t/replica:0/task:0"), "{down}");
        let again = TcpListener::bind(address).unwrap();
        let again = cluster.start_task(0, again).await;
        let restarted = remote.recv_tensor(3, &old_key).await.err().unwrap();
        assert!(
            is_restarted(&restarted, "RecvTensor expects a different device incarnation: "),
            "{restarted}"
        );
        // The peer reconnects as well and reports the same.
        let status = cluster.tasks[0].run(&there, 4).await.unwrap_err();
        assert!(status.message().contains("RecvTensor expects a different device incarnation: "), "{status}");
        again.remote.delete_session(SESSION).await.unwrap();
        let unknown = again.run("0000000000000001", 5).await.unwrap_err();
        assert!(unknown.message().starts_with("Session handle is not found: session."), "{unknown}");
    });
}

fn is_restarted(status: &Status, text: &str) -> bool {
    let payload = |(url, _): &(String, Vec<u8>)| url.ends_with("WorkerPossiblyRestarted");
    status.code() == Code::Aborted
        && status.message().starts_with(text)
        && status.payloads().iter().any(payload)
}

#[test]
fn a_partial_run_takes_and_gives_values_call_by_call() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let [a] = &cluster.tasks[..] else { panic!("one task") };
        let nodes = vec![cluster.recv("in", 0, 0), double("d", "in"), cluster.send("out", "d", 0, 0)];
        let graph = a.register(nodes).await;
        let part = |step_id, last| RunGraphRequest {
            is_partial: true,
            is_last_partial_run: last,
            ..run_request(&graph, step_id)
        };
        let value = Some(Tensor::scalar(3f32).to_proto().unwrap());
        a.remote.run_graph(&part(1, false)).await.unwrap();
        let name = cluster.key(0, 0, "in").to_string();
        let mut last = part(1, true);
        last.send = vec![NamedTensorProto { name, tensor: value }];
        last.recv_key = vec![cluster.key(0, 0, "out").to_string()];
        let response = a.remote.run_graph(&last).await.unwrap();
        let out = Tensor::from_proto(response.recv[0].tensor.as_ref().unwrap()).unwrap();
        assert_eq!(out.to_scalar::<f32>().unwrap(), 6.0);
        // A run that never ends is ended by the cleanup.
        a.remote.run_graph(&part(2, false)).await.unwrap();
        for id in [1, 2] {
            a.remote.cleanup_graph(id).await.unwrap();
        }
        a.remote.delete_session(SESSION).await.unwrap();
        eventually("nothing", || a.census() == Census::default()).await;
    });
}

#[test]
fn transfers_are_logged_while_somebody_wants_it() {
    run_test(async {
        let cluster = Cluster::start(2).await;
        let (here, there) = there_and_back(&cluster).await;
        let [a, b] = &cluster.tasks[..] else { panic!("two tasks") };
        let log = |request: LoggingRequest| async move { b.remote.logging(&request).await.unwrap().step };
        log(LoggingRequest { enable_rpc_logging: true, ..Default::default() }).await;
        let (ran, ran_too) = tokio::join!(a.run(&here, 1), b.run(&there, 1));
        ran.and(ran_too).unwrap();
        log(LoggingRequest { disable_rpc_logging: true, ..Default::default() }).await;
        let steps = log(LoggingRequest { fetch_step_id: vec![1], ..Default::default() }).await;
        let device = &steps[0].step_stats.as_ref().unwrap().dev_stats[0];
        assert_eq!((&device.device, device.node_stats.len()), (&b.device, 1));
        let label = &device.node_stats[0].timeline_label;
        let ending = format!("there from {} to {}", a.device, b.device);
        assert!(label.starts_with("[12B] [") && label.ends_with(&ending), "{label}");
    });
}

#[test]
fn a_task_that_does_not_come_is_waited_for_until_the_deadline() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let soon = || Some(Instant::now() + Duration::from_secs(1));
        let at = |address: String| {
            Peers::new(&cluster.channels, [(TaskName::new("ps", 3), address)], Naming::Own).unwrap()
        };
        let wait = async |peers: Arc<Peers>| {
            let worker = peers.worker(&TaskName::new("ps", 3)).unwrap();
            worker.get_status_when_ready(&TaskStatusRequest::default(), soon()).await.unwrap_err()
        };
        let (_kept, closed) = keep_port();
        let refused = wait(at(closed.to_string())).await;
        let another = wait(at(cluster.tasks[0].server.address().to_string())).await;
        // A name that is refused without asking a server for names, which may be slow.
        let nameless = wait(at("no..host:1".to_owned())).await;
        for (status, why) in [
            (refused, "refused"),
            (another, "/job:t/replica:0/task:0 answers at"),
            (nameless, "cannot be resolved"),
        ] {
            assert_eq!(status.code(), Code::DeadlineExceeded);
            let text = status.message();
            assert!(
                text.starts_with("/job:ps/replica:0/task:3 did not come") && text.contains(why),
                "{text}"
            );
        }
    });
}

const CALLER: &str = "/job:caller/replica:0/task:0";
const CALLER_DEVICE: &str = "/job:caller/replica:0/task:0/device:CPU:0";

impl Task {
    /// Registers a graph that doubles what the caller pushes and pushes it back.
    async fn register_doubling(&self) -> String {
        let there = transfer("_Recv", "tensor_type", "there", &[], (CALLER_DEVICE, 1), &self.device);
        let back = transfer("_Send", "T", "back", &["d"], (&self.device, self.incarnation), CALLER_DEVICE);
        self.register(vec![there, double("d", "there"), back]).await
    }

    /// Opens a direct connection; returns it and the tensors that arrive on it.
    async fn link(&self) -> (Arc<LinkHandle>, mpsc::UnboundedReceiver<(i64, RendezvousKey, Parcel)>) {
        let (tell, told) = mpsc::unbounded_channel();
        let deliver = move |step, key, parcel: Result<Parcel>| drop(tell.send((step, key, parcel.unwrap())));
        (self.remote.link(0, deliver).await.expect("Ferroflow tasks accept direct connections"), told)
    }

    async fn run_directly(&self, link: &LinkHandle, graph: &str, step_id: i64) -> Result<()> {
        let request = Some(run_request(graph, step_id));
        let part = RunPart { request, caller: CALLER.to_owned(), master_only: true, component: None };
        self.remote.run_directly(link, part, step_id).await.map(drop)
    }
}

#[test]
fn tensors_of_any_size_are_pushed_both_ways_and_nothing_stays_behind() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let [a] = &cluster.tasks[..] else { panic!("one task") };
        let graph = a.register_doubling().await;
        let (link, mut told) = a.link().await;
        let there = RendezvousKey::new(CALLER_DEVICE, 1, &a.device, "there");
        let sizes = [0, 3, 5_000, 20_000, 3_000_000];
        let steps = sizes.iter().enumerate().map(async |(step, size)| {
            let values: Vec<f32> = (0..*size).map(|i| i as f32).collect();
            let run = a.run_directly(&link, &graph, step as i64);
            let push = async { link.push(step as i64, &there, Parcel::new(Tensor::vector(values))) };
            let (ran, pushed) = tokio::join!(run, push);
            ran.and(pushed).unwrap();
        });
        join_all(steps).await;
        for _ in sizes {
            let (step, key, parcel) = told.recv().await.unwrap();
            let expected: Vec<f32> = (0..sizes[step as usize]).map(|i| 2.0 * i as f32).collect();
            assert_eq!(parcel.tensor.flat::<f32>().unwrap(), expected);
            assert_eq!((key.source(), key.edge()), (&*a.device, "back"));
        }
        assert_eq!(a.census(), Census { sessions: 1, graphs: 1, ..Default::default() });
    });
}

#[test]
fn a_failure_crosses_a_direct_connection_with_its_words() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let [a] = &cluster.tasks[..] else { panic!("one task") };
        let (graph, (link, _told)) = (a.register(failing().to_vec()).await, a.link().await);
        let directly = a.run_directly(&link, &graph, 1).await.unwrap_err();
        let called = a.run(&graph, 2).await.unwrap_err();
        assert_eq!((directly.code(), directly.message()), (called.code(), called.message()));
        let unknown = a.run_directly(&link, "no graph", 3).await.unwrap_err();
        assert_eq!(unknown.code(), Code::Aborted);
        a.remote.cleanup_graph(2).await.unwrap();
        assert_eq!(a.census(), Census { sessions: 1, graphs: 1, ..Default::default() });
    });
}

/// A frame of a direct connection.
fn frame(kind: u32, step: i64, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], &kind.to_le_bytes(), &step.to_le_bytes(), body].concat()
}

#[test]
fn a_part_that_never_begins_leaves_nothing_behind() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let [a] = &cluster.tasks[..] else { panic!("one task") };
        let key = RendezvousKey::new(CALLER_DEVICE, 1, &a.device, "there").to_string();
        let head = [&[0, 1, 1, 0][..], &(key.len() as u32).to_le_bytes(), &1i64.to_le_bytes()].concat();
        let tensor = [&head[..], key.as_bytes(), &1f32.to_le_bytes()].concat();
        for step in 0..32 {
            let request = Some(run_request("no graph", step));
            let part = RunPart { request, caller: CALLER.to_owned(), master_only: false, component: None };
            let mut socket = tokio::net::TcpStream::connect(a.server.address()).await.unwrap();
            // The last frame confirms a transfer that nobody made, which ends the connection before the part gets a turn.
            let run = frame(1, step, &part.encode_to_vec());
            let frames = [&b"Ferro/2\n"[..], &run, &frame(5, step, &tensor), &frame(12, step, &[])].concat();
            socket.write_all(&frames).await.unwrap();
            let _ = socket.read_to_end(&mut Vec::new()).await;
        }
        let idle = Census { sessions: 1, ..Default::default() };
        eventually("no step", || a.census() == idle).await;
    });
}

#[test]
fn a_part_ends_when_its_caller_gives_it_up_or_goes() {
    run_test(async {
        let cluster = Cluster::start(1).await;
        let [a] = &cluster.tasks[..] else { panic!("one task") };
        let graph = a.register(blocked().to_vec()).await;
        let idle = Census { sessions: 1, graphs: 1, ..Default::default() };
        let (link, _told) = a.link().await;
        let run = Box::pin(a.run_directly(&link, &graph, 1));
        drop(select(run, Box::pin(eventually("the step", || a.census().steps == 1))).await);
        eventually("the end of the step", || a.census() == idle).await;

        let run = Box::pin(a.run_directly(&link, &graph, 2));
        let (_, run) = match select(Box::pin(eventually("the step", || a.census().steps == 1)), run).await {
            Either::Left(began) => began,
            Either::Right((ended, _)) => panic!("the step cannot end: {ended:?}"),
        };
        link.close("the test says so");
        let broken = run.await.unwrap_err();
        assert_eq!(broken.code(), Code::Unavailable);
        let called =
            "from remote target /job:t/replica:0/task:0 while calling /tensorflow.WorkerService/RunGraph";
        assert!(broken.message().contains(called), "{broken}");
        eventually("the end of the step", || a.census() == idle).await;
        // The next run gets a new connection.
        let (link, _told) = a.link().await;
        assert!(!link.is_closed());
    });
}
