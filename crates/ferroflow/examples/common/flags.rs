//! Flags of the examples, written as TensorFlow's programs write them: `--name=value` or `--name value`.

use ferroflow::server::TfConfig;
use ferroflow::{ClusterSpec, Code, Result, Status, TaskName};

/// What a program was started with.
#[derive(Clone, Debug)]
pub(crate) struct Flags(Vec<(String, String)>);

impl Flags {
    /// Flags from their texts.
    pub(crate) fn parse(texts: impl IntoIterator<Item = String>) -> Result<Flags> {
        let (mut flags, mut texts) = (Vec::new(), texts.into_iter());
        while let Some(text) = texts.next() {
            let Some(flag) = text.strip_prefix("--") else {
                return Err(wrong(format!("'{text}' is no flag; expected --name=value")));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (flag.to_owned(), texts.next()),
            };
            let value = value.ok_or_else(|| wrong(format!("--{name} has no value")))?;
            flags.push((name, value));
        }
        Ok(Flags(flags))
    }

    /// A flag that may be missing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(flag, _)| flag == name).map(|(_, value)| value.as_str())
    }

    /// A flag that must be there.
    pub(crate) fn need(&self, name: &str) -> Result<&str> {
        self.get(name).ok_or_else(|| wrong(format!("--{name} is missing")))
    }

    /// A number, or what it is without the flag.
    pub(crate) fn number(&self, name: &str, default: u64) -> Result<u64> {
        match self.get(name) {
            Some(text) => text.parse().map_err(|_| wrong(format!("--{name}={text} is no number"))),
            None => Ok(default),
        }
    }

    /// The cluster of `--ps_hosts` and `--worker_hosts`.
    pub(crate) fn cluster(&self) -> Result<ClusterSpec> {
        let mut cluster = ClusterSpec::new();
        cluster.add_hosts("ps", self.need("ps_hosts")?)?;
        cluster.add_hosts("worker", self.need("worker_hosts")?)?;
        Ok(cluster)
    }

    /// The task of `--job_name` and `--task_index` in that cluster.
    pub(crate) fn task(&self) -> Result<TfConfig> {
        let index = self.number("task_index", 0)? as u32;
        Ok(TfConfig { cluster: self.cluster()?, task: TaskName::new(self.need("job_name")?, index) })
    }
}

fn wrong(text: String) -> Status {
    Status::new(Code::InvalidArgument, text)
}
