//! The figures of the first page: rows of the results page, in fewer words.

use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::fs;

const FIRST_PAGE: &str = "README.md";
const RESULTS: &str = "benches/results/latest.md";

/// A row of the first page, and the row of the results page that it tells.
struct Row {
    label: &'static str,
    work: &'static str,
    columns: Columns,
}

/// Where a table of the results page has what.
struct Columns {
    /// None if the figures carry their unit.
    unit: Option<usize>,
    stock: usize,
    ours: usize,
    ratio: usize,
}

const SIDE_BY_SIDE: Columns = Columns { unit: None, stock: 2, ours: 1, ratio: 3 };
const CLUSTERS: Columns = Columns { unit: Some(1), stock: 2, ours: 4, ratio: 6 };
const PROGRAMS: Columns = Columns { unit: Some(1), stock: 2, ours: 3, ratio: 4 };

const ROWS: [Row; 5] = [
    Row {
        label: "start of a parameter server and two workers",
        work: "start of 1 ps and 2 workers to ready",
        columns: SIDE_BY_SIDE,
    },
    Row { label: "memory of an idle server", work: "resident memory, idle", columns: SIDE_BY_SIDE },
    Row {
        label: "a stock client trains a small model on a cluster, 2 workers",
        work: "tiny perceptron, asynchronous, workers: 2",
        columns: CLUSTERS,
    },
    Row {
        label: "the same kind of model, a program in Python or one in Rust",
        work: "perceptron 64-128-10, servers: 1",
        columns: PROGRAMS,
    },
    Row {
        label: "product of 1,024 × 1,024 matrices and back",
        work: "matmul 1024×1024×1024 and back",
        columns: SIDE_BY_SIDE,
    },
];

/// Writes the figures of the results page into the first page.
pub(super) fn write() -> Result<()> {
    let (page, results) = pages()?;
    fs::write(workspace::root().join(FIRST_PAGE), refreshed(&page, &results)?).context(FIRST_PAGE)
}

/// The rows of the first page that differ from the results page.
pub(crate) fn check() -> Result<Vec<String>> {
    let (page, results) = pages()?;
    let (now, then) = (refreshed(&page, &results)?, page);
    let differs = now.lines().zip(then.lines()).filter(|(now, then)| now != then);
    Ok(differs.map(|(now, _)| format!("{FIRST_PAGE}: {RESULTS} has other figures: {now}")).collect())
}

fn pages() -> Result<(String, String)> {
    let read = |name: &str| fs::read_to_string(workspace::root().join(name)).with_context(|| name.to_owned());
    Ok((read(FIRST_PAGE)?, read(RESULTS)?))
}

fn refreshed(page: &str, results: &str) -> Result<String> {
    let mut text = page.to_owned();
    for row in &ROWS {
        let start = format!("| {} |", row.label);
        let old = page.lines().find(|line| line.starts_with(&start));
        let old = old.with_context(|| format!("{FIRST_PAGE} has no row '{}'", row.label))?;
        text = text.replacen(old, &row.written(results)?, 1);
    }
    Ok(text)
}

impl Row {
    fn written(&self, results: &str) -> Result<String> {
        let start = format!("| {} |", self.work);
        let line = results.lines().find(|line| line.starts_with(&start));
        let line = line.with_context(|| format!("{RESULTS} has no row '{}'", self.work))?;
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Columns { unit, stock, ours, ratio } = self.columns;
        ensure!(cells.len() > ratio, "{RESULTS} has too few columns for '{}'", self.work);
        let unit = unit.map_or(String::new(), |unit| format!(" {}", cells[unit]));
        let figure = |cell: usize| format!("{}{unit}", with_comma(cells[cell]));
        let ratio = cells[ratio].split('×').next().unwrap_or_default();
        let ratio: f64 = ratio.parse().with_context(|| format!("{RESULTS}: the ratio of '{}'", self.work))?;
        let ratio = if ratio < 10.0 { format!("{ratio:.1}×") } else { format!("{ratio:.0}×") };
        Ok(format!("| {} | {} | {} | {ratio} |", self.label, figure(stock), figure(ours)))
    }
}

/// A figure such as `3757 ms` with a comma before its last three digits.
fn with_comma(figure: &str) -> String {
    let digits = figure.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(figure.len());
    if digits > 3 {
        format!("{},{}", &figure[..digits - 3], &figure[digits - 3..])
    } else {
        figure.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_in_fewer_words() {
        let results = "| resident memory, idle | 13.2 MB | 1556 MB | 117.88× | 41.05–44.78 | ≥ 20× | met |\n\
                       | perceptron 64-128-10, servers: 1 | steps/s | 426 | 3110 | 7.39× (6.00–10.02), bar 8× **missed** |\n";
        assert_eq!(
            ROWS[1].written(results).unwrap(),
            "| memory of an idle server | 1,556 MB | 13.2 MB | 118× |"
        );
        let written = ROWS[3].written(results).unwrap();
        assert!(written.ends_with(" | 426 steps/s | 3,110 steps/s | 7.4× |"), "{written}");
        assert!(ROWS[0].written(results).is_err());
    }
}
