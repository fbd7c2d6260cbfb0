//! A process that is killed while it replaces a checkpoint leaves a complete one: the new one or the previous one.

use super::{BundleReader, BundleWriter, SliceSpec, merge};
use ferroflow_core::{Result, Tensor};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The variable that is set for the process that saves until it is killed.
const PREFIX: &str = "FERROFLOW_TEST_SAVE_PREFIX";
/// The variable that repeats the random moments of a failed run.
const SEED: &str = "FERROFLOW_TEST_SEED";
const ROUNDS: usize = 40;
const ELEMENTS: usize = 200_000;

#[test]
fn a_kill_at_any_moment_leaves_a_whole_checkpoint() {
    if let Ok(prefix) = std::env::var(PREFIX) {
        save_until_killed(&prefix).unwrap();
        return;
    }
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    eprintln!("{SEED}={seed}");
    let directory = std::env::temp_dir().join(format!("ferroflow-kill-{}-{seed}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let prefix = directory.join("model").to_str().unwrap().to_owned();
    let mut state = seed;
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        acknowledged = kill_after(&prefix, Duration::from_micros(state >> 33 & 0x7fff)).max(acknowledged);
        let found = check(&prefix).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(found >= acknowledged, "round {round}: {found} is older than {acknowledged}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// Lets a process save at least once and then for this long; returns the number of the last checkpoint it reported.
fn kill_after(prefix: &str, time: Duration) -> i64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "bundle::kill_tests::a_kill_at_any_moment_leaves_a_whole_checkpoint",
            "--nocapture",
        ])
        .env(PREFIX, prefix)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let numbers = lines.map_while(|line| line.ok());
        numbers.filter_map(|line| line.strip_prefix("saved ")?.parse().ok()).for_each(|number: i64| {
            let _ = sender.send(number);
        });
    });
    let mut last = receiver.recv_timeout(Duration::from_secs(60)).expect("the process saves");
    let end = Instant::now() + time;
    while let Ok(number) = receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
        last = number;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    receiver.try_iter().last().unwrap_or(last)
}

/// Replaces the checkpoint again and again, as a whole and merged from parts.
fn save_until_killed(prefix: &str) -> Result<()> {
    let mut number = check(prefix).unwrap_or(0);
    loop {
        number += 1;
        let big = Tensor::vector(vec![number as f32; ELEMENTS]);
        let half = Tensor::vector(vec![number; ELEMENTS / 2]);
        let (low, high) =
            (format!("{ELEMENTS} 0,{}", ELEMENTS / 2), format!("{ELEMENTS} {0},{0}", ELEMENTS / 2));
        let parts = [format!("{prefix}_temp/part-0"), format!("{prefix}_temp/part-1")];
        // In pairs, so that a checkpoint also replaces one with the same number of data files.
        let merged = number % 4 < 2;
        let mut writer = BundleWriter::create(if merged { &parts[0] } else { prefix })?;
        writer.add("number", &Tensor::scalar(number))?;
        writer.add_slice("table", &SliceSpec::parse(&low)?, &half)?;
        if merged {
            writer.finish()?;
            writer = BundleWriter::create(&parts[1])?;
        }
        writer.add("big", &big)?;
        writer.add_slice("table", &SliceSpec::parse(&high)?, &half)?;
        writer.finish()?;
        if merged {
            merge(&parts, prefix, false)?;
        }
        // Fails when the parent has closed the pipe.
        if writeln!(std::io::stdout(), "saved {number}").is_err() {
            return Ok(());
        }
    }
}

/// The number of the checkpoint; all its values must come from one save.
fn check(prefix: &str) -> Result<i64> {
    let reader = BundleReader::open(prefix)?;
    let number: i64 = reader.read("number")?.to_scalar()?;
    let (big, table) = (reader.read("big")?, reader.read("table")?);
    assert!(big.flat::<f32>()?.iter().all(|value| *value == number as f32), "big is of another save");
    assert!(table.flat::<i64>()?.iter().all(|value| *value == number), "table is of another save");
    Ok(number)
}
