//! A task's share of the machine: threads, memory, and sessions that clients leave behind.

use super::Access;
use ferroflow::ServerConfig;
use ferroflow::server::memory_limit;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Arguments that bound a server's share of the machine.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Share of the machine")]
pub(crate) struct Resources {
    /// Compute with this many threads; by default as many as there are cores that this process may use (taskset, cgroups)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// Let the process grow to this size, as 4G, 512M or 80%; requests that need more are refused with
    /// RESOURCE_EXHAUSTED. Limits of control groups and of the process (ulimit) hold in any case
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,

    /// Let requests on their way hold this much memory per connection; by default half of what there is
    #[arg(long, visible_alias = "connection_memory", value_name = "SIZE")]
    connection_memory: Option<Size>,

    /// Close sessions whose programs are gone without closing them, after this many seconds; by default they are kept for
    /// other programs that know their handle, as by stock
    #[arg(long, visible_alias = "reclaim_sessions", value_name = "SECONDS")]
    reclaim_sessions: Option<u64>,

    #[command(flatten)]
    access: Access,
}

impl From<Access> for Resources {
    fn from(access: Access) -> Resources {
        Resources { access, ..Resources::default() }
    }
}

impl Resources {
    /// Makes a configuration with this share, for a task that is yet to be named.
    pub(crate) fn config(&self) -> Result<ServerConfig, String> {
        let mut config = ServerConfig::default();
        if let Some(threads) = self.threads.map(usize::from) {
            config.compute_threads = threads;
            config.io_threads = threads.clamp(1, 4);
        }
        let whole = memory_limit().map(|limit| limit.bytes);
        config.memory = self.memory.map(|size| size.bytes("--memory", whole)).transpose()?;
        let whole = config.memory.or(whole);
        let connection = self.connection_memory.map(|size| size.bytes("--connection-memory", whole));
        config.connection_memory = connection.transpose()?;
        config.reclaim_sessions = self.reclaim_sessions.map(Duration::from_secs);
        self.access.apply(&mut config);
        Ok(config)
    }

    /// Logs the server's share, and the source of the bound.
    pub(crate) fn tell(&self, config: &ServerConfig) {
        let threads = match config.compute_threads {
            1 => "1 thread".to_owned(),
            several => format!("{several} threads"),
        };
        let system = memory_limit();
        let (memory, source) = match (config.memory, &system) {
            (Some(own), Some(limit)) if limit.bytes < own => (limit.bytes, limit.source.to_string()),
            (Some(own), _) => (own, "--memory".to_owned()),
            (None, Some(limit)) => (limit.bytes, limit.source.to_string()),
            (None, None) => return tracing::info!("Computes with {threads}."),
        };
        let memory = Readable(memory);
        tracing::info!("Computes with {threads} and up to {memory} of memory, as {source} allows.");
    }
}

/// The least memory that a server does anything useful in.
const LEAST: usize = 64 << 20;

/// An amount of memory: bytes, or a part of what there is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    Bytes(usize),
    Percent(usize),
}

impl Size {
    fn bytes(self, flag: &str, whole: Option<usize>) -> Result<usize, String> {
        let bytes = match (self, whole) {
            (Size::Bytes(bytes), _) => bytes,
            (Size::Percent(percent), Some(whole)) => whole / 100 * percent,
            (Size::Percent(_), None) => {
                return Err(format!("{flag}: this system does not tell how much memory it has; write bytes"));
            }
        };
        if bytes < LEAST {
            return Err(format!(
                "{flag}: {} is too little, a server needs at least {}",
                Readable(bytes),
                Readable(LEAST)
            ));
        }
        Ok(bytes)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let malformed = || format!("'{text}' is not an amount of memory; write e.g. 4G, 512M or 80%");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| malformed())?;
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "%" if number > 0.0 && number <= 100.0 => return Ok(Size::Percent(number as usize)),
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(malformed()),
        };
        let bytes = number * (1u64 << shift) as f64;
        if bytes < (1u64 << 50) as f64 { Ok(Size::Bytes(bytes as usize)) } else { Err(malformed()) }
    }
}

/// A number of bytes that is displayed as people write it.
struct Readable(usize);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 30 => write!(f, "{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
            bytes => write!(f, "{} MiB", bytes >> 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let parse = |text: &str| text.parse::<Size>();
        assert_eq!(parse("4G"), Ok(Size::Bytes(4 << 30)));
        assert_eq!(parse("1.5gib"), Ok(Size::Bytes(3 << 29)));
        assert_eq!(parse("512 M"), Ok(Size::Bytes(512 << 20)));
        assert_eq!(parse("123456789"), Ok(Size::Bytes(123_456_789)));
        assert_eq!(parse("80%"), Ok(Size::Percent(80)));
        for bad in ["", "G", "4X", "-1G", "101%", "0%", "9999999999T", "nan"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Size::Percent(50).bytes("--memory", Some(8 << 30)), Ok((8usize << 30) / 100 * 50));
        assert!(Size::Bytes(1 << 20).bytes("--memory", None).is_err());
        assert!(Size::Percent(50).bytes("--memory", None).is_err());
    }
}
