//! `cargo xtask fuzz`: damaged calls and frames against a server with a memory limit, for as long as asked; watches for
//! its death, for calls that hang, and for growth.

use crate::{programs, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Interval between two looks at the server.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stop after this many minutes
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Choose other inputs
    #[arg(long, default_value_t = 1_000_000)]
    seed: u64,
    /// The server's memory limit, in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // Not optimized: overflows are found that wrap elsewhere.
    let binary = match std::env::var_os("FERROFLOW_SERVER") {
        Some(named) => PathBuf::from(named),
        None => programs::build_server()?,
    };
    let mut server = Command::new(binary)
        .args(["serve", "--port", "0", "--log", "warn", "--reclaim-sessions", "5"])
        .args(["--memory", &format!("{}M", args.memory)])
        .stdout(Stdio::piped())
        .spawn()
        .context("the server")?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().context("the output is a pipe")?).read_line(&mut line)?;
    let target = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    let mut fuzzing = workspace::cargo_command()
        .args(["test", "--quiet", "--workspace", "--test", "fuzz", "--"])
        .args(["--nocapture", "a_server_survives_damaged_calls_and_frames"])
        .env("FERROFLOW_FUZZ_TARGET", target)
        .env("FERROFLOW_FUZZ_SECONDS", (args.minutes * 60).to_string())
        .env("FERROFLOW_FUZZ_SEED", args.seed.to_string())
        .current_dir(workspace::root())
        .spawn()
        .context("the tests")?;
    let (tell, told) = channel();
    // The tests end by themselves when their time is up, or when the server is gone.
    std::thread::spawn(move || tell.send(fuzzing.wait()));
    let outcome = watch(&mut server, &told, args.memory << 20);
    let _ = server.kill();
    let _ = server.wait();
    outcome
}

/// Watches the server until the tests have ended.
fn watch(server: &mut Child, fuzzing: &Receiver<io::Result<ExitStatus>>, limit: u64) -> Result<()> {
    let (started, mut next_word, mut most) = (Instant::now(), Duration::ZERO, 0);
    loop {
        if let Some(ended) = server.try_wait()? {
            bail!("the server ended: {ended}");
        }
        let held = held(server.id())?;
        most = most.max(held);
        ensure!(most < limit + (256 << 20), "the server holds {} MiB", most >> 20);
        if started.elapsed() >= next_word {
            println!("{:4} s: {} MiB, at most {} MiB", started.elapsed().as_secs(), held >> 20, most >> 20);
            next_word += Duration::from_secs(60);
        }
        if let Ok(ended) = fuzzing.recv_timeout(LOOK_EVERY) {
            ensure!(ended?.success(), "the tests failed");
            println!(
                "The server lives, with {} MiB, and never had more than {} MiB.",
                held >> 20,
                most >> 20
            );
            return Ok(());
        }
    }
}

/// Memory that a process has filled. Pages of its program's file, of which it touches more and more, do not count.
fn held(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let mut total = 0;
    for kind in ["RssAnon:", "RssShmem:"] {
        let line = status.lines().find_map(|line| line.strip_prefix(kind)).unwrap_or("0 kB");
        total += line.trim().trim_end_matches(" kB").parse::<u64>()? << 10;
    }
    Ok(total)
}
