//! Threads that wait for signals: those that ask this process to end, and those that ask what it is doing.

use ferroflow::server::Whereabouts;
use rustix::process::Signal;
use std::sync::{Arc, OnceLock};
use tokio::signal::unix::{SignalKind, signal};

/// Passes every signal that asks for an end to `tell`, from now on, until that returns false.
pub(crate) fn hear(tell: impl Fn(Signal) -> bool + Send + 'static) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot wait for signals: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        let listen = |kind| signal(kind).map_err(failed);
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
    };
    let listen = async move {
        loop {
            let heard = tokio::select! {
                _ = interrupt.recv() => Signal::INT,
                _ = terminate.recv() => Signal::TERM,
            };
            if !tell(heard) {
                return;
            }
        }
    };
    std::thread::spawn(move || runtime.block_on(listen));
    Ok(())
}

/// Signals by which an operator asks what a server is doing: SIGUSR1 and SIGUSR2, which would otherwise end it.
pub(crate) struct StatusSignals(Arc<OnceLock<Whereabouts>>);

impl StatusSignals {
    /// Waits for the signals from now on, and logs what goes on.
    pub(crate) fn hear() -> Result<StatusSignals, String> {
        let failed = |error: std::io::Error| format!("cannot wait for signals: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (mut first, mut second) = {
            let _entered = runtime.enter();
            let listen = |kind| signal(kind).map_err(failed);
            (listen(SignalKind::user_defined1())?, listen(SignalKind::user_defined2())?)
        };
        let server: Arc<OnceLock<Whereabouts>> = Arc::default();
        let asked = server.clone();
        let listen = async move {
            loop {
                tokio::select! {
                    _ = first.recv() => {}
                    _ = second.recv() => {}
                }
                match asked.get() {
                    Some(server) => {
                        tracing::info!("{}.", server.summary());
                        server.waits().iter().for_each(|wait| tracing::info!("{wait}."));
                    }
                    None => tracing::info!("The server has not started yet."),
                }
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || runtime.block_on(listen)).map_err(failed)?;
        Ok(StatusSignals(server))
    }

    /// Answers for this server from now on.
    pub(crate) fn answer(&self, server: Whereabouts) {
        let _ = self.0.set(server);
    }
}

/// Returns whether this process was started with a signal ignored, as `nohup` does for SIGHUP.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal.as_raw() - 1) & 1 == 1
}
