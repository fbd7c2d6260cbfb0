//! Tests of the end of training: a chief that comes late, never, or has trained; workers that have not begun.

use super::{Timeouts, until_done};
use crate::{ClusterSpec, Graph, Server, ServerConfig, Session};
use ferroflow_cluster::spec::TaskName;
use ferroflow_core::{Code, Result};
use std::net::TcpListener;
use std::time::Duration;

/// Limit of waits that end.
const SOON: Duration = Duration::from_secs(60);
/// Duration of waits that do not end.
const A_WHILE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);

/// A parameter server, a chief and another worker.
struct Cluster {
    spec: ClusterSpec,
    ps: Server,
    chief: Server,
    worker: Server,
}

impl Cluster {
    /// Starts the tasks. `program` says whether the other worker has a program.
    fn start(program: bool) -> Cluster {
        let tasks = [("ps", 0), ("worker", 0), ("worker", 1)];
        let listeners = tasks.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let mut spec = ClusterSpec::new();
        for ((job, task), listener) in tasks.iter().zip(&listeners) {
            spec.add(job, *task, &listener.local_addr().unwrap().to_string()).unwrap();
        }
        let mut servers = tasks.iter().zip(listeners).map(|((job, task), listener)| {
            let config = ServerConfig {
                task: TaskName::new(job, *task),
                cluster: spec.clone(),
                opens_sessions: program || (*job, *task) != ("worker", 1),
                io_threads: 1,
                compute_threads: 1,
                ..ServerConfig::default()
            };
            Server::start(config, crate::registry(), vec![listener], std::future::pending()).unwrap()
        });
        let mut next = || servers.next().unwrap();
        let (ps, chief, worker) = (next(), next(), next());
        drop(servers);
        Cluster { spec, ps, chief, worker }
    }

    /// Returns the end of training as the parameter server sees it; `None` if it still waits.
    fn end(&self, limit: Duration, timeouts: &Timeouts) -> Option<Result<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let done = until_done(&self.ps.task, &self.spec, timeouts);
        runtime.block_on(async { tokio::time::timeout(limit, done).await.ok() })
    }
}

fn train(server: &Server) {
    let graph = Graph::new();
    let one = graph.scope().device("/job:ps/task:0").constant(1.0f32).unwrap();
    let session = Session::connect(server, &graph).unwrap();
    session.eval(&one).unwrap();
    session.close().unwrap();
}

fn timeouts() -> Timeouts {
    Timeouts { grace: Duration::ZERO, chief: None, poll: Duration::ZERO, begin: LONG }
}

#[test]
fn a_worker_that_has_not_begun_is_waited_for_until_it_has_trained() {
    let mut cluster = Cluster::start(true);
    train(&cluster.chief);
    std::mem::replace(&mut cluster.chief, Server::local().unwrap()).stop();
    assert!(cluster.end(A_WHILE, &timeouts()).is_none(), "the worker may begin at any time");
    let hasty = Timeouts { begin: Duration::ZERO, ..timeouts() };
    assert!(matches!(cluster.end(SOON, &hasty), Some(Ok(()))), "but not forever");
    train(&cluster.worker);
    let polling = Timeouts { poll: LONG, ..timeouts() };
    assert!(cluster.end(A_WHILE, &polling).is_none(), "it may only have looked whether the chief is ready");
    assert!(matches!(cluster.end(SOON, &timeouts()), Some(Ok(()))), "it has trained");
}

#[test]
fn a_server_without_a_program_is_not_waited_for() {
    let mut cluster = Cluster::start(false);
    train(&cluster.chief);
    std::mem::replace(&mut cluster.chief, Server::local().unwrap()).stop();
    assert!(matches!(cluster.end(SOON, &timeouts()), Some(Ok(()))));
}

#[test]
fn a_chief_that_never_comes_is_not_waited_for() {
    let mut cluster = Cluster::start(true);
    std::mem::replace(&mut cluster.chief, Server::local().unwrap()).stop();
    let impatient = Timeouts { chief: Some(Duration::from_millis(1)), ..timeouts() };
    let error = cluster.end(SOON, &impatient).unwrap().unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(error.message().contains("/job:worker/replica:0/task:0 has not come"), "{}", error.message());
}
