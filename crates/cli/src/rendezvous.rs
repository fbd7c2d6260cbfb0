//! `ferroflow rendezvous`: hosts places where tasks meet, shows the tasks there, cleans up after old runs.

use crate::exit::Failure;
use crate::output::Output;
use crate::signals;
use ferroflow::discovery::meeting::{Host, Survey, Url, collect_garbage, survey};
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Arguments of `ferroflow rendezvous`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    /// Host rendezvous at this address, until Ctrl-C; port 0 means any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:7777")]
    listen: String,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show which tasks are at a rendezvous, and which are missing
    Status {
        /// Look at this rendezvous: file:///shared/dir/job-42 or tcp://host:port
        url: String,

        /// Print the answer in this format
        #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
        output: Output,
    },
    /// Remove the runs in a directory that have no living task
    Gc {
        /// Look for runs in this directory, which holds a directory for each
        directory: PathBuf,

        /// Keep runs that were written to within this many days
        #[arg(long, value_name = "DAYS", default_value_t = 7.0)]
        older_than: f64,

        /// Only print the runs that would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.action {
        None => host(&args.listen),
        Some(Action::Status { url, output }) => status(url, *output),
        Some(Action::Gc { directory, older_than, dry_run }) => {
            let age = Duration::try_from_secs_f64(older_than * 86_400.0)
                .map_err(|_| format!("--older-than: {older_than} is not a number of days"))?;
            let removed = collect_garbage(directory, age, *dry_run).map_err(said)?;
            if removed.is_empty() {
                println!("nothing to remove in {}", directory.display());
            }
            for run in &removed {
                println!("{} {}", if *dry_run { "would remove" } else { "removed" }, run.display());
            }
            Ok(())
        }
    }
}

fn host(listen: &str) -> Result<(), Failure> {
    let host = Host::at(listen).map_err(said)?;
    let (sender, asked) = channel();
    signals::hear(move |signal| sender.send(signal).is_ok())?;
    let name = listen.rsplit_once(':').map_or(listen, |(name, _)| name);
    println!("Ferroflow {} hosts rendezvous at tcp://{name}:{}", env!("CARGO_PKG_VERSION"), host.port());
    asked.recv().map_err(|_| "signals cannot be heard".to_owned())?;
    Ok(())
}

fn status(url: &str, output: Output) -> Result<(), Failure> {
    let url: Url = url.parse().map_err(said)?;
    let found = survey(&url).map_err(said)?;
    let text = match output {
        Output::Json => serde_json::to_string_pretty(&found).map_err(|error| error.to_string())? + "\n",
        Output::Text => table(&url, &found),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok(())
}

fn table(url: &Url, found: &Survey) -> String {
    let mut text = match &found.jobs {
        None => return format!("no task has joined at {url} yet\n"),
        Some(jobs) if found.epoch == 0 => format!("{url}: jobs {jobs}, not complete yet\n"),
        Some(jobs) => format!("{url}: jobs {jobs}, epoch {}\n", found.epoch),
    };
    for task in &found.tasks {
        let name = format!("{}:{}", task.job, task.task);
        let starts =
            if task.generation == 0 { String::new() } else { format!(", start {}", task.generation + 1) };
        let detail = if task.detail.is_empty() { String::new() } else { format!(" ({})", task.detail) };
        let (address, host, pid) = (&task.address, &task.host, task.pid);
        text += &format!("{name:12} {:12} {address}, process {pid} on {host}{starts}{detail}\n", task.state);
    }
    for name in &found.missing {
        text += &format!("{name:12} missing      has not joined yet\n");
    }
    let there = found.tasks.iter().filter(|task| task.state == "there").count();
    let all = found.tasks.len() + found.missing.len();
    let absent = found.tasks.iter().filter(|task| task.state != "there");
    let absent = absent.map(|task| format!("{}:{} ({})", task.job, task.task, task.state));
    let absent: Vec<String> =
        absent.chain(found.missing.iter().map(|name| format!("{name} (missing)"))).collect();
    text += &if absent.is_empty() {
        format!("all {all} tasks are there\n")
    } else {
        format!("{there} of {all} tasks are there; not there: {}\n", absent.join(", "))
    };
    text
}

fn said(status: ferroflow::Status) -> String {
    status.message().to_owned()
}
