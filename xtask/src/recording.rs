//! `cargo xtask recording`: the picture of the first page, made from the real binary at a terminal.
//!
//! Commands run in a pseudo-terminal, by `script` of util-linux, and what they print is kept with its time. Nothing is
//! retouched; pauses are shortened, and the prompt is ours.

mod svg;
mod terminal;

use crate::{python, server, workspace};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use terminal::Screen;

const PICTURE: &str = "docs/images/ferroflow.svg";

/// The commands of the picture, as the first page has them.
const COMMANDS: [&str; 2] =
    ["ferroflow demo", "ferroflow run --ps 1 --workers 2 -- python examples/trainer.py"];

const COLUMNS: usize = 108;
const ROWS: usize = 22;

/// Pauses last no longer than this in the picture.
const PAUSE: Duration = Duration::from_millis(900);
/// Changes that come sooner than this after the one before are shown with the next.
const FRAME: Duration = Duration::from_millis(60);
const KEYSTROKE: Duration = Duration::from_millis(35);
/// The time for which the end stays before the picture begins again.
const END: Duration = Duration::from_secs(8);

/// Options of `cargo xtask recording`.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// A screen and the time at which it is shown, from the beginning.
pub(crate) struct Frame {
    at: Duration,
    screen: Screen,
}

/// Runs the commands and writes the picture.
pub(crate) fn run(_: &Args) -> Result<()> {
    let binary = server::build()?;
    let directory = workspace::target().join("recording");
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::create_dir_all(&directory)?;
    symlink(workspace::root().join("examples"), directory.join("examples"))?;
    let tools = binary.parent().context("the binary is in a directory")?;
    let mut path = vec![tools.to_owned(), python::venv().join("bin")];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path)?;

    let mut film = Film { frames: Vec::new(), screen: Screen::new(COLUMNS, ROWS), now: Duration::ZERO };
    for command in COMMANDS {
        film.type_in(command);
        let mut terminal = Command::new("script");
        let sized = format!("stty columns {COLUMNS} rows {ROWS}; exec {command}");
        terminal.args(["--quiet", "--return", "--command", &sized, "/dev/null"]);
        terminal.env("PATH", &path).env("TERM", "xterm-256color").env("SHELL", "/bin/sh");
        film.watch(terminal.current_dir(&directory)).with_context(|| command.to_owned())?;
    }
    film.show("$ ");
    let length = film.now + END;
    let picture = workspace::root().join(PICTURE);
    fs::create_dir_all(picture.parent().unwrap_or(Path::new(".")))?;
    let title = format!("A terminal: {}", COMMANDS.join("; "));
    fs::write(&picture, svg::render(&title, &film.frames, length)).context(PICTURE)?;
    println!("{PICTURE}: {:.0} s", length.as_secs_f64());
    Ok(())
}

/// The recording as it grows.
struct Film {
    frames: Vec<Frame>,
    screen: Screen,
    /// The time in the picture, in which pauses are short.
    now: Duration,
}

impl Film {
    fn show(&mut self, text: &str) {
        self.screen.print(text);
        match self.frames.last_mut() {
            Some(last) if self.now < last.at + FRAME => last.screen = self.screen.clone(),
            _ => self.frames.push(Frame { at: self.now, screen: self.screen.clone() }),
        }
    }

    /// A prompt and a command.
    fn type_in(&mut self, command: &str) {
        self.show("$ ");
        self.now += PAUSE;
        for letter in command.chars() {
            self.show(letter.encode_utf8(&mut [0; 4]));
            self.now += KEYSTROKE;
        }
        self.now += PAUSE / 2;
        self.show("\r\n");
    }

    /// Runs a command to its end and keeps what it prints.
    fn watch(&mut self, command: &mut Command) -> Result<()> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("script")?;
        let mut output = child.stdout.take().context("its output is piped")?;
        let (mut buffer, mut undecoded, mut last) = (vec![0; 4096], Vec::new(), Instant::now());
        loop {
            let read = output.read(&mut buffer)?;
            self.now += last.elapsed().min(PAUSE);
            last = Instant::now();
            if read == 0 {
                break;
            }
            undecoded.extend_from_slice(&buffer[..read]);
            // A character may be cut in two.
            let whole = undecoded.utf8_chunks().next().map_or(0, |chunk| chunk.valid().len());
            let text = String::from_utf8_lossy(&undecoded[..whole]).into_owned();
            undecoded.drain(..whole);
            self.show(&text);
        }
        let status = child.wait()?;
        ensure!(status.success(), "ended with {status}");
        Ok(())
    }
}
