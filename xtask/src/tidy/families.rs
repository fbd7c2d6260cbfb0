//! Every family of ops has cases: a file of its own name, or one that the oracle's map names.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const FAMILIES: &str = "crates/ops/src/families/";
const CASES: &str = "oracle/cases/";
const MAP: &str = "oracle/README.md";

/// The families, of the tracked files `names`, whose cases nobody would find.
pub(super) fn check(root: &Path, names: &[String]) -> Result<Vec<String>> {
    let map = fs::read_to_string(root.join(MAP)).context(MAP)?;
    Ok(unmapped(names, &map))
}

fn unmapped(names: &[String], map: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in names {
        let Some(family) = name.strip_prefix(FAMILIES).and_then(|path| path.strip_suffix(".rs")) else {
            continue;
        };
        // Files directly below are modules of a group.
        let Some((_, stem)) = family.rsplit_once('/') else { continue };
        let own = format!("{CASES}{stem}.py");
        if !names.contains(&own)
            && !map.contains(&format!("`{stem}`"))
            && !map.contains(&format!("`{family}`"))
        {
            wrong.push(format!(
                "{MAP}: does not say which cases cover {name}; write them to {own} or name them there"
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::unmapped;

    #[test]
    fn a_family_has_cases_of_its_name_or_a_line_in_the_map() {
        let family = |name: &str| format!("crates/ops/src/families/{name}.rs");
        let names =
            [family("math/matmul"), family("math/einsum"), family("math/new"), family("control_flow/v1")];
        let names: Vec<String> = names.into_iter().chain(["oracle/cases/matmul.py".to_owned()]).collect();
        let wrong = unmapped(&names, "| `einsum` | matmul |\n| `control_flow/v1` | control_flow |\n");
        assert!(wrong.len() == 1 && wrong[0].contains("math/new.rs"), "{wrong:?}");
    }
}
