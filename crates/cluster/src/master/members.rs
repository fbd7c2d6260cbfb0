//! The tasks of one session: the master's own, and the others on which the master has opened the session.
//!
//! A session waits for the tasks of other jobs, which hold its variables. It does not wait for the other tasks of the
//! master's own job, which do the same work in parallel: those join once they are up, at the latest when a graph names
//! one of them.

use crate::logged_wait::LoggedWait;
use crate::spec::{TaskName, device_passes, task_passes};
use crate::transport::client::{Peers, RemoteWorker};
use crate::transport::task_status::{TaskStatusRequest, TaskStatusResponse};
use crate::worker::{Worker, WorkerSession};
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::{Code, Result, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::{
    ClusterDef, ConfigProto, CreateWorkerSessionRequest, DeviceAttributes, GraphDef, ServerDef,
};
use futures_util::future::{Either, join, join_all, select, try_join_all};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The pause before tasks that did not agree are asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// The time to look for a task that the session can do without.
const LOOK: Duration = Duration::from_secs(1);
/// The time to look for such a task on behalf of a client that lists devices.
const LONG_LOOK: Duration = Duration::from_secs(5);
/// The time that closing a session waits for its tasks to confirm. A busy task gets a chance to hear of it before this
/// process exits; slower ones are still told.
const CONFIRM_WAIT: Duration = Duration::from_secs(2);

const UNPOISONED: &str = "no panic while the members are locked";

/// Another task of a session.
struct Member {
    worker: Arc<RemoteWorker>,
    /// The task's description of itself.
    status: TaskStatusResponse,
    /// Its devices that pass the filters.
    devices: Vec<DeviceAttributes>,
}

/// The tasks of a session.
pub(super) struct Members {
    handle: String,
    worker: Arc<Worker>,
    own: Arc<WorkerSession>,
    own_devices: Vec<DeviceAttributes>,
    cluster: SessionCluster,
    filters: Vec<DeviceSpec>,
    isolated: bool,
    /// The tasks that have joined, sorted by name, and those that have not.
    roster: RwLock<Roster>,
    /// Held while a task joins.
    joining: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Roster {
    members: Vec<Member>,
    absent: Vec<Arc<RemoteWorker>>,
    /// Tasks that may have opened the session although they did not confirm it.
    unconfirmed: Vec<Arc<RemoteWorker>>,
    /// True once the session is closing.
    closing: bool,
    /// True once every member has been told to close the session.
    dismissed: bool,
}

impl Members {
    /// Opens session `handle` on the tasks that pass the filters. Waits for tasks of other jobs that are not up yet,
    /// within the limits of the caller and its configuration, and logs which ones.
    pub(super) async fn gather(
        handle: &str,
        worker: &Arc<Worker>,
        mut cluster: SessionCluster,
        config: &ConfigProto,
        filters: Vec<DeviceSpec>,
    ) -> Result<Members> {
        let deadline = deadline(config);
        let shares_devices = config.share_cluster_devices_in_session;
        // A session that names its cluster, or shares all devices, needs all tasks from the start.
        let all_at_once = shares_devices || cluster.brought.is_some();
        let mut waiting = LoggedWait::new();
        let (candidates, absent) = loop {
            let mut news = worker.watch_cluster();
            if cluster.brought.is_none() {
                cluster.peers = worker.peers();
            }
            let found = cluster.find_members(worker, &filters, all_at_once, deadline);
            let unsettled = match select(pin!(found), pin!(news.changed())).await {
                Either::Left((Ok(found), _)) => break found,
                Either::Left((Err(error), _)) if !is_unsettled(&error) => return Err(error),
                Either::Left((Err(error), _)) => error,
                Either::Right(_) => continue,
            };
            ensure!(
                deadline.is_none_or(|deadline| Instant::now() < deadline),
                DeadlineExceeded,
                "the tasks did not agree about the cluster in time: {}",
                unsettled.message()
            );
            waiting.log("tasks that have not yet learned of a move", unsettled.message());
            worker.sleep(PAUSE).await?;
        };
        let mut own_devices = worker.device_attributes();
        if cluster.brought.is_some() {
            (0..).zip(&mut own_devices).for_each(|(index, device)| device.name = cluster.own.cpu(index));
        }
        // As in stock, state under task names that the session brought along belongs to the session, unless this option
        // says otherwise, which takes precedence.
        let experimental = config.experimental.as_ref();
        let shares = experimental.is_some_and(|set| set.share_session_state_in_clusterspec_propagation);
        let isolated = !shares && (config.isolate_session_state || cluster.brought.is_some());
        let mut own_request = cluster.request(handle, worker, isolated, &cluster.own);
        if shares_devices {
            let others = candidates.iter().flat_map(|member| &member.devices);
            own_request.cluster_device_attributes = own_devices.iter().chain(others).cloned().collect();
        }
        let members = Members {
            handle: handle.to_owned(),
            worker: worker.clone(),
            own: worker.create_session(&own_request)?,
            own_devices,
            cluster,
            filters,
            isolated,
            roster: RwLock::new(Roster { absent, ..Roster::default() }),
            joining: tokio::sync::Mutex::default(),
        };
        let devices = own_request.cluster_device_attributes;
        let joined =
            join_all(candidates.into_iter().map(|member| members.add_member(member, &devices))).await;
        if let Err(error) = joined.into_iter().collect::<Result<()>>() {
            members.leave().await;
            return Err(error);
        }
        members.log_absent();
        Ok(members)
    }

    /// Opens the session on a task, which is a member from then on.
    async fn add_member(&self, member: Member, devices: &[DeviceAttributes]) -> Result<()> {
        let mut request =
            self.cluster.request(&self.handle, &self.worker, self.isolated, member.worker.task());
        request.cluster_device_attributes = devices.to_vec();
        // If this call is cancelled, the task may have opened the session anyway.
        self.roster.write().expect(UNPOISONED).unconfirmed.push(member.worker.clone());
        member.worker.create_session(&request, self.worker.address()).await?;
        let mut roster = self.roster.write().expect(UNPOISONED);
        if roster.closing {
            drop(member.worker.forget_session(&self.handle));
            bail!(Aborted, "Session {} was closed while {} joined it.", self.handle, member.worker.task());
        }
        roster.unconfirmed.retain(|peer| peer.task() != member.worker.task());
        roster.absent.retain(|peer| peer.task() != member.worker.task());
        roster.members.push(member);
        roster.members.sort_by(|a, b| a.worker.task().cmp(b.worker.task()));
        Ok(())
    }

    fn log_absent(&self) {
        let roster = self.roster.read().expect(UNPOISONED);
        if !roster.absent.is_empty() {
            let tasks: Vec<String> = roster.absent.iter().map(|peer| peer.task().to_string()).collect();
            let session = &self.handle;
            tracing::info!(session, ?tasks, "A session starts without tasks that are not up yet.");
        }
    }

    /// Waits for the absent tasks that nodes of this graph name.
    pub(super) async fn wait_for_named(&self, graph: &GraphDef, config: &ConfigProto) -> Result<()> {
        if self.roster.read().expect(UNPOISONED).absent.is_empty() {
            return Ok(());
        }
        let functions = graph.library.iter().flat_map(|library| &library.function);
        let nodes = graph.node.iter().chain(functions.flat_map(|function| &function.node_def));
        let names: BTreeSet<&str> = nodes.map(|node| node.device.as_str()).collect();
        let named: Vec<DeviceSpec> =
            names.into_iter().filter_map(|name| DeviceSpec::parse(name).ok()).collect();
        let means = |spec: &DeviceSpec, task: &TaskName| {
            // A device specification that fits this task is placed here, and so is one that names no task.
            (spec.job.is_some() || spec.task.is_some())
                && !self.own.envs().iter().any(|env| spec.matches(env.device.spec()))
                && spec.task_part().matches(&task.spec())
        };
        let _joining = self.joining.lock().await;
        let meant =
            self.absent().into_iter().filter(|peer| named.iter().any(|spec| means(spec, peer.task())));
        let deadline = deadline(config);
        let status_request = self.worker.status_request();
        let joining = meant.map(|peer| {
            let status_request = &status_request;
            async move {
                let member = self.when_ready(peer, status_request, deadline).await?;
                member.check_agreement(&self.worker, &self.names()).await?;
                self.add_member(member, &[]).await
            }
        });
        try_join_all(joining).await.map(drop)
    }

    /// Adds the absent tasks that are up by now.
    pub(super) async fn look_for_absent(&self) {
        let _joining = self.joining.lock().await;
        let status_request = self.worker.status_request();
        let looks = self.absent().into_iter().map(|peer| {
            let status_request = &status_request;
            async move {
                let Ok(Ok(member)) = Member::if_there(peer, status_request, &self.filters, LONG_LOOK).await
                else {
                    return;
                };
                let joined = match member.check_agreement(&self.worker, &self.names()).await {
                    Ok(()) => self.add_member(member, &[]).await,
                    refused => refused,
                };
                if let Err(error) = joined {
                    tracing::debug!(%error, "A task that came up late could not join a session.");
                }
            }
        });
        join_all(looks).await;
    }

    /// Returns the absent tasks at their current addresses.
    fn absent(&self) -> Vec<Arc<RemoteWorker>> {
        let absent = self.roster.read().expect(UNPOISONED).absent.clone();
        absent.into_iter().map(|peer| self.cluster.current(&self.worker, peer)).collect()
    }

    /// Waits until a task is up, following it if it moves; returns it with its devices.
    async fn when_ready(
        &self,
        mut peer: Arc<RemoteWorker>,
        status_request: &TaskStatusRequest,
        deadline: Option<Instant>,
    ) -> Result<Member> {
        loop {
            let mut news = self.worker.watch_cluster();
            peer = self.cluster.current(&self.worker, peer);
            let ready = Member::when_ready(peer.clone(), status_request, &self.filters, deadline);
            match select(pin!(ready), pin!(news.changed())).await {
                Either::Left((ready, _)) => return ready,
                Either::Right(_) => {}
            }
        }
    }

    /// Returns whether another task has joined.
    pub(super) fn has(&self, task: &TaskName) -> bool {
        let roster = self.roster.read().expect(UNPOISONED);
        self.cluster.brought.is_none() && roster.members.iter().any(|member| member.worker.task() == task)
    }

    /// Returns the names of the other tasks that have joined.
    fn names(&self) -> Vec<String> {
        let roster = self.roster.read().expect(UNPOISONED);
        roster.members.iter().map(|member| member.worker.task().to_string()).collect()
    }

    /// Returns the session on the master's own task.
    pub(super) fn own(&self) -> &Arc<WorkerSession> {
        &self.own
    }

    /// Returns the master's own worker.
    pub(super) fn own_worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Returns the session's handle.
    pub(super) fn handle(&self) -> &str {
        &self.handle
    }

    /// Returns the devices of all members, the master's own first.
    pub(super) fn devices(&self) -> Vec<DeviceAttributes> {
        let roster = self.roster.read().expect(UNPOISONED);
        let others = roster.members.iter().flat_map(|member| &member.devices);
        self.own_devices.iter().chain(others).cloned().collect()
    }

    /// Returns the index of the device for unconstrained nodes. That is the master's first device; but among names that
    /// a session brought along, stock's masters do not know which one that is and take the first by name.
    pub(super) fn default_device(&self, devices: &[DeviceSpec]) -> usize {
        let own = self.own.env().device.spec();
        let position = match self.cluster.brought {
            Some(_) => (0..devices.len()).min_by_key(|position| devices[*position].to_string()),
            None => devices.iter().position(|device| device == own),
        };
        position.unwrap_or_default()
    }

    /// Returns the incarnation of a device; 0 for a device outside this session.
    pub(super) fn incarnation(&self, device: &str) -> u64 {
        let roster = self.roster.read().expect(UNPOISONED);
        let mut devices =
            self.own_devices.iter().chain(roster.members.iter().flat_map(|member| &member.devices));
        devices.find(|attributes| attributes.name == device).map_or(0, |attributes| attributes.incarnation)
    }

    /// Returns the task that a device belongs to.
    pub(super) fn owner(&self, device: &str) -> Result<Arc<RemoteWorker>> {
        let roster = self.roster.read().expect(UNPOISONED);
        let owns = |member: &&Member| member.devices.iter().any(|attributes| attributes.name == device);
        let member = roster.members.iter().find(owns);
        let member =
            member.ok_or_else(|| status!(Internal, "{device} does not belong to any task of the session"))?;
        Ok(member.worker.clone())
    }

    /// Ends the session on every member, without blocking on one that does not respond.
    pub(super) async fn leave(&self) {
        self.roster.write().expect(UNPOISONED).closing = true;
        // A task that is joining now either has joined or will see that the session is closing.
        let _joining = tokio::time::timeout(LOOK, self.joining.lock()).await;
        let confirmed = join_all(self.dismiss());
        if tokio::time::timeout(CONFIRM_WAIT, confirmed).await.is_err() {
            tracing::debug!(session = self.handle, "Not all tasks have confirmed the end of a session.");
        }
    }

    /// Ends the session here and tells every member to do the same; the receivers complete as members confirm.
    fn dismiss(&self) -> Vec<oneshot::Receiver<()>> {
        self.worker.delete_session(&self.handle);
        let mut roster = self.roster.write().expect(UNPOISONED);
        (roster.closing, roster.dismissed) = (true, true);
        let joined: Vec<_> = roster.members.iter().map(|member| member.worker.clone()).collect();
        let all = joined.into_iter().chain(std::mem::take(&mut roster.unconfirmed));
        all.map(|worker| worker.forget_session(&self.handle)).collect()
    }
}

impl Drop for Members {
    /// Ends a session that was cancelled while it was being opened.
    fn drop(&mut self) {
        if !self.roster.read().is_ok_and(|roster| roster.dismissed) {
            drop(self.dismiss());
        }
    }
}

/// Returns whether tasks disagree only because some have not yet learned of a move.
fn is_unsettled(error: &Status) -> bool {
    error.code() == Code::Unavailable
}

/// Returns the time at which this configuration gives up waiting for tasks.
fn deadline(config: &ConfigProto) -> Option<Instant> {
    let limit = u64::try_from(config.operation_timeout_in_ms).ok().filter(|millis| *millis > 0);
    limit.map(|millis| Instant::now() + Duration::from_millis(millis))
}

impl Member {
    /// Waits until a task is up; returns it with its devices.
    async fn when_ready(
        worker: Arc<RemoteWorker>,
        status_request: &TaskStatusRequest,
        filters: &[DeviceSpec],
        deadline: Option<Instant>,
    ) -> Result<Member> {
        let status = worker.get_status_when_ready(status_request, deadline).await?;
        Ok(Member::new(worker, status, filters))
    }

    /// Returns a task with its devices if it is up, and otherwise the task itself.
    async fn if_there(
        worker: Arc<RemoteWorker>,
        status_request: &TaskStatusRequest,
        filters: &[DeviceSpec],
        look: Duration,
    ) -> Result<std::result::Result<Member, Arc<RemoteWorker>>> {
        Ok(match worker.try_get_status(status_request, look).await? {
            Ok(status) => Ok(Member::new(worker, status, filters)),
            Err(error) => {
                tracing::debug!(task = %worker.task(), %error, "A task is not up yet.");
                Err(worker)
            }
        })
    }

    fn new(worker: Arc<RemoteWorker>, status: TaskStatusResponse, filters: &[DeviceSpec]) -> Member {
        let mut devices = status.device_attributes.clone();
        devices.retain(|device| device_passes(filters, &device.name));
        Member { worker, status, devices }
    }

    /// Fails if the task has other addresses for the session's members than the master has.
    async fn check_agreement(&self, master: &Worker, members: &[String]) -> Result<()> {
        let is_member = |name: &str| members.iter().any(|member| member == name);
        master.check_agreement(&self.worker.task().to_string(), &self.status, is_member).await
    }
}

/// The cluster that a session uses: the server's own, or one that the session brought along.
pub(super) struct SessionCluster {
    /// The name of the master's task in it.
    pub(super) own: TaskName,
    pub(super) peers: Arc<Peers>,
    /// The definition that the session brought along.
    pub(super) brought: Option<ClusterDef>,
}

impl SessionCluster {
    /// Finds the tasks that pass the filters: waits for the required ones and checks once for the others of the
    /// master's own job, which are returned separately if they are absent. All that were found agree about the cluster.
    async fn find_members(
        &self,
        worker: &Arc<Worker>,
        filters: &[DeviceSpec],
        all_at_once: bool,
        deadline: Option<Instant>,
    ) -> Result<(Vec<Member>, Vec<Arc<RemoteWorker>>)> {
        let found = self.peers.workers().filter(|peer| task_passes(filters, peer.task()));
        let (needed, others): (Vec<_>, Vec<_>) =
            found.cloned().partition(|peer| all_at_once || peer.task().job != self.own.job);
        let status_request =
            if self.brought.is_none() { worker.status_request() } else { TaskStatusRequest::default() };
        let needed =
            needed.into_iter().map(|peer| Member::when_ready(peer, &status_request, filters, deadline));
        let others = others.into_iter().map(|peer| Member::if_there(peer, &status_request, filters, LOOK));
        let (needed, others) = join(try_join_all(needed), join_all(others)).await;
        let mut candidates = needed?;
        let mut absent = Vec::new();
        for other in others {
            match other? {
                Ok(member) => candidates.push(member),
                Err(peer) => absent.push(peer),
            }
        }
        let names: Vec<String> = candidates.iter().map(|member| member.worker.task().to_string()).collect();
        let agreed = candidates.iter().map(|member| member.check_agreement(worker, &names));
        try_join_all(agreed).await?;
        Ok((candidates, absent))
    }

    /// Returns a task at its current address.
    fn current(&self, worker: &Worker, peer: Arc<RemoteWorker>) -> Arc<RemoteWorker> {
        match &self.brought {
            Some(_) => peer,
            None => worker.peers().worker(peer.task()).cloned().unwrap_or(peer),
        }
    }

    /// Builds the request that opens session `handle` on a task.
    fn request(
        &self,
        handle: &str,
        master: &Worker,
        isolated: bool,
        task: &TaskName,
    ) -> CreateWorkerSessionRequest {
        CreateWorkerSessionRequest {
            session_handle: handle.to_owned(),
            server_def: Some(self.server_def(task)),
            // Tasks under names that a session brought along keep state for that session only.
            isolate_session_state: isolated,
            cluster_device_attributes: Vec::new(),
            master_task: self.own.to_string(),
            master_incarnation: master.device().incarnation() as i64,
        }
    }

    /// The identity of a task within the session. Without a cluster the task uses the one that it was started with.
    fn server_def(&self, task: &TaskName) -> ServerDef {
        ServerDef {
            cluster: self.brought.clone(),
            job_name: task.job.clone(),
            task_index: task.task as i32,
            protocol: "grpc".to_owned(),
            ..Default::default()
        }
    }
}
