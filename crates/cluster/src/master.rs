//! A master: keeps sessions, plans their steps and runs them.
//!
//! It handles the calls of `tensorflow.MasterService` in domain types; `transport` reads and writes the
//! messages. Its own task's part of a step runs here, through [`crate::worker`]'s session; other tasks run theirs.

mod callables;
mod members;
mod partial_run;
mod parts;
mod plan;
mod plan_cache;
mod reclaim;
mod refusals;
mod session;
mod step;
mod transfer_log;
mod waits;

#[cfg(test)]
mod tests;

pub(crate) use waits::LongWaits;

use crate::api::{CallableOutcome, Devices, MasterApi, RunCallable, RunStep, StepOutcome};
use crate::random;
use crate::requests::RecentRequests;
use crate::spec::{ClusterSpec, parse_filters, task_passes};
use crate::worker::Worker;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::{Code, Result, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::{
    CallableOptions, ConfigProto, GraphDef, PartialRunSetupRequest, RunOptions,
};
use futures_util::future::{join_all, try_join_all};
use members::{Members, SessionCluster};
use prost::Message;
use session::MasterSession;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// The number of remembered requests, as in stock's masters.
const REMEMBERED_REQUESTS: usize = 10_000;

/// Bytes charged for a session without a graph.
const SESSION_BYTES: usize = 128 << 10;

/// The master of one task.
pub struct Master {
    worker: Arc<Worker>,
    port: u16,
    requests: RecentRequests,
    /// Open sessions by handle. They stay until they are closed or reclaimed.
    sessions: RwLock<HashMap<String, Arc<MasterSession>>>,
    /// The time after which abandoned sessions are closed; `None` keeps them.
    reclaim_after: Option<Duration>,
    /// Settings of sessions that do not bring their own.
    session_config: ConfigProto,
}

const UNPOISONED: &str = "no panic while sessions are locked";

impl Master {
    /// Creates a master that runs graphs on this worker and its peers and that is reached at this port.
    pub(crate) fn new(
        worker: Arc<Worker>,
        port: u16,
        reclaim_after: Option<Duration>,
        session_config: ConfigProto,
    ) -> Arc<Master> {
        Arc::new(Master {
            worker,
            port,
            requests: RecentRequests::new(REMEMBERED_REQUESTS),
            sessions: RwLock::default(),
            reclaim_after,
            session_config,
        })
    }

    fn session(&self, handle: &str) -> Result<Arc<MasterSession>> {
        let sessions = self.sessions.read().expect(UNPOISONED);
        sessions.get(handle).cloned().ok_or_else(|| status!(Aborted, "Session {handle} is not found."))
    }

    fn remove(&self, handle: &str) -> Result<Arc<MasterSession>> {
        let removed = self.sessions.write().expect(UNPOISONED).remove(handle);
        removed.ok_or_else(|| restarted(Code::Aborted, handle))
    }

    /// Returns the handle of the session that its client has given this name.
    pub(crate) fn session_named(&self, name: &str) -> Option<String> {
        let sessions = self.sessions.read().expect(UNPOISONED);
        let named = sessions.iter().find(|(_, session)| session.name() == name);
        named.map(|(handle, _)| handle.clone())
    }

    /// Returns the number of open sessions.
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.read().expect(UNPOISONED).len()
    }

    /// Returns the number of running steps.
    pub(crate) fn running_steps(&self) -> usize {
        self.sessions.read().expect(UNPOISONED).values().map(|session| session.steps.count()).sum()
    }

    /// Returns the running steps by session handle.
    fn running(&self) -> Vec<(String, u64)> {
        let sessions = self.sessions.read().expect(UNPOISONED);
        let steps = sessions.iter().flat_map(|(handle, session)| {
            session.steps.ids().into_iter().map(move |step| (handle.clone(), step))
        });
        steps.collect()
    }

    /// Adopts the addresses of a newer cluster. Sessions that involve a task that has moved cannot continue; a session
    /// opened now finds the task at its new address.
    pub(crate) fn learn(&self, cluster: &ClusterSpec, epoch: u64) -> Result<()> {
        let moved = self.worker.learn(cluster, epoch)?;
        let sessions: Vec<_> = self.sessions.read().expect(UNPOISONED).values().cloned().collect();
        for session in sessions {
            if let Some((task, address)) = moved.iter().find(|(task, _)| session.context.members.has(task)) {
                session.steps.close(status!(Aborted, "{task} was restarted at {address}."));
            }
        }
        Ok(())
    }

    /// Closes every session because this task is ending. Their steps fail with `Unavailable`, not `Cancelled`, so that
    /// programs look for the task that replaces this one.
    pub(crate) async fn end(&self) {
        self.close_all(status!(Unavailable, "{} is ending", self.worker.task())).await;
    }

    async fn close_all(&self, reason: Status) {
        let sessions = std::mem::take(&mut *self.sessions.write().expect(UNPOISONED));
        join_all(sessions.values().map(|session| session.close(reason.clone()))).await;
    }

    /// Returns the settings of a session that brings these, merged with the server's as protocol buffers are.
    fn with_defaults(&self, config: ConfigProto) -> Result<ConfigProto> {
        if self.session_config == ConfigProto::default() {
            return Ok(config);
        }
        let mut merged = self.session_config.clone();
        let merge = merged.merge(config.encode_to_vec().as_slice());
        merge.map_err(|error| status!(Internal, "cannot merge the settings of a session: {error}"))?;
        Ok(merged)
    }

    /// Bounds a step that brings no bound of its own by the one that the server was given.
    fn limit(&self, options: &mut RunOptions) {
        if options.timeout_in_ms == 0 {
            options.timeout_in_ms = self.session_config.operation_timeout_in_ms.max(0);
        }
    }

    fn check_config(&self, config: &ConfigProto) -> Result<Vec<DeviceSpec>> {
        ensure!(
            !config.use_per_session_threads && config.session_inter_op_thread_pool.is_empty(),
            InvalidArgument,
            "Distributed session does not support session thread pool options."
        );
        let filters = parse_filters(&config.device_filters)?;
        Ok(filters)
    }

    /// Returns the cluster of a session that was opened at `target`.
    fn cluster(&self, config: &ConfigProto, target: &str) -> Result<SessionCluster> {
        let brought = config.cluster_def.as_ref().filter(|cluster| !cluster.job.is_empty());
        let Some(def) = brought else {
            let (own, peers) = (self.worker.task().clone(), self.worker.peers());
            return Ok(SessionCluster { own, peers, brought: None });
        };
        let spec = ClusterSpec::from_def(def)?;
        let (target, port) = (target.strip_prefix("grpc://").unwrap_or(target), format!(":{}", self.port));
        let own = spec.tasks().find(|(_, address)| *address == target);
        let own = own.or_else(|| spec.tasks().find(|(_, address)| address.ends_with(&port)));
        let Some((own, _)) = own else {
            bail!(
                InvalidArgument,
                "The master (current machine) is not included in the provided cluster_def. It has {spec}, and the \
                 session was opened at {target}"
            )
        };
        ensure!(
            own != *self.worker.task(),
            InvalidArgument,
            "The ClusterSpec names the job and task index to be the same names that were provided when the server \
             booted. This is currently not allowed. Job: {}, task index: {}",
            own.job,
            own.task
        );
        let peers = self.worker.peers_in(&spec, &own)?;
        Ok(SessionCluster { own, peers, brought: Some(def.clone()) })
    }
}

