//! `ferroflow serve`: one server, until it is told to end.

use ferroflow::{Server, ServerConfig};
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;

/// Arguments of `ferroflow serve`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 2222)]
    port: u16,

    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    bind: IpAddr,

    /// What to log: error, warn, info, debug, trace or off
    #[arg(long, default_value = "info", env = "FERROFLOW_LOG")]
    log: LevelFilter,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    crate::logging::start(args.log);
    let listener = TcpListener::bind((args.bind, args.port)).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => "; choose another one with --port, or 0 for any free one",
            _ => "",
        };
        format!("cannot listen on port {} of {}: {error}{hint}", args.port, args.bind)
    })?;
    let server = Server::start(ServerConfig::default(), ferroflow::registry(), listener, asked_to_end())
        .map_err(|status| status.to_string())?;
    println!("Ferroflow {} serves {} at {}", env!("CARGO_PKG_VERSION"), server.task(), server.target());
    server.join();
    tracing::info!("The server has ended.");
    Ok(())
}

/// Ends on Ctrl-C or SIGTERM; without a way to hear of them, never.
async fn asked_to_end() {
    let (mut interrupt, mut terminate) =
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, "Signals cannot be heard; the server runs until it is killed.");
                return std::future::pending().await;
            }
        };
    tokio::select! {
        _ = interrupt.recv() => tracing::info!("Interrupted; ending."),
        _ = terminate.recv() => tracing::info!("Asked to terminate; ending."),
    }
}
