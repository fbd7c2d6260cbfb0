//! Files of this machine and remote ones: errors as statuses with stock's codes, positioned reads, and writes that appear
//! completely or not at all.

use crate::path::{remote_url, resolve_path};
use ferroflow_core::memory::MemoryBudget;
use ferroflow_core::{Code, Result, Status, ensure, status};
use ferroflow_remote::{RemoteFile, Upload};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The status for a failed file operation.
pub fn status(path: impl AsRef<Path>, error: &io::Error) -> Status {
    if error.kind() == ErrorKind::UnexpectedEof {
        return too_short(path);
    }
    // The system's message, without the error number that the standard library adds.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    Status::new(code(error), format!("{}; {text}", path.as_ref().display()))
}

/// The status for a file that ends too early.
pub(crate) fn too_short(path: impl AsRef<Path>) -> Status {
    status!(OutOfRange, "Read less bytes than requested: {}", path.as_ref().display())
}

/// Stock's code for an error of the operating system.
fn code(error: &io::Error) -> Code {
    match error.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::PermissionDenied,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::DirectoryNotEmpty
        | ErrorKind::ResourceBusy
        | ErrorKind::ExecutableFileBusy
        | ErrorKind::BrokenPipe => Code::FailedPrecondition,
        ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::OutOfMemory
        | ErrorKind::TooManyLinks => Code::ResourceExhausted,
        ErrorKind::InvalidInput | ErrorKind::InvalidFilename | ErrorKind::NotSeekable => {
            Code::InvalidArgument
        }
        ErrorKind::FileTooLarge => Code::OutOfRange,
        ErrorKind::CrossesDevices | ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::Interrupted | ErrorKind::WouldBlock => Code::Unavailable,
        ErrorKind::StaleNetworkFileHandle | ErrorKind::Deadlock => Code::Aborted,
        ErrorKind::TimedOut => Code::DeadlineExceeded,
        // The standard library has no `ErrorKind` for too many open files.
        _ if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => Code::ResourceExhausted,
        _ => Code::Unknown,
    }
}

const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// A file opened for reading at any offset, by any number of threads.
pub struct Source {
    path: PathBuf,
    file: Opened,
    length: u64,
}

enum Opened {
    Local(File),
    Remote(RemoteFile),
}

impl Source {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Source> {
        let path = resolve_path(path)?;
        if let Some(url) = remote_url(&path) {
            let file = RemoteFile::open(url)?;
            let length = file.length();
            return Ok(Source { path, file: Opened::Remote(file), length });
        }
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|error| status(&path, &error))?;
        Ok(Source { path, file: Opened::Local(file), length })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Fills `buffer` with the bytes from `offset` on.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &self.file {
            Opened::Local(file) => {
                file.read_exact_at(buffer, offset).map_err(|error| status(&self.path, &error))
            }
            Opened::Remote(file) => file.read_at(offset, buffer),
        }
    }

    /// The bytes from `offset` on; an error if the file is too short.
    pub fn read_vec(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.length);
        if !fits {
            return Err(too_short(&self.path));
        }
        let mut bytes = Vec::new();
        // A sparse file can be larger than memory.
        let reserved = bytes.try_reserve_exact(length as usize).is_ok();
        let fits = reserved && MemoryBudget::process().has_room_for(length as usize);
        ensure!(fits, ResourceExhausted, "no memory for {length} bytes of {}", self.path.display());
        bytes.resize(length as usize, 0);
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// A file that appears under its name only when it is complete and on disk. If dropped before, it leaves nothing
/// behind.
pub struct Sink {
    path: PathBuf,
    file: Created,
    written: u64,
}

