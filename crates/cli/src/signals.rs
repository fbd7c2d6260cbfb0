//! Signals that ask this process to end, heard by a thread.

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Tells of every signal that asks for an end, from now on, until `tell` says that nobody listens any more.
pub(crate) fn hear(tell: impl Fn(Signal) -> bool + Send + 'static) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("signals cannot be heard: {error}");
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
