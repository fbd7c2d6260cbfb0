//! The environment variables of a process, as a value, so that decisions by them can be tested with any.

use ferroflow_core::{Result, status};
use std::collections::BTreeMap;

/// Environment variables by name. One that is set to nothing counts as not set.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Reads the variables of this process.
    pub fn of_process() -> Environment {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment(std::env::vars_os().filter_map(text).collect())
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// The value of a variable that holds a number.
    pub fn number(&self, name: &str) -> Result<Option<u32>> {
        let parse = |text: &str| {
            text.parse().map_err(|_| status!(InvalidArgument, "{name} is '{text}', expected a number"))
        };
        self.get(name).map(parse).transpose()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Environment {
        Environment(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
