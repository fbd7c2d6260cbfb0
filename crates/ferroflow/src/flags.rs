//! Command-line flags, written as TensorFlow's programs write them: `--name=value` or `--name value`.

use crate::server::TaskConfig;
use ferroflow_cluster::spec::ClusterSpec;
use ferroflow_core::{Result, Status, bail, ensure, status};
use ferroflow_discovery::{Environment, RoleRequest};
use std::fmt::Display;
use std::str::FromStr;

/// Flags that list the addresses of a job's tasks.
const HOSTS: [(&str, &str); 5] = [
    ("ps_hosts", "ps"),
    ("worker_hosts", "worker"),
    ("chief_hosts", "chief"),
    ("master_hosts", "master"),
    ("evaluator_hosts", "evaluator"),
];
/// Other flags that describe the cluster and the task of this process.
const TASK: [&str; 4] = ["cluster", "jobs", "job_name", "task_index"];

/// Command-line flags of a program: those that describe the cluster and its task, and its own. Programs with another
/// parser use [`TaskConfig`] instead.
///
/// ```
/// use ferroflow::Flags;
///
/// // A program calls Flags::from_args(&["steps", "dir"]).
/// let hosts = ["--ps_hosts=ps0:2222", "--worker_hosts=worker0:2222,worker1:2222"];
/// let others = ["--job_name=worker", "--task_index=1", "--steps=500"];
/// let flags = Flags::parse(hosts.into_iter().chain(others), &["steps", "dir"])?;
/// assert_eq!(flags.get_or("steps", 200)?, 500);
/// assert_eq!(flags.get("dir"), None);
/// let config = flags.task_config()?;
/// assert_eq!((config.task.job.as_str(), config.task.task, config.is_chief()), ("worker", 1, false));
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Flags(Vec<(String, String)>);

impl Flags {
    /// Parses the arguments of this process. `own` names the program's flags besides those of clusters.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an argument that is not a flag, an unknown flag or a flag without a value.
    pub fn from_args(own: &[&str]) -> Result<Flags> {
        Flags::parse(std::env::args().skip(1), own)
    }

    /// Parses `texts`; see [`Flags::from_args`].
    pub fn parse(texts: impl IntoIterator<Item = impl Into<String>>, own: &[&str]) -> Result<Flags> {
        let (mut flags, mut texts) = (Vec::new(), texts.into_iter().map(Into::into).peekable());
        while let Some(text) = texts.next() {
            let flag = text.strip_prefix("--").or_else(|| text.strip_prefix('-'));
            let flag =
                flag.ok_or_else(|| status!(InvalidArgument, "'{text}' is not a flag; write --name=value"))?;
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let name = name.replace('-', "_");
            let cluster = HOSTS.iter().map(|(flag, _)| *flag).chain(TASK);
            ensure!(
                own.iter().copied().chain(cluster.clone()).any(|known| known == name),
                InvalidArgument,
                "unknown flag --{name}; this program has {}, and for clusters {}",
                listed(own.iter().copied()),
                listed(cluster)
            );
            let value = value.or_else(|| texts.next_if(|text| !text.starts_with("--")));
            let value = value
                .ok_or_else(|| status!(InvalidArgument, "--{name} has no value; write --{name}=value"))?;
            flags.push((name, value));
        }
        Ok(Flags(flags))
    }

    /// Returns the value of a flag that may be missing. If it was given several times, the last one counts.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(flag, _)| flag == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a flag that must be present.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it is missing.
    pub fn required(&self, name: &str) -> Result<&str> {
        self.get(name).ok_or_else(|| status!(InvalidArgument, "--{name} is missing; write --{name}=value"))
    }

    /// Returns the parsed value of a flag, or `default` if it is missing.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the value cannot be parsed.
    pub fn get_or<T: FromStr<Err: Display>>(&self, name: &str, default: T) -> Result<T> {
        self.parsed(name).map(|value| value.unwrap_or(default))
    }

    fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>> {
        let parse =
            |text: &str| text.parse().map_err(|error| status!(InvalidArgument, "--{name}={text}: {error}"));
        self.get(name).map(parse).transpose()
    }

