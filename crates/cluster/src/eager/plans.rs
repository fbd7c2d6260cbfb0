//! Plans of what a context has run, for the next time.

use super::account::{Account, Share};
use super::across::RemotePart;
use ferroflow_core::Result;
use ferroflow_runtime::Executable;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::OnceCell;

/// Number of plans that a context keeps. Clients that make up ever new signatures start over.
const MAX_PLANS: usize = 16_384;

/// Memory charged for a plan without nodes.
const PLAN_BYTES: usize = 4 << 10;

/// Memory charged for an entry of the table of plans.
const ENTRY_BYTES: usize = 256;

/// Memory charged for a node of a plan.
const NODE_BYTES: usize = 1 << 10;

const UNPOISONED: &str = "no panic while plans are locked";

/// An op or a function that is ready to run.
pub(super) struct CallPlan {
    /// The part of the device that it runs on, which knows all arguments.
    pub(super) local: LocalPart,
    /// Parts of other devices of this task.
    pub(super) beside: Vec<LocalPart>,
    /// Parts that other tasks have registered.
    pub(super) remote: Vec<RemotePart>,
    _share: Share,
}

/// A part that runs on this task.
pub(super) struct LocalPart {
    pub(super) executable: Arc<Executable>,
    /// The numbers of the results that it has.
    pub(super) results: Vec<usize>,
}

impl LocalPart {
    /// A part that has all results.
    pub(super) fn whole(executable: Arc<Executable>) -> LocalPart {
        let results = (0..executable.fetch_count()).collect();
        LocalPart { executable, results }
    }
}

impl CallPlan {
    /// A plan of these parts.
    pub(super) fn new(
        local: LocalPart,
        beside: Vec<LocalPart>,
        remote: Vec<RemotePart>,
        account: &Arc<Account>,
    ) -> Result<CallPlan> {
        let nodes = |part: &LocalPart| part.executable.graph().node_count();
        let nodes = nodes(&local) + beside.iter().map(nodes).sum::<usize>();
        let share = account.charge(PLAN_BYTES + nodes * NODE_BYTES)?;
        Ok(CallPlan { local, beside, remote, _share: share })
    }

    /// Number of results, wherever they are.
    pub(super) fn result_count(&self) -> usize {
        let local = std::iter::once(&self.local).chain(&self.beside).map(|part| part.results.len());
        local.sum::<usize>() + self.remote.iter().map(|part| part.results.len()).sum::<usize>()
    }
}

/// A plan, or the making of one, for which later calls wait.
pub(super) type PlanCell = Arc<OnceCell<Arc<CallPlan>>>;

/// Plans by signature.
#[derive(Default)]
pub(super) struct Plans(Mutex<HashMap<Vec<u8>, Entry>>);

struct Entry {
    /// The op or function.
    name: String,
    plan: PlanCell,
    /// Charge for the signature.
    _share: Share,
}

impl Plans {
    /// The place of the plan with this signature; a new one is charged to `account`.
    pub(super) fn get(&self, signature: Vec<u8>, name: &str, account: &Arc<Account>) -> Result<PlanCell> {
        let mut plans = self.0.lock().expect(UNPOISONED);
        if let Some(entry) = plans.get(&signature) {
            return Ok(entry.plan.clone());
        }
        let share = account.charge(ENTRY_BYTES + signature.len() + name.len())?;
        let outgrown = if plans.len() >= MAX_PLANS { std::mem::take(&mut *plans) } else { HashMap::new() };
        let plan = PlanCell::default();
        plans.insert(signature, Entry { name: name.to_owned(), plan: plan.clone(), _share: share });
        drop(plans);
        drop(outgrown);
        Ok(plan)
    }

    /// Number of plans.
    pub(super) fn len(&self) -> usize {
        self.0.lock().expect(UNPOISONED).len()
    }

    /// Forgets the plans of one function.
    pub(super) fn forget(&self, name: &str) {
        let forgotten: Vec<_> = {
            let mut plans = self.0.lock().expect(UNPOISONED);
            plans.extract_if(|_, entry| entry.name == name).collect()
        };
        drop(forgotten);
    }

    /// Forgets all plans.
    pub(super) fn clear(&self) {
        let forgotten = std::mem::take(&mut *self.0.lock().expect(UNPOISONED));
        drop(forgotten);
    }
}
