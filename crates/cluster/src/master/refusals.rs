//! Logs steps that are refused because this server lacks an op or a kernel, once per signature: clients may hide the
//! error.

use crate::transport::caller;
use ferroflow_core::{Code, Status};
use std::collections::HashSet;
use std::sync::Mutex;

/// The number of refusals that are logged per session.
const MAX_LOGGED: usize = 64;

/// The refusals of a session that were logged.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashSet<String>>);

impl Refusals {
    /// Logs a step that fails for lack of an op or a kernel, once per `wanted`, the names that the client asked for.
    pub(super) fn log_once(&self, session: &str, error: &Status, wanted: impl FnOnce() -> String) {
        if error.code() != Code::Unimplemented {
            return;
        }
        let wanted = wanted();
        let is_new = {
            let mut logged = self.0.lock().expect("no panic while refusals are noted");
            logged.len() < MAX_LOGGED && logged.insert(wanted.clone())
        };
        if is_new {
            let client = caller::peer().map_or_else(|| "this process".to_owned(), |peer| peer.to_string());
            let why = error.message().replace('\n', " ");
            tracing::info!(
                session,
                "A step of the client at {client} that requests {wanted} was refused: {why}"
            );
        }
    }
}
