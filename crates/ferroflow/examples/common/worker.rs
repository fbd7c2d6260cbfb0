//! The task of a cluster that a process is.

use ferroflow::server::TfConfig;
use ferroflow::{Graph, ReplicaDeviceSetter, Result, Scope, Server};

/// A task that trains: it has a server of its own, and shares the variables on the parameter servers with the others.
pub(crate) struct Worker {
    role: TfConfig,
    server: Server,
}

impl Worker {
    /// Starts a task's server. That of a parameter server serves as long as the process lives, so that only those who
    /// train go on.
    pub(crate) fn start(role: TfConfig) -> Result<Option<Worker>> {
        let server = role.server()?;
        if role.task.job == "ps" {
            server.join();
            return Ok(None);
        }
        Ok(Some(Worker { role, server }))
    }

    /// What sessions are opened on.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Whether it initializes the model and writes checkpoints.
    pub(crate) fn is_chief(&self) -> bool {
        self.role.is_chief()
    }

    /// Which of how many tasks that train it is.
    pub(crate) fn replica(&self) -> (usize, usize) {
        let own = &self.role.task;
        let replicas: Vec<_> =
            self.role.cluster.tasks().map(|(task, _)| task).filter(|task| task.job != "ps").collect();
        (replicas.iter().position(|task| task == own).unwrap_or(0), replicas.len().max(1))
    }

    /// A scope that puts variables on the parameter servers, one after the other, and everything else here.
    pub(crate) fn scope(&self, graph: &Graph) -> Scope {
        let device = format!("/job:{}/task:{}", self.role.task.job, self.role.task.task);
        ReplicaDeviceSetter::new(&self.role.cluster).worker_device(&device).apply(&graph.scope())
    }
}
