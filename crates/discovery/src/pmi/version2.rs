//! PMI-2, which Slurm speaks: after a first line, messages with their length in six characters before them.

use super::Store;
use super::wire::{Wire, value};
use ferroflow_core::{Result, ensure, status};

/// Digits of the length before a message.
const LENGTH_DIGITS: usize = 6;

pub(super) struct Client {
    wire: Wire,
    job: String,
}

impl Client {
    pub(super) fn start(mut wire: Wire, job: &str, rank: u32) -> Result<Client> {
        wire.send(b"cmd=init pmi_version=2 pmi_subversion=0\n")?;
        let answer = wire.line()?;
        let version = value(&answer, ' ', "pmi_version")?;
        ensure!(version == "2", Unimplemented, "the process manager speaks PMI {version}, not 2");
        let mut client = Client { wire, job: job.to_owned() };
        client.ask("fullinit", &format!("pmijobid={job};pmirank={rank};threaded=FALSE;"))?;
        Ok(client)
    }

    /// Sends a command with its arguments, each ended by `;`, and returns the answer.
    fn ask(&mut self, command: &str, arguments: &str) -> Result<String> {
        let message = format!("cmd={command};{arguments}");
        self.wire.send(format!("{:LENGTH_DIGITS$}{message}", message.len()).as_bytes())?;
        let length = self.wire.text(LENGTH_DIGITS)?;
        let length = length
            .trim()
            .parse()
            .map_err(|_| status!(DataLoss, "the process manager announces an answer of '{length}' bytes"))?;
        let answer = self.wire.text(length)?;
        let name = value(&answer, ';', "cmd")?;
        ensure!(
            name.strip_suffix("-response") == Some(command),
            DataLoss,
            "the process manager answers '{answer}' to '{command}'"
        );
        Ok(answer)
    }
}

impl Store for Client {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.ask("kvs-put", &format!("key={key};value={value};")).map(drop)
    }

    fn fence(&mut self) -> Result<()> {
        self.ask("kvs-fence", "").map(drop)
    }

    fn get(&mut self, key: &str) -> Result<String> {
        let arguments = format!("jobid={};srcid=-1;key={key};", self.job);
        let answer = self.ask("kvs-get", &arguments)?;
        value(&answer, ';', "value").map(str::to_owned)
    }

    fn finalize(&mut self) -> Result<()> {
        self.ask("finalize", "").map(drop)
    }
}