/// The status of CloseSession and ListDevices for an unknown session.
fn restarted(code: Code, handle: &str) -> Status {
    Status::new(code, format!("Session {handle} is not found. Possibly, this master has restarted."))
}

impl MasterApi for Master {
    async fn create_session(&self, graph: GraphDef, config: ConfigProto, target: &str) -> Result<String> {
        let config = self.with_defaults(config)?;
        let filters = self.check_config(&config)?;
        self.worker.check_not_draining()?;
        let handle = format!("{:016x}", random()?);
        let cluster = self.cluster(&config, target)?;
        let members = Members::gather(&handle, &self.worker, cluster, &config, filters).await?;
        let mut charge = self.worker.device().memory().budget().charge(SESSION_BYTES)?;
        charge.add(config.encoded_len())?;
        let session = MasterSession::new(members, config, charge);
        if let Err(error) = session.extend(graph, None).await {
            session.close(MasterSession::closed_by_program()).await;
            return Err(error);
        }
        self.sessions.write().expect(UNPOISONED).insert(handle.clone(), session);
        tracing::info!(session = handle, "A session was opened.");
        Ok(handle)
    }

    async fn extend_session(&self, handle: &str, graph: GraphDef, version: i64) -> Result<i64> {
        self.session(handle)?.extend(graph, Some(version)).await
    }

