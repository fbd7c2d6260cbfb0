//! `ferroflow resolve`: the role of this task, the source that named it, and the sources that were overridden.

use crate::output::Output;
use crate::role_args::LocatedRoleArgs;
use ferroflow::discovery::{Role, Source};
use serde_json::{Value, json};

/// Arguments of `ferroflow resolve`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the answer in this format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,

    #[command(flatten)]
    role: LocatedRoleArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    let role = args.role.role()?;
    match args.output {
        Output::Text => print!("{}", text(&role)),
        Output::Json => println!("{:#}", value(&role)),
    }
    Ok(())
}

fn text(role: &Role) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<12}{value}\n"));
    let chief = if role.is_chief() { ", the chief" } else { "" };
    line("task", format!("{}:{}{chief}", role.task.job, role.task.task));
    line("told by", told_by(role));
    if let Some(rank) = role.rank {
        line("rank", format!("{} of {}", rank.rank, rank.size));
    }
    if let Some(run) = &role.run_id {
        line("run", run.clone());
    }
    if let Some(topology) = &role.topology {
        line("jobs", topology.to_string());
    }
    match (&role.unlocated, role.cluster.is_empty()) {
        (Some(why), _) => line("cluster", format!("addresses are not known: {}", why.message())),
        (None, true) => line("cluster", "none: this task is alone".to_owned()),
        (None, false) => {
            for (task, address) in role.cluster.tasks() {
                let here = if task == role.task { "  (this task)" } else { "" };
                line("cluster", format!("{}:{} at {address}{here}", task.job, task.task));
            }
            line("TF_CONFIG", role.tf_config().to_string());
        }
    }
    for note in &role.notes {
        line("note", note.clone());
    }
    for other in &role.overridden {
        line("overridden", format!("{} says {}", other.source, other.said));
    }
    lines.concat()
}

/// Describes the source in a few words.
pub(crate) fn told_by(role: &Role) -> String {
    match role.source {
        Source::Local => "no source: no flags, no TF_CONFIG, no launcher".to_owned(),
        source => source.to_string(),
    }
}

fn value(role: &Role) -> Value {
    let overridden =
        role.overridden.iter().map(|other| json!({"source": other.source.to_string(), "said": other.said}));
    json!({
        "task": {"type": role.task.job, "index": role.task.task},
        "name": role.task.to_string(),
        "chief": role.is_chief(),
        "address": role.address(),
        "source": role.source.to_string(),
        "cluster": role.cluster.to_value(),
        "jobs": role.topology.as_ref().map(ToString::to_string),
        "rank": role.rank.map(|rank| json!({"rank": rank.rank, "size": rank.size})),
        "run": role.run_id,
        "unlocated": role.unlocated.as_ref().map(|why| why.message()),
        "tf_config": role.tf_config().to_string(),
        "notes": role.notes,
        "overridden": overridden.collect::<Vec<_>>(),
    })
}
