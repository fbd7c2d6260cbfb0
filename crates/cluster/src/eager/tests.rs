//! Contexts without a client: what they keep, and that nothing of it stays.

use super::api::{
    ClientCluster, ContextUpdate, EagerApi, HandleName, Input, Item, NewContext, Operation, Outcome,
    PackedPart,
};
use super::execute::Argument;
use super::{Eager, EagerCount};
use crate::spec::{ClusterSpec, TaskName};
use crate::{Server, ServerConfig};
use ferroflow_core::{Code, DType, Result, Tensor};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::eager::RemoteTensorHandle;
use ferroflow_proto::tensorflow::{
    AttrValue, CoordinationServiceConfig, DeviceAttributes, FunctionDef, NodeDef, OpDef, op_def,
};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const DEVICE: &str = "/job:localhost/replica:0/task:0/device:CPU:0";

/// A server, and the contexts on it.
struct Task {
    eager: Arc<Eager>,
    _server: Server,
}

impl Task {
    fn start() -> Task {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ServerConfig { io_threads: 1, compute_threads: 2, ..Default::default() };
        let server =
            Server::start(config, ferroflow_ops::registry(), vec![listener], std::future::pending()).unwrap();
        Task { eager: server.eager().clone(), _server: server }
    }

    async fn create(&self, id: u64, view: u64) -> Result<()> {
        let (keep_alive, clear_existing) = (Duration::from_secs(600), false);
        let (cluster, coordination, is_async) = (None, None, false);
        let part_limit = None;
        let new =
            NewContext { id, view, cluster, is_async, coordination, part_limit, keep_alive, clear_existing };
        self.eager.create_context(new).await.map(drop)
    }

    async fn enqueue(&self, id: u64, item: Item) -> Result<Outcome> {
        let mut outcomes = self.eager.enqueue(id, [Ok(item)].into_iter(), false).await?;
        Ok(outcomes.remove(0))
    }

    fn held(&self) -> usize {
        self.eager.worker.device().memory().budget().held()
    }
}

fn send(op: i64, tensor: Tensor) -> Item {
    Item::SendTensor { op, tensors: vec![tensor], device: DEVICE.to_owned() }
}

fn handle(op: i64) -> Input {
    let device = DEVICE.to_owned();
    Input::Handle(RemoteTensorHandle { op_id: op, device, dtype: 1, ..Default::default() })
}

fn operation(id: i64, name: &str, inputs: Vec<Input>) -> Item {
    let float = AttrValue { value: Some(Value::Type(DType::Float.to_wire())) };
    let attrs = [("T".to_owned(), float)].into_iter().collect();
    Item::Operation(Operation { id, name: name.to_owned(), attrs, inputs, ..Operation::default() })
}

fn function(name: &str, node: &str) -> Item {
    let arg = |name: &str| op_def::ArgDef { name: name.to_owned(), r#type: 1, ..Default::default() };
    let float = AttrValue { value: Some(Value::Type(DType::Float.to_wire())) };
    let definition = FunctionDef {
        signature: Some(OpDef {
            name: name.to_owned(),
            input_arg: vec![arg("x")],
            output_arg: vec![arg("y")],
            ..Default::default()
        }),
        node_def: vec![NodeDef {
            name: "n".to_owned(),
            op: node.to_owned(),
            input: vec!["x".to_owned()],
            attr: [("T".to_owned(), float)].into_iter().collect(),
            ..Default::default()
        }],
        ret: [("y".to_owned(), "n:y:0".to_owned())].into_iter().collect(),
        ..Default::default()
    };
    Item::RegisterFunction { definition: Box::new(definition), component: None }
}

#[tokio::test]
async fn contexts_give_back_what_they_hold() {
    let task = Task::start();
    let before = task.held();
    for round in 0..3 {
        task.create(7, round).await.unwrap();
        for op in 0..100 {
            task.enqueue(7, send(op, Tensor::vector(vec![1.0f32; 1000]))).await.unwrap();
            task.enqueue(7, operation(1000 + op, "Neg", vec![handle(op)])).await.unwrap();
        }
        task.enqueue(7, function("f", "Neg")).await.unwrap();
        let called = Operation {
            id: -1,
            name: "f".to_owned(),
            inputs: vec![handle(5)],
            is_function: true,
            ..Operation::default()
        };
        let outcome = task.enqueue(7, Item::Operation(called)).await.unwrap();
        assert_eq!(outcome.tensors[0].flat::<f32>().unwrap()[..2], [-1.0, -1.0]);
        let EagerCount { contexts, values, functions, .. } = task.eager.count();
        assert_eq!((contexts, values, functions), (1, 200, 1));
        assert!(task.held() > before + 400_000);
    }
    task.enqueue(7, Item::Release(HandleName { op: 3, output: 0 })).await.unwrap();
    task.eager.close_context(7, 1);
    assert_eq!(task.eager.count().values, 199, "a context that was closed with an older view stays");
    task.eager.close_context(7, 2);
    assert_eq!(task.eager.count(), EagerCount::default());
    let unknown = task.enqueue(7, Item::Nothing).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Aborted);
    assert!(task.held() < before + 100_000, "{} bytes are left of {before}", task.held());
}

