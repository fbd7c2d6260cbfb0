//! The program of a task that joined. All processes that it starts end with it, and with this process.

use super::TaskEvent;
use crate::local::ProcessTree;
use crate::python_servers::PythonServers;
use crate::run::program_command;
use ferroflow::discovery::pmi;
use ferroflow::{ClusterSpec, TaskName};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

/// A program that runs.
pub(super) struct Program {
    process: Child,
    group: Pid,
    tree: ProcessTree,
}

impl Program {
    /// Starts the program as a task of the cluster; its end becomes an event.
    pub(super) fn start(
        words: &[String],
        python: PythonServers,
        task: &TaskName,
        cluster: &ClusterSpec,
        exchanged: bool,
        sender: Sender<TaskEvent>,
    ) -> Result<Program, String> {
        let mut command = program_command(task, cluster, words, python)?;
        // A program that speaks to the launcher again would be taken for a process that ends and returns.
        for variable in pmi::VARIABLES.iter().filter(|_| exchanged) {
            command.env_remove(variable);
        }
        let mut tree = ProcessTree::new()?;
        tree.mark(&mut command);
        let process = command.stdin(Stdio::null()).process_group(0).spawn();
        let process = process.map_err(|error| format!("cannot start the program: {error}"))?;
        let group = Pid::from_child(&process);
        tree.watch(group);
        std::thread::spawn(move || {
            // The process is not taken off the system's list yet, so that no other process gets its number.
            let _ = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let _ = sender.send(TaskEvent::Exited);
        });
        Ok(Program { process, group, tree })
    }

    /// Sends a signal to the program and the processes that it has started.
    pub(super) fn signal(&self, signal: Signal) {
        // Fails only if all of it has just ended.
        let _ = kill_process_group(self.group, signal);
    }

    /// Ends the processes that the program left behind, after its end.
    pub(super) fn reap(mut self) -> Result<ExitStatus, String> {
        self.signal(Signal::TERM);
        let status = self.process.wait();
        self.tree.forget(self.group);
        status.map_err(|error| format!("the end of the program is not known: {error}"))
    }
}
