//! A directory as a meeting place, which relies only on what network file systems promise.
//!
//! A name appears whole or not at all: it is linked to a temporary file that was written before. Names are found by
//! listing, because a client that once found a name missing may believe so for a minute. Nothing is locked, rewritten or
//! compared with a clock.

use super::board::{Board, Listing};
use ferroflow_core::{Result, Status, ensure, status};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The longest record, in bytes.
const LONGEST: u64 = 1 << 20;

/// The prefix of the names of files that are being written.
pub(super) const TEMPORARY: &str = ".t.";

/// A directory of one run.
pub(super) struct FileBoard {
    directory: PathBuf,
}

impl FileBoard {
    /// Makes the directory if it is not there, and refuses one that others could write to.
    pub(super) fn create(directory: &Path) -> Result<FileBoard> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let board = FileBoard { directory: directory.to_owned() };
        made.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                status!(NotFound, "the rendezvous directory {} cannot be made: {error}", directory.display())
            }
            _ => board.refused("cannot be made", &error),
        })?;
        board.check()?;
        Ok(board)
    }

    /// Opens a directory that must exist.
    pub(super) fn open(directory: &Path) -> Result<FileBoard> {
        let board = FileBoard { directory: directory.to_owned() };
        board.check()?;
        Ok(board)
    }

    /// Checks that the directory is the user's own: it decides which processes a task talks to.
    fn check(&self) -> Result<()> {
        let shown = self.directory.display();
        let found = std::fs::symlink_metadata(&self.directory).map_err(|error| match error.kind() {
            ErrorKind::NotFound => status!(NotFound, "the rendezvous directory {shown} does not exist"),
            _ => self.refused("cannot be looked at", &error),
        })?;
        ensure!(found.is_dir(), FailedPrecondition, "the rendezvous {shown} is not a directory");
        let user = rustix::process::geteuid().as_raw();
        ensure!(
            found.uid() == user,
            PermissionDenied,
            "the rendezvous directory {shown} belongs to user {}, but this task runs as user {user}; choose a directory \
             of your own (a server that squashes root gives root's files to another user)",
            found.uid()
        );
        ensure!(
            found.mode() & 0o022 == 0,
            PermissionDenied,
            "others can write to the rendezvous directory {shown} (mode {:o}); run chmod 700 on it, or choose another",
            found.mode() & 0o7777
        );
        let parent = self.directory.parent().and_then(|parent| std::fs::metadata(parent).ok());
        // A user who can write to the parent can replace the directory, unless the parent is sticky.
        ensure!(
            parent.is_none_or(|parent| parent.mode() & 0o1002 != 0o0002),
            PermissionDenied,
            "anybody can replace the rendezvous directory {shown}, because anybody can write to its parent; run chmod +t \
             on that, or choose another"
        );
        Ok(())
    }

    fn refused(&self, what: &str, error: &io::Error) -> Status {
        let shown = self.directory.display();
        match error.kind() {
            ErrorKind::NotFound => status!(NotFound, "the rendezvous directory {shown} is gone"),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                status!(PermissionDenied, "the rendezvous directory {shown} {what}: {error}")
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                status!(
                    ResourceExhausted,
                    "the rendezvous directory {shown} {what}: {error}; make room there"
                )
            }
            ErrorKind::NotADirectory => {
                status!(FailedPrecondition, "the rendezvous directory {shown} {what}: {error}")
            }
            _ => status!(Unavailable, "the rendezvous directory {shown} {what}: {error}"),
        }
    }

    fn write_and_link(&self, temporary: &Path, name: &str, text: &str) -> io::Result<bool> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        drop(file);
        match std::fs::hard_link(temporary, self.directory.join(name)) {
            Ok(()) => Ok(true),
            // The answer may have been lost after the deed: then the file has two names.
            Err(error) => match std::fs::metadata(temporary).map(|found| found.nlink()) {
                Ok(2) => Ok(true),
                _ if error.kind() == ErrorKind::AlreadyExists => Ok(false),
                _ => Err(error),
            },
        }
    }
}

impl Board for FileBoard {
    fn place(&self) -> String {
        format!("the rendezvous directory {}", self.directory.display())
    }

    fn publish(&self, name: &str, text: &str) -> Result<bool> {
        let random = getrandom::u64().map_err(|error| status!(Internal, "no random numbers: {error}"))?;
        let temporary = self.directory.join(format!("{TEMPORARY}{}.{random:016x}", std::process::id()));
        let done = self.write_and_link(&temporary, name, text);
        let _ = std::fs::remove_file(&temporary);
        done.map_err(|error| self.refused("cannot be written to", &error))
    }

    fn list(&self) -> Result<Listing> {
        let failed = |error| self.refused("cannot be listed", &error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            names.extend(name.into_string().ok().filter(|name| !name.starts_with('.')));
        }
        let era = std::fs::metadata(&self.directory).map(|found| found.ino().to_string());
        Ok(Listing { names, era: era.map_err(failed)? })
    }

    fn read(&self, name: &str) -> Result<Option<String>> {
        let mut text = String::new();
        let read = File::open(self.directory.join(name))
            .and_then(|file| file.take(LONGEST).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(Some(text)),
            // Removed in between, or not text: as if it were not there.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => Ok(None),
            // Servers of version 3 forget a file that was just replaced; the next look finds it.
            Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => Ok(None),
            Err(error) => Err(self.refused("cannot be read", &error)),
        }
    }

    fn remove_all(&self) -> Result<()> {
        let gone = |done: io::Result<()>| match done {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(self.refused("cannot be cleaned up", &error))
            }
            _ => Ok(()),
        };
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) => return gone(Err(error)),
            Ok(entries) => entries,
        };
        for entry in entries.flatten() {
            if is_record(&entry.file_name().to_string_lossy()) {
                gone(std::fs::remove_file(entry.path()))?;
            }
        }
        match std::fs::remove_dir(&self.directory) {
            // There are other files here.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            done => gone(done),
        }
    }
}

/// Returns whether a file of this name belongs to a meeting.
pub(super) fn is_record(name: &str) -> bool {
    ["m.", "c.", "x.", TEMPORARY].iter().any(|prefix| name.starts_with(prefix))
}
