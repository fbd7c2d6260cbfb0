//! Lines of a text file, as stock reads them: carriage returns are dropped wherever they stand, and the last line may
//! lack its end.

use crate::file::{self, SequentialReader};
use crate::path::resolve_path;
use bytes::{Bytes, BytesMut};
use ferroflow_core::Result;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 18;

/// A reader of the lines of one file, in order. Lines that are read together share their memory.
pub struct Lines {
    file: SequentialReader,
    path: PathBuf,
    /// The bytes that were read and not yet taken.
    buffer: BytesMut,
    /// The bytes at the start of `buffer` in which no end of a line is.
    searched: usize,
    position: u64,
    ended: bool,
}

impl Lines {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Lines> {
        let path = resolve_path(path)?;
        let file = SequentialReader::open(&path)?;
        Ok(Lines { file, path, buffer: BytesMut::new(), searched: 0, position: 0, ended: false })
    }

    /// The bytes of the file up to the end of the last line that was read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next line, without its end; `None` at the end of the file.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(at) = found {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                self.position += line.len() as u64;
                let mut line = line.freeze();
                line.truncate(line.len() - 1);
                return Ok(Some(without_returns(line)));
            }
            self.searched = self.buffer.len();
            if self.ended {
                let line = without_returns(self.buffer.split().freeze());
                self.position += self.searched as u64;
                self.searched = 0;
                return Ok((!line.is_empty()).then_some(line));
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<()> {
        let start = self.buffer.len();
        self.buffer.resize(start + CHUNK, 0);
        let got = loop {
            match self.file.read(&mut self.buffer[start..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let got = got.map_err(|error| file::status(&self.path, &error));
        self.buffer.truncate(start + got.as_ref().copied().unwrap_or(0));
        self.ended = got? == 0;
        Ok(())
    }
}

fn without_returns(line: Bytes) -> Bytes {
    if !line.contains(&b'\r') {
        return line;
    }
    line.iter().copied().filter(|byte| *byte != b'\r').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_stock_ends_them() {
        let path = std::env::temp_dir().join(format!("ferroflow-lines-{}", std::process::id()));
        let long = "x".repeat(3 * CHUNK);
        std::fs::write(&path, format!("a\r\n\nb\rc\n{long}\nlast")).unwrap();
        let mut lines = Lines::open(&path).unwrap();
        let mut read = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            read.push((String::from_utf8(line.to_vec()).unwrap(), lines.position()));
        }
        std::fs::remove_file(&path).unwrap();
        let length = long.len() as u64;
        assert_eq!(
            read,
            [
                ("a".to_owned(), 3),
                (String::new(), 4),
                ("bc".to_owned(), 8),
                (long, 9 + length),
                ("last".to_owned(), 13 + length)
            ]
        );
    }
}
