//! Steps of TensorFlow's client on a server of the same process, without a connection.

use crate::arrays::{GivenTensor, TensorMemory};
use crate::errors::Result;
use crate::server::Server;
use ferroflow::Status;
use ferroflow_core::{bail, status};
use ferroflow_proto::tensorflow::RunOptions;
use prost::Message;
use pyo3::prelude::*;

/// A session that TensorFlow's client has opened on a server of this process.
#[pyclass(frozen, module = "ferroflow._ferroflow")]
pub(crate) struct ClientSession {
    session: ferroflow::ClientSession,
    /// The process of the server; a forked one has none of its threads.
    process: u32,
}

/// Finds a session of the server by the name in its configuration.
#[pyfunction]
pub(crate) fn find_session(server: &Server, name: &str) -> Result<Option<ClientSession>> {
    let found = ferroflow::ClientSession::find(&server.direct_target()?, name)?;
    Ok(found.map(|session| ClientSession { session, process: std::process::id() }))
}

#[pymethods]
impl ClientSession {
    /// Runs a step with encoded `RunOptions`. The fetches must differ.
    fn run(
        &self,
        py: Python<'_>,
        feeds: Vec<(String, GivenTensor)>,
        fetches: Vec<String>,
        targets: Vec<String>,
        options: &[u8],
    ) -> Result<Vec<TensorMemory>> {
        let values = py.detach(|| {
            if self.process != std::process::id() {
                bail!(
                    FailedPrecondition,
                    "the session's server belongs to process {}, and this process was forked from it; start the server and \
                     open sessions after the fork",
                    self.process
                );
            }
            let options = RunOptions::decode(options)
                .map_err(|error| status!(InvalidArgument, "the RunOptions cannot be read: {error}"))?;
            let tensors = feeds.into_iter().map(|(name, value)| Ok((name, value.into_tensor()?)));
            self.session.run(tensors.collect::<Result<_, Status>>()?, fetches, targets, options)
        })?;
        Ok(values.into_iter().map(TensorMemory::from).collect())
    }
}
