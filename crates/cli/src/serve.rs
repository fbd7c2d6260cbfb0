//! `ferroflow serve`: one task of a cluster, until it is asked to end.

mod access;
mod lifetime;
mod resources;

pub(crate) use access::Access;

use crate::exit::Failure;
use crate::member::{MeetingArgs, Member};
use crate::python_servers::PythonServers;
use crate::role_args::RoleArgs;
use crate::signals::StatusSignals;
use ferroflow::discovery::meeting::EndWith;
use ferroflow::discovery::{PortChoice, Role, Source};
use ferroflow::server::{ListenConfig, listen};
use ferroflow::{Server, ServerConfig};
use lifetime::Lifetime;
pub(crate) use resources::Resources;
use std::net::{IpAddr, TcpListener};
use tracing::level_filters::LevelFilter;

/// Arguments of `ferroflow serve`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Listen on this port, 0 for any free one; by default the one in this task's entry of the cluster, or 2222. With a
    /// rendezvous any free one, or one of a range, as 20000-20099
    #[arg(long, visible_alias = "port_range", value_parser = crate::flag_value::parse::<PortChoice>)]
    port: Option<PortChoice>,

    /// Listen on this address; by default the one in this task's entry of the cluster, or 127.0.0.1
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,

    /// Give this task N CPU devices, `/device:CPU:0` to N-1, as stock has them with device_count={"CPU": N}. They share
    /// its threads and memory; each has its own variables
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    cpu_devices: u16,

    /// Listen on the socket that is standard input, as `ferroflow demo` starts its tasks, and end with the parent
    #[arg(long, hide = true, conflicts_with_all = ["port", "bind"])]
    inherit: bool,

    /// Log at this level: error, warn, info, debug, trace or off
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "FERROFLOW_LOG")]
    log: LevelFilter,

    #[command(flatten)]
    lifetime: Lifetime,

    #[command(flatten)]
    resources: Resources,

    #[command(flatten)]
    role: RoleArgs,

    #[command(flatten)]
    meeting: MeetingArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    crate::logging::start(args.log);
    let status_signals = StatusSignals::hear()?;
    // A socket was handed over because the addresses are known.
    if args.meeting.rendezvous.is_some() && !args.inherit {
        return meet(args, &status_signals);
    }
    args.meeting.refuse()?;
    let port = match args.port {
        None => None,
        Some(PortChoice::Any) => Some(0),
        Some(PortChoice::Fixed(port)) => Some(port),
        Some(PortChoice::Range(..)) => {
            return Err(
                "--port: the other tasks know one port of this task, so a range is only for tasks that meet at a --rendezvous; write one port".into()
            );
        }
    };
    let role = args.role.role(port)?;
    role.located().map_err(|error| error.message().to_owned())?;
    if !role.cluster.is_empty() && role.address().is_none() {
        let (task, source) = (&role.task, role.source);
        let refusal = format!("{source}: {task} is not in the cluster, so there is nothing to serve for it");
        return Err(refusal.into());
    }
    tell(&role);
    let Role { task, cluster, .. } = role;
    let entry = cluster.address(&task).map(str::to_owned);
    let listeners = if args.inherit {
        vec![crate::local::inherit_socket()?]
    } else {
        listen(&ListenConfig { entry: entry.as_deref(), bind: args.bind, port })
            .map_err(|status| status.message().to_owned())?
    };
    let is_alone = cluster.tasks().count() <= 1;
    warn_of_exposure(&listeners);
    let (opens_sessions, cpu_devices) = (false, args.cpu_devices.into());
    let config = ServerConfig { task, cluster, opens_sessions, cpu_devices, ..args.resources.config()? };
    args.resources.tell(&config);
    let server = Server::start(config, ferroflow::registry(), listeners, std::future::pending())
        .map_err(|status| status.to_string())?;
    status_signals.answer(server.whereabouts());
    args.lifetime.serve(server, is_alone, |server| {
        println!("Ferroflow {} serves {} at {}", env!("CARGO_PKG_VERSION"), server.task(), server.target());
    })
}

/// Serves with others that are found first.
fn meet(args: &Args, status_signals: &StatusSignals) -> Result<(), Failure> {
    let grace = args.lifetime.exit_with_chief();
    let member = Member {
        meeting: &args.meeting,
        role: &args.role,
        port: args.port.unwrap_or_default(),
        bind: args.bind,
        resources: &args.resources,
        status_signals: Some(status_signals),
        end_with: if grace.is_some() { EndWith::Chief } else { EndWith::Nobody },
        grace: grace.unwrap_or_default(),
        drain: args.lifetime.drain(),
        cpu_devices: args.cpu_devices.into(),
        on_move: None,
        serve: &[],
        python: PythonServers::default(),
        program: &[],
    };
    member.run()
}

/// Warns of what it means to be reached from other machines: the protocol, which is stock's, has no passwords.
pub(crate) fn warn_of_exposure(listeners: &[TcpListener]) {
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    let exposed: Vec<String> =
        addresses.filter(|address| !address.ip().is_loopback()).map(|address| address.to_string()).collect();
    if !exposed.is_empty() {
        tracing::warn!(
            "Listening on {}: anyone who reaches this port can run code as this user and read and change all variables. Let \
             only the tasks of the cluster reach it.",
            exposed.join(" and ")
        );
    }
}

/// Logs which source named this task's role, unless its own flags did, and which sources were overridden.
pub(crate) fn tell(role: &Role) {
    if !matches!(role.source, Source::Flags | Source::Local) {
        tracing::info!(source = %role.source, task = %role.task, "The environment tells this task its role.");
    }
    for note in &role.notes {
        tracing::info!(source = %role.source, "{note}");
    }
    for other in &role.overridden {
        tracing::warn!(source = %other.source, said = other.said, "Overridden: {} decides.", role.source);
    }
}
