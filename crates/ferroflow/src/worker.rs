//! Tasks that train: their server, their number among the workers, their device and their part of the data.

use crate::data::Dataset;
use crate::device_setter::ReplicaDeviceSetter;
use crate::graph::Graph;
use crate::server::{Server, TaskConfig};
use crate::train::MonitoredTrainingSession;
use ferroflow_core::scope::Scope;
use ferroflow_core::{Result, bail};

/// A task that trains. It has its own server, and shares the variables on the parameter servers with the other workers.
///
/// ```no_run
/// use ferroflow::data::digits::Digits;
/// use ferroflow::{Flags, Graph, Result, Worker};
///
/// fn main() -> Result<()> {
///     // A parameter server serves here until it is stopped; only workers go on.
///     let Some(worker) = Worker::start(Flags::from_args(&[])?.task_config()?)? else { return Ok(()) };
///     let graph = Graph::new();
///     let s = worker.scope(&graph);
///     // … the model, in `s` …
///     let batches = worker.shard(&Digits::bundled()?.examples()?)?.repeat().batch(64);
///     let session = worker.training_session(&graph).checkpoint_dir("/tmp/train_logs").build()?;
///     # let _ = (s, batches, session);
///     Ok(())
/// }
/// ```
pub struct Worker {
    config: TaskConfig,
    server: Server,
}

impl Worker {
    /// Starts the server of a task. On a parameter server, this call serves as long as the process lives, and returns `None`
    /// if the server is stopped.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an evaluator, which does not train; otherwise as [`Server::new`].
    pub fn start(config: TaskConfig) -> Result<Option<Worker>> {
        if config.task.job == "evaluator" {
            bail!(
                InvalidArgument,
                "{} does not train: it follows the checkpoints that others write; use train::Checkpoints",
                config.task
            );
        }
        let server = config.server()?;
        if config.task.job == "ps" {
            server.join();
            return Ok(None);
        }
        Ok(Some(Worker { config, server }))
    }

    /// Returns the server on which this task opens its sessions.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the task and its cluster.
    pub fn config(&self) -> &TaskConfig {
        &self.config
    }

    /// Returns `true` if this task initializes the model and writes checkpoints.
    pub fn is_chief(&self) -> bool {
        self.config.is_chief()
    }

    /// Returns the number of this worker, from 0 to [`Worker::count`] - 1; the chief is number 0.
    pub fn index(&self) -> usize {
        let tasks = self.config.cluster.tasks().map(|(task, _)| task);
        tasks.filter(|task| trains(&task.job)).take_while(|task| *task != self.config.task).count()
    }

    /// Returns the number of tasks that train: the chief and the workers.
    pub fn count(&self) -> usize {
        let tasks = self.config.cluster.tasks().filter(|(task, _)| trains(&task.job));
        tasks.count().max(1)
    }

    /// Returns the number of parameter servers.
    pub fn parameter_servers(&self) -> usize {
        self.config.cluster.num_tasks("ps")
    }

    /// Returns the device of this task, e.g. `/job:worker/task:1`.
    pub fn device(&self) -> String {
        format!("/job:{}/task:{}", self.config.task.job, self.config.task.task)
    }

    /// Returns a device setter that places variables on the parameter servers, in turn, and everything else on this task.
    pub fn device_setter(&self) -> ReplicaDeviceSetter {
        ReplicaDeviceSetter::new(&self.config.cluster).worker_device(&self.device())
    }

    /// Returns a scope that places its nodes by [`Worker::device_setter`].
    pub fn scope(&self, graph: &Graph) -> Scope {
        self.device_setter().apply(&graph.scope())
    }

    /// Describes a training session on this task's server. The chief initializes or restores the model; the others wait.
    pub fn training_session(&self, graph: &Graph) -> MonitoredTrainingSession {
        MonitoredTrainingSession::new(graph).target(&self.server).chief(self.is_chief())
    }

    /// Returns this worker's part of a dataset that is divided among all workers.
    pub fn shard<T: Send + 'static>(&self, dataset: &Dataset<T>) -> Result<Dataset<T>> {
        dataset.shard(self.count(), self.index())
    }
}

/// Returns `true` if tasks of a job train.
fn trains(job: &str) -> bool {
    !matches!(job, "ps" | "evaluator")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(job: &str, index: u32) -> Worker {
        let text = format!(
            r#"{{"cluster": {{"ps": ["a:1", "b:1"], "chief": ["c:1"], "worker": ["d:1", "e:1"], "evaluator": ["f:1"]}},
                "task": {{"type": "{job}", "index": {index}}}}}"#
        );
        // The server is a local one: the addresses do not exist.
        Worker { config: TaskConfig::from_tf_config(&text).unwrap(), server: Server::local().unwrap() }
    }

    #[test]
    fn workers_share_the_data_and_have_devices_of_their_own() {
        let workers = [worker("chief", 0), worker("worker", 0), worker("worker", 1)];
        let numbers = Dataset::from_fn(|| 0..7);
        let parts = workers.each_ref().map(|worker| worker.shard(&numbers).unwrap().collect().unwrap());
        assert_eq!(parts, [vec![0, 3, 6], vec![1, 4], vec![2, 5]]);
        assert_eq!(workers.each_ref().map(Worker::is_chief), [true, false, false]);
        assert_eq!((workers[2].count(), workers[2].parameter_servers()), (3, 2));
        let constant = workers[2].scope(&Graph::new()).constant(1.0f32).unwrap();
        assert_eq!(constant.op().device(), "/job:worker/task:1");
    }

    #[test]
    fn a_program_that_is_told_nothing_is_all_workers() {
        let alone = Worker::start(TaskConfig::from_tf_config("{}").unwrap()).unwrap().unwrap();
        assert_eq!((alone.index(), alone.count(), alone.is_chief()), (0, 1, true));
        let evaluator =
            TaskConfig { task: ferroflow_cluster::spec::TaskName::new("evaluator", 0), ..alone.config };
        assert!(Worker::start(evaluator).err().unwrap().message().contains("train::Checkpoints"));
    }
}
