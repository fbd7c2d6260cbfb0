//! The servers that programs in Python start in their own process: Ferroflow's where its package is installed, or stock's.

use std::process::Command;

/// The variable that the Python package reads when an interpreter starts.
pub(crate) const VARIABLE: &str = "FERROFLOW";

/// Choice of the servers that programs in Python start.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct PythonServers {
    /// Leave tf.distribute.Server of programs in Python as it is; by default Ferroflow's Python package, where it is
    /// installed, takes its place
    #[arg(long, visible_alias = "stock_servers")]
    stock_servers: bool,
}

impl PythonServers {
    /// The flag that passes the choice on to another command.
    pub(crate) fn flag(self) -> Option<&'static str> {
        self.stock_servers.then_some("--stock-servers")
    }

    /// The value of [`VARIABLE`]: programs that need stock's servers still get them, unless the user decided otherwise.
    pub(crate) fn value(self) -> &'static str {
        if self.stock_servers { "0" } else { "auto" }
    }

    /// Passes the choice to a program. A variable that the user set counts more than the default.
    pub(crate) fn apply(self, command: &mut Command) {
        if self.stock_servers || std::env::var_os(VARIABLE).is_none() {
            command.env(VARIABLE, self.value());
        }
    }
}