#[tokio::test(start_paused = true)]
async fn contexts_end_when_their_clients_fall_silent() {
    let task = Task::start();
    let (clear_existing, cluster) = (false, None);
    let new = |id, seconds| NewContext {
        id,
        view: 0,
        cluster: cluster.clone(),
        is_async: false,
        coordination: None,
        part_limit: None,
        keep_alive: Duration::from_secs(seconds),
        clear_existing,
    };
    task.eager.create_context(new(1, 100)).await.unwrap();
    task.eager.create_context(new(2, 1000)).await.unwrap();
    let watching = task.eager.clone();
    let mut watch = JoinSet::new();
    watch.spawn(async move { watching.expire().await });
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert!(task.eager.keep_alive(1).is_ok());
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(task.eager.count().contexts, 2);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(task.eager.keep_alive(1).unwrap_err().code(), Code::Aborted);
    assert!(task.eager.keep_alive(2).is_ok());
}

#[tokio::test]
async fn mistakes_are_refused_and_harm_nobody() {
    let task = Task::start();
    task.create(1, 0).await.unwrap();
    task.enqueue(1, send(1, Tensor::vector(vec![1.0f32, 2.0]))).await.unwrap();
    for (what, item, code) in [
        ("a value that is not there", operation(2, "Neg", vec![handle(9)]), Code::InvalidArgument),
        ("an unknown op", operation(2, "NoSuchOp", vec![]), Code::NotFound),
        ("too many inputs", operation(2, "Neg", vec![handle(1), handle(1)]), Code::InvalidArgument),
        (
            "an op that takes a reference",
            operation(2, "Assign", vec![handle(1), handle(1)]),
            Code::Unimplemented,
        ),
        ("no values as one", Item::SendPackedHandle { op: 2, parts: vec![] }, Code::InvalidArgument),
    ] {
        let refused = task.enqueue(1, item).await.map(drop);
        assert_eq!(refused.unwrap_err().code(), code, "{what}");
    }
    task.enqueue(1, function("broken", "NoSuchOp")).await.unwrap();
    let called =
        Operation { id: 3, name: "broken".to_owned(), inputs: vec![handle(1)], ..Operation::default() };
    assert!(task.enqueue(1, Item::Operation(called)).await.is_err());
    let too_far = ContextUpdate { id: 1, view: 2, cluster: None };
    assert_eq!(task.eager.update_context(too_far).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(task.eager.wait_queue_done(1, &[4]).await.unwrap_err().code(), Code::Unimplemented);
    let outcome = task.enqueue(1, operation(-1, "Neg", vec![handle(1)])).await.unwrap();
    assert_eq!(outcome.tensors[0].flat::<f32>().unwrap(), [-1.0, -2.0]);
}

#[tokio::test]
async fn an_op_on_a_resource_of_another_task_is_refused() {
    let task = Task::start();
    let own = TaskName::new("localhost", 0);
    let mut cluster = ClusterSpec::single(&own, "127.0.0.1:1");
    cluster.add("localhost", 1, "127.0.0.1:2").unwrap();
    let there = DEVICE.replace("task:0", "task:1");
    let device =
        DeviceAttributes { name: there.clone(), device_type: "CPU".to_owned(), ..Default::default() };
    let new = NewContext {
        id: 3,
        view: 0,
        cluster: Some(ClientCluster { own, cluster, devices: vec![device] }),
        is_async: false,
        coordination: None,
        part_limit: None,
        keep_alive: Duration::from_secs(600),
        clear_existing: false,
    };
    task.eager.create_context(new).await.unwrap();
    let dtype = DType::Resource.to_wire();
    let variable = RemoteTensorHandle { op_id: 1, device: there.clone(), dtype, ..Default::default() };
    let float = AttrValue { value: Some(Value::Type(DType::Float.to_wire())) };
    let read = |variable: Input| {
        let attrs = [("dtype".to_owned(), float.clone())].into_iter().collect();
        let (name, inputs) = ("ReadVariableOp".to_owned(), vec![variable]);
        Item::Operation(Operation { id: 2, name, attrs, inputs, ..Operation::default() })
    };
    let refused = task.enqueue(3, read(Input::Handle(variable))).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains(&format!("uses a resource of {there}")), "{refused}");
}

