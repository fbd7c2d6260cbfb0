//! Calls of all services and frames of direct connections, damaged, against a server with a memory limit: whatever comes,
//! it answers or hangs up, stays below its limit, and answers others as before.
//!
//! The server is one of this process, or the one that `FERROFLOW_FUZZ_TARGET` names; `FERROFLOW_FUZZ_SECONDS` keeps on for
//! so long (`cargo xtask fuzz`), `FERROFLOW_FUZZ_SEED` begins elsewhere.

use bytes::{BufMut, Bytes, BytesMut};
use ferroflow::server::{ListenConfig, listen};
use ferroflow::{Graph, Server, ServerConfig, Session};
use ferroflow_proto::tensorflow as tf;
use ferroflow_testing::golden;
use h2::client::SendRequest;
use http::Request;
use prost::Message;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time limit for the answer, on a busy machine, to a call that has a deadline of its own.
const PATIENCE: Duration = Duration::from_secs(30);
/// The deadline of damaged calls: many of them wait, rightly, for what never comes.
const DEADLINE: &str = "200m";
/// Rounds of the routine check. Each makes some thirty calls and a direct connection.
const ROUNDS: u64 = 48;

/// Numbers that are the same every time (xorshift64*).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Damages a message in one to four places.
    fn damage(&mut self, message: &mut Vec<u8>) {
        const EXTREMES: [&[u8]; 6] = [
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            &[0x80, 0x80, 0x80, 0x80, 0x10],
            &[0xff, 0xff, 0xff, 0xff, 0x07],
            &[0],
            &[0x0a, 0x00],
        ];
        for _ in 0..=self.below(4) {
            let (at, other) = (self.below(message.len() + 1), self.below(message.len() + 1));
            let (first, last) = (at.min(other), at.max(other));
            match self.below(8) {
                0 | 1 if at < message.len() => message[at] ^= 1 << self.below(8),
                2 if at < message.len() => message[at] = self.next() as u8,
                3 => message.truncate(at),
                4 => drop(message.drain(first..last.min(first + 16))),
                5 if message.len() < 1 << 16 => message.extend_from_within(first..last),
                6 if at < message.len() => {
                    let extreme = EXTREMES[self.below(EXTREMES.len())];
                    message.splice(at..(at + 1).min(message.len()), extreme.iter().copied());
                }
                _ => message.insert(at, self.next() as u8),
            }
        }
    }
}

/// Graphs to send: of some families, or of all if there is much time.
fn graphs(of_all_families: bool) -> Vec<tf::GraphDef> {
    const WRITES: [&str; 7] =
        ["Save", "Write", "Merge", "Delete", "Summary", "CacheDataset", "SnapshotDataset"];
    let (every_family, every_case) = if of_all_families { (1, 7) } else { (4, 37) };
    let families = golden::families().expect("the goldens are in the repository");
    let families = families.iter().step_by(every_family);
    let files = families.map(|family| golden::load(family).expect("a golden file parses"));
    let cases = files.flat_map(|file| file.case.into_iter().step_by(every_case));
    let writes =
        |graph: &tf::GraphDef| graph.node.iter().any(|node| WRITES.iter().any(|word| node.op.contains(word)));
    cases.filter_map(|case| case.graph).filter(|graph| !writes(graph)).collect()
}

