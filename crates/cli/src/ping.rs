//! `ferroflow ping`: asks a server whether it answers, and which task it is.

use crate::exit::Failure;
use crate::output::Output;
use ferroflow::discovery::doctor::ping;
use serde_json::json;
use std::time::Duration;

/// Arguments of `ferroflow ping`.
#[derive(clap::Args)]
#[command(after_help = "The exit code is 0 if the server answers, else 1.")]
pub(crate) struct Args {
    /// Ask the server at this address: host:port, with or without grpc://
    #[arg(value_name = "ADDRESS")]
    address: String,

    /// Give the server this many seconds to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// Print the answer in this format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let address = args.address.strip_prefix("grpc://").unwrap_or(&args.address);
    let identity = ping(address, Duration::from_secs(args.timeout))?;
    let task = identity.task.as_ref().map(ToString::to_string);
    let millis = identity.round_trip.as_secs_f64() * 1e3;
    match args.output {
        Output::Json => {
            let tasks = identity.cluster.to_value();
            println!(
                "{:#}",
                json!({"task": task, "ferroflow": identity.version, "cluster": tasks, "milliseconds": millis})
            );
        }
        Output::Text => {
            let program =
                identity.version.map_or("stock TensorFlow".to_owned(), |own| format!("Ferroflow {own}"));
            let task = task.unwrap_or_else(|| "a server without devices".to_owned());
            println!("{address} is {task}, {program}, and answered within {millis:.1} ms");
        }
    }
    Ok(())
}