#[tokio::test]
async fn nothing_is_left_of_a_client_that_is_gone() {
    let task = Task::start();
    let before = task.held();
    let leader = "/job:localhost/replica:0/task:0".to_owned();
    let coordination = CoordinationServiceConfig {
        service_type: "standalone".to_owned(),
        service_leader: leader,
        ..Default::default()
    };
    let own = TaskName::new("localhost", 0);
    let cluster = ClusterSpec::single(&own, "127.0.0.1:1");
    let new = NewContext {
        id: 5,
        view: 0,
        cluster: Some(ClientCluster { own, cluster, devices: Vec::new() }),
        is_async: true,
        coordination: Some(coordination),
        part_limit: None,
        keep_alive: Duration::from_secs(600),
        clear_existing: false,
    };
    task.eager.create_context(new).await.unwrap();
    task.eager.coordination().insert("a/b", &[7; 300_000], false).unwrap();
    task.enqueue(5, send(1, Tensor::vector(vec![1.0f32; 100_000]))).await.unwrap();
    let parts = vec![PackedPart::Tensor(Tensor::vector(vec![1.0f32; 50_000]), DEVICE.to_owned())];
    task.enqueue(5, Item::SendPackedHandle { op: 2, parts }).await.unwrap();
    task.enqueue(5, function("f", "Neg")).await.unwrap();
    // An operation that nobody ever completes, and others that wait for it.
    let transfer = |name: &str, op: &str| {
        let text = |text: &str| AttrValue { value: Some(Value::S(text.as_bytes().to_vec().into())) };
        let attrs = [
            ("tensor_type", AttrValue { value: Some(Value::Type(1)) }),
            ("tensor_name", text(name)),
            ("send_device", text(DEVICE)),
            ("send_device_incarnation", AttrValue { value: Some(Value::I(1)) }),
            ("recv_device", text(DEVICE)),
        ];
        let attrs = attrs.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
        Item::Operation(Operation { id: 9, name: op.to_owned(), attrs, ..Operation::default() })
    };
    let mut waiting = JoinSet::new();
    let eager = task.eager.clone();
    let blocked = transfer("never", "_Recv");
    waiting.spawn(async move { eager.enqueue(5, [Ok(blocked)].into_iter(), false).await.map(drop) });
    tokio::task::yield_now().await;
    let unanswered = Operation { id: 10, name: "NoOp".to_owned(), ..Operation::default() };
    task.enqueue(5, Item::Operation(unanswered)).await.unwrap();
    let eager = task.eager.clone();
    waiting.spawn(async move { eager.wait_queue_done(5, &[]).await });
    tokio::task::yield_now().await;
    assert!(task.held() > before + 800_000);
    let another = NewContext {
        id: 6,
        view: 0,
        cluster: None,
        is_async: false,
        coordination: None,
        part_limit: None,
        keep_alive: Duration::from_secs(600),
        clear_existing: true,
    };
    task.eager.create_context(another).await.unwrap();
    while let Some(ended) = waiting.join_next().await {
        assert_eq!(ended.unwrap().unwrap_err().code(), Code::Cancelled);
    }
    let one = EagerCount { contexts: 1, ..Default::default() };
    assert_eq!((task.eager.count(), task.eager.running_calls()), (one, 0));
    assert_eq!(task.eager.coordination().get("a/b").unwrap_err().code(), Code::Internal);
    task.eager.close_context(6, 0);
    assert!(task.held() < before + 200_000, "{} bytes are left of {before}", task.held());
}

