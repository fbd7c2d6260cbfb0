//! The members of a cluster: jobs, their tasks, and the address of each task.

use super::{TaskName, address, parse_json};
use ferroflow_core::{Result, ensure, status};
use ferroflow_proto::tensorflow::{ClusterDef, JobDef};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Addresses (`host:port`) by job and task number. Numbers may have gaps, and a task may know only some of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSpec {
    jobs: BTreeMap<String, BTreeMap<u32, String>>,
}

impl ClusterSpec {
    /// Creates an empty cluster.
    pub fn new() -> ClusterSpec {
        ClusterSpec::default()
    }

    /// Creates a cluster of one task.
    pub fn single(task: &TaskName, address: &str) -> ClusterSpec {
        let tasks = BTreeMap::from([(task.task, address.to_owned())]);
        ClusterSpec { jobs: BTreeMap::from([(task.job.clone(), tasks)]) }
    }

    /// Jobs with their addresses, numbered in order.
    ///
    /// ```
    /// use ferroflow_cluster::spec::ClusterSpec;
    ///
    /// let cluster = ClusterSpec::from_jobs([
    ///     ("worker", vec!["worker0.example.com:2222", "worker1.example.com:2222"]),
    ///     ("ps", vec!["ps0.example.com:2222"]),
    /// ])?;
    /// assert_eq!(cluster.num_tasks("worker"), 2);
    /// # Ok::<(), ferroflow_core::Status>(())
    /// ```
    pub fn from_jobs<J, H>(jobs: impl IntoIterator<Item = (J, H)>) -> Result<ClusterSpec>
    where
        J: AsRef<str>,
        H: IntoIterator,
        H::Item: AsRef<str>,
    {
        let mut cluster = ClusterSpec::new();
        for (job, hosts) in jobs {
            for (task, host) in hosts.into_iter().enumerate() {
                cluster.add(job.as_ref(), task as u32, host.as_ref())?;
            }
        }
        Ok(cluster)
    }

    /// Adds a task. An address serves one task, and a task has one address.
    pub fn add(&mut self, job: &str, task: u32, address: &str) -> Result<()> {
        let address = address.trim();
        let address = address.strip_prefix("grpc://").unwrap_or(address);
        check_job(job)?;
        check_address(job, task, address)?;
        let earlier = self.jobs.entry(job.to_owned()).or_default().insert(task, address.to_owned());
        match earlier {
            Some(earlier) if earlier != address => Err(status!(
                InvalidArgument,
                "/job:{job}/task:{task} has two addresses, {earlier} and {address}"
            )),
            _ => Ok(()),
        }
    }

    /// Adds a job whose tasks are numbered in the order of a comma-separated list, which may end with a comma.
    pub fn add_hosts(&mut self, job: &str, hosts: &str) -> Result<()> {
        let hosts = hosts.trim_end_matches(|c: char| c == ',' || c.is_whitespace());
        if hosts.is_empty() {
            return Ok(());
        }
        for (task, host) in hosts.split(',').map(str::trim).enumerate() {
            ensure!(
                !host.is_empty(),
                InvalidArgument,
                "the list of hosts of job {job} has an empty entry at index {task}: remove the comma, or name the host"
            );
            self.add(job, task as u32, host)?;
        }
        Ok(())
    }

    /// Reads `{"ps": ["a:2222"], "worker": {"1": "c:2222"}}`.
    pub fn from_json(text: &str) -> Result<ClusterSpec> {
        let json = parse_json(text).map_err(|error| {
            error.map_message(|message| {
                format!(
                    "{message}; expected e.g. {{\"ps\": [\"host:port\"], \"worker\": [\"host:port\", \
                     \"host:port\"]}}"
                )
            })
        })?;
        ClusterSpec::from_value(&json)
    }

