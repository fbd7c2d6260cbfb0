//! Sessions that TensorFlow's client has opened on a server of its own process, whose steps need no connection.

use crate::target::Target;
use ferroflow_cluster::MasterClient;
use ferroflow_cluster::api::RunStep;
use ferroflow_core::{Result, Tensor, status};
use ferroflow_proto::tensorflow::RunOptions;

/// A session of another client on the same server. It is that client's to extend and to close; [`crate::Session`] is the
/// one for programs in Rust.
pub struct ClientSession {
    client: MasterClient,
    handle: String,
}

impl ClientSession {
    /// Finds the session whose configuration has this name in its `SessionMetadata`. `None` if the target is not a server
    /// of this process, or has no such session.
    pub fn find(target: &Target, name: &str) -> Result<Option<ClientSession>> {
        let client = target.client()?;
        Ok(client.session_named(name).map(|handle| ClientSession { client, handle }))
    }

    /// Runs a step and returns the fetched tensors in the order of their names, which must differ.
    pub fn run(
        &self,
        feeds: Vec<(String, Tensor)>,
        fetches: Vec<String>,
        targets: Vec<String>,
        options: RunOptions,
    ) -> Result<Vec<Tensor>> {
        let (names, session_handle) = (fetches.clone(), self.handle.clone());
        let step = RunStep { session_handle, feeds, fetches, targets, options, ..RunStep::default() };
        let mut fetched = self.client.wait(None, "running a step", self.client.run_step(step))?.fetches;
        names
            .iter()
            .map(|name| {
                let at = fetched.iter().position(|(fetched, _)| fetched == name);
                let at = at.ok_or_else(|| status!(Internal, "the step did not return {name}"))?;
                Ok(fetched.swap_remove(at).1)
            })
            .collect()
    }
}