/// Calls as clients and masters make them, of every method.
fn calls(graph: &tf::GraphDef, session: &str, number: i64) -> Vec<(&'static str, Vec<u8>)> {
    let graph_def = Some(graph.clone());
    let fetch: Vec<String> = graph.node.iter().rev().take(2).map(|node| format!("{}:0", node.name)).collect();
    let target: Vec<String> = graph.node.last().map(|node| node.name.clone()).into_iter().collect();
    let tensor = tf::TensorProto {
        dtype: 1,
        tensor_shape: Some(tf::TensorShapeProto {
            dim: vec![tf::tensor_shape_proto::Dim { size: 4, name: String::new() }],
            unknown_rank: false,
        }),
        tensor_content: Bytes::from_static(&[0; 16]),
        ..Default::default()
    };
    let numbers = tf::TensorProto { dtype: 9, int64_val: vec![1; 32], ..tensor.clone() };
    let feed = vec![
        tf::NamedTensorProto {
            name: fetch.first().cloned().unwrap_or_default(),
            tensor: Some(tensor.clone()),
        },
        tf::NamedTensorProto { name: "x:0".to_owned(), tensor: Some(numbers) },
    ];
    let options = tf::CallableOptions {
        feed: vec!["x:0".to_owned()],
        fetch: fetch.clone(),
        target,
        ..Default::default()
    };
    let config = tf::ConfigProto {
        device_filters: vec!["/job:localhost".to_owned()],
        allow_soft_placement: true,
        ..Default::default()
    };
    let handle = || session.to_owned();
    let exec_opts = Some(tf::ExecutorOpts { record_costs: true, ..Default::default() });
    let recv_key = "/job:localhost/replica:0/task:0/device:CPU:0;0000000000000001;\
                    /job:localhost/replica:0/task:0/device:CPU:0;edge;0:0";
    macro_rules! call {
        ($service:literal $method:literal $type:ident { $($field:ident: $value:expr),* }) => {
            (concat!("/tensorflow.", $service, "/", $method), {
                #[allow(clippy::needless_update)]
                tf::$type { $($field: $value,)* ..Default::default() }.encode_to_vec()
            })
        };
    }
    vec![
        call!("MasterService" "CreateSession" CreateSessionRequest { graph_def: graph_def.clone(), config: Some(config) }),
        call!("MasterService" "ExtendSession" ExtendSessionRequest { session_handle: handle(), graph_def: graph_def.clone() }),
        call!("MasterService" "RunStep" RunStepRequest { session_handle: handle(), feed: feed, fetch: fetch.clone() }),
        call!("MasterService" "PartialRunSetup" PartialRunSetupRequest { session_handle: handle(), fetch: fetch.clone() }),
        call!("MasterService" "MakeCallable" MakeCallableRequest { session_handle: handle(), options: Some(options) }),
        call!("MasterService" "RunCallable" RunCallableRequest { session_handle: handle(), handle: 1, feed: vec![tensor.clone()] }),
        call!("MasterService" "ReleaseCallable" ReleaseCallableRequest { session_handle: handle(), handle: 1 }),
        call!("MasterService" "ListDevices" ListDevicesRequest { session_handle: handle() }),
        call!("WorkerService" "GetStatus" GetStatusRequest {}),
        call!("WorkerService" "CreateWorkerSession" CreateWorkerSessionRequest { session_handle: format!("w{number}") }),
        call!("WorkerService" "RegisterGraph" RegisterGraphRequest {
            session_handle: format!("w{number}"), create_worker_session_called: true, graph_def: graph_def.clone()
        }),
        call!("WorkerService" "RunGraph" RunGraphRequest {
            session_handle: format!("w{number}"), create_worker_session_called: true, graph_handle: "1".to_owned(),
            step_id: number, exec_opts: exec_opts, recv_key: fetch
        }),
        call!("WorkerService" "RecvTensor" RecvTensorRequest { step_id: number, rendezvous_key: recv_key.to_owned() }),
        call!("WorkerService" "CleanupGraph" CleanupGraphRequest { step_id: number }),
        call!("WorkerService" "DeregisterGraph" DeregisterGraphRequest { session_handle: format!("w{number}"), graph_handle: "1".to_owned() }),
        call!("WorkerService" "Logging" LoggingRequest { enable_rpc_logging: true }),
        call!("WorkerService" "DeleteWorkerSession" DeleteWorkerSessionRequest { session_handle: format!("w{number}") }),
        call!("MasterService" "CloseSession" CloseSessionRequest { session_handle: handle() }),
    ]
    .into_iter()
    .chain(eager_calls(graph, tensor, number as u64))
    .collect()
}

