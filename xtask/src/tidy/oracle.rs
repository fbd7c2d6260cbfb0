//! Scripts of `oracle/` ask a stock TensorFlow that is the same on every machine: whatever imports it imports
//! `environment` first, by itself or through what it imports before.
//!
//! Python is read line by line, which is enough for imports: at most one per line, each module by its name.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The module that settles what stock is told.
const ENVIRONMENT: &str = "environment";
const TENSORFLOW: &str = "tensorflow";
/// Variables that only [`ENVIRONMENT`] sets.
const SETTLED: &[&str] =
    &["TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "GRPC_VERBOSITY"];
/// The test of the above, which sets them to see that it does not matter.
const SELFTEST: &str = "oracle/selftest.py";

/// The files of `oracle/` that go around `environment`, of the tracked files `names`.
pub(crate) fn check(root: &Path, names: &[String]) -> Result<Vec<String>> {
    let mut files = BTreeMap::new();
    for name in names.iter().filter(|name| name.starts_with("oracle/") && name.ends_with(".py")) {
        let path = root.join(name);
        if path.exists() {
            files.insert(name.clone(), fs::read_to_string(&path).with_context(|| name.clone())?);
        }
    }
    Ok(violations(&Sources(files)))
}

fn violations(sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, text) in &sources.0 {
        if name == SELFTEST || name == &format!("oracle/{ENVIRONMENT}.py") {
            continue;
        }
        if acts_when_run(text) && sources.first(name) == Some(First::Tensorflow) {
            wrong.push(format!("{name}: imports `{ENVIRONMENT}` before TensorFlow"));
        }
        let sets =
            |line: &str| line.contains("environ") && SETTLED.iter().any(|variable| line.contains(variable));
        if let Some(line) = text.lines().position(sets) {
            wrong.push(format!("{name}:{}: leaves this variable to `{ENVIRONMENT}`", line + 1));
        }
    }
    wrong
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum First {
    Environment,
    Tensorflow,
}

/// Files by their path from the root.
struct Sources(BTreeMap<String, String>);

impl Sources {
    /// The module of the two that running a file imports first.
    fn first(&self, name: &str) -> Option<First> {
        let mut seen = BTreeSet::new();
        // Functions run after the whole file was read.
        self.walk(name, false, &mut seen).or_else(|| {
            seen.clear();
            self.walk(name, true, &mut seen)
        })
    }

    fn walk(&self, name: &str, inside_functions: bool, seen: &mut BTreeSet<String>) -> Option<First> {
        if !seen.insert(name.to_owned()) {
            return None;
        }
        let text = self.0.get(name)?;
        imports(text).filter(|import| inside_functions || !import.indented).find_map(|import| {
            match import.module {
                ENVIRONMENT => Some(First::Environment),
                TENSORFLOW => Some(First::Tensorflow),
                module => self.walk(&self.find(name, module)?, false, seen),
            }
        })
    }

    /// The file of a module that `importer` names: beside it, or in a folder that scripts add to their path.
    fn find(&self, importer: &str, module: &str) -> Option<String> {
        let beside = importer.rsplit_once('/').map_or("", |(directory, _)| directory);
        let folders = [
            "oracle",
            "oracle/bench",
            "oracle/cluster",
            "oracle/interop",
            "oracle/differential",
            "oracle/launch",
        ];
        [beside].into_iter().chain(folders).find_map(|folder| {
            let candidates = [format!("{folder}/{module}.py"), format!("{folder}/{module}/__init__.py")];
            candidates.into_iter().find(|candidate| self.0.contains_key(candidate))
        })
    }
}

struct Import<'a> {
    /// The first part of its name.
    module: &'a str,
    indented: bool,
}

fn imports(text: &str) -> impl Iterator<Item = Import<'_>> {
    code_lines(text).filter_map(|line| {
        let words = line.trim_start();
        let rest = words.strip_prefix("import ").or_else(|| words.strip_prefix("from "))?;
        let module = rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
        Some(Import { module, indented: words.len() < line.len() })
    })
}

/// The lines outside of strings that span several.
fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let was_inside = inside;
        inside ^= line.matches("\"\"\"").count() % 2 == 1;
        !was_inside && !line.trim_start().starts_with("\"\"\"")
    })
}

/// Whether a file does more than define things, so that somebody may run it.
fn acts_when_run(text: &str) -> bool {
    const DEFINITIONS: &[&str] =
        &["import ", "from ", "def ", "class ", "async ", "@", "#", ")", "]", "}", "sys.path."];
    code_lines(text).any(|line| {
        let is_statement = !line.is_empty() && !line.starts_with([' ', '\t']);
        is_statement && !DEFINITIONS.iter().any(|start| line.starts_with(start)) && !line.contains('=')
            || line.contains("__main__")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        violations(&Sources(
            files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
        ))
    }

    const ENV: (&str, &str) = ("oracle/environment.py", "import os\n");

    #[test]
    fn a_script_that_imports_tensorflow_first_is_found() {
        let direct = ("oracle/a.py", "import tensorflow as tf\nimport environment\nmain()\n");
        let through =
            ("oracle/b.py", "import lib\nimport environment\nif __name__ == \"__main__\":\n    main()\n");
        let late = ("oracle/c.py", "def main():\n    from tensorflow.core import x\n\n\nmain()\n");
        let lib = ("oracle/lib.py", "from tensorflow.core import x\n");
        let wrong = found(&[ENV, direct, through, late, lib]);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("oracle/a.py") && wrong[2].starts_with("oracle/c.py"), "{wrong:?}");
    }

    #[test]
    fn the_environment_may_come_through_another_module() {
        let tasks =
            ("oracle/cluster/tasks.py", "\"\"\"import tensorflow\n\nText.\n\"\"\"\nimport environment\n");
        let run = ("oracle/cluster/run.py", "import tasks\nimport tensorflow as tf\nmain()\n");
        let scenario = (
            "oracle/cluster/queues.py",
            "import tensorflow as tf\nNAME = f(1)\n\n\ndef run():\n    main()\n",
        );
        assert!(found(&[ENV, tasks, run, scenario]).is_empty());
    }

    #[test]
    fn a_variable_that_a_script_sets_is_found() {
        let script = ("oracle/a.py", "import environment\nos.environ[\"TF_ENABLE_ONEDNN_OPTS\"] = \"0\"\n");
        assert_eq!(found(&[ENV, script]), ["oracle/a.py:2: leaves this variable to `environment`"]);
    }
}