    async fn run_step(&self, mut step: RunStep) -> Result<StepOutcome> {
        self.requests.track(step.request_id, "RunStep (Master)")?;
        self.limit(&mut step.options);
        let session = self.session(&step.session_handle)?;
        if !step.partial_run_handle.is_empty() {
            return session.continue_partial_run(step).await;
        }
        self.worker.check_not_draining()?;
        session.run_step(step).await
    }

    async fn partial_run_setup(&self, request: PartialRunSetupRequest) -> Result<String> {
        self.requests.track(request.request_id, "PartialRunSetup (Master)")?;
        self.worker.check_not_draining()?;
        self.session(&request.session_handle)?.set_up_partial_run(request).await
    }

    async fn close_session(&self, handle: &str) -> Result<()> {
        let session = self.remove(handle)?;
        session.close(MasterSession::closed_by_program()).await;
        tracing::info!(session = handle, "A session was closed.");
        Ok(())
    }

    async fn list_devices(&self, handle: &str) -> Result<Devices> {
        if handle.is_empty() {
            let (request, peers) = (self.worker.status_request(), self.worker.peers());
            let asked = peers.workers().map(|worker| worker.get_status_when_ready(&request, None));
            let remote = try_join_all(asked).await?.into_iter().flat_map(|status| status.device_attributes);
            return Ok(Devices { local: self.worker.device_attributes(), remote: remote.collect() });
        }
        match self.session(handle) {
            Ok(session) => {
                session.context.members.look_for_absent().await;
                Ok(Devices { local: session.devices(), remote: Vec::new() })
            }
            Err(_) => Err(restarted(Code::InvalidArgument, handle)),
        }
    }

    async fn reset(&self, containers: Vec<String>, device_filters: Vec<String>) -> Result<()> {
        let filters = parse_filters(&device_filters)?;
        // Filters choose among other tasks; the master's own task is always included.
        self.worker.cleanup_all(&containers);
        let peers = self.worker.peers();
        let chosen = peers.workers().filter(|worker| task_passes(&filters, worker.task()));
        let emptied = join_all(chosen.map(|worker| worker.cleanup_all(&containers))).await;
        self.close_all(MasterSession::closed_by_program()).await;
        emptied.into_iter().collect::<Result<()>>()?;
        tracing::info!(?containers, "Containers were reset and all sessions closed.");
        Ok(())
    }

    async fn make_callable(
        &self,
        session: &str,
        mut options: CallableOptions,
        request_id: i64,
    ) -> Result<i64> {
        self.requests.track(request_id, "MakeCallable (Master)")?;
        self.limit(options.run_options.get_or_insert_default());
        self.session(session)?.make_callable(options).await
    }

    async fn run_callable(&self, call: RunCallable) -> Result<CallableOutcome> {
        self.requests.track(call.request_id, "RunCallable (Master)")?;
        self.worker.check_not_draining()?;
        self.session(&call.session_handle)?.run_callable(call.handle, call.feeds).await
    }

    async fn release_callable(&self, session: &str, handle: i64) -> Result<()> {
        self.session(session)?.callables.release(handle);
        Ok(())
    }
}
