//! The process as the system sees it, under the names that Prometheus' own clients use.

use super::text::Text;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Ticks of the kernel's clock for users, in a second.
const TICKS: f64 = 100.0;

/// Writes what the system tells; on other systems than Linux that is little.
pub(super) fn write(text: &mut Text, started: SystemTime) {
    let mut put = |name: &str, kind: &str, help: &str, value: f64| {
        text.family(name, kind, help);
        text.sample(name, &[], value);
    };
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    put("process_start_time_seconds", "gauge", "When the server was started, since 1970.", started);
    if let Some(ticks) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_ticks(&stat)) {
        put("process_cpu_seconds_total", "counter", "Time that the processors spent.", ticks as f64 / TICKS);
    }
    if let Some(usage) = ferroflow_core::memory::limits::Usage::now() {
        put("process_resident_memory_bytes", "gauge", "Memory in use.", usage.resident as f64);
        put("process_virtual_memory_bytes", "gauge", "Size of the address space.", usage.mapped as f64);
    }
    let count = |directory: &str| fs::read_dir(directory).map(|entries| entries.count() as f64);
    if let Ok(files) = count("/proc/self/fd") {
        put("process_open_fds", "gauge", "Open files and connections.", files);
    }
    if let Ok(threads) = count("/proc/self/task") {
        put("process_threads", "gauge", "Threads.", threads);
    }
}

/// Reads the time in user and kernel mode. The name of the program, in parentheses, may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
    Some(fields.next()? + fields.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "4711 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9";
        assert_eq!(cpu_ticks(stat), Some(300));
    }
}
