//! PMI-1, which Hydra speaks (MPICH, Intel MPI): lines of `name=value` words.

use super::Store;
use super::wire::{Wire, value};
use ferroflow_core::{Result, ensure};

pub(super) struct Client {
    wire: Wire,
    /// The name of the launch's store.
    store: String,
}

impl Client {
    pub(super) fn start(wire: Wire) -> Result<Client> {
        let mut client = Client { wire, store: String::new() };
        client.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let answer = client.ask("cmd=get_my_kvsname", "my_kvsname")?;
        client.store = value(&answer, ' ', "kvsname")?.to_owned();
        Ok(client)
    }

    /// Sends a command and returns the answer, which must be of this name.
    fn ask(&mut self, command: &str, answer: &str) -> Result<String> {
        self.wire.send(format!("{command}\n").as_bytes())?;
        let line = self.wire.line()?;
        let name = value(&line, ' ', "cmd")?;
        ensure!(name == answer, DataLoss, "the process manager answers '{line}' to '{command}'");
        Ok(line)
    }
}

impl Store for Client {
    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let command = format!("cmd=put kvsname={} key={key} value={value}", self.store);
        self.ask(&command, "put_result").map(drop)
    }

    fn fence(&mut self) -> Result<()> {
        self.ask("cmd=barrier_in", "barrier_out").map(drop)
    }

    fn get(&mut self, key: &str) -> Result<String> {
        let answer = self.ask(&format!("cmd=get kvsname={} key={key}", self.store), "get_result")?;
        value(&answer, ' ', "value").map(str::to_owned)
    }

    fn finalize(&mut self) -> Result<()> {
        self.ask("cmd=finalize", "finalize_ack").map(drop)
    }
}
