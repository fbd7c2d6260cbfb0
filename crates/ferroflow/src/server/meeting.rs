//! Servers that find the other tasks of their cluster at a rendezvous.

use super::Server;
use ferroflow_cluster::server::ServerConfig;
use ferroflow_core::{Result, bail};
use ferroflow_discovery::meeting::{Change, Event, Failure, Meeting, Seat, Socket, Stop};
use tokio::sync::oneshot;

/// Membership in a run, which ends with the server and is announced to the other tasks.
pub(super) struct Membership(Option<Seat>);

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(seat) = self.0.take() {
            let (code, reason) = if std::thread::panicking() { (1, "the program panicked") } else { (0, "") };
            seat.leave(code, reason);
        }
    }
}

impl Server {
    /// Finds the other tasks at a rendezvous, waits until the cluster is complete, and serves as one of them.
    ///
    /// The server of a task that trains tells the others when it ends. A server that is joined ends when the chief has
    /// ended or another task fails. Tasks that are restarted elsewhere are found again.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the rendezvous reserves a port for another program; otherwise the error of the rendezvous, such
    /// as a cluster that is not complete in time.
    ///
    /// ```no_run
    /// use ferroflow::Server;
    /// use ferroflow::discovery::meeting::Meeting;
    ///
    /// let place = "file:///shared/dir/job-42";
    /// // In the processes that hold variables:
    /// Server::meet(Meeting::new(place, "ps:2,worker:4", "ps", None)?)?.join();
    ///
    /// // In the processes that train:
    /// let mut meeting = Meeting::new(place, "ps:2,worker:4", "worker", None)?;
    /// meeting.program = true;
    /// let server = Server::meet(meeting)?;
    /// println!("{} trains in {}", server.task(), server.cluster());
    /// server.stop();
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn meet(meeting: Meeting) -> Result<Server> {
        crate::logging::start();
        let mut seat = meeting.enter(&Stop::default()).map_err(Failure::into_status)?;
        let cluster = seat.wait().map_err(Failure::into_status)?;
        let Some(Socket::Listening(listeners)) = seat.take_socket() else {
            bail!(
                InvalidArgument,
                "the rendezvous reserved a port for another program, but this server listens itself; do not reserve one"
            );
        };
        let (ended, end) = oneshot::channel();
        let shutdown = async {
            // Without a watch, nothing announces the end.
            if end.await.is_err() {
                std::future::pending().await
            }
        };
        let (task, epoch) = (seat.task(), seat.epoch());
        let config = ServerConfig { task, cluster, epoch, ..ServerConfig::default() };
        let mut server = Server::start(config, crate::registry(), listeners, shutdown)?;
        let whereabouts = server.whereabouts();
        let follow = move |change: Change| {
            if let Err(error) = whereabouts.learn(&change.cluster, change.epoch) {
                tracing::error!("New addresses of the other tasks cannot be used: {}", error.message());
            }
        };
        seat.watch(follow, move |event| {
            match event {
                Event::Ended(reason) => tracing::info!("The work is done: {reason}."),
                Event::Failed(failure) => tracing::error!("{failure}"),
                Event::Orphaned(reason) => tracing::error!("{reason}"),
            }
            let _ = ended.send(());
        })?;
        server.membership = Some(Membership(Some(seat)));
        Ok(server)
    }
}