    /// Returns the task of this process: from `--ps_hosts`, `--worker_hosts` and other lists of addresses or `--cluster`,
    /// with `--job_name` and `--task_index`; without such flags, like [`TaskConfig::from_env`].
    pub fn task_config(&self) -> Result<TaskConfig> {
        let request = RoleRequest {
            job: self.get("job_name").map(str::to_owned),
            task: self.parsed("task_index")?,
            cluster: self.listed_cluster()?,
            jobs: self.parsed("jobs")?,
            ..RoleRequest::default()
        };
        let job = request.job.clone();
        let config = TaskConfig::resolve(request, &Environment::of_process())?;
        if let Some(job) = job.filter(|_| config.cluster.is_empty()) {
            bail!(
                InvalidArgument,
                "--job_name={job} names a task, but there is no cluster; add --ps_hosts and --worker_hosts, or set TF_CONFIG"
            );
        }
        Ok(config)
    }

    /// Returns the cluster, for programs that need not be one of its tasks.
    pub fn cluster(&self) -> Result<ClusterSpec> {
        let listed = self.listed_cluster()?;
        if listed.is_empty() { Ok(self.task_config()?.cluster) } else { Ok(listed) }
    }

    /// Returns the cluster that the flags list; empty if they do not list any.
    fn listed_cluster(&self) -> Result<ClusterSpec> {
        let with_flag =
            |flag: &str, error: Status| error.map_message(|message| format!("--{flag}: {message}"));
        let mut given = self.get("cluster").map(|_| "cluster");
        let mut cluster = match self.get("cluster") {
            Some(json) => ClusterSpec::from_json(json).map_err(|error| with_flag("cluster", error))?,
            None => ClusterSpec::new(),
        };
        for (flag, job) in HOSTS {
            if let Some(hosts) = self.get(flag) {
                cluster.add_hosts(job, hosts).map_err(|error| with_flag(flag, error))?;
                given = Some(flag);
            }
        }
        if let Some(flag) = given {
            // An unset variable of a script must not turn the program into a cluster of its own.
            ensure!(
                !cluster.is_empty(),
                InvalidArgument,
                "--{flag} does not list any task; write addresses, or leave the flag out"
            );
        }
        Ok(cluster)
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("--{name}")).collect();
    if names.is_empty() { "no flags of its own".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T>(result: Result<T>) -> String {
        result.err().expect("a mistake").message().to_owned()
    }

    #[test]
    fn flags_are_written_in_both_ways() {
        let flags =
            Flags::parse(["--dir", "a b", "-steps=3", "--worker-hosts=a:1", "--steps=4"], &["dir", "steps"]);
        let flags = flags.unwrap();
        assert_eq!((flags.get("dir"), flags.get_or("steps", 1).unwrap()), (Some("a b"), 4));
        assert_eq!(flags.cluster().unwrap().to_string(), "/job:worker/task:0 at a:1");
        assert!(message(flags.task_config()).contains("--job_name"));
    }

    #[test]
    fn mistakes_are_named() {
        let parse = |texts: &[&str]| Flags::parse(texts.iter().copied(), &["steps"]);
        let unknown = message(parse(&["--step=3"]));
        assert!(
            unknown.contains("unknown flag --step; this program has --steps")
                && unknown.contains("--ps_hosts")
        );
        assert!(message(parse(&["steps=3"])).contains("'steps=3' is not a flag"));
        assert!(message(parse(&["--steps", "--ps_hosts=a:1"])).contains("--steps has no value"));
        let flags = parse(&["--steps=many", "--ps_hosts=", "--job_name=ps"]).unwrap();
        assert!(message(flags.get_or("steps", 1)).starts_with("--steps=many: invalid digit"));
        assert!(message(flags.task_config()).starts_with("--ps_hosts does not list any task"));
        assert!(message(parse(&["--job_name=ps"]).unwrap().task_config()).contains("there is no cluster"));
        assert!(message(flags.required("dir")).contains("--dir is missing"));
    }
}