/// Two tasks of one client, whose first one can be lost and started again.
struct Pair {
    worker: Task,
    ps: Task,
    view: u64,
}

impl Pair {
    const ID: u64 = 11;

    async fn start() -> Pair {
        let pair = Pair { worker: Task::start(), ps: Task::start(), view: 0 };
        for (task, job) in [(&pair.worker, "worker"), (&pair.ps, "ps")] {
            task.eager.create_context(pair.context(job)).await.unwrap();
        }
        pair
    }

    fn cluster(&self, job: &str) -> ClientCluster {
        let address = |task: &Task| task._server.target().trim_start_matches("grpc://").to_owned();
        let mut cluster = ClusterSpec::single(&TaskName::new("worker", 0), &address(&self.worker));
        cluster.add("ps", 0, &address(&self.ps)).unwrap();
        let device = |(job, task): (&str, &Task)| DeviceAttributes {
            name: device_of(job),
            device_type: "CPU".to_owned(),
            incarnation: task.eager.worker.device().incarnation(),
            ..Default::default()
        };
        let devices = [("worker", &self.worker), ("ps", &self.ps)].map(device).to_vec();
        ClientCluster { own: TaskName::new(job, 0), cluster, devices }
    }

    fn context(&self, job: &str) -> NewContext {
        NewContext {
            id: Pair::ID,
            view: self.view,
            cluster: Some(self.cluster(job)),
            is_async: false,
            coordination: None,
            part_limit: None,
            keep_alive: Duration::from_secs(600),
            clear_existing: false,
        }
    }

    fn update(&self, task: &Task, job: &str) {
        let update = ContextUpdate { id: Pair::ID, view: self.view, cluster: Some(self.cluster(job)) };
        task.eager.update_context(update).unwrap();
    }

    /// Another process takes the first task's place.
    async fn replace_worker(&mut self) {
        (self.worker, self.view) = (Task::start(), self.view + 1);
        self.worker.eager.create_context(self.context("worker")).await.unwrap();
        self.update(&self.ps, "ps");
    }

    /// Registers a function that has the other task negate its argument.
    async fn register(&self, name: &str) {
        let Item::RegisterFunction { mut definition, component } = function(name, "Neg") else {
            unreachable!("a function is registered")
        };
        definition.node_def[0].device = device_of("ps");
        self.worker.enqueue(Pair::ID, Item::RegisterFunction { definition, component }).await.unwrap();
    }

    async fn call(&self, name: &str) -> Result<f32> {
        let outcome = self.worker.enqueue(Pair::ID, Item::Operation(call(name))).await?;
        Ok(outcome.tensors[0].flat::<f32>()?[0])
    }

