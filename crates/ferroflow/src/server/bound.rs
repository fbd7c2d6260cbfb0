//! Servers that a `ServerDef` message describes, as `tf.distribute.Server` takes it.

use super::{ListenConfig, Server, listen};
use ferroflow_cluster::server::ServerConfig;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, ensure, status};
use ferroflow_proto::tensorflow::{ClusterDef, ConfigProto, ServerDef};
use std::collections::BTreeMap;
use std::net::TcpListener;

/// A server that has its port and does not serve yet: connections wait until it is started.
pub struct BoundServer {
    config: ServerConfig,
    listeners: Vec<TcpListener>,
    target: String,
}

impl BoundServer {
    /// Listens for the task that a definition describes. Port 0 of its entry stands for any free one.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the cluster does not have the task, `NotFound` if the protocol is not gRPC, `Unimplemented` if
    /// the configuration asks for a GPU, and `Unknown`, as in TensorFlow, if the address cannot be used.
    pub fn new(definition: &ServerDef) -> Result<BoundServer> {
        crate::logging::start();
        let mut definition = definition.clone();
        let protocol = definition.protocol.as_str();
        ensure!(
            matches!(protocol, "" | "grpc"),
            NotFound,
            "the protocol '{protocol}' is not supported; Ferroflow's servers speak 'grpc'"
        );
        let session_config = definition.default_session_config.take().unwrap_or_default();
        let cpu_devices = cpu_devices(&session_config)?;
        let port = u16::try_from(definition.port).ok().filter(|port| *port != 0);
        let (task, entry) = own_entry(&mut definition)?;
        let listeners = listen(&ListenConfig { entry: Some(entry.as_str()), bind: None, port })?;
        // Port 0 is replaced by the one that the system chose.
        if let Some((host, _)) = entry.rsplit_once(':') {
            let bound = listeners.first().and_then(|listener| listener.local_addr().ok());
            let bound = bound.ok_or_else(|| status!(Internal, "the server's socket has no address"))?;
            *entry = format!("{host}:{}", bound.port());
        }
        let target = format!("grpc://{entry}");
        let cluster = ClusterSpec::from_def(definition.cluster.as_ref().unwrap_or(&Default::default()))?;
        let defaults = ServerConfig::default();
        let threads = usize::try_from(session_config.intra_op_parallelism_threads).unwrap_or(0);
        let compute_threads = if threads == 0 { defaults.compute_threads } else { threads };
        let config = ServerConfig { task, cluster, cpu_devices, compute_threads, session_config, ..defaults };
        Ok(BoundServer { config, listeners, target })
    }

    /// Returns the target that sessions are opened on: the task's own entry of the cluster, with the port that it has.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Starts to serve.
    pub fn start(self) -> Result<Server> {
        let server = Server::start(self.config, crate::registry(), self.listeners, std::future::pending())?;
        tracing::info!("{} serves at {}.", server.task(), server.address());
        Ok(server)
    }
}

/// Finds the task's entry in the cluster.
fn own_entry(definition: &mut ServerDef) -> Result<(TaskName, &mut String)> {
    let number = |what: &str, value: i32| {
        u32::try_from(value)
            .map_err(|_| status!(InvalidArgument, "the {what} is {value}, expected 0 or more"))
    };
    let (task, replica) =
        (number("task index", definition.task_index)?, number("replica", definition.replica)?);
    let name = TaskName { replica, ..TaskName::new(&definition.job_name, task) };
    let known = in_words(definition.cluster.as_ref());
    let job_name = &definition.job_name;
    let jobs = definition.cluster.iter_mut().flat_map(|cluster| &mut cluster.job);
    let entry =
        jobs.filter(|job| job.name == *job_name).find_map(|job| job.tasks.get_mut(&definition.task_index));
    entry.map(|entry| (name.clone(), entry)).ok_or_else(|| super::not_a_task(&name, &known))
}

/// Lists the tasks of a cluster, some of which may not have a port yet.
fn in_words(cluster: Option<&ClusterDef>) -> String {
    let jobs = cluster.into_iter().flat_map(|cluster| &cluster.job);
    let tasks = jobs.flat_map(|job| {
        let sorted: BTreeMap<_, _> = job.tasks.iter().collect();
        sorted.into_iter().map(|(task, address)| format!("/job:{}/task:{task} at {address}", job.name))
    });
    tasks.collect::<Vec<_>>().join(", ")
}

/// Reads the number of CPU devices; other devices are refused.
fn cpu_devices(config: &ConfigProto) -> Result<usize> {
    for (kind, count) in &config.device_count {
        ensure!(
            kind == "CPU" || *count <= 0,
            Unimplemented,
            "device_count asks for {count} devices of type {kind}; Ferroflow's servers have CPUs only"
        );
    }
    let count = config.device_count.get("CPU").copied().unwrap_or(1);
    usize::try_from(count).ok().filter(|count| *count > 0).ok_or_else(|| {
        status!(InvalidArgument, "device_count asks for {count} CPU devices; a server needs at least one")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;
    use ferroflow_proto::tensorflow::JobDef;

    fn definition(job_name: &str, task_index: i32) -> ServerDef {
        let job = JobDef { name: "worker".to_owned(), tasks: [(0, "localhost:0".to_owned())].into() };
        ServerDef {
            cluster: Some(ClusterDef { job: vec![job] }),
            job_name: job_name.to_owned(),
            task_index,
            ..Default::default()
        }
    }

    fn refusal(definition: &ServerDef) -> (Code, String) {
        let error = BoundServer::new(definition).err().expect("the definition is wrong");
        (error.code(), error.message().to_owned())
    }

    #[test]
    fn a_definition_becomes_a_server_at_its_port() {
        let bound = BoundServer::new(&definition("worker", 0)).unwrap();
        let target = bound.target().to_owned();
        assert!(target.starts_with("grpc://localhost:") && !target.ends_with(":0"), "{target}");
        let server = bound.start().unwrap();
        assert_eq!(format!("grpc://localhost:{}", server.address().port()), target);
        server.stop();
    }

    #[test]
    fn definitions_that_cannot_be_served_are_refused() {
        let (code, message) = refusal(&definition("ps", 0));
        assert_eq!(code, Code::InvalidArgument);
        assert!(message.contains("/job:ps/replica:0/task:0 is not a task of the cluster"), "{message}");
        assert!(refusal(&definition("worker", -1)).1.contains("expected 0 or more"));
        let verbs = ServerDef { protocol: "grpc+verbs".to_owned(), ..definition("worker", 0) };
        assert_eq!(refusal(&verbs).0, Code::NotFound);
        let mut gpu = definition("worker", 0);
        let config = ConfigProto { device_count: [("GPU".to_owned(), 1)].into(), ..Default::default() };
        gpu.default_session_config = Some(config);
        assert_eq!(refusal(&gpu).0, Code::Unimplemented);
    }
}
