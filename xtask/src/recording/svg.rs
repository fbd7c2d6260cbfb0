//! Recordings as pictures that move by themselves: SVG with CSS animations, no script.
//!
//! Each text that a row shows is one element, visible while the row shows it. Readers that do not animate, or whose users
//! asked for less motion, show the end.

use super::Frame;
use super::terminal::{Cell, Style};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The size of a cell and the margin around the rows, in units of the picture.
const CELL: (f64, f64) = (8.4, 19.0);
const MARGIN: f64 = 16.0;
const FONT: f64 = 14.0;

const BACKGROUND: &str = "#16181d";
const TEXT: &str = "#d8dee9";

/// The terminal's sixteen colors.
const COLORS: [&str; 16] = [
    "#3b4252", "#bf616a", "#a3be8c", "#ebcb8b", "#81a1c1", "#b48ead", "#88c0d0", "#e5e9f0", "#7b88a1",
    "#d08770", "#b5d19c", "#f0d399", "#8fbcbb", "#c895bf", "#93ccdc", "#eceff4",
];

/// The picture of frames that begins again after some time.
pub(super) fn render(title: &str, frames: &[Frame], length: Duration) -> String {
    let Some(last) = frames.last() else { return String::new() };
    let (rows, columns) = (last.screen.rows().len(), last.screen.rows().first().map_or(0, Vec::len));
    let width = columns as f64 * CELL.0 + 2.0 * MARGIN;
    let height = rows as f64 * CELL.1 + 2.0 * MARGIN;

    // Many elements appear and go at the same times.
    let mut times: BTreeMap<(Duration, Option<Duration>), usize> = BTreeMap::new();
    let mut elements = String::new();
    for row in 0..rows {
        for shown in texts_of(frames, row) {
            let next = times.len();
            let name = *times.entry((shown.from, shown.until)).or_insert(next);
            let y = MARGIN + (row as f64 + 0.75) * CELL.1;
            let hidden = if shown.until.is_some() { " visibility=\"hidden\"" } else { "" };
            writeln!(elements, "<g class=\"a{name}\"{hidden}>{}</g>", text(shown.cells, y))
                .expect("strings take all");
        }
    }
    let seconds = length.as_secs_f64();
    let mut css = String::new();
    for ((from, until), name) in &times {
        let percent = |at: &Duration| format!("{:.2}%", 100.0 * at.as_secs_f64() / seconds);
        let start = if from.is_zero() { String::new() } else { "0%{visibility:hidden}".to_owned() };
        let (end, after) = match until {
            Some(until) => (format!("{},", percent(until)), "hidden"),
            None => (String::new(), "visible"),
        };
        let steps = format!("{start}{}{{visibility:visible}}{end}100%{{visibility:{after}}}", percent(from));
        writeln!(
            css,
            "@keyframes k{name}{{{steps}}}.a{name}{{animation:k{name} {seconds:.2}s step-end infinite}}"
        )
        .expect("strings take all");
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" xml:space=\"preserve\">\n<title>{}</title>\n<style>\n\
         text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;fill:{TEXT};white-space:pre}}\n\
         {css}@media (prefers-reduced-motion:reduce){{g{{animation:none!important}}}}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n{elements}</svg>\n",
        escaped(title)
    )
}

/// A row's text, and when it is there.
struct Shown<'a> {
    cells: &'a [Cell],
    from: Duration,
    /// None if it stays to the end.
    until: Option<Duration>,
}

/// The texts that a row shows one after the other.
fn texts_of(frames: &[Frame], row: usize) -> Vec<Shown<'_>> {
    let mut texts: Vec<Shown<'_>> = Vec::new();
    for frame in frames {
        let cells = frame.screen.rows()[row].as_slice();
        match texts.last_mut() {
            Some(last) if last.cells == cells => continue,
            Some(last) => last.until = Some(frame.at),
            None => {}
        }
        texts.push(Shown { cells, from: frame.at, until: None });
    }
    texts.retain(|shown| shown.cells.iter().any(|cell| cell.letter != ' '));
    texts
}

/// Runs of one style, each as wide as its cells whatever the reader's font is.
fn text(cells: &[Cell], y: f64) -> String {
    let end = cells.iter().rposition(|cell| cell.letter != ' ').map_or(0, |last| last + 1);
    let mut text = String::new();
    let mut start = 0;
    for run in cells[..end].chunk_by(|a, b| a.style == b.style) {
        let letters: String = run.iter().map(|cell| cell.letter).collect();
        let (x, width) = (MARGIN + start as f64 * CELL.0, run.len() as f64 * CELL.0);
        let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{width:.1}\"");
        write!(text, "<text {place}{}>{}</text>", attributes(run[0].style), escaped(&letters))
            .expect("strings take all");
        start += run.len();
    }
    text
}

fn attributes(style: Style) -> String {
    let color = style.color.map(|color| format!(" style=\"fill:{}\"", COLORS[usize::from(color)]));
    let bold = if style.bold { " font-weight=\"bold\"" } else { "" };
    let dim = if style.dim { " opacity=\"0.6\"" } else { "" };
    format!("{}{bold}{dim}", color.unwrap_or_default())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::terminal::Screen;
    use super::*;

    #[test]
    fn the_end_stays_visible_without_animations() {
        let mut screen = Screen::new(8, 1);
        let mut frames = Vec::new();
        for (second, words) in [(0, "1 < 2"), (1, "\r\x1b[2Kdone")] {
            screen.print(words);
            frames.push(Frame { at: Duration::from_secs(second), screen: screen.clone() });
        }
        let picture = render("a & b", &frames, Duration::from_secs(4));
        assert!(picture.contains("<title>a &amp; b</title>"), "{picture}");
        assert!(picture.contains("visibility=\"hidden\"><text"), "{picture}");
        assert!(
            picture.contains("@keyframes k0{0.00%{visibility:visible}25.00%,100%{visibility:hidden}}"),
            "{picture}"
        );
        assert!(picture.contains(
            "@keyframes k1{0%{visibility:hidden}25.00%{visibility:visible}100%{visibility:visible}}"
        ));
        assert!(picture.contains("<g class=\"a1\"><text") && picture.contains(">done</text>"), "{picture}");
    }
}