    /// Reads the value that [`ClusterSpec::from_json`] describes.
    pub fn from_value(json: &Value) -> Result<ClusterSpec> {
        let jobs = json.as_object().ok_or_else(|| {
            status!(InvalidArgument, "the cluster must be an object of jobs, got {}", kind(json))
        })?;
        let mut spec = ClusterSpec::new();
        for (job, tasks) in jobs {
            match tasks {
                Value::Array(list) => {
                    for (task, address) in list.iter().enumerate() {
                        spec.add(job, task as u32, text(job, address)?)?;
                    }
                }
                Value::Object(map) => {
                    for (task, address) in map {
                        let number = task.trim().parse().map_err(|_| {
                            status!(
                                InvalidArgument,
                                "job {job} has a task '{task}', expected a non-negative number"
                            )
                        })?;
                        spec.add(job, number, text(job, address)?)?;
                    }
                }
                other => {
                    return Err(status!(
                        InvalidArgument,
                        "job {job} must be a list of addresses or an object from task index to address, got {}{}",
                        kind(other),
                        as_list(other)
                    ));
                }
            }
        }
        spec.check()?;
        Ok(spec)
    }

    /// Reads a cluster as clients and masters send it.
    pub fn from_def(def: &ClusterDef) -> Result<ClusterSpec> {
        ClusterSpec::from_tasks_of(def, |_| true)
    }

    /// Reads a cluster as eager clients send it. Tasks whose port is 0 are left out: a client need not say at which port
    /// it listens, and nobody could call it.
    pub fn from_client_def(def: &ClusterDef) -> Result<ClusterSpec> {
        ClusterSpec::from_tasks_of(def, |address| !address.trim().ends_with(":0"))
    }

    fn from_tasks_of(def: &ClusterDef, wanted: impl Fn(&str) -> bool) -> Result<ClusterSpec> {
        let mut spec = ClusterSpec::new();
        for job in &def.job {
            for (task, address) in job.tasks.iter().filter(|(_, address)| wanted(address)) {
                let number = u32::try_from(*task).map_err(|_| {
                    status!(InvalidArgument, "job {} has a negative task number {task}", job.name)
                })?;
                spec.add(&job.name, number, address)?;
            }
        }
        spec.check()?;
        Ok(spec)
    }

    /// Returns the message in which masters pass the cluster on.
    pub fn to_def(&self) -> ClusterDef {
        let job = |(name, tasks): (&String, &BTreeMap<u32, String>)| JobDef {
            name: name.clone(),
            tasks: tasks.iter().map(|(task, address)| (*task as i32, address.clone())).collect(),
        };
        ClusterDef { job: self.jobs.iter().map(job).collect() }
    }

    /// Fails if two tasks have the same address: each would take itself for the other.
    pub fn check(&self) -> Result<()> {
        let mut owners = HashMap::new();
        for (task, address) in self.tasks() {
            if let Some(other) = owners.insert(address, task.clone()) {
                return Err(status!(
                    InvalidArgument,
                    "{other} and {task} have the same address, {address}: each task needs a port of its own"
                ));
            }
        }
        Ok(())
    }

    /// Returns the cluster as JSON in the form that people write: a list of addresses per job, or an object where task
    /// indices have gaps.
    pub fn to_value(&self) -> Value {
        let job = |tasks: &BTreeMap<u32, String>| -> Value {
            if tasks.keys().copied().eq(0..tasks.len() as u32) {
                tasks.values().map(String::as_str).collect()
            } else {
                tasks.iter().map(|(task, address)| (task.to_string(), address.as_str())).collect()
            }
        };
        self.jobs.iter().map(|(name, tasks)| (name.clone(), job(tasks))).collect()
    }

    /// Returns [`ClusterSpec::to_value`] as text, which [`ClusterSpec::from_json`] reads.
    pub fn to_json(&self) -> String {
        self.to_value().to_string()
    }

    /// Returns whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns every task with its address, sorted by job and index.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskName, &str)> {
        self.jobs.iter().flat_map(|(job, tasks)| {
            tasks.iter().map(|(task, address)| (TaskName::new(job, *task), address.as_str()))
        })
    }

    /// Returns the names of the jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &str> {
        self.jobs.keys().map(String::as_str)
    }

    /// Returns the number of tasks of a job.
    pub fn num_tasks(&self, job: &str) -> usize {
        self.jobs.get(job).map_or(0, BTreeMap::len)
    }

    /// Returns the address of a task.
    pub fn address(&self, task: &TaskName) -> Option<&str> {
        self.jobs.get(&task.job)?.get(&task.task).map(String::as_str)
    }
}

