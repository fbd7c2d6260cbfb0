//! A whole server on a loopback port, reached over gRPC as a client reaches it.

use crate::suite::{Runtime, Session};
use ferroflow_cluster::{Server, ServerConfig};
use ferroflow_core::op::Registry;
use ferroflow_core::{Code, Result, Status, Tensor, status};
use ferroflow_proto::tensorflow::{
    CloseSessionRequest, CloseSessionResponse, ConfigProto, CreateSessionRequest, CreateSessionResponse,
    GraphDef, NamedTensorProto, RunOptions, RunStepRequest, RunStepResponse,
};
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::oneshot;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

/// A step that takes longer hangs.
const DEADLINE_MS: i64 = 20_000;

/// A server of its own, and a connection to it.
pub struct Remote(Arc<Connection>);

struct Connection {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
    /// The server stops when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Remote {
    /// Starts a server with these ops.
    pub fn start(registry: Registry) -> Result<Remote> {
        let failed = |error: &dyn std::fmt::Display| status!(Internal, "cannot start a server: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| failed(&error))?;
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let server = Server::start(ServerConfig::default(), registry, vec![listener], shutdown)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        let endpoint = Channel::from_shared(format!("http://{}", server.address()));
        let endpoint = endpoint.map_err(|error| failed(&error))?;
        let channel = runtime.block_on(endpoint.connect()).map_err(|error| failed(&error))?;
        Ok(Remote(Arc::new(Connection { runtime, channel, _stop: stop })))
    }
}

impl Connection {
    fn call<Q, R>(&self, method: &'static str, request: Q) -> Result<R>
    where
        Q: prost::Message + Send + Sync + 'static,
        R: prost::Message + Default + Send + Sync + 'static,
    {
        let mut client = tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        let answer = self.runtime.block_on(async {
            client.ready().await.map_err(|error| status!(Unavailable, "{error}"))?;
            let codec = tonic_prost::ProstCodec::<Q, R>::default();
            let path = PathAndQuery::from_static(method);
            client.unary(tonic::Request::new(request), path, codec).await.map_err(from_tonic)
        })?;
        Ok(answer.into_inner())
    }
}

fn from_tonic(error: tonic::Status) -> Status {
    let code = Code::from_number(error.code() as i32).unwrap_or(Code::Unknown);
    Status::new(code, error.message())
}

impl Runtime for Remote {
    fn session(&self, graph: &GraphDef) -> Result<Box<dyn Session>> {
        let config =
            ConfigProto { isolate_session_state: true, allow_soft_placement: true, ..Default::default() };
        let request = CreateSessionRequest {
            graph_def: Some(graph.clone()),
            config: Some(config),
            ..Default::default()
        };
        let created: CreateSessionResponse =
            self.0.call("/tensorflow.MasterService/CreateSession", request)?;
        Ok(Box::new(RemoteSession { connection: self.0.clone(), handle: created.session_handle }))
    }
}

struct RemoteSession {
    connection: Arc<Connection>,
    handle: String,
}

impl Session for RemoteSession {
    fn run(
        &mut self,
        feeds: Vec<(String, Tensor)>,
        fetches: &[String],
        targets: &[String],
    ) -> Result<Vec<Tensor>> {
        let feed = feeds.into_iter().map(|(name, tensor)| {
            let tensor = Some(tensor.to_proto()?);
            Ok(NamedTensorProto { name, tensor })
        });
        let request = RunStepRequest {
            session_handle: self.handle.clone(),
            feed: feed.collect::<Result<_>>()?,
            fetch: fetches.to_vec(),
            target: targets.to_vec(),
            options: Some(RunOptions { timeout_in_ms: DEADLINE_MS, ..Default::default() }),
            store_errors_in_response_body: true,
            ..Default::default()
        };
        let answer: RunStepResponse = self.connection.call("/tensorflow.MasterService/RunStep", request)?;
        if let Some(code) = Code::from_number(answer.status_code) {
            return Err(Status::new(code, answer.status_error_message));
        }
        let fetched = |name: &String| {
            let named = answer.tensor.iter().find(|named| named.name == *name);
            let tensor = named.and_then(|named| named.tensor.as_ref());
            Tensor::from_proto(tensor.ok_or_else(|| status!(Internal, "{name} is not in the answer"))?)
        };
        fetches.iter().map(fetched).collect()
    }
}

impl Drop for RemoteSession {
    fn drop(&mut self) {
        let request = CloseSessionRequest { session_handle: self.handle.clone() };
        // A server that has lost the session has closed it.
        let _ = self
            .connection
            .call::<_, CloseSessionResponse>("/tensorflow.MasterService/CloseSession", request);
    }
}
