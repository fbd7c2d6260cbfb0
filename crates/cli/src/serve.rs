//! `ferroflow serve`: one task of a cluster, until it is told to end.

use ferroflow::server::{Place, listen};
use ferroflow::{ClusterSpec, Server, ServerConfig, TaskName};
use std::net::IpAddr;
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;

/// Arguments of `ferroflow serve`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job that this task belongs to
    #[arg(long = "job_name", visible_alias = "job-name", value_name = "JOB")]
    job_name: Option<String>,

    /// The number of this task within its job
    #[arg(long = "task_index", visible_alias = "task-index", value_name = "N", default_value_t = 0)]
    task_index: u32,

    /// The tasks of job `ps`, as host:port, separated by commas
    #[arg(long = "ps_hosts", visible_alias = "ps-hosts", value_name = "HOSTS")]
    ps_hosts: Option<String>,

    /// The tasks of job `worker`, as host:port, separated by commas
    #[arg(long = "worker_hosts", visible_alias = "worker-hosts", value_name = "HOSTS")]
    worker_hosts: Option<String>,

    /// The cluster as JSON, or a file that holds it: {"ps": ["a:2222"], "worker": {"1": "c:2222"}}
    #[arg(long, value_name = "JSON|FILE")]
    cluster: Option<String>,

    /// Port to listen on, 0 for any free one; by default the one in this task's entry of the cluster, or 2222
    #[arg(long)]
    port: Option<u16>,

    /// Address to listen on; by default the one in this task's entry of the cluster, or 127.0.0.1
    #[arg(long)]
    bind: Option<IpAddr>,

    /// Listen on the socket that is standard input, as `ferroflow demo` starts its tasks, and end with the parent
    #[arg(long, hide = true, conflicts_with_all = ["port", "bind"])]
    inherit: bool,

    /// What to log: error, warn, info, debug, trace or off
    #[arg(long, default_value = "info", env = "FERROFLOW_LOG")]
    log: LevelFilter,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    crate::logging::start(args.log);
    let cluster = cluster(args)?;
    let task = own_task(args, &cluster)?;
    let entry = cluster.address(&task).map(str::to_owned);
    let listeners = match args.inherit {
        true => vec![crate::local::inherit_socket()?],
        false => listen(&Place { entry: entry.as_deref(), bind: args.bind, port: args.port })
            .map_err(|status| status.message().to_owned())?,
    };
    let config = ServerConfig { task, cluster, ..ServerConfig::default() };
    let server = Server::start(config, ferroflow::registry(), listeners, asked_to_end())
        .map_err(|status| status.to_string())?;
    println!("Ferroflow {} serves {} at {}", env!("CARGO_PKG_VERSION"), server.task(), server.target());
    server.join();
    tracing::info!("The server has ended.");
    Ok(())
}

/// The cluster that the flags describe; empty if none does.
fn cluster(args: &Args) -> Result<ClusterSpec, String> {
    let mut spec = match &args.cluster {
        None => ClusterSpec::new(),
        Some(json) if json.trim_start().starts_with('{') => {
            ClusterSpec::from_json(json).map_err(|error| format!("--cluster: {}", error.message()))?
        }
        Some(path) => {
            let text = std::fs::read_to_string(Path::new(path))
                .map_err(|error| format!("--cluster: cannot read the file '{path}': {error}"))?;
            ClusterSpec::from_json(&text)
                .map_err(|error| format!("--cluster: {path}: {}", error.message()))?
        }
    };
    let hosts = [("ps", "--ps_hosts", &args.ps_hosts), ("worker", "--worker_hosts", &args.worker_hosts)];
    for (job, flag, list) in hosts {
        if let Some(list) = list {
            spec.add_hosts(job, list).map_err(|error| format!("{flag}: {}", error.message()))?;
        }
    }
    spec.check().map_err(|error| error.message().to_owned())?;
    Ok(spec)
}

fn own_task(args: &Args, cluster: &ClusterSpec) -> Result<TaskName, String> {
    let Some(job) = &args.job_name else {
        if cluster.is_empty() {
            return Ok(TaskName::new("localhost", args.task_index));
        }
        return Err(format!("which task is this? Choose --job_name and --task_index among {cluster}"));
    };
    let task = TaskName::new(job, args.task_index);
    if !cluster.is_empty() && cluster.address(&task).is_none() {
        return Err(format!("{task} is not in the cluster, which has {cluster}"));
    }
    Ok(task)
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