impl fmt::Display for ClusterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (task, address) in self.tasks() {
            write!(f, "{separator}/job:{}/task:{} at {address}", task.job, task.task)?;
            separator = ", ";
        }
        Ok(())
    }
}

fn text<'a>(job: &str, address: &'a Value) -> Result<&'a str> {
    let wrong =
        || status!(InvalidArgument, "job {job} has an address that is {}, expected a string", kind(address));
    address.as_str().ok_or_else(wrong)
}

/// Suggests a list for addresses that were written as one string.
fn as_list(value: &Value) -> String {
    let Some(text) = value.as_str() else { return String::new() };
    let addresses: Value = text.split(',').map(str::trim).filter(|address| !address.is_empty()).collect();
    format!("; write {addresses}")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn check_job(job: &str) -> Result<()> {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = |job: &str| job.starts_with(|c: char| c.is_ascii_alphabetic()) && job.chars().all(rest);
    let better: String = job.trim().chars().map(|c| if rest(c) { c } else { '_' }).collect();
    let fix = if is_name(&better) { format!("; write e.g. {better}") } else { String::new() };
    ensure!(
        is_name(job),
        InvalidArgument,
        "'{job}' is not the name of a job: letters, digits and underscores, a letter first{fix}"
    );
    Ok(())
}

fn check_address(job: &str, task: u32, address: &str) -> Result<()> {
    match address::fault(address) {
        None => Ok(()),
        Some(fault) => Err(status!(
            InvalidArgument,
            "/job:{job}/task:{task} has the address '{address}', expected host:port: {fault}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_sparse_maps_are_read() {
        let spec =
            ClusterSpec::from_json(r#"{"ps": ["a:1", "b:2"], "worker": {"3": "grpc://c:3"}}"#).unwrap();
        assert_eq!(spec.address(&TaskName::new("ps", 1)), Some("b:2"));
        assert_eq!(spec.address(&TaskName::new("worker", 3)), Some("c:3"));
        assert_eq!(spec.address(&TaskName::new("worker", 0)), None);
        assert_eq!(ClusterSpec::from_def(&spec.to_def()).unwrap(), spec);
        assert_eq!(ClusterSpec::from_json(&spec.to_json()).unwrap(), spec);
        let mut flags = ClusterSpec::new();
        flags.add_hosts("ps", "a:1, b:2").unwrap();
        flags.add("worker", 3, "c:3").unwrap();
        assert_eq!(flags, spec);
    }

    #[test]
    fn mistakes_are_named() {
        let message = |text| ClusterSpec::from_json(text).unwrap_err().message().to_owned();
        assert!(message("[").contains("not JSON"));
        assert!(
            message(r#"{"ps": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}"#).contains("'ps' is named twice")
        );
        assert!(message(r#"{"ps": {"0": "a:1", "0": "b:1"}}"#).contains("'0' is named twice"));
        assert!(message("[]").contains("got a list"));
        assert!(message(r#"{"ps": "a:1, b:1"}"#).contains(r#"got a string; write ["a:1","b:1"]"#));
        assert!(message(r#"{"ps": [1]}"#).contains("a number, expected a string"));
        assert!(message(r#"{"ps": ["a"]}"#).contains("'a', expected host:port"));
        assert!(message(r#"{"ps": ["a:0"]}"#).contains("expected host:port"));
        assert!(message(r#"{"p s": ["a:1"]}"#).contains("not the name of a job"));
        assert!(message(r#"{"my-ps": ["a:1"]}"#).contains("not the name of a job"));
        assert!(message(r#"{"ps": {"x": "a:1"}}"#).contains("task 'x'"));
        assert!(message(r#"{"ps": ["a:1"], "worker": ["a:1"]}"#).contains("same address"));
    }
}
