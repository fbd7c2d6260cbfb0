//! The jobs of a cluster and their sizes, before addresses are known.

use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, Status, bail, ensure, status};
use std::fmt;
use std::str::FromStr;

/// The number of tasks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// This number.
    Tasks(u32),
    /// All tasks that the other jobs leave.
    Rest,
}

/// Jobs with their sizes, in the order in which ranks are given to them: `chief:1,ps:2,worker:*`.
///
/// ```
/// use ferroflow_discovery::Topology;
///
/// let topology: Topology = "chief:1,ps:2,worker:*".parse()?;
/// let topology = topology.of_size(6)?;
/// assert_eq!(topology.to_string(), "chief:1,ps:2,worker:3");
/// assert_eq!(topology.task_of_rank(3).map(|task| (task.job, task.task)), Some(("worker".to_owned(), 0)));
/// # Ok::<(), ferroflow_core::Status>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    jobs: Vec<(String, Count)>,
}

impl Topology {
    /// Makes a topology of jobs in this order, each with its size.
    pub fn new<'a>(jobs: impl IntoIterator<Item = (&'a str, u32)>) -> Result<Topology> {
        let jobs = jobs.into_iter().map(|(job, count)| (job.to_owned(), Count::Tasks(count)));
        Topology { jobs: jobs.collect() }.checked()
    }

    /// Fills in the size of the job that takes the rest, for a cluster of `size` tasks.
    pub fn of_size(&self, size: u32) -> Result<Topology> {
        let named: u32 = self.jobs.iter().map(|(_, count)| count.number()).sum();
        let open = self.jobs.iter().any(|(_, count)| *count == Count::Rest);
        let fits = if open { named < size } else { named == size };
        ensure!(
            fits,
            InvalidArgument,
            "the jobs {self} have {}{named} tasks, but {size} were started",
            if open { "more than " } else { "" }
        );
        let filled = |(job, count): &(String, Count)| match count {
            Count::Rest => (job.clone(), Count::Tasks(size - named)),
            Count::Tasks(_) => (job.clone(), *count),
        };
        Ok(Topology { jobs: self.jobs.iter().map(filled).collect() })
    }

    /// Returns the task of a rank; `None` beyond the last.
    pub fn task_of_rank(&self, rank: u32) -> Option<TaskName> {
        self.tasks().nth(rank as usize)
    }

    /// Returns every task in the order of ranks. A job that takes the rest has none until its size is known.
    pub fn tasks(&self) -> impl Iterator<Item = TaskName> {
        self.jobs.iter().flat_map(|(job, count)| (0..count.number()).map(|task| TaskName::new(job, task)))
    }

    /// Returns the jobs in their order.
    pub fn jobs(&self) -> impl Iterator<Item = (&str, Count)> {
        self.jobs.iter().map(|(job, count)| (job.as_str(), *count))
    }

    fn checked(self) -> Result<Topology> {
        ensure!(!self.jobs.is_empty(), InvalidArgument, "no jobs are named, expected e.g. ps:1,worker:2");
        for (position, (job, count)) in self.jobs.iter().enumerate() {
            // The rules of names are those of a cluster that has such a job.
            ClusterSpec::new().add(job, 0, "localhost:1")?;
            let twice = self.jobs[..position].iter().any(|(earlier, _)| earlier == job);
            ensure!(!twice, InvalidArgument, "job {job} is named twice");
            ensure!(*count != Count::Tasks(0), InvalidArgument, "job {job} has no tasks");
        }
        let open = self.jobs.iter().filter(|(_, count)| *count == Count::Rest).count();
        ensure!(open <= 1, InvalidArgument, "only one job can take the rest (*), {self} has {open} of them");
        Ok(self)
    }
}

impl Count {
    fn number(self) -> u32 {
        match self {
            Count::Tasks(count) => count,
            Count::Rest => 0,
        }
    }
}

impl FromStr for Topology {
    type Err = Status;

    /// Reads `job:count` pairs between commas; a count may be `*`, and is 1 where it is left out.
    fn from_str(text: &str) -> Result<Topology> {
        let mut jobs = Vec::new();
        for pair in text.split(',').map(str::trim) {
            let (job, count) = pair.split_once(':').unwrap_or((pair, "1"));
            if let Some((job, count)) = pair.split_once('=') {
                bail!(InvalidArgument, "'{pair}' is not a job with its number of tasks, write {job}:{count}");
            }
            let count = match count.trim() {
                "*" => Count::Rest,
                number => Count::Tasks(number.parse().map_err(|_| {
                    status!(
                        InvalidArgument,
                        "'{pair}' is not a job with its number of tasks, expected e.g. worker:2 or worker:*"
                    )
                })?),
            };
            jobs.push((job.trim().to_owned(), count));
        }
        Topology { jobs }.checked()
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (job, count)) in self.jobs.iter().enumerate() {
            let separator = if position == 0 { "" } else { "," };
            match count {
                Count::Tasks(count) => write!(f, "{separator}{job}:{count}")?,
                Count::Rest => write!(f, "{separator}{job}:*")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let message = |text: &str| text.parse::<Topology>().unwrap_err().message().to_owned();
        assert!(message("ps:x").contains("'ps:x' is not a job"));
        assert!(message("ps=2,worker:1").contains("write ps:2"));
        assert!(message("ps:0").contains("no tasks"));
        assert!(message("ps:1,ps:2").contains("named twice"));
        assert!(message("ps:*,worker:*").contains("only one job"));
        assert!(message("my-ps:1").contains("not the name of a job"));
        assert!(message("").contains("not the name of a job"));
        let closed: Topology = "ps,worker:2".parse().unwrap();
        assert!(closed.of_size(4).unwrap_err().message().contains("have 3 tasks, but 4 were started"));
        let open: Topology = "ps:1,worker:*".parse().unwrap();
        assert!(open.of_size(1).unwrap_err().message().contains("more than 1 tasks"));
    }
}
