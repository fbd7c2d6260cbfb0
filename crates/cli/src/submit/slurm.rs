//! A batch script for Slurm: one step in which every task is a `ferroflow join`.

use super::{Tool, Training, one_word, own_binary};
use std::fmt::Write;

/// Arguments of `ferroflow submit slurm`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    training: Training,

    /// Run on this many nodes, or between the least and the most: 3 or 2-4
    #[arg(long, value_name = "N")]
    nodes: Option<String>,

    /// Limit the time: 30 (minutes), 2:00:00 or 1-12 (days and hours)
    #[arg(long, value_name = "TIME")]
    time: Option<String>,

    /// Run in this partition
    #[arg(long)]
    partition: Option<String>,

    /// Request this many processors for each task
    #[arg(long, value_name = "N")]
    cpus_per_task: Option<u32>,

    /// Request this much memory on each node, e.g. 16G
    #[arg(long, value_name = "SIZE")]
    mem: Option<String>,

    /// Add an option of sbatch, e.g. --sbatch=--account=physics; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,

    /// Let tasks find each other in this directory, which all nodes share, instead of through srun's PMI
    #[arg(long, value_name = "file:///DIR")]
    rendezvous: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<(), String> {
    let name = args.training.label()?;
    let tool = Tool {
        command: &["sbatch"],
        place: "jobs are submitted to Slurm",
        package: "Slurm; Debian's package is slurm-client",
    };
    args.training.hand_over(&format!("{name}.sbatch"), &script(args, &name)?, &tool).map(drop)
}

fn script(args: &Args, name: &str) -> Result<String, String> {
    let training = &args.training;
    let tasks: u32 = training.sizes()?.iter().map(|(_, count)| count).sum();
    let directory = training.directory()?;
    let mut options = vec![
        format!("--job-name={name}"),
        format!("--ntasks={tasks}"),
        // %x is the job's name and %j its number.
        format!("--output={}", quote(&format!("{}/%x-%j.out", directory.display()))),
        // A requeued job goes on in the same file.
        "--open-mode=append".to_owned(),
        "--requeue".to_owned(),
    ];
    let cpus = args.cpus_per_task.map(|count| count.to_string());
    let given = [
        ("--nodes", &args.nodes),
        ("--time", &args.time),
        ("--partition", &args.partition),
        ("--cpus-per-task", &cpus),
        ("--mem", &args.mem),
    ];
    for (option, value) in given {
        if let Some(value) = value {
            one_word(option, value)?;
            options.push(format!("{option}={value}"));
        }
    }
    for option in &args.sbatch {
        one_word("--sbatch", option)?;
        options.push(option.clone());
    }

    let mut script = String::from("#!/bin/sh\n");
    for option in options {
        let _ = writeln!(script, "#SBATCH {option}");
    }
    // A step of its own does not inherit this from the batch job in every version of Slurm.
    let cpus = cpus.map(|count| format!(" --cpus-per-task={count}")).unwrap_or_default();
    let (launch, rendezvous) = match &args.rendezvous {
        None => ("--mpi=pmi2 ", String::new()),
        Some(url) => (
            "",
            format!(" --rendezvous {}\"/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}\"", directory_of(url)?),
        ),
    };
    let _ = write!(
        script,
        "\n# The first task that fails ends the others.\n\
         srun {launch}--kill-on-bad-exit=1 --label{cpus} \\\n  {} join {}{rendezvous}",
        quote(&own_binary()?),
        training.joining()?.join(" ")
    );
    if !training.program.is_empty() {
        let _ = write!(script, " \\\n  --");
        training.program.iter().for_each(|word| {
            let _ = write!(script, " {}", quote(word));
        });
    }
    script.push_str("\ncode=$?\n");
    if training.restarts > 0 {
        let _ = write!(
            script,
            "\n# These may pass: a signal, a node that is gone, tasks that did not come in time.\n\
             if {{ [ \"$code\" -ge 128 ] || [ \"$code\" -eq 75 ]; }} && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {} ]; then\n  \
             scontrol requeue \"$SLURM_JOB_ID\"\nfi\n",
            training.restarts
        );
    }
    script.push_str("exit \"$code\"\n");
    Ok(script)
}

