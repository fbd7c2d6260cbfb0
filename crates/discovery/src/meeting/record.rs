//! Published records: members, clusters and the notes of tasks that left, each sealed so that a torn file is not read.

use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of everything below; tasks of different versions do not mix.
pub(super) const VERSION: u32 = 1;

/// `m.<job>.<task>.<generation>`: a start of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) version: u32,
    pub(super) job: String,
    pub(super) task: u32,
    /// Counts the starts of this task in this run.
    pub(super) generation: u64,
    /// Random; a process that knows it has read the board.
    pub(super) incarnation: String,
    /// Hosts at which others may reach the machine, the likeliest first.
    pub(super) hosts: Vec<String>,
    /// The port that the task serves on, as others reach it.
    pub(super) port: u16,
    /// The port at which it answers questions of other tasks: the same, unless a program listens on that.
    pub(super) control: u16,
    /// The name of the machine, for people.
    pub(super) host: String,
    /// Equal for tasks that share a loopback address.
    pub(super) machine: String,
    pub(super) pid: u32,
    /// The jobs of the cluster that this task was started with.
    pub(super) jobs: String,
    /// True if a program of the user runs in it, which ends by itself.
    pub(super) program: bool,
}

/// `c.<epoch>`: a cluster that was complete at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cluster {
    pub(super) epoch: u64,
    pub(super) members: Vec<Place>,
}

/// A member of a cluster, at the address that was seen to work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) job: String,
    pub(super) task: u32,
    pub(super) incarnation: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) control: u16,
    pub(super) program: bool,
}

/// `x.<job>.<task>.<generation>`: the end of a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) job: String,
    pub(super) task: u32,
    pub(super) incarnation: String,
    pub(super) code: u8,
    pub(super) reason: String,
}

/// A record of any kind.
#[derive(Clone, Debug)]
pub(super) enum Record {
    Member(Member),
    Cluster(Cluster),
    Note(Note),
}

impl Member {
    pub(super) fn name(&self) -> String {
        format!("m.{}.{}.{}", self.job, self.task, self.generation)
    }

    pub(super) fn note_name(&self) -> String {
        format!("x.{}.{}.{}", self.job, self.task, self.generation)
    }

    pub(super) fn task_name(&self) -> TaskName {
        TaskName::new(&self.job, self.task)
    }
}

impl Place {
    pub(super) fn task_name(&self) -> TaskName {
        TaskName::new(&self.job, self.task)
    }

    pub(super) fn address(&self) -> String {
        address(&self.host, self.port)
    }
}

impl Note {
    pub(super) fn task_name(&self) -> TaskName {
        TaskName::new(&self.job, self.task)
    }
}

impl Cluster {
    pub(super) fn name(epoch: u64) -> String {
        format!("c.{epoch}")
    }

    pub(super) fn place(&self, task: &TaskName) -> Option<&Place> {
        self.members.iter().find(|place| place.job == task.job && place.task == task.task)
    }

    pub(super) fn has(&self, incarnation: &str) -> bool {
        self.members.iter().any(|place| place.incarnation == incarnation)
    }

    /// Returns the addresses that programs are given. An evaluator is beside the cluster, not in it.
    pub(super) fn spec(&self) -> Result<ClusterSpec> {
        let mut spec = ClusterSpec::new();
        for place in self.members.iter().filter(|place| place.job != "evaluator") {
            spec.add(&place.job, place.task, &place.address())?;
        }
        spec.check()?;
        Ok(spec)
    }
}

/// Formats a host and a port as clusters write them.
pub(super) fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Formats a task as `worker:1`.
pub(super) fn short(task: &TaskName) -> String {
    format!("{}:{}", task.job, task.task)
}

/// Reads the record under a name; `None` if it is not whole, or not a record.
pub(super) fn read(name: &str, text: &str) -> Option<Record> {
    match name.split_once('.')?.0 {
        "m" => unseal(text).map(Record::Member),
        "c" => unseal(text).map(Record::Cluster),
        "x" => unseal(text).map(Record::Note),
        _ => None,
    }
}

/// Writes a record as one line of JSON and one with its checksum.
pub(super) fn seal(record: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string(record).map_err(|error| status!(Internal, "{error}"))?;
    let sum = crc32c::crc32c(json.as_bytes());
    Ok(format!("{json}\n{sum:08x}\n"))
}

fn unseal<T: DeserializeOwned>(text: &str) -> Option<T> {
    let (json, sum) = text.strip_suffix('\n')?.split_once('\n')?;
    let whole = format!("{:08x}", crc32c::crc32c(json.as_bytes())) == sum;
    whole.then(|| serde_json::from_str(json).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_record_is_none() {
        let note = Note {
            job: "ps".to_owned(),
            task: 1,
            incarnation: "7".to_owned(),
            code: 0,
            reason: String::new(),
        };
        let text = seal(&note).unwrap();
        assert!(matches!(read("x.ps.1.0", &text), Some(Record::Note(read)) if read == note));
        for length in 0..text.len() {
            assert!(read("x.ps.1.0", &text[..length]).is_none(), "{length}");
        }
        assert!(read("x.ps.1.0", &text.replace("\"ps\"", "\"pt\"")).is_none());
        assert!(read("z.ps.1.0", &text).is_none() && read("notes", &text).is_none());
    }
}
