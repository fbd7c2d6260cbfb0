//! The lifetime of a served task, and its end: on a signal, after its steps, or by itself when training is over.

use crate::exit::{self, Failure};
use crate::signals::is_ignored;
use ferroflow::Server;
use rustix::process::Signal;
use std::pin::pin;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Arguments about the end of a task.
#[derive(clap::Args)]
pub(crate) struct Lifetime {
    /// End by itself, with exit code 0, when the chief (worker 0 without one) has been gone for this many seconds
    /// after closing its session, and no other task is at work or about to begin
    #[arg(
        long,
        visible_alias = "exit_with_chief",
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5"
    )]
    exit_with_chief: Option<u64>,

    /// With --exit-with-chief: fail if the chief does not come, or come back after a crash, within this many seconds; 0
    /// for no limit
    #[arg(long, visible_alias = "chief_timeout", value_name = "SECONDS", default_value_t = 3600)]
    chief_timeout: u64,

    /// Give steps under way this many seconds to finish after SIGTERM; new ones are refused
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    drain: u64,
}

enum End {
    Signal(Signal),
    Training,
}

impl Lifetime {
    /// Returns the time that the task stays after the chief's end; `None` if that does not matter.
    pub(super) fn exit_with_chief(&self) -> Option<Duration> {
        self.exit_with_chief.map(Duration::from_secs)
    }

    /// Returns the time that steps under way have to finish.
    pub(super) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain)
    }

    /// Serves until the end. In a cluster, SIGTERM while masters have sessions open is not a clean end: the others still
    /// need the task, and a scheduler that reads exit codes should start it again.
    pub(crate) fn serve(&self, server: Server, is_alone: bool) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot wait for the end: {error}"))?;
        let needed = runtime.block_on(self.until_end(&server));
        server.stop();
        let needed = needed?;
        tracing::info!("The server has ended.");
        if needed && !is_alone {
            return Err(Failure::reported(exit::of_signal(Signal::TERM)));
        }
        Ok(())
    }

    /// Serves until the end; returns whether the task was still needed then.
    async fn until_end(&self, server: &Server) -> Result<bool, Failure> {
        let listen = |kind| signal(kind).map_err(|error| format!("signals cannot be heard: {error}"));
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut terminate = listen(SignalKind::terminate())?;
        // A terminal that is closed asks for an end, too, unless the task was started to outlive it.
        let mut hangup = if is_ignored(Signal::HUP) { None } else { Some(listen(SignalKind::hangup())?) };
        let mut hung_up = pin!(async {
            match &mut hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        });
        let training = async {
            match self.exit_with_chief() {
                Some(grace) => {
                    let limit = Some(self.chief_timeout).filter(|seconds| *seconds > 0);
                    server.until_chief_is_done(grace, limit.map(Duration::from_secs)).await
                }
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            _ = interrupt.recv() => End::Signal(Signal::INT),
            _ = terminate.recv() => End::Signal(Signal::TERM),
            () = &mut hung_up => End::Signal(Signal::TERM),
            done = training => {
                done.map_err(|error| format!("--exit-with-chief: {}", error.message()))?;
                End::Training
            }
        };
        match end {
            End::Training => return Ok(false),
            End::Signal(Signal::TERM) => {}
            End::Signal(_) => {
                tracing::info!("Interrupted; ending.");
                return Ok(false);
            }
        }
        tracing::info!(seconds = self.drain, "Asked to terminate; steps under way may finish.");
        let left = tokio::select! {
            left = server.drain(self.drain()) => left,
            _ = interrupt.recv() => 0,
            _ = terminate.recv() => 0,
        };
        if left > 0 {
            tracing::warn!(steps = left, "Steps that did not finish in time are cancelled.");
        }
        Ok(server.has_sessions())
    }
}
