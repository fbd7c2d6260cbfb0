//! Directories that tasks share: whether files can be written, read back and found there.

use super::{Finding, Verdict};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The prefix of the names of files that these checks write.
const PREFIX: &str = ".ferroflow-doctor.";
/// The difference in seconds that the clock of the file server may have.
const CLOCKS_APART: f64 = 5.0;

/// A file that tells other examinations of the same directory about this one. It goes with this value.
pub struct Marker {
    directory: PathBuf,
    file: PathBuf,
    host: String,
    written: SystemTime,
}

impl Marker {
    /// Leaves a file in a directory, written as checkpoints are: beside its name first, then renamed.
    pub fn leave(directory: &Path) -> Result<Marker, Box<Finding>> {
        let wrong = |what: &str, error: io::Error, fix: &str| {
            let text = format!("{what}: {error}");
            Box::new(Finding::faulty(Verdict::Wrong, "directory", directory.display(), text, fix))
        };
        let is_directory = fs::metadata(directory)
            .map_err(|error| wrong("cannot be found", error, "create it, or mount it on this machine"))?
            .is_dir();
        if !is_directory {
            let file = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(wrong("is a file", file, "name a directory"));
        }
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        let name = format!("{PREFIX}{host}.{}", std::process::id());
        let (file, temporary) = (directory.join(&name), directory.join(format!("{name}.new")));
        let written = || {
            let mut new = File::create(&temporary)?;
            new.write_all(name.as_bytes())?;
            new.sync_all()?;
            fs::rename(&temporary, &file)
        };
        written().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            wrong(
                "cannot be written to",
                error,
                "give this user the right to write there, and look whether it is full",
            )
        })?;
        Ok(Marker { directory: directory.to_owned(), file, host, written: SystemTime::now() })
    }

    /// Reads the file back, looks for it and for others, and compares clocks with the file server.
    pub fn check(&self) -> Vec<Finding> {
        let about = self.directory.display();
        let wrong = |text: String, fix: &str| Finding::faulty(Verdict::Wrong, "directory", &about, text, fix);
        let expected = self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match fs::read_to_string(&self.file) {
            Ok(text) if text == expected => {}
            Ok(_) => {
                return vec![wrong(
                    "gives back other bytes than were written".to_owned(),
                    "use another file system",
                )];
            }
            Err(error) => {
                return vec![wrong(format!("does not give back a file: {error}"), "use another file system")];
            }
        }
        let names = match fs::read_dir(&self.directory) {
            Ok(entries) => entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()),
            Err(error) => {
                return vec![wrong(
                    format!("cannot be listed: {error}"),
                    "give this user the right to read it",
                )];
            }
        };
        let mut others: Vec<String> = names
            .filter_map(|name| Some(name.strip_prefix(PREFIX)?.rsplit_once('.')?.0.to_owned()))
            .filter(|host| *host != self.host)
            .collect();
        others.sort();
        others.dedup();
        let seen = if others.is_empty() {
            String::new()
        } else {
            format!("; also seen there: {}", others.join(", "))
        };
        let mut findings = vec![Finding::fine("directory", &about, format!("can be written and read{seen}"))];
        findings.extend(self.server_clock().filter(|apart| apart.abs() > CLOCKS_APART).map(|apart| {
            let text = format!("its files are dated {apart:.1} s off this machine's clock");
            let fix = "let this machine and the file server follow a time server";
            Finding::faulty(Verdict::Doubtful, "clock", &about, text, fix)
        }));
        findings
    }

    /// Returns the seconds by which the file's date is ahead of the time at which it was written.
    fn server_clock(&self) -> Option<f64> {
        let dated = fs::metadata(&self.file).ok()?.modified().ok()?;
        Some(match dated.duration_since(self.written) {
            Ok(ahead) => ahead.as_secs_f64(),
            Err(behind) => -behind.duration().as_secs_f64(),
        })
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ferroflow-doctor-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn the_clock_of_a_file_server_is_compared() {
        let shared = directory("clock");
        let marker = Marker::leave(&shared).unwrap();
        let checks = |marker: &Marker| -> Vec<(&'static str, Verdict)> {
            marker.check().iter().map(|finding| (finding.check, finding.verdict)).collect()
        };
        assert_eq!(checks(&marker), [("directory", Verdict::Fine)]);
        // As if a server whose clock is an hour behind had dated it.
        let file = File::options().write(true).open(&marker.file).unwrap();
        file.set_modified(marker.written - Duration::from_secs(3600)).unwrap();
        assert_eq!(checks(&marker), [("directory", Verdict::Fine), ("clock", Verdict::Doubtful)]);
        let told = marker.check().remove(1).text;
        assert!(told.contains("-3600"), "{told}");
        fs::remove_dir_all(shared).unwrap();
    }

    #[test]
    fn examinations_on_other_machines_are_seen_and_changed_files_found() {
        let shared = directory("others");
        fs::write(shared.join(format!("{PREFIX}elsewhere.7")), "").unwrap();
        let marker = Marker::leave(&shared).unwrap();
        let found = marker.check().remove(0);
        assert!(found.text.contains("also seen there: elsewhere"), "{}", found.text);
        fs::write(&marker.file, "something else").unwrap();
        assert_eq!(marker.check()[0].verdict, Verdict::Wrong);
        fs::remove_file(&marker.file).unwrap();
        assert_eq!(marker.check()[0].verdict, Verdict::Wrong);
        let file = shared.join("file");
        fs::write(&file, "").unwrap();
        assert!(Marker::leave(&file).is_err_and(|finding| finding.text.contains("is a file")));
        assert!(Marker::leave(&shared.join("none")).is_err());
        fs::remove_dir_all(shared).unwrap();
    }
}
