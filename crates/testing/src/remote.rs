//! A whole server, ours or any other, reached over gRPC by our own client.

use crate::suite::{Runtime, Session};
use ferroflow_cluster::api::RunStep;
use ferroflow_cluster::{MasterClient, Server, ServerConfig};
use ferroflow_core::op::Registry;
use ferroflow_core::{Result, Tensor, status};
use ferroflow_proto::tensorflow::{ConfigProto, GraphDef, GraphOptions, RewriterConfig, RunOptions};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A step that takes longer hangs.
const DEADLINE_MS: i64 = 20_000;
/// So does any other call.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// A server, and a connection to it.
pub struct Remote {
    client: MasterClient,
    config: ConfigProto,
    /// A server of our own stops when this is dropped.
    _stop: Option<Arc<oneshot::Sender<()>>>,
}

impl Remote {
    /// Starts a server with these ops.
    pub fn start(registry: Registry) -> Result<Remote> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .map_err(|error| status!(Internal, "cannot start a server: {error}"))?;
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let server = Server::start(ServerConfig::default(), registry, vec![listener], shutdown)?;
        let client = MasterClient::connect(server.target())?;
        Ok(Remote { client, config: config(true), _stop: Some(Arc::new(stop)) })
    }

    /// The server at `grpc://host:port`, which is asked to run graphs as they are.
    pub fn to(target: &str) -> Result<Remote> {
        Ok(Remote { client: MasterClient::connect(target)?, config: config(false), _stop: None })
    }
}

fn config(optimize: bool) -> ConfigProto {
    let rewrite_options = Some(RewriterConfig { disable_meta_optimizer: !optimize, ..Default::default() });
    ConfigProto {
        isolate_session_state: true,
        allow_soft_placement: true,
        graph_options: Some(GraphOptions { rewrite_options, ..Default::default() }),
        ..Default::default()
    }
}

impl Runtime for Remote {
    fn session(&self, graph: &GraphDef) -> Result<Box<dyn Session>> {
        let target = self.client.target();
        let opened = self.client.create_session(graph.clone(), self.config.clone(), target);
        let handle = self.client.wait(PATIENCE, "opening a session", opened)?;
        Ok(Box::new(RemoteSession { client: self.client.clone(), handle }))
    }
}

struct RemoteSession {
    client: MasterClient,
    handle: String,
}

impl Session for RemoteSession {
    fn run(
        &mut self,
        feeds: Vec<(String, Tensor)>,
        fetches: &[String],
        targets: &[String],
    ) -> Result<Vec<Tensor>> {
        let step = RunStep {
            session_handle: self.handle.clone(),
            feeds,
            fetches: fetches.to_vec(),
            targets: targets.to_vec(),
            options: RunOptions { timeout_in_ms: DEADLINE_MS, ..Default::default() },
            ..Default::default()
        };
        let done = self.client.wait(PATIENCE, "a step", self.client.run_step(step))?;
        let fetched = |name: &String| {
            let found = done.fetches.iter().find(|(fetched, _)| fetched == name);
            let missing = || status!(Internal, "{name} is not in the answer");
            found.map(|(_, tensor)| tensor.clone()).ok_or_else(missing)
        };
        fetches.iter().map(fetched).collect()
    }
}

impl Drop for RemoteSession {
    fn drop(&mut self) {
        // A server that has lost the session has closed it.
        let _ = self.client.wait(PATIENCE, "closing a session", self.client.close_session(&self.handle));
    }
}
