//! Targets of sessions: a remote server, a server of this process, or an in-process cluster without a server.

use ferroflow_cluster::server::in_process;
use ferroflow_cluster::{MasterClient, ServerConfig};
use ferroflow_core::Result;
use std::fmt;
use std::ops::Deref;

/// A master that sessions are opened on. Text such as `grpc://host:2222` names a server; [`crate::Server::target`] is a
/// server of this process, which is called directly, without a socket.
///
/// ```
/// use ferroflow::{Graph, Session, Target};
///
/// // Two sessions on one cluster share its variables.
/// let target = Target::local()?;
/// let graph = Graph::new();
/// let one = graph.scope().constant(1.0f32)?;
/// let (a, b) = (Session::connect(&target, &graph)?, Session::connect(&target, &graph)?);
/// assert_eq!(a.eval(&one)?.to_scalar::<f32>()?, b.eval(&one)?.to_scalar::<f32>()?);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct Target {
    address: String,
    client: Option<MasterClient>,
}

impl Target {
    /// Creates a cluster of one task in this process, which sessions can share. It ends with the last of them.
    pub fn local() -> Result<Target> {
        Target::local_with_cpus(1)
    }

    /// Like [`Target::local`], with several CPU devices, `/device:CPU:0` and so on, which share threads and memory. Each has
    /// its own variables, and nodes that do not name a device run on the first.
    ///
    /// ```
    /// use ferroflow::{Graph, Session, Target};
    ///
    /// let target = Target::local_with_cpus(2)?;
    /// let graph = Graph::new();
    /// let one = graph.scope().device("/device:CPU:1").constant(1.0f32)?;
    /// let session = Session::connect(&target, &graph)?;
    /// assert_eq!(session.eval(&one)?.to_scalar::<f32>()?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn local_with_cpus(cpu_devices: usize) -> Result<Target> {
        let config = ServerConfig { io_threads: 1, cpu_devices, ..ServerConfig::default() };
        Ok(Target::direct(in_process(&config, crate::registry())?))
    }

    pub(crate) fn direct(client: MasterClient) -> Target {
        Target { address: client.target().to_owned(), client: Some(client) }
    }

    /// Returns a client of the target's master.
    pub(crate) fn client(&self) -> Result<MasterClient> {
        crate::logging::start();
        match &self.client {
            Some(client) => Ok(client.clone()),
            None if self.address.is_empty() => Target::local()?.client(),
            None => MasterClient::connect(&self.address),
        }
    }
}

impl From<&str> for Target {
    fn from(address: &str) -> Target {
        Target { address: address.to_owned(), client: None }
    }
}

impl From<String> for Target {
    fn from(address: String) -> Target {
        Target { address, client: None }
    }
}

impl From<&String> for Target {
    fn from(address: &String) -> Target {
        Target::from(address.as_str())
    }
}

impl From<&Target> for Target {
    fn from(target: &Target) -> Target {
        target.clone()
    }
}

/// Dereferences to the address; empty for a cluster without a server.
impl Deref for Target {
    type Target = str;

    fn deref(&self) -> &str {
        &self.address
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.address)
    }
}
