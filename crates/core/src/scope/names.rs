//! Unique names, generated as stock's Python does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Names in use, ignoring case, because some file systems and viewers ignore it.
#[derive(Default)]
pub(super) struct Names {
    /// The next number to try, by lower-case name.
    used: HashMap<String, usize>,
}

impl Names {
    /// Marks a name as used.
    pub(super) fn reserve(&mut self, name: &str) {
        self.used.entry(name.to_lowercase()).or_insert(1);
    }

    /// The name itself or, if it is taken, with the first free number: `a`, `a_1`, `a_2`.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let base = name.to_lowercase();
        let mut number = match self.used.get_mut(&base) {
            None => {
                self.used.insert(base, 1);
                return name.to_owned();
            }
            Some(next) => {
                let number = *next;
                *next += 1;
                number
            }
        };
        loop {
            if let Entry::Vacant(free) = self.used.entry(format!("{base}_{number}")) {
                free.insert(1);
                return format!("{name}_{number}");
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_are_numbered_as_in_stock() {
        let mut names = Names::default();
        let made: Vec<String> = ["a", "a", "A", "a_1", "b"].iter().map(|name| names.unique(name)).collect();
        assert_eq!(made, ["a", "a_1", "A_2", "a_1_1", "b"]);
    }
}
