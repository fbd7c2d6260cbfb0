//! Exchange of addresses through the process manager: PMI-2 under `srun --mpi=pmi2`, PMI-1 under Hydra's `mpiexec`.
//!
//! A launcher that knows PMI leaves every process a connected socket, named by `PMI_FD`, to a small store of keys and
//! values. Every process puts its own value, all meet at a barrier, and every process gets everybody's: no shared
//! directory, no port known in advance. The store lives as long as the launch and can be asked once, so tasks that are
//! restarted one by one need a rendezvous instead.

mod version1;
mod version2;
mod wire;

use ferroflow_core::{Result, Status, ensure, status};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use wire::Wire;

/// Variables by which a launcher offers the exchange. A program started after it must not see them: its own MPI library
/// would speak to a store that takes this process to be done.
pub const VARIABLES: [&str; 4] = ["PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_JOBID"];

/// The time that all processes of a launch have to arrive; the launcher starts them together.
const PATIENCE: Duration = Duration::from_secs(300);

/// The first character of every value.
const MARK: char = 'v';

/// The longest value in bytes that every store takes.
const LONGEST_VALUE: usize = 1023;

/// Characters that are escaped: PMI-1 separates words by spaces and names from values by `=`, PMI-2 pairs by `;`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b':').remove(b'-').remove(b'_');

/// Returns whether the process was started by a launcher that offers the exchange.
pub fn is_offered() -> bool {
    std::env::var_os("PMI_FD").is_some()
}

/// Gives `own` to all processes of this launch and returns the values of all, in the order of their ranks.
///
/// Waits until every process of the launch has called it, at most five minutes.
pub fn exchange(own: &str) -> Result<Vec<String>> {
    let launch = Launch::read(|name| std::env::var(name).ok())?;
    let stream = UnixStream::from(inherited(launch.fd)?);
    launch.exchange(Wire::new(stream, PATIENCE), own)
}

/// The facts that the launcher tells this process.
#[derive(Debug, PartialEq, Eq)]
struct Launch {
    fd: i32,
    rank: u32,
    size: u32,
    /// Slurm names the job, and speaks the second version; Hydra does not.
    job: Option<String>,
}

/// A store of keys and values that all processes of a launch see.
trait Store {
    fn put(&mut self, key: &str, value: &str) -> Result<()>;
    /// Waits until every process is here; what was put before is visible after.
    fn fence(&mut self) -> Result<()>;
    fn get(&mut self, key: &str) -> Result<String>;
    fn finalize(&mut self) -> Result<()>;
}

impl Launch {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Launch> {
        fn number<T: std::str::FromStr>(name: &str, text: Option<String>) -> Result<T> {
            let text = text.ok_or_else(|| not_offered(name))?;
            text.trim().parse().map_err(|_| status!(InvalidArgument, "{name} is '{text}', expected a number"))
        }
        let read = |name| variable(name);
        let launch = Launch {
            fd: number("PMI_FD", read("PMI_FD"))?,
            rank: number("PMI_RANK", read("PMI_RANK"))?,
            size: number("PMI_SIZE", read("PMI_SIZE"))?,
            job: read("PMI_JOBID"),
        };
        let Launch { rank, size, .. } = launch;
        ensure!(rank < size, InvalidArgument, "PMI_RANK is {rank}, but PMI_SIZE is {size}");
        Ok(launch)
    }

