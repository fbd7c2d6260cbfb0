//! Connection to the master of a session, in terms of handles and names.

use super::options::{RunOptions, SessionOptions};
use ferroflow_cluster::MasterClient;
use ferroflow_cluster::api::{RunCallable, RunStep};
use ferroflow_core::{Result, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::{
    CallableOptions, DeviceAttributes, GraphDef, PartialRunSetupRequest, RunMetadata,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time that a master may take to close a session.
const CLOSE_WAIT: Duration = Duration::from_secs(15);
/// Additional time that the client waits after the master's own timeout.
const GRACE: Duration = Duration::from_secs(6);
/// Time that a master may take for a call that does not run a step.
const CALL_WAIT: Duration = Duration::from_secs(300);

/// An open session of a master.
pub(super) struct Connection {
    client: MasterClient,
    handle: String,
    options: SessionOptions,
    /// Version of the graph that the master has; locked while the graph is extended.
    version: Mutex<i64>,
    closed: AtomicBool,
}

impl Connection {
    /// Opens a session on a graph. Waits for the server and its cluster.
    pub(super) fn open(client: MasterClient, graph: GraphDef, options: SessionOptions) -> Result<Connection> {
        let opened = client.create_session(graph, options.to_config(), client.target());
        // The master times out first, because it can name the task that it waits for.
        let limit = options.open_limit().map(|limit| limit + GRACE);
        let opened = client.wait(limit, "opening a session", opened);
        let handle = opened.map_err(|error| {
            error.map_message(|message| match client.target() {
                "" => message,
                target => format!("cannot open a session at {target}: {message}"),
            })
        })?;
        let (version, closed) = (Mutex::new(0), AtomicBool::new(false));
        Ok(Connection { client, handle, options, version, closed })
    }

    /// Returns the client of the master.
    pub(super) fn client(&self) -> &MasterClient {
        &self.client
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            bail!(
                FailedPrecondition,
                "the session has been closed; open another one with Session::new or Session::connect"
            );
        }
        Ok(())
    }

    /// Adds nodes to the session's graph.
    pub(super) fn extend(&self, graph: GraphDef) -> Result<()> {
        self.check_open()?;
        let mut version = self.version.lock().expect("nothing panics while the graph is sent");
        let extended = self.client.extend_session(&self.handle, graph, *version);
        *version = self.client.wait(Some(CALL_WAIT), "extending the graph", extended)?;
        Ok(())
    }

    /// Runs a step, and returns the tensors in the order of `fetches`.
    pub(super) fn run(
        &self,
        feeds: Vec<(String, Tensor)>,
        fetches: Vec<String>,
        targets: Vec<String>,
        options: &RunOptions,
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        self.check_open()?;
        let wanted = fetches.clone();
        let step = RunStep {
            session_handle: self.handle.clone(),
            feeds,
            fetches,
            targets,
            options: options.to_proto(self.options.step_limit()),
            ..Default::default()
        };
        self.exchange(step, &wanted)
    }

    /// Starts a partial run, and returns its handle.
    pub(super) fn set_up_partial_run(
        &self,
        feed: Vec<String>,
        fetch: Vec<String>,
        target: Vec<String>,
    ) -> Result<String> {
        self.check_open()?;
        let session_handle = self.handle.clone();
        let request = PartialRunSetupRequest { session_handle, feed, fetch, target, request_id: 0 };
        let made = self.client.partial_run_setup(request);
        self.client.wait(Some(CALL_WAIT), "starting a partial run", made)
    }

    /// Passes some feeds to a partial run, and returns the tensors in the order of `fetches`.
    pub(super) fn continue_partial_run(
        &self,
        handle: &str,
        feeds: Vec<(String, Tensor)>,
        fetches: Vec<String>,
    ) -> Result<Vec<Tensor>> {
        self.check_open()?;
        let wanted = fetches.clone();
        let step = RunStep {
            session_handle: self.handle.clone(),
            partial_run_handle: handle.to_owned(),
            feeds,
            fetches,
            options: RunOptions::new().to_proto(self.options.step_limit()),
            ..Default::default()
        };
        Ok(self.exchange(step, &wanted)?.0)
    }

    /// Sends a step, or a part of one, and returns its tensors in the order of `wanted`.
    fn exchange(&self, step: RunStep, wanted: &[String]) -> Result<(Vec<Tensor>, RunMetadata)> {
        let done = self.client.wait(None, "a step", self.client.run_step(step))?;
        let tensors = if done.fetches.len() == wanted.len()
            && done.fetches.iter().zip(wanted).all(|((name, _), wanted)| name == wanted)
        {
            done.fetches.into_iter().map(|(_, tensor)| tensor).collect()
        } else {
            let find = |name: &String| {
                let found = done.fetches.iter().find(|(fetched, _)| fetched == name);
                let missing = || status!(Internal, "the master did not return the fetch {name}");
                found.map(|(_, tensor)| tensor.clone()).ok_or_else(missing)
            };
            wanted.iter().map(find).collect::<Result<_>>()?
        };
        Ok((tensors, done.metadata))
    }

    /// Registers a prepared step, and returns its handle.
    pub(super) fn make_callable(
        &self,
        feed: Vec<String>,
        fetch: Vec<String>,
        target: Vec<String>,
        options: &RunOptions,
    ) -> Result<i64> {
        self.check_open()?;
        let run_options = Some(options.to_proto(self.options.step_limit()));
        let options = CallableOptions { feed, fetch, target, run_options, ..Default::default() };
        let made = self.client.make_callable(&self.handle, options, 0);
        self.client.wait(Some(CALL_WAIT), "preparing a step", made)
    }

    /// Runs a prepared step.
    pub(super) fn run_callable(&self, handle: i64, feeds: Vec<Tensor>) -> Result<(Vec<Tensor>, RunMetadata)> {
        self.check_open()?;
        let call = RunCallable { session_handle: self.handle.clone(), handle, feeds, request_id: 0 };
        let done = self.client.wait(None, "a step", self.client.run_callable(call))?;
        Ok((done.fetches, done.metadata))
    }

    /// Releases a prepared step.
    pub(super) fn release_callable(&self, handle: i64) {
        if self.check_open().is_ok() {
            let released = self.client.release_callable(&self.handle, handle);
            // A master that cannot be reached has lost it anyway.
            let _ = self.client.wait(Some(CLOSE_WAIT), "releasing a prepared step", released);
        }
    }

    /// Returns the devices of the session.
    pub(super) fn devices(&self) -> Result<Vec<DeviceAttributes>> {
        self.check_open()?;
        let listed = self.client.list_devices(&self.handle);
        let listed = self.client.wait(Some(CALL_WAIT), "listing devices", listed)?;
        Ok([listed.local, listed.remote].concat())
    }

    /// Cancels the steps in flight and closes the session.
    pub(super) fn close(&self) -> Result<()> {
        ensure!(
            !self.closed.swap(true, Ordering::AcqRel),
            FailedPrecondition,
            "the session has been closed already"
        );
        let closed = self.client.close_session(&self.handle);
        self.client.wait(Some(CLOSE_WAIT), "closing a session", closed)
    }
}

/// Clears containers of a master's cluster, which closes its sessions.
pub(super) fn reset(client: &MasterClient, containers: &[&str], options: &SessionOptions) -> Result<()> {
    let containers = containers.iter().map(|name| (*name).to_owned()).collect();
    let emptied = client.reset(containers, options.to_config().device_filters);
    let limit = options.open_limit().map(|limit| limit + GRACE);
    client.wait(limit, "clearing containers", emptied)
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::debug!(%error, "A session could not be closed.");
        }
    }
}