/// Calls of the eager service: a context, a function made of a graph's nodes, single ops of the same kinds.
fn eager_calls(
    graph: &tf::GraphDef,
    tensor: tf::TensorProto,
    context_id: u64,
) -> Vec<(&'static str, Vec<u8>)> {
    use tf::eager::{self, queue_item::Item};
    const DEVICE: &str = "/job:localhost/replica:0/task:0/device:CPU:0";
    let input = |item| eager::operation::Input { item: Some(item) };
    let kept = eager::RemoteTensorHandle {
        op_id: 1,
        device: DEVICE.to_owned(),
        op_device: DEVICE.to_owned(),
        dtype: 1,
        ..Default::default()
    };
    let operation = |node: &tf::NodeDef, id: i64| eager::Operation {
        id,
        name: node.op.clone(),
        attrs: node.attr.clone(),
        op_inputs: vec![
            input(eager::operation::input::Item::RemoteHandle(kept.clone())),
            input(eager::operation::input::Item::Tensor(tensor.clone())),
        ],
        ..Default::default()
    };
    let signature = tf::OpDef { name: "fuzz".to_owned(), ..Default::default() };
    let function_def = Some(tf::FunctionDef {
        signature: Some(signature),
        node_def: graph.node.clone(),
        ..Default::default()
    });
    let library = graph.library.clone();
    let register = |is_component_function| {
        let (function_def, library) = (function_def.clone(), library.clone());
        Item::RegisterFunction(eager::RegisterFunctionOp { function_def, is_component_function, library })
    };
    let call = eager::Operation { id: 3, name: "fuzz".to_owned(), is_function: true, ..Default::default() };
    let send =
        eager::SendTensorOp { op_id: 1, tensors: vec![tensor.clone()], device_name: DEVICE.to_owned() };
    let mut items = vec![Item::SendTensor(send), register(true), register(false)];
    items.extend(graph.node.iter().take(4).map(|node| Item::Operation(operation(node, 2))));
    items.push(Item::Operation(call.clone()));
    items.push(Item::HandleToDecref(kept.clone()));
    items.push(Item::CleanupFunction(eager::CleanupFunctionOp { step_id: 7 }));
    items.push(Item::RemoveFunction(eager::RemoveFunctionOp { function_name: "fuzz".to_owned() }));
    let all = |items: Vec<Item>| {
        let queue = items.into_iter().map(|item| eager::QueueItem { item: Some(item) }).collect();
        eager::EnqueueRequest { context_id, queue }.encode_to_vec()
    };
    let create = eager::CreateContextRequest { context_id, keep_alive_secs: 1, ..Default::default() };
    let update = eager::UpdateContextRequest { context_id, context_view_id: 1, ..Default::default() };
    let component = eager::RunComponentFunctionRequest {
        context_id,
        operation: Some(eager::Operation { is_component_function: true, func_step_id: 5, ..call }),
        ..Default::default()
    };
    let mut calls = vec![("/tensorflow.eager.EagerService/CreateContext", create.encode_to_vec())];
    calls
        .extend(items.iter().map(|item| ("/tensorflow.eager.EagerService/Enqueue", all(vec![item.clone()]))));
    calls.push(("/tensorflow.eager.EagerService/StreamingEnqueue", all(items)));
    calls.push(("/tensorflow.eager.EagerService/RunComponentFunction", component.encode_to_vec()));
    calls.push(("/tensorflow.eager.EagerService/UpdateContext", update.encode_to_vec()));
    let keep = eager::KeepAliveRequest { context_id }.encode_to_vec();
    calls.push(("/tensorflow.eager.EagerService/KeepAlive", keep));
    let wait = eager::WaitQueueDoneRequest { context_id, ..Default::default() }.encode_to_vec();
    calls.push(("/tensorflow.eager.EagerService/WaitQueueDone", wait));
    let close = eager::CloseContextRequest { context_id, context_view_id: 9 }.encode_to_vec();
    calls.push(("/tensorflow.eager.EagerService/CloseContext", close));
    calls
}