    /// Waits until the other task keeps this number of parts of functions.
    async fn parts_left(&self, number: usize) {
        let settled = async {
            while self.ps.eager.count().parts != number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let settled = tokio::time::timeout(Duration::from_secs(30), settled).await;
        settled.unwrap_or_else(|_| panic!("{:?} instead of {number} parts", self.ps.eager.count()));
    }
}

fn device_of(job: &str) -> String {
    format!("/job:{job}/replica:0/task:0/device:CPU:0")
}

fn call(name: &str) -> Operation {
    let inputs = vec![Input::Tensor(Tensor::scalar(2.0f32))];
    Operation { id: -1, name: name.to_owned(), inputs, is_function: true, ..Operation::default() }
}

#[tokio::test]
async fn a_task_keeps_no_parts_of_functions_of_tasks_that_were_lost() {
    let mut pair = Pair::start().await;
    let mut counts = Vec::new();
    for _ in 0..5 {
        for name in ["f", "g", "h"] {
            pair.register(name).await;
            assert_eq!(pair.call(name).await.unwrap(), -2.0);
        }
        counts.push((pair.ps.eager.count(), pair.ps.eager.worker.census()));
        pair.replace_worker().await;
    }
    assert_eq!(counts[0].0, EagerCount { contexts: 1, values: 0, functions: 0, parts: 3, plans: 3 });
    assert!(counts.windows(2).all(|pair| pair[0] == pair[1]), "{counts:#?}");
}

#[tokio::test]
async fn a_task_keeps_no_parts_of_contexts_that_were_replaced() {
    let mut pair = Pair::start().await;
    for _ in 0..3 {
        pair.register("f").await;
        assert_eq!(pair.call("f").await.unwrap(), -2.0);
        assert_eq!(pair.ps.eager.count().parts, 1);
        pair.view += 1;
        pair.worker.eager.create_context(pair.context("worker")).await.unwrap();
    }
}

#[tokio::test]
async fn parts_of_functions_end_with_their_functions_and_plans() {
    let mut pair = Pair::start().await;
    for name in ["f", "g"] {
        pair.register(name).await;
        assert_eq!(pair.call(name).await.unwrap(), -2.0);
    }
    pair.parts_left(2).await;
    pair.worker.enqueue(Pair::ID, Item::RemoveFunction("f".to_owned())).await.unwrap();
    pair.parts_left(1).await;
    for _ in 0..3 {
        // Both plan anew.
        pair.view += 1;
        pair.update(&pair.worker, "worker");
        pair.update(&pair.ps, "ps");
        assert_eq!(pair.call("g").await.unwrap(), -2.0);
        pair.parts_left(1).await;
    }
}

#[tokio::test]
async fn a_function_that_is_planned_while_the_cluster_changes_is_planned_anew() {
    let mut pair = Pair::start().await;
    pair.register("f").await;
    let context = pair.worker.eager.context(Pair::ID).unwrap();
    // A call has looked at the cluster when another worker takes the place of the parameter server.
    let outdated = context.view();
    (pair.ps, pair.view) = (Task::start(), 1);
    pair.ps.eager.create_context(pair.context("ps")).await.unwrap();
    pair.update(&pair.worker, "worker");
    let arguments = [Argument::Here(Tensor::scalar(2.0f32))];
    let planned = context.function_plan(&outdated, context.session.env(), &call("f"), &arguments).await;
    drop(planned);
    assert_eq!(pair.call("f").await.unwrap(), -2.0);
    assert_eq!(context.view().plans.len(), 1);
    assert_eq!(pair.ps.eager.count().parts, 1, "the part is not on the task that is there now");
}

#[tokio::test]
async fn functions_go_on_while_the_cluster_changes() {
    let mut pair = Pair::start().await;
    pair.register("f").await;
    let mut calls: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..2 {
        let worker = pair.worker.eager.clone();
        calls.spawn(async move {
            for _ in 0..100 {
                let items = [Ok(Item::Operation(call("f")))].into_iter();
                let outcomes = worker.enqueue(Pair::ID, items, false).await?;
                assert_eq!(outcomes[0].tensors[0].flat::<f32>()?, [-2.0]);
            }
            Ok(())
        });
    }
    while !calls.is_empty() {
        pair.view += 1;
        pair.update(&pair.ps, "ps");
        pair.update(&pair.worker, "worker");
        let _ = tokio::time::timeout(Duration::from_millis(2), async {
            calls.join_next().await.map(|ended| ended.unwrap().unwrap())
        })
        .await;
    }
    assert_eq!(pair.call("f").await.unwrap(), -2.0);
    pair.parts_left(1).await;
}

/// Futures of calls are polled on I/O threads and moved into their tasks, so they must stay small.
#[tokio::test]
async fn a_call_takes_little_memory() {
    let task = Task::start();
    let call = task.eager.enqueue(1, [Ok(Item::Nothing)].into_iter(), true);
    let bytes = std::mem::size_of_val(&call);
    assert!(bytes < 8 << 10, "{bytes} bytes");
    drop(call);
}
