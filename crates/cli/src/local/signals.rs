//! Signals that ask this process to end, as events.

use super::Heard;
use rustix::process::Signal;
use std::sync::mpsc::Sender;
use tokio::signal::unix::{SignalKind, signal};

/// Sends on every signal that asks for an end, from now on.
pub(super) fn hear(sender: Sender<Heard>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("signals cannot be heard: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        let listen = |kind| signal(kind).map_err(failed);
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let heard = tokio::select! {
                    _ = interrupt.recv() => Signal::INT,
                    _ = terminate.recv() => Signal::TERM,
                };
                if sender.send(Heard::Signal(heard)).is_err() {
                    return;
                }
            }
        });
    });
    Ok(())
}