/// Ways in which the frame around a message may be wrong.
fn framed(dice: &mut Dice, message: &[u8]) -> (Bytes, Option<&'static str>) {
    let mut out = BytesMut::new();
    let (mark, length, encoding) = match dice.below(12) {
        0 => (1, message.len() as u32, Some("gzip")),
        1 => (1, message.len() as u32, Some("deflate")),
        2 => (1, message.len() as u32, None),
        3 => (0, u32::MAX, None),
        4 => (0, dice.next() as u32, None),
        5 => (7, message.len() as u32, None),
        _ => (0, message.len() as u32, None),
    };
    out.put_u8(mark);
    out.put_u32(length);
    out.put_slice(message);
    (out.freeze(), encoding)
}

/// Makes a call; returns the body of its answer, if there is one. Some calls are given up, or left without an end.
async fn call(
    connection: &SendRequest<Bytes>,
    path: &str,
    body: Bytes,
    encoding: Option<&str>,
    end: bool,
) -> Option<Bytes> {
    let mut connection =
        timeout(PATIENCE, connection.clone().ready()).await.expect("calls are let in").ok()?;
    let mut request = Request::post(format!("http://fuzz{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let deadline = if path.ends_with("/CreateSession") { "20S" } else { DEADLINE };
    request = request.header("grpc-timeout", deadline);
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let (answer, mut stream) = connection.send_request(request.body(()).ok()?, false).ok()?;
    stream.send_data(body, end).ok()?;
    let answered = async {
        let mut body = answer.await.ok()?.into_body();
        let mut all = BytesMut::new();
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
            all.put(data);
        }
        Some(all.freeze())
    };
    let answered = timeout(PATIENCE, answered).await;
    answered.unwrap_or_else(|_| panic!("{path} is not answered"))
}

/// A connection, and what carries it as long as it is kept.
async fn connect(address: &str) -> (SendRequest<Bytes>, JoinSet<()>) {
    let socket = timeout(PATIENCE, TcpStream::connect(address)).await.expect("the server listens").unwrap();
    let (connection, carried) = h2::client::handshake(socket).await.expect("the server speaks HTTP/2");
    let mut carrying = JoinSet::new();
    carrying.spawn(async { drop(carried.await) });
    (connection, carrying)
}

/// The messages of a direct connection, as another task sends them.
fn frames(number: i64) -> Vec<u8> {
    let key =
        b"/job:a/replica:0/task:0/device:CPU:0;0000000000000001;/job:b/replica:0/task:0/device:CPU:0;e;0:0";
    let mut out = BytesMut::new();
    let mut frame = |kind: u32, step: i64, body: &[u8]| {
        out.put_u32_le(body.len() as u32);
        out.put_u32_le(kind);
        out.put_i64_le(step);
        out.put_slice(body);
    };
    let request = tf::RunGraphRequest { step_id: number, graph_handle: "1".to_owned(), ..Default::default() };
    let mut part = BytesMut::new();
    part.put_u8(0x0a);
    prost::encoding::encode_varint(request.encoded_len() as u64, &mut part);
    request.encode_raw(&mut part);
    part.put_slice(b"\x12\x06/job:a");
    frame(1, number, &part);
    let head = |length: i64| {
        let mut head = BytesMut::new();
        head.put_slice(&[0, 1, 1, 0]);
        head.put_u32_le(key.len() as u32);
        head.put_i64_le(length);
        head.put_slice(key);
        head
    };
    let mut tensor = head(2);
    tensor.put_slice(&[0; 8]);
    frame(5, number, &tensor);
    for kind in [6, 10] {
        let mut announced = BytesMut::new();
        announced.put_u32_le(kind);
        announced.put_u64_le(400_000);
        announced.put_u64_le(4096);
        announced.put_slice(&head(100_000));
        frame(kind, number, &announced);
        let mut piece = BytesMut::new();
        piece.put_u32_le(kind);
        piece.put_slice(&[1; 2000]);
        frame(7, 0, &piece);
    }
    frame(8, 0, &[9, 0, 0, 0, 0, 0, 0, 0, 1, 17, 1, 0, 0, 0, 0, 0, 0, 0]);
    for kind in [9, 11, 12, 13, 2, 3] {
        frame(kind, number, &[]);
    }
    out.to_vec()
}

/// Sends damaged frames and waits until the server hangs up, or says no more.
async fn speak_directly(address: &str, dice: &mut Dice, number: i64) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let mut message = frames(number);
    dice.damage(&mut message);
    if socket.write_all(b"Ferro/2\n").await.is_err() || socket.write_all(&message).await.is_err() {
        return;
    }
    let _ = socket.shutdown().await;
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, socket.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a direct connection does not end");
}