    fn exchange(&self, wire: Wire, own: &str) -> Result<Vec<String>> {
        // Not every store keeps a value without characters.
        let value = format!("{MARK}{}", utf8_percent_encode(own, ESCAPED));
        ensure!(
            value.len() <= LONGEST_VALUE,
            InvalidArgument,
            "{} bytes are too many for the process manager's store, which takes {LONGEST_VALUE}",
            value.len()
        );
        let mut store: Box<dyn Store> = match &self.job {
            Some(job) => Box::new(version2::Client::start(wire, job, self.rank)?),
            None => Box::new(version1::Client::start(wire)?),
        };
        store.put(&key(self.rank), &value)?;
        store.fence().map_err(|error| {
            error.map_message(|message| {
                format!(
                    "not all {} processes of this launch have published their addresses: {message}",
                    self.size
                )
            })
        })?;
        let mut values = Vec::with_capacity(self.size as usize);
        for rank in 0..self.size {
            let value = store.get(&key(rank))?;
            let text = value.strip_prefix(MARK).map(percent_decode_str);
            let text = text.and_then(|text| text.decode_utf8().ok());
            let text = text.ok_or_else(|| {
                status!(DataLoss, "rank {rank} published '{value}', which is not valid UTF-8")
            })?;
            values.push(text.into_owned());
        }
        store.finalize()?;
        Ok(values)
    }
}

fn key(rank: u32) -> String {
    format!("ferroflow-{rank}")
}

fn not_offered(name: &str) -> Status {
    status!(
        FailedPrecondition,
        "{name} is not set: start the tasks with `srun --mpi=pmi2` or Hydra's `mpiexec`, or name a rendezvous"
    )
}

