//! `ferroflow join`: a task that finds the others at a rendezvous, then runs a program or serves.

use crate::exit::Failure;
use crate::member::{MeetingArgs, Member, OnMove};
use crate::python_servers::PythonServers;
use crate::role_args::RoleArgs;
use crate::serve::Access;
use ferroflow::discovery::PortChoice;
use ferroflow::discovery::meeting::EndWith;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

/// Arguments of `ferroflow join`.
#[derive(clap::Args)]
#[command(
    after_help = "In the program's arguments these words are replaced: {job}, {task}, {address} of the task, \
{ps_hosts}, {worker_hosts}, {chief_hosts} and {cluster}; write {{job}} for the text {job}. The program finds the same in \
TF_CONFIG. Under a launcher that lets \
its processes exchange addresses, as srun --mpi=pmi2 and Hydra's mpiexec do, no rendezvous has to be named.\n\n\
Exit codes: that of the program; 3 if tasks were started with different --jobs, 4 if this task could not be reached and \
another start of it took its place, 5 if another process is this task and alive, 75 if the others did not come in time; the code of another task that failed, where one failure ends all."
)]
pub(crate) struct Args {
    /// Serve on this port, or on a free one of a range such as 20000-20099; any free one by default
    #[arg(
        long,
        visible_alias = "port_range",
        default_value = "0",
        hide_default_value = true,
        value_parser = crate::flag_value::parse::<PortChoice>
    )]
    port: PortChoice,

    /// Let the success of these end the tasks that serve others
    #[arg(long, value_enum, value_name = "TASKS", default_value_t = Whose::Chief)]
    end_with: Whose,

    /// Keep tasks that serve others for this many seconds while programs still run after the chief's
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,

    /// Do this with the program when a parameter server comes back at another address; by default it is restarted where
    /// single tasks are (HTCondor, Kubernetes, --fail-fast=false)
    #[arg(long, value_enum, value_name = "ACTION")]
    on_move: Option<OnMove>,

    /// Give steps under way this many seconds to finish after SIGTERM, in a task that serves others
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    drain: u64,

    /// Log at this level: error, warn, info, debug, trace or off
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "FERROFLOW_LOG")]
    log: LevelFilter,

    /// Serve the tasks of these jobs instead of running the program for them, e.g. ps
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    serve: Vec<String>,

    #[command(flatten)]
    python: PythonServers,

    /// Run this program, with its arguments; without one the task serves others
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,

    #[command(flatten)]
    access: Access,

    #[command(flatten)]
    meeting: MeetingArgs,

    #[command(flatten)]
    role: RoleArgs,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Whose {
    /// The chief, or the first worker without one
    Chief,
    /// All programs
    Programs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    crate::logging::start(args.log);
    crate::placeholders::check(&args.program)?;
    let member = Member {
        meeting: &args.meeting,
        role: &args.role,
        port: args.port,
        bind: None,
        resources: &args.access.into(),
        status_signals: None,
        end_with: match args.end_with {
            Whose::Chief => EndWith::Chief,
            Whose::Programs => EndWith::Programs,
        },
        grace: Duration::from_secs(args.grace),
        drain: Duration::from_secs(args.drain),
        cpu_devices: 1,
        on_move: args.on_move,
        serve: &args.serve,
        python: args.python,
        program: &args.program,
    };
    member.run()
}
