//! The tasks of one session: the master's own, and those on which it has opened the session as well.

use crate::spec::{TaskName, device_passes, task_passes};
use crate::transport::client::{Peers, RemoteWorker};
use crate::transport::introduction::{Answer, Question};
use crate::worker::{Worker, WorkerSession};
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::{Result, status};
use ferroflow_proto::tensorflow::{
    ClusterDef, ConfigProto, CreateWorkerSessionRequest, DeviceAttributes, ServerDef,
};
use futures_util::future::{join_all, try_join_all};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Another task of a session.
struct Member {
    worker: Arc<RemoteWorker>,
    devices: Vec<DeviceAttributes>,
}

/// The tasks of a session.
pub(super) struct Members {
    handle: String,
    worker: Arc<Worker>,
    own: Arc<WorkerSession>,
    others: Vec<Member>,
    /// The devices of all members, the master's own first.
    devices: Vec<DeviceAttributes>,
}

impl Members {
    /// Opens session `handle` on every task that passes the filters. Waits for those that are not there yet, as long as
    /// the caller does and its configuration allows, and says in the log for whom.
    pub(super) async fn gather(
        handle: &str,
        worker: &Arc<Worker>,
        cluster: &SessionCluster,
        config: &ConfigProto,
        filters: &[DeviceSpec],
    ) -> Result<Members> {
        let limit = u64::try_from(config.operation_timeout_in_ms).ok().filter(|millis| *millis > 0);
        let deadline = limit.map(|millis| Instant::now() + Duration::from_millis(millis));
        let invited = cluster.peers.workers().filter(|peer| task_passes(filters, peer.task()));
        let question = if cluster.brought.is_none() { worker.question() } else { Question::default() };
        let asked = invited.map(|peer| {
            let question = &question;
            async move { Ok((peer, peer.get_status_when_ready(question, deadline).await?)) }
        });
        let answers = try_join_all(asked).await?;
        let is_member = |name: &str| answers.iter().any(|(peer, _)| peer.task().to_string() == name);
        let agreed = answers.iter().map(|(peer, answer)| {
            let is_member = &is_member;
            async move { worker.agree(&peer.task().to_string(), answer, is_member).await }
        });
        try_join_all(agreed).await?;
        let member = |(peer, answer): (&Arc<RemoteWorker>, Answer)| {
            let mut devices = answer.device_attributes;
            devices.retain(|device| device_passes(filters, &device.name));
            Member { worker: peer.clone(), devices }
        };
        let others: Vec<Member> = answers.into_iter().map(member).collect();
        let mut devices = worker.device_attributes();
        if let (Some(_), Some(device)) = (&cluster.brought, devices.first_mut()) {
            device.name = cluster.own.cpu(0);
        }
        devices.extend(others.iter().flat_map(|member| member.devices.iter().cloned()));

        let shares_devices = config.share_cluster_devices_in_session;
        let request = |task: &TaskName| CreateWorkerSessionRequest {
            session_handle: handle.to_owned(),
            server_def: Some(cluster.server_def(task)),
            // Tasks under names that a session brings along keep state for that session alone.
            isolate_session_state: config.isolate_session_state || cluster.brought.is_some(),
            cluster_device_attributes: if shares_devices { devices.clone() } else { Vec::new() },
            master_task: cluster.own.to_string(),
            master_incarnation: worker.device().incarnation() as i64,
        };
        let own = worker.create_session(&request(&cluster.own))?;
        let opened = others
            .iter()
            .map(|member| async { member.worker.create_session(&request(member.worker.task())).await });
        let opened = try_join_all(opened).await;
        let members = Members { handle: handle.to_owned(), worker: worker.clone(), own, others, devices };
        if let Err(error) = opened {
            members.leave().await;
            return Err(error);
        }
        Ok(members)
    }

    /// The session on the master's own task.
    pub(super) fn own(&self) -> &Arc<WorkerSession> {
        &self.own
    }

    /// The master's worker.
    pub(super) fn own_worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// The session's handle.
    pub(super) fn handle(&self) -> &str {
        &self.handle
    }

    /// The devices of all members, the master's own first.
    pub(super) fn devices(&self) -> &[DeviceAttributes] {
        &self.devices
    }

    /// The incarnation of a device; 0 for one that is not of this session.
    pub(super) fn incarnation(&self, device: &str) -> u64 {
        let found = self.devices.iter().find(|attributes| attributes.name == device);
        found.map_or(0, |attributes| attributes.incarnation)
    }

    /// The task that a device belongs to.
    pub(super) fn owner(&self, device: &str) -> Result<&Arc<RemoteWorker>> {
        let owns = |member: &&Member| member.devices.iter().any(|attributes| attributes.name == device);
        let member = self.others.iter().find(owns);
        let member = member.ok_or_else(|| status!(Internal, "{device} belongs to no task of the session"))?;
        Ok(&member.worker)
    }

    /// Ends the session on every member.
    pub(super) async fn leave(&self) {
        self.worker.delete_session(&self.handle);
        let farewells = self.others.iter().map(|member| async {
            if let Err(error) = member.worker.delete_session(&self.handle).await {
                let task = member.worker.task();
                tracing::debug!(%task, %error, "A task did not confirm the end of a session.");
            }
        });
        join_all(farewells).await;
    }
}

/// The cluster that a session uses: the server's, or one that the session brings along.
pub(super) struct SessionCluster {
    /// What the master's task is called in it.
    pub(super) own: TaskName,
    pub(super) peers: Arc<Peers>,
    /// The cluster that the session brings along.
    pub(super) brought: Option<ClusterDef>,
}

impl SessionCluster {
    /// Who a task is to be in the session; without a cluster the task uses the one that it was started with.
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
