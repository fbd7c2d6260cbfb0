//! The users and programs that a task answers.

use ferroflow::{LocalUsers, ServerConfig};

/// Arguments that say who may connect.
#[derive(clap::Args, Clone, Copy, Default)]
#[command(next_help_heading = "Access")]
pub(crate) struct Access {
    /// Accept connections of every user of this machine; by default those of other users are refused, but for root's
    #[arg(long, visible_alias = "allow_local_users", env = "FERROFLOW_ALLOW_LOCAL_USERS")]
    allow_local_users: bool,

    /// Answer no browsers, probes and scrapers (/metrics, /healthz, /readyz) on the port
    #[arg(long, visible_alias = "no_http", env = "FERROFLOW_NO_HTTP")]
    no_http: bool,
}

impl Access {
    pub(super) fn apply(self, config: &mut ServerConfig) {
        config.http = !self.no_http;
        if self.allow_local_users {
            config.local_users = LocalUsers::All;
        }
    }
}
