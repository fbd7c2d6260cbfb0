//! A terminal's screen: as much of one as the binary and the programs that it runs make use of.

/// A color of the terminal's sixteen, and its brightness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// The number of the color; `None` is the terminal's own.
    pub(crate) color: Option<u8>,
    pub(crate) bold: bool,
    pub(crate) dim: bool,
}

/// A character and how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) letter: char,
    pub(crate) style: Style,
}

const BLANK: Cell = Cell { letter: ' ', style: Style { color: None, bold: false, dim: false } };

/// Rows of cells, with a cursor.
#[derive(Clone)]
pub(crate) struct Screen {
    columns: usize,
    rows: Vec<Vec<Cell>>,
    row: usize,
    column: usize,
    style: Style,
    /// The part of an escape sequence that has come so far.
    escape: Option<String>,
}

impl Screen {
    pub(crate) fn new(columns: usize, rows: usize) -> Screen {
        let rows = vec![vec![BLANK; columns]; rows];
        Screen { columns, rows, row: 0, column: 0, style: Style::default(), escape: None }
    }

    pub(crate) fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Prints text with its control characters and escape sequences.
    pub(crate) fn print(&mut self, text: &str) {
        for letter in text.chars() {
            match self.escape.take() {
                Some(sequence) => self.continue_escape(sequence, letter),
                None => self.put(letter),
            }
        }
    }

    fn put(&mut self, letter: char) {
        match letter {
            '\x1b' => self.escape = Some(String::new()),
            '\r' => self.column = 0,
            '\n' => self.next_row(),
            '\x08' => self.column = self.column.saturating_sub(1),
            letter if letter.is_control() => {}
            letter => {
                if self.column == self.columns {
                    self.column = 0;
                    self.next_row();
                }
                self.rows[self.row][self.column] = Cell { letter, style: self.style };
                self.column += 1;
            }
        }
    }

    fn next_row(&mut self) {
        if self.row + 1 < self.rows.len() {
            self.row += 1;
        } else {
            self.rows.remove(0);
            self.rows.push(vec![BLANK; self.columns]);
        }
    }

    fn continue_escape(&mut self, mut sequence: String, letter: char) {
        if sequence.is_empty() && letter != '[' {
            // A sequence of two characters: none of them shows anything.
            return;
        }
        if sequence.is_empty() || !('\x40'..='\x7e').contains(&letter) {
            sequence.push(letter);
            self.escape = Some(sequence);
            return;
        }
        let numbers: Vec<usize> =
            sequence[1..].split(';').map(|number| number.parse().unwrap_or(0)).collect();
        let (first, count) = (numbers[0], numbers[0].max(1));
        match letter {
            'A' => self.row = self.row.saturating_sub(count),
            'B' => self.row = (self.row + count).min(self.rows.len() - 1),
            'C' => self.column = (self.column + count).min(self.columns - 1),
            'D' => self.column = self.column.saturating_sub(count),
            'G' => self.column = (count - 1).min(self.columns - 1),
            'J' => self.clear_below(),
            'K' => self.clear_row(first),
            'm' => numbers.into_iter().for_each(|number| self.set_style(number)),
            _ => {}
        }
    }

    fn clear_row(&mut self, part: usize) {
        let (start, end) = match part {
            0 => (self.column, self.columns),
            1 => (0, (self.column + 1).min(self.columns)),
            _ => (0, self.columns),
        };
        self.rows[self.row][start..end].fill(BLANK);
    }

    fn clear_below(&mut self) {
        self.clear_row(0);
        for row in &mut self.rows[self.row + 1..] {
            row.fill(BLANK);
        }
    }

    fn set_style(&mut self, number: usize) {
        match number {
            0 => self.style = Style::default(),
            1 => self.style.bold = true,
            2 => self.style.dim = true,
            22 => (self.style.bold, self.style.dim) = (false, false),
            30..=37 => self.style.color = Some((number - 30) as u8),
            39 => self.style.color = None,
            90..=97 => self.style.color = Some((number - 90 + 8) as u8),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Screen, Style};

    fn text(screen: &Screen) -> Vec<String> {
        let row = |row: &Vec<super::Cell>| row.iter().map(|cell| cell.letter).collect::<String>();
        screen.rows().iter().map(|cells| row(cells).trim_end().to_owned()).collect()
    }

    #[test]
    fn a_bar_is_drawn_over_itself() {
        let mut screen = Screen::new(10, 3);
        screen.print("start\r\n##.. 2/4\r\x1b[2K###. 3/4");
        screen.print("\x1b[1A\x1b[5Ged");
        assert_eq!(text(&screen), ["stared", "###. 3/4", ""]);
    }

    #[test]
    fn lines_wrap_and_scroll() {
        let mut screen = Screen::new(4, 2);
        screen.print("abcdef\r\nghij");
        assert_eq!(text(&screen), ["ef", "ghij"]);
    }

    #[test]
    fn sequences_may_come_in_parts() {
        let mut screen = Screen::new(4, 1);
        screen.print("\x1b[1;3");
        screen.print("2ma\x1b[0mb");
        let styles: Vec<Style> = screen.rows()[0][..2].iter().map(|cell| cell.style).collect();
        assert_eq!(styles, [Style { color: Some(2), bold: true, dim: false }, Style::default()]);
    }
}
