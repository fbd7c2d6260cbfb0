//! The step that a demonstration trains to, kept until it is reached: a run that was interrupted goes on to the same one.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file beside the checkpoints that holds it.
const FILE: &str = "demo.json";

/// A goal that has not been reached.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Goal {
    /// The steps that the user asked for.
    steps: i64,
    /// The last step of them.
    pub(crate) last: i64,
}

impl Goal {
    /// Chooses the goal of a run that starts at step `first`. The same command goes on to the goal of the run that it
    /// continues; another number of steps is another goal.
    pub(crate) fn choose(directory: &Path, first: i64, steps: i64) -> Result<Goal, String> {
        let goal = match Goal::read(directory) {
            Some(goal) if goal.steps == steps && goal.last > first => goal,
            _ => Goal { steps, last: first.saturating_add(steps) },
        };
        let text = serde_json::to_string(&goal).map_err(|error| error.to_string())?;
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(file(directory), text))
            .map_err(|error| format!("cannot write to the directory {}: {error}", directory.display()))?;
        Ok(goal)
    }

    fn read(directory: &Path) -> Option<Goal> {
        serde_json::from_str(&std::fs::read_to_string(file(directory)).ok()?).ok()
    }

    /// Forgets the goal, which has been reached.
    pub(crate) fn reached(directory: &Path) {
        // A goal that stays is below the steps of the checkpoint, so that no run goes on to it.
        let _ = std::fs::remove_file(file(directory));
    }
}

fn file(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_run_keeps_its_goal() {
        let directory = std::env::temp_dir().join(format!("ferroflow-goal-{}", std::process::id()));
        let last = |first, steps| Goal::choose(&directory, first, steps).unwrap().last;
        assert_eq!(last(0, 100), 100);
        assert_eq!(last(70, 100), 100, "the same command goes on");
        assert_eq!(last(70, 10), 80, "another number of steps is another goal");
        assert_eq!(last(80, 10), 90, "a step that was reached is not a goal");
        Goal::reached(&directory);
        assert_eq!(last(85, 10), 95);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
