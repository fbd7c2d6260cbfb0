//! Sessions that masters leave behind.

use super::*;
use crate::transport::io::Carrier;

/// A connection of its own to a server; it closes when this is dropped.
struct Master {
    remote: Arc<RemoteWorker>,
    _carrier: Carrier,
}

impl Master {
    fn connect(server: &Server) -> Master {
        let (threads, io) = Io::prepare(1).unwrap();
        let carrier = Carrier::start(threads).unwrap();
        let channels = Channels::new(io, Intake::new(BufferPool::new(1 << 20), 1 << 30));
        let task = server.task().clone();
        let peers =
            Peers::new(&channels, [(task.clone(), server.address().to_string())], Naming::Own).unwrap();
        Master { remote: peers.worker(&task).unwrap().clone(), _carrier: carrier }
    }

    async fn open(&self, session: &str, task: &str, incarnation: u64, address: &str) {
        let request = CreateWorkerSessionRequest {
            session_handle: session.to_owned(),
            master_task: task.to_owned(),
            master_incarnation: incarnation as i64,
            ..Default::default()
        };
        self.remote.create_session(&request, address.to_owned()).await.unwrap();
    }

    /// Starts a partial run that nobody finishes.
    async fn begin_partial_run(&self, session: &str, device: &str) {
        let mut node = blocked().to_vec();
        node.iter_mut().for_each(|node| node.device = device.to_owned());
        let versions = Some(VersionDef { producer: 2474, ..Default::default() });
        let request = RegisterGraphRequest {
            session_handle: session.to_owned(),
            create_worker_session_called: true,
            graph_def: Some(GraphDef { node, versions, ..Default::default() }),
            ..Default::default()
        };
        let graph = self.remote.register_graph(&request).await.unwrap();
        let request = RunGraphRequest {
            session_handle: session.to_owned(),
            is_partial: true,
            ..run_request(&graph, 77)
        };
        self.remote.run_graph(&request).await.unwrap();
    }
}

fn start(reclaim_sessions: Option<Duration>) -> (Server, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = ServerConfig { reclaim_sessions, io_threads: 1, compute_threads: 1, ..Default::default() };
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { drop(stopped.await) };
    (Server::start(config, ferroflow_ops::registry(), vec![listener], shutdown).unwrap(), stop)
}

#[test]
fn sessions_of_masters_that_are_gone_are_reclaimed_on_demand() {
    run_test(async {
        let (server, _stop) = start(Some(Duration::from_millis(50)));
        let ps = server.task().cpu(0);
        let (alive, _stop_alive) = start(None);
        let alive_at = alive.address().to_string();
        let incarnation = alive.worker().device().incarnation();
        let stays = Master::connect(&server);
        stays.open("stays", "/job:worker/replica:0/task:0", 1, "").await;
        let goes = Master::connect(&server);
        goes.open("nameless", "", 0, "").await;
        goes.open("dead", "/job:worker/replica:0/task:1", 2, "127.0.0.1:1").await;
        goes.open("idle", "/job:worker/replica:0/task:2", incarnation, &alive_at).await;
        goes.begin_partial_run("dead", &ps).await;
        assert_eq!(server.census().sessions, 4);
        drop(goes);
        eventually("the end of two sessions", || server.census().sessions <= 2).await;
        eventually("the end of their steps", || server.census().steps == 0).await;
        let left = server.masters().into_iter().collect::<Vec<_>>();
        assert_eq!(left, ["/job:worker/replica:0/task:0", "/job:worker/replica:0/task:2"]);
        let dead = TaskName::new("worker", 1);
        assert!(server.has_seen(&dead) && server.closed_for(&dead).is_none(), "it has closed nothing");
    });
}

#[test]
fn sessions_of_masters_that_are_gone_are_kept_by_default() {
    run_test(async {
        let (server, _stop) = start(None);
        let goes = Master::connect(&server);
        goes.open("nameless", "", 0, "").await;
        drop(goes);
        // Stock keeps them, too. A master that knows the handle may come back.
        let back = Master::connect(&server);
        back.begin_partial_run("nameless", &server.task().cpu(0)).await;
        assert_eq!(server.census().sessions, 1);
    });
}
