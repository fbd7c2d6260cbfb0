//! The serving side of a direct connection: runs parts for the caller.

use super::frames::{Kind, RunPart, WELCOME};
use super::incoming::Deliver;
use super::link::Link;
use super::memory::PeerMemory;
use crate::presence::Presence;
use crate::transport::eager_service;
use crate::transport::greeting::GREETING_WAIT;
use crate::transport::reader::malformed;
use crate::transport::server::Services;
use crate::transport::worker_service::error_response;
use crate::worker::Worker;
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::{Result, bail};
use prost::Message;
use std::collections::HashMap;
use std::io::Result as IoResult;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// Replies to a greeting that has been read and serves the caller until the connection ends.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: S,
    memory: Option<PeerMemory>,
    peer: String,
    services: Arc<Services>,
) -> IoResult<()> {
    timeout(GREETING_WAIT, socket.write_all(WELCOME)).await??;
    let link = Link::new(peer.into());
    let called = ServingSide {
        link: link.clone(),
        services: services.clone(),
        presence: Presence::default(),
        runs: Runs::default(),
    };
    link.carry(socket, memory, &services.intake.for_connection(), called).await;
    Ok(())
}

/// The handler of the serving side.
struct ServingSide {
    link: Arc<Link>,
    services: Arc<Services>,
    presence: Presence,
    runs: Runs,
}

/// The running parts, which are cancelled when the connection ends.
#[derive(Default)]
struct Runs {
    tasks: JoinSet<i64>,
    by_step: HashMap<i64, AbortHandle>,
}

impl Deliver for ServingSide {
    fn tensor(&mut self, step: i64, key: RendezvousKey, parcel: Result<Parcel>) {
        self.services.worker.deliver(step, &key, parcel);
    }

    fn message(&mut self, kind: Kind, step: i64, body: &[u8]) -> Result<()> {
        let worker = &self.services.worker;
        match kind {
            Kind::Run => self.run(step, RunPart::decode(body).map_err(malformed)?),
            Kind::Cancel => {
                let run = self.runs.by_step.remove(&step);
                run.into_iter().for_each(|run| run.abort());
            }
            Kind::CleanUp => worker.cleanup_step(step),
            kind => bail!(Internal, "unexpected {kind:?}"),
        }
        Ok(())
    }
}

impl ServingSide {
    fn run(&mut self, id: i64, part: RunPart) {
        let Runs { tasks, by_step } = &mut self.runs;
        while let Some(Ok(over)) = tasks.try_join_next() {
            by_step.remove(&over);
        }
        let (worker, link) = (self.services.worker.clone(), self.link.clone());
        if let Some(request) = &part.request {
            worker.session_used_by(&request.session_handle, &self.presence);
        }
        // Before the part runs, because tensors of the step may arrive right away.
        worker.step(id).connect(vec![(part.caller, link.clone())]);
        let step = StepEnd { worker, id, master_only: part.master_only };
        let services = self.services.clone();
        let run = async move {
            let done = match part.component {
                Some(component) => Box::pin(eager_service::run_component_part(&services, component)).await,
                None => step.worker.run_graph(part.request.unwrap_or_default()).await,
            };
            // Before the report, so that nothing is left of the step when the caller learns of its end.
            drop(step);
            link.send_end(id, &done.unwrap_or_else(|error| error_response(&error)));
            id
        };
        by_step.insert(id, tasks.spawn(run));
    }
}

/// Ends a step on drop if only the caller receives its tensors, or forgets it if it never ran.
struct StepEnd {
    worker: Arc<Worker>,
    id: i64,
    master_only: bool,
}

impl Drop for StepEnd {
    fn drop(&mut self) {
        if self.master_only {
            self.worker.cleanup_step(self.id);
        } else {
            // Nothing else would end the step of a part that never began.
            self.worker.forget_unused_step(self.id);
        }
    }
}