/// Takes a descriptor that the launcher left open, by its number; it is closed when a program is started.
fn inherited(number: i32) -> Result<OwnedFd> {
    let own = || pidfd_getfd(pidfd_open(getpid(), PidfdFlags::empty())?, number, PidfdGetfdFlags::empty());
    own().map_err(|error| {
        status!(
            Unavailable,
            "cannot use descriptor {number}, which PMI_FD names: {error}; was it closed by a program in between, or does \
             a container forbid pidfd_getfd? A rendezvous works without it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::sync::{Arc, Barrier, Mutex};

    /// The store of a launch, and its barrier.
    struct Launcher {
        values: Mutex<HashMap<String, String>>,
        barrier: Barrier,
    }

    /// The value of a process; one of them is empty.
    fn own_value(rank: u32) -> String {
        if rank == 1 { String::new() } else { format!("[fd00::{rank}]:70{rank}; a=b") }
    }

    /// Exchanges an address of every process; both sides run here, a launcher's thread per process.
    fn exchanged(size: u32, job: Option<&str>, serve: fn(UnixStream, &Launcher)) -> Vec<Vec<String>> {
        let launcher = Arc::new(Launcher { values: Mutex::default(), barrier: Barrier::new(size as usize) });
        let mut processes = Vec::new();
        for rank in 0..size {
            let (own, theirs) = UnixStream::pair().unwrap();
            let launcher = launcher.clone();
            let launch = Launch { fd: 0, rank, size, job: job.map(str::to_owned) };
            processes.push(std::thread::spawn(move || {
                let server = std::thread::spawn(move || serve(theirs, &launcher));
                let values = launch.exchange(Wire::new(own, Duration::from_secs(20)), &own_value(rank));
                server.join().unwrap();
                values.unwrap()
            }));
        }
        processes.into_iter().map(|process| process.join().unwrap()).collect()
    }

    fn words(text: &str, separator: char) -> HashMap<String, String> {
        let pairs = text.trim_end().split(separator).filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn hydra(stream: UnixStream, launcher: &Launcher) {
        let mut answers = stream.try_clone().unwrap();
        for line in BufReader::new(stream).lines() {
            let words = words(&line.unwrap(), ' ');
            let answer = match words["cmd"].as_str() {
                "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
                "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1_0".to_owned(),
                "put" => {
                    assert_eq!(words["kvsname"], "kvs_1_0");
                    launcher.values.lock().unwrap().insert(words["key"].clone(), words["value"].clone());
                    "cmd=put_result rc=0 msg=success".to_owned()
                }
                "barrier_in" => {
                    launcher.barrier.wait();
                    "cmd=barrier_out".to_owned()
                }
                "get" => {
                    let value = &launcher.values.lock().unwrap()[&words["key"]];
                    format!("cmd=get_result rc=0 msg=success value={value}")
                }
                "finalize" => "cmd=finalize_ack".to_owned(),
                other => panic!("{other}"),
            };
            writeln!(answers, "{answer}").unwrap();
        }
    }

    fn slurm(stream: UnixStream, launcher: &Launcher) {
        let mut requests = BufReader::new(stream.try_clone().unwrap());
        let mut answers = stream;
        let mut first = String::new();
        requests.read_line(&mut first).unwrap();
        assert_eq!(first, "cmd=init pmi_version=2 pmi_subversion=0\n");
        answers.write_all(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n").unwrap();
        loop {
            let mut length = [0; 6];
            requests.read_exact(&mut length).unwrap();
            let length = std::str::from_utf8(&length).unwrap().trim().parse().unwrap();
            let mut request = vec![0; length];
            requests.read_exact(&mut request).unwrap();
            let words = words(std::str::from_utf8(&request).unwrap(), ';');
            let rest = match words["cmd"].as_str() {
                "kvs-put" => {
                    launcher.values.lock().unwrap().insert(words["key"].clone(), words["value"].clone());
                    String::new()
                }
                "kvs-fence" => {
                    launcher.barrier.wait();
                    String::new()
                }
                "kvs-get" => {
                    format!("found=TRUE;value={};", launcher.values.lock().unwrap()[&words["key"]])
                }
                "fullinit" | "finalize" => String::new(),
                other => panic!("{other}"),
            };
            let answer = format!("cmd={}-response;rc=0;{rest}", words["cmd"]);
            write!(answers, "{:6}{answer}", answer.len()).unwrap();
            if words["cmd"] == "finalize" {
                break;
            }
        }
    }

    #[test]
    fn all_learn_what_all_told_in_the_order_of_ranks() {
        let expected: Vec<String> = (0..3).map(own_value).collect();
        assert_eq!(exchanged(3, None, hydra), vec![expected.clone(); 3]);
        assert_eq!(exchanged(3, Some("7.0"), slurm), vec![expected; 3]);
    }

    #[test]
    fn a_launcher_that_vanishes_is_told() {
        for job in [None, Some("7.0".to_owned())] {
            let (own, theirs) = UnixStream::pair().unwrap();
            drop(theirs);
            let launch = Launch { fd: 0, rank: 0, size: 2, job };
            let error = launch.exchange(Wire::new(own, Duration::from_secs(20)), "a:1").unwrap_err();
            assert_eq!(error.code(), ferroflow_core::Code::Unavailable, "{error}");
        }
    }

    #[test]
    fn a_launch_that_never_answers_is_given_up() {
        let (own, _theirs) = UnixStream::pair().unwrap();
        let launch = Launch { fd: 0, rank: 0, size: 2, job: None };
        let error = launch.exchange(Wire::new(own, Duration::from_millis(20)), "a:1").unwrap_err();
        assert_eq!(error.code(), ferroflow_core::Code::DeadlineExceeded, "{error}");
    }

    #[test]
    fn the_environment_is_checked() {
        let read = |pairs: &'static [(&str, &str)]| {
            Launch::read(|name| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
            })
        };
        let launch =
            read(&[("PMI_FD", "7"), ("PMI_RANK", "1"), ("PMI_SIZE", "3"), ("PMI_JOBID", "9.0")]).unwrap();
        assert_eq!(launch, Launch { fd: 7, rank: 1, size: 3, job: Some("9.0".to_owned()) });
        let message = |pairs| read(pairs).unwrap_err().message().to_owned();
        assert!(message(&[]).contains("srun --mpi=pmi2"));
        assert!(message(&[("PMI_FD", "x")]).contains("PMI_FD is 'x'"));
        assert!(message(&[("PMI_FD", "7"), ("PMI_RANK", "3"), ("PMI_SIZE", "3")]).contains("PMI_SIZE is 3"));
    }
}
