//! Property tests of everything that comes from outside: whatever a client sends, the answer is a value or a status,
//! never a panic, a hang or an allocation that the message does not pay for.
//!
//! `FERROFLOW_FUZZ_CASES` sets how many inputs each property tries; unset, a number that suits a routine check.

/// Tensors in wire form.
mod tensor;

/// Graphs made by damaging those of the goldens.
mod graph;

/// Attacks that are worth a name.
mod hostile;

/// Calls and frames against a server.
mod wire;

use proptest::test_runner::Config;

/// The number of inputs to try; failures print what is needed to repeat them, and no files are left behind.
fn config(routine: u32) -> Config {
    let cases = std::env::var("FERROFLOW_FUZZ_CASES").ok().and_then(|text| text.parse().ok());
    Config { cases: cases.unwrap_or(routine), failure_persistence: None, ..Config::default() }
}

/// Fails if this process has ever held more than `limit` bytes of memory at once.
fn assert_modest(limit: u64) {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if let Some(kilobytes) = kilobytes {
        assert!(kilobytes << 10 < limit, "{kilobytes} kB were resident at the peak");
    }
}
