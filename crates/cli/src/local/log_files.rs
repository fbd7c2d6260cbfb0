//! A file for each task with the lines that it wrote.

use super::short;
use ferroflow::TaskName;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The files, in the order of the tasks; empty without `--log-dir`.
pub(super) struct LogFiles(Vec<(PathBuf, File)>);

impl LogFiles {
    /// Makes the directory and the files, in place of those of an earlier run.
    pub(super) fn create<'a>(
        directory: Option<&Path>,
        tasks: impl Iterator<Item = &'a TaskName>,
    ) -> Result<LogFiles, String> {
        let Some(directory) = directory else { return Ok(LogFiles(Vec::new())) };
        std::fs::create_dir_all(directory).map_err(|error| {
            format!("--log-dir: cannot make the directory {}: {error}", directory.display())
        })?;
        let create = |task: &TaskName| {
            let path = directory.join(format!("{}.log", short(task).replace('/', "-")));
            let file = File::create(&path);
            let file =
                file.map_err(|error| format!("--log-dir: cannot write {}: {error}", path.display()))?;
            Ok((path, file))
        };
        tasks.map(create).collect::<Result<_, String>>().map(LogFiles)
    }

    /// Writes a line of a task.
    pub(super) fn line(&mut self, task: usize, text: &[u8]) {
        if let Some((_, file)) = self.0.get_mut(task) {
            // A disk that is full must not end the training.
            let _ = file.write_all(&[text, b"\n"].concat());
        }
    }

    /// Returns the file of a task.
    pub(super) fn path(&self, task: usize) -> Option<&Path> {
        self.0.get(task).map(|(path, _)| path.as_path())
    }
}
