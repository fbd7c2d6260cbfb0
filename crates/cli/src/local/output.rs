//! Lines of many tasks on one terminal: each begins with the task's name, in a color of its own on a terminal.

use super::{Stream, short};
use ferroflow::TaskName;
use std::io::{IsTerminal, Write};

/// Foreground colors that can be read on light and on dark ground.
const COLORS: [u8; 6] = [36, 33, 35, 32, 34, 31];

/// Writes lines of tasks.
pub(crate) struct Output {
    width: usize,
    color_output: bool,
    color_errors: bool,
}

impl Output {
    /// Makes an output in which the names of these tasks take the same room.
    pub(crate) fn new<'a>(tasks: impl Iterator<Item = &'a TaskName>) -> Output {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
        Output {
            width: tasks.map(|task| short(task).len()).max().unwrap_or_default(),
            color_output: wanted && std::io::stdout().is_terminal(),
            color_errors: wanted && std::io::stderr().is_terminal(),
        }
    }

    /// Writes a line of a task, whose place among all of them gives its color.
    pub(crate) fn line(&self, place: usize, task: &TaskName, stream: Stream, text: &[u8]) {
        let colored = match stream {
            Stream::Output => self.color_output,
            Stream::Error => self.color_errors,
        };
        let mut line = prefix(self.width, place, task, colored).into_bytes();
        line.extend_from_slice(text);
        line.push(b'\n');
        // A reader that stops misses the rest; the tasks go on.
        let _ = match stream {
            Stream::Output => std::io::stdout().lock().write_all(&line),
            Stream::Error => std::io::stderr().lock().write_all(&line),
        };
    }
}

fn prefix(width: usize, place: usize, task: &TaskName, colored: bool) -> String {
    let name = short(task);
    if colored {
        format!("\x1b[{}m{name:width$} |\x1b[0m ", COLORS[place % COLORS.len()])
    } else {
        format!("{name:width$} | ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_take_the_same_room_in_color_and_without() {
        let ps = TaskName::new("ps", 0);
        assert_eq!(prefix(8, 0, &ps, false), "ps/0     | ");
        assert_eq!(prefix(8, 0, &ps, true), "\x1b[36mps/0     |\x1b[0m ");
    }
}