/// Whether the server answers others as before.
fn is_well(address: &str) {
    let graph = Graph::new();
    let sum = (&graph.scope().constant([1.0f32, 2.0]).unwrap() + 1.0).unwrap();
    let session = Session::connect(format!("grpc://{address}").as_str(), &graph).unwrap();
    assert_eq!(session.eval(&sum).unwrap().flat::<f32>().unwrap(), [2.0, 3.0]);
}

async fn round(address: &str, graphs: &[tf::GraphDef], seed: u64) {
    let mut dice = Dice::new(seed);
    let (connection, _carrying) = connect(address).await;
    let graph = &graphs[dice.below(graphs.len())];
    let number = seed as i64;
    let create = tf::CreateSessionRequest { graph_def: Some(graph.clone()), ..Default::default() };
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(create.encoded_len() as u32);
    create.encode_raw(&mut message);
    let path = "/tensorflow.MasterService/CreateSession";
    let created = call(&connection, path, message.freeze(), None, true).await.unwrap_or_default();
    let created = created.get(5..).and_then(|body| tf::CreateSessionResponse::decode(body).ok());
    let session = created.unwrap_or_default().session_handle;
    for (path, message) in calls(graph, &session, number) {
        for _ in 0..2 {
            let mut message = message.clone();
            if dice.below(5) > 0 {
                dice.damage(&mut message);
            }
            let (body, encoding) = framed(&mut dice, &message);
            let end = dice.below(10) > 0;
            call(&connection, path, body, encoding, end).await;
        }
    }
    speak_directly(address, &mut dice, number).await;
}

#[test]
fn a_server_survives_damaged_calls_and_frames() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let named = std::env::var("FERROFLOW_FUZZ_TARGET").ok();
    let server = named.is_none().then(|| {
        let listeners = listen(&ListenConfig { entry: None, bind: None, port: Some(0) }).unwrap();
        let config = ServerConfig {
            memory: Some(2 << 30),
            reclaim_sessions: Some(Duration::from_secs(1)),
            ..ServerConfig::default()
        };
        Server::start(config, ferroflow::registry(), listeners, std::future::pending()).unwrap()
    });
    let address = named.unwrap_or_else(|| server.as_ref().expect("one or the other").address().to_string());
    let address = address.strip_prefix("grpc://").unwrap_or(&address).to_owned();
    let seconds = number("FERROFLOW_FUZZ_SECONDS");
    let deadline = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let first = number("FERROFLOW_FUZZ_SEED").unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let graphs = graphs(deadline.is_some());
    for seed in first.. {
        if deadline.map_or(seed - first >= ROUNDS, |deadline| Instant::now() >= deadline) {
            println!("{} rounds from seed {first}", seed - first);
            break;
        }
        // Whatever fails is repeated with this seed.
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(round(&address, &graphs, seed));
            if seed % 4 == 0 {
                is_well(&address);
            }
        }));
        assert!(failed.is_ok(), "seed {seed}");
    }
    is_well(&address);
    server.into_iter().for_each(Server::stop);
}
