//! A submit file for HTCondor: one vanilla job per task, which find each other in a shared directory.

use super::{Tool, Training, on_path, one_word, own_binary};
use std::fmt::Write;

/// Arguments of `ferroflow submit condor`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    training: Training,

    /// Let tasks find each other here, in a directory that all machines share or at a server [default: rendezvous below
    /// --dir]
    #[arg(long, value_name = "file:///DIR|tcp://HOST:PORT")]
    rendezvous: Option<String>,

    /// Request this many processors for each task
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus_per_task: u32,

    /// Request this much memory for each task, e.g. 4G
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    mem: String,

    /// Add a line to the submit file, e.g. --line 'requirements = HasFastNet'; may be repeated
    #[arg(long, value_name = "LINE")]
    line: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), String> {
    let name = args.training.label()?;
    let tool = Tool {
        command: &["condor_submit"],
        place: "jobs are submitted to HTCondor",
        package: "HTCondor; Debian's package is htcondor",
    };
    args.training.hand_over(&format!("{name}.sub"), &submit_file(args, &name)?, &tool).map(drop)
}

fn submit_file(args: &Args, name: &str) -> Result<String, String> {
    let training = &args.training;
    let sizes = training.sizes()?;
    one_word("--mem", &args.mem)?;
    let directory = training.directory()?;
    let rendezvous = match &args.rendezvous {
        // Every submission gets a number of its own.
        None => format!("file://{}/rendezvous/$(ClusterId)", escaped(&directory.display().to_string())),
        Some(url) if url.starts_with("file:///") || url.starts_with("tcp://") => {
            format!("{}/$(ClusterId)", escaped(url.trim_end_matches('/')))
        }
        Some(url) => {
            return Err(format!(
                "--rendezvous: '{url}' is not a place to meet, expected file:///directory or tcp://host:port"
            ));
        }
    };
    let mut words = vec!["join".to_owned(), "--rendezvous".to_owned(), rendezvous];
    words.extend(training.joining()?);
    words.extend(["--job", "$(Job)", "--task", "$(Task)"].map(str::to_owned));
    if let Some((program, arguments)) = training.program.split_first() {
        words.push("--".to_owned());
        // Jobs do not see the submitter's PATH when their program is looked for.
        let found =
            Some(program).filter(|program| !program.contains('/')).and_then(|program| on_path(program));
        let program = found.map_or_else(|| program.clone(), |path| path.display().to_string());
        words.push(escaped(&program));
        words.extend(arguments.iter().map(|word| escaped(word)));
    }
    let log = |kind: &str| format!("{}/{name}-$(ClusterId)-$(Job)-$(Task).{kind}", directory.display());
    let current =
        std::env::current_dir().map_err(|error| format!("cannot find the current directory: {error}"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let pairs = [
        ("universe", "vanilla".to_owned()),
        ("executable", own_binary()?),
        ("arguments", quoted(&words)),
        ("initialdir", current.display().to_string()),
        ("environment", quoted(&[format!("PATH={}", escaped(&path))])),
        ("output", log("out")),
        ("error", log("err")),
        ("log", format!("{}/{name}-$(ClusterId).log", directory.display())),
        ("request_cpus", args.cpus_per_task.to_string()),
        ("request_memory", args.mem.clone()),
        ("should_transfer_files", "NO".to_owned()),
        ("want_graceful_removal", "True".to_owned()),
        ("batch_name", name.to_owned()),
        // A failure that may pass (a signal, a code from 128, 75: not all tasks came) is tried again.
        (
            "on_exit_remove",
            format!(
                "((ExitBySignal =?= False) && (ExitCode < 128) && (ExitCode =!= 75)) || (NumShadowStarts > {})",
                training.restarts
            ),
        ),
    ];
    let mut text = String::new();
    for (key, value) in pairs {
        let _ = writeln!(text, "{key} = {value}");
    }
    for line in &args.line {
        if line.contains('\n') {
            return Err(format!("--line: '{line}' has several lines"));
        }
        let _ = writeln!(text, "{line}");
    }
    text.push_str("queue Job, Task from (\n");
    for (job, count) in sizes {
        (0..count).for_each(|task| {
            let _ = writeln!(text, "  {job}, {task}");
        });
    }
    text.push_str(")\n");
    Ok(text)
}

/// Escapes text so that `$` does not begin a macro.
fn escaped(text: &str) -> String {
    text.replace('$', "$(DOLLAR)")
}

/// Writes words in HTCondor's quotes: double ones around all, single ones around a word with spaces, each doubled inside.
fn quoted(words: &[String]) -> String {
    let word = |word: &String| {
        if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c == '\'') {
            format!("'{}'", word.replace('\'', "''"))
        } else {
            word.clone()
        }
    };
    let words: Vec<String> = words.iter().map(word).collect();
    format!("\"{}\"", words.join(" ").replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::parsed;

    fn written(words: &[&str]) -> Result<String, String> {
        let directory = std::env::temp_dir();
        let first = ["--dir", directory.to_str().unwrap()];
        let args: Args = parsed(first.into_iter().chain(words.iter().copied()));
        submit_file(&args, &args.training.label()?)
    }

    #[test]
    fn every_task_is_a_job() {
        let words =
            ["--jobs", "chief:1,ps:1,worker:2", "--rendezvous", "file:///shared/ff", "--", "/bin/run"];
        let text = written(&[&words[..], &["a b", "it's", "\"q\"", "$HOME"]].concat()).unwrap();
        let arguments = "arguments = \"join --rendezvous file:///shared/ff/$(ClusterId) --jobs chief:1,ps:1,worker:2 \
                         --serve ps --job $(Job) --task $(Task) -- /bin/run 'a b' 'it''s' \"\"q\"\" $(DOLLAR)HOME\"\n";
        assert!(text.contains(arguments), "{text}");
        assert!(
            text.ends_with("queue Job, Task from (\n  chief, 0\n  ps, 0\n  worker, 0\n  worker, 1\n)\n"),
            "{text}"
        );
        assert!(text.contains("(NumShadowStarts > 3)"), "{text}");
    }

    #[test]
    fn mistakes_are_told() {
        assert!(
            written(&["--jobs", "ps:1", "--rendezvous", "/shared"])
                .unwrap_err()
                .contains("is not a place to meet")
        );
        assert!(written(&["--jobs", "worker:*"]).unwrap_err().contains("of job worker open"));
    }
}