/// Reads the directory in which every launch gets a directory of its own.
fn directory_of(url: &str) -> Result<String, String> {
    match url.strip_prefix("file://") {
        Some(path) if path.starts_with('/') => Ok(quote(url.trim_end_matches('/'))),
        _ => {
            Err(format!("--rendezvous: '{url}' does not name a directory, expected file:///shared/directory"))
        }
    }
}

/// Quotes a word for a shell, and for Slurm in the options of a script.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::parsed;

    fn written(line: &str) -> Result<String, String> {
        let directory = std::env::temp_dir();
        let first = ["--dir", directory.to_str().unwrap()];
        let args: Args = parsed(first.into_iter().chain(line.split_whitespace()));
        script(&args, &args.training.label()?)
    }

    #[test]
    fn all_tasks_are_one_step() {
        let line = "--jobs chief:1,ps:2,worker:3 --nodes 3 --time 2:00:00 --cpus-per-task 2 --sbatch=--account=x \
                    -- python my_trainer.py --steps=10 it's";
        let script = written(line).unwrap();
        for expected in [
            "#SBATCH --job-name=my-trainer\n",
            "#SBATCH --ntasks=6\n",
            "#SBATCH --nodes=3\n",
            "#SBATCH --time=2:00:00\n",
            "#SBATCH --account=x\n",
            "srun --mpi=pmi2 --kill-on-bad-exit=1 --label --cpus-per-task=2 \\\n",
            " join --jobs chief:1,ps:2,worker:3 --serve ps \\\n  -- python my_trainer.py --steps=10 'it'\\''s'\n",
            "-lt 3 ]; then\n  scontrol requeue \"$SLURM_JOB_ID\"\n",
        ] {
            assert!(script.contains(expected), "{expected}\n{script}");
        }
    }

    #[test]
    fn a_shared_directory_replaces_the_process_manager() {
        let script =
            written("--jobs ps,worker:2 --restarts 0 --rendezvous file:///shared/ff/ -- train").unwrap();
        assert!(
            script.contains("--rendezvous file:///shared/ff\"/$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}\" "),
            "{script}"
        );
        assert!(script.contains(" join --jobs ps:1,worker:2 --serve ps --rendezvous "), "{script}");
        assert!(!script.contains("pmi2") && !script.contains("requeue \""), "{script}");
    }

    #[test]
    fn a_directory_may_have_spaces() {
        let directory = std::env::temp_dir().join(format!("ferroflow submit {}", std::process::id()));
        let args: Args = parsed(["--jobs", "ps:1", "--dir", directory.to_str().unwrap()]);
        let script = script(&args, "x").unwrap();
        let canonical = directory.canonicalize().unwrap();
        std::fs::remove_dir(&directory).unwrap();
        let expected = format!("#SBATCH --output='{}/%x-%j.out'\n", canonical.display());
        assert!(script.contains(&expected), "{expected}\n{script}");
    }

    #[test]
    fn mistakes_are_told() {
        assert!(
            written("--jobs ps:1,worker:*")
                .unwrap_err()
                .contains("leaves the number of tasks of job worker open")
        );
        assert!(
            written("--jobs ps:1 --rendezvous tcp://a:1").unwrap_err().contains("does not name a directory")
        );
        let error = written("--jobs worker:1 --serve evaluator -- x").unwrap_err();
        assert!(error.contains("--serve: there is no job evaluator"), "{error}");
        assert!(written("--jobs worker:1 -- x {jobs}").unwrap_err().contains("did you mean {job}?"));
        // Without parameter servers, or if the program is one, nothing is served.
        for line in ["--jobs worker:1 -- x", "--jobs ps:1,worker:1 --serve none -- x"] {
            assert!(!written(line).unwrap().contains("--serve"), "{line}");
        }
        assert!(
            written("--jobs worker:1 --stock-servers -- x").unwrap().contains(" --stock-servers \\\n  -- x")
        );
        let args: Args = parsed(["--jobs", "ps:1", "--time", "1 day"]);
        assert!(script(&args, "x").unwrap_err().contains("--time: '1 day' is not one word"));
    }
}
