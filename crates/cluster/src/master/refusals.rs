//! Steps that are refused because this server lacks something: said once in the log, since clients may hide it.

use crate::transport::caller;
use ferroflow_core::{Code, Status};
use std::collections::HashSet;
use std::sync::Mutex;

/// How many refusals of one session are told.
const MAX_TOLD: usize = 64;

/// The refusals of a session that were told.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashSet<String>>);

impl Refusals {
    /// Tells of a step that fails for want of an op or a kernel, once for everything that a client asks for. `wanted` is
    /// what it asks for.
    pub(super) fn log_once(&self, session: &str, error: &Status, wanted: impl FnOnce() -> String) {
        if error.code() != Code::Unimplemented {
            return;
        }
        let wanted = wanted();
        let is_new = {
            let mut told = self.0.lock().expect("no panic while refusals are noted");
            told.len() < MAX_TOLD && told.insert(wanted.clone())
        };
        if is_new {
            let client = caller::peer().map_or_else(|| "this process".to_owned(), |peer| peer.to_string());
            let why = error.message().replace('\n', " ");
            tracing::info!(
                session,
                "A step of the client at {client} that wants {wanted} was refused: {why}"
            );
        }
    }
}