enum Created {
    /// A temporary file, which gets its name at the end.
    Local(PathBuf, io::BufWriter<File>),
    Remote(Upload),
    Finished,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Sink {
    /// Creates a file. A missing directory is created if its parent exists, as in stock.
    pub fn create(path: impl AsRef<Path>) -> Result<Sink> {
        let path = resolve_path(path)?;
        if let Some(url) = remote_url(&path) {
            let file = Created::Remote(Upload::create(url)?);
            return Ok(Sink { path, file, written: 0 });
        }
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            match fs::create_dir(directory) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists && !directory.is_dir() => {
                    return Err(status(directory, &error));
                }
                _ => {}
            }
        }
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut temporary = path.clone().into_os_string();
        temporary.push(format!(".tempstate{}-{unique}", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let file = File::create(&temporary).map_err(|error| status(&temporary, &error))?;
        let file = Created::Local(temporary, io::BufWriter::with_capacity(1 << 18, file));
        Ok(Sink { path, file, written: 0 })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.file {
            Created::Local(temporary, file) => {
                file.write_all(bytes).map_err(|error| status(&*temporary, &error))?;
            }
            Created::Remote(upload) => upload.write(bytes)?,
            Created::Finished => {}
        }
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// The number of bytes appended so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Syncs the file to disk and gives it its name.
    pub fn finish(mut self) -> Result<()> {
        match std::mem::replace(&mut self.file, Created::Finished) {
            Created::Local(temporary, file) => {
                let file = file.into_inner().map_err(|error| error.into_error());
                let synced =
                    file.and_then(|file| file.sync_all()).map_err(|error| status(&temporary, &error));
                let named = synced.and_then(|()| rename(&temporary, &self.path));
                if named.is_err() {
                    let _ = fs::remove_file(&temporary);
                }
                named
            }
            Created::Remote(upload) => upload.finish(),
            Created::Finished => Ok(()),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Created::Local(temporary, _) = &self.file {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Renames a file, replacing any existing one, and syncs the directory.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    if let (Some(from), Some(to)) = (remote_url(from), remote_url(to)) {
        return ferroflow_remote::rename(from, to);
    }
    if remote_url(from).is_some() || remote_url(to).is_some() {
        write(to, &read(from)?)?;
        return remove(from);
    }
    fs::rename(from, to).map_err(|error| status(from, &error))?;
    let directory = to.parent().filter(|directory| !directory.as_os_str().is_empty());
    let synced = File::open(directory.unwrap_or(Path::new("."))).and_then(|directory| directory.sync_all());
    // Some file systems cannot sync directories; the rename itself has succeeded.
    synced.or_else(|error| if error.kind() == ErrorKind::NotFound { Err(status(to, &error)) } else { Ok(()) })
}

/// Returns whether there is a file or directory of this name.
pub fn exists(path: impl AsRef<Path>) -> Result<bool> {
    let path = resolve_path(path)?;
    match remote_url(&path) {
        Some(url) => ferroflow_remote::exists(url),
        None => Ok(path.exists()),
    }
}

/// The whole content of a file.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = resolve_path(path)?;
    if remote_url(&path).is_some() {
        let source = Source::open(&path)?;
        return source.read_vec(0, source.length());
    }
    fs::read(&path).map_err(|error| status(&path, &error))
}

/// Replaces the content of a file: readers see the old or the new one.
pub fn write(path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
    let mut sink = Sink::create(path)?;
    sink.write(content)?;
    sink.finish()
}

/// Removes a file.
pub fn remove(path: impl AsRef<Path>) -> Result<()> {
    let path = resolve_path(path)?;
    match remote_url(&path) {
        Some(url) => ferroflow_remote::remove(url),
        None => fs::remove_file(&path).map_err(|error| status(&path, &error)),
    }
}

/// Makes a directory and those above it. Object stores have none to make.
pub fn create_directories(path: impl AsRef<Path>) -> Result<()> {
    let path = resolve_path(path)?;
    if remote_url(&path).is_some() {
        return Ok(());
    }
    fs::create_dir_all(&path).map_err(|error| status(&path, &error))
}

/// Removes a directory if it is empty; object stores have none to remove.
pub fn remove_empty_directory(path: &Path) {
    if remote_url(path).is_none() {
        let _ = fs::remove_dir(path);
    }
}

/// The time of the last change of a file.
pub fn modified(path: impl AsRef<Path>) -> Result<SystemTime> {
    let path = resolve_path(path)?;
    match remote_url(&path) {
        Some(url) => Ok(ferroflow_remote::metadata(url)?.modified),
        None => fs::metadata(&path).and_then(|data| data.modified()).map_err(|error| status(&path, &error)),
    }
}

/// The names in a directory, in no order; none if there is no such directory.
pub fn list(directory: impl AsRef<Path>) -> Result<Vec<String>> {
    let directory = resolve_path(directory)?;
    if let Some(url) = remote_url(&directory) {
        return ferroflow_remote::list(url);
    }
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
    match fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(status(directory, &error)),
        Ok(entries) => {
            Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
        }
    }
}

/// A reader of a file from its start to its end.
pub struct SequentialReader {
    source: Source,
    position: u64,
}

impl SequentialReader {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<SequentialReader> {
        Ok(SequentialReader { source: Source::open(path)?, position: 0 })
    }
}

impl io::Seek for SequentialReader {
    /// Moves by bytes from the start or from here; where a file ends may change, so that nothing counts from there.
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(position) => Some(position),
            io::SeekFrom::Current(by) => self.position.checked_add_signed(by),
            io::SeekFrom::End(_) => None,
        };
        let refused = || io::Error::new(ErrorKind::InvalidInput, "no such place in a file that is read once");
        self.position = position.ok_or_else(refused)?;
        Ok(self.position)
    }
}

impl io::Read for SequentialReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &self.source.file {
            // A local file may have grown since it was opened.
            Opened::Local(file) => file.read_at(buffer, self.position)?,
            Opened::Remote(file) => {
                let left = self.source.length.saturating_sub(self.position);
                let length = buffer.len().min(left as usize);
                file.read_at(self.position, &mut buffer[..length]).map_err(io::Error::other)?;
                length
            }
        };
        self.position += read as u64;
        Ok(read)
    }
}

/// The files that match a pattern, sorted: `*` and `?` stand for any characters and `[…]` for one of several, within
/// one component of the path.
pub fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    let path = &resolve_path(pattern)?;
    let (root, rest) = match remote_url(path) {
        Some(url) => split_host(url),
        None => (PathBuf::new(), path.as_path()),
    };
    let mut found = vec![root];
    for component in rest.components() {
        let name = component.as_os_str();
        let wanted = name.to_str().filter(|name| name.contains(['*', '?', '[']));
        let Some(wanted) = wanted else {
            found.iter_mut().for_each(|path| path.push(name));
            continue;
        };
        let mut next = Vec::new();
        for directory in &found {
            let names = list(directory)?.into_iter();
            let matches = names.filter(|name| matches_pattern(wanted.as_bytes(), name.as_bytes()));
            next.extend(matches.map(|name| directory.join(name)));
        }
        found = next;
    }
    found.retain(|path| !path.as_os_str().is_empty() && exists(path).unwrap_or(false));
    found.sort();
    Ok(found)
}

/// The host of a URL, and the path on it.
fn split_host(url: &str) -> (PathBuf, &Path) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    (PathBuf::from(&url[..end]), Path::new(url[end..].trim_start_matches('/')))
}

fn matches_pattern(pattern: &[u8], name: &[u8]) -> bool {
    // On a mismatch, the last `*` matches one more character.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
                continue;
            }
            Some(b'[') if set_length(&pattern[p..]).is_some() => {
                let length = set_length(&pattern[p..]).unwrap_or(1);
                if in_set(&pattern[p + 1..p + length - 1], name[n]) {
                    (p, n) = (p + length, n + 1);
                    continue;
                }
            }
            Some(wanted) if *wanted == b'?' || *wanted == name[n] => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            _ => {}
        }
        let Some((at, taken)) = star else { return false };
        star = Some((at, taken + 1));
        (p, n) = (at + 1, taken + 1);
    }
    pattern[p..].iter().all(|rest| *rest == b'*')
}

/// The length of `[…]` at the start, brackets included.
fn set_length(pattern: &[u8]) -> Option<usize> {
    pattern.iter().skip(2).position(|byte| *byte == b']').map(|at| at + 3)
}

fn in_set(set: &[u8], byte: u8) -> bool {
    let (negated, mut set) = match set {
        [b'^' | b'!', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let mut found = false;
    loop {
        set = match set {
            [] => return found != negated,
            [low, b'-', high, rest @ ..] => {
                found |= (*low..=*high).contains(&byte);
                rest
            }
            [one, rest @ ..] => {
                found |= *one == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files() {
        let matches = |pattern: &str, name: &str| matches_pattern(pattern.as_bytes(), name.as_bytes());
        assert!(matches("model-?????-of-00002", "model-00001-of-00002"));
        assert!(!matches("model-?????-of-00002", "model-00001-of-00003"));
        assert!(matches("*a*b", "xaybzb") && !matches("*a*b", "xaybzc"));
        assert!(matches("[a-c]x", "bx") && !matches("[^a-c]x", "bx") && matches("[!a]x", "bx"));
        assert!(matches("*", "") && !matches("?", "") && matches("[", "["));
    }
}
