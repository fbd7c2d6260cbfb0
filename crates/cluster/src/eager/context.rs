//! A client's context on this task: its devices and peers, its values, its functions and their plans.

use super::account::Account;
use super::api::{ClientCluster, ContextUpdate, NewContext};
use super::coordination::Membership;
use super::functions::Functions;
use super::handles::Handles;
use super::plans::Plans;
use super::queue::Queue;
use crate::random;
use crate::worker::{StepRendezvous, Worker, WorkerSession, attributes};
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::memory::Charge;
use ferroflow_core::{Result, ensure, status};
use ferroflow_proto::tensorflow::DeviceAttributes;
use ferroflow_runtime::OtherDevices;
use futures_util::future::{Either, select};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const UNPOISONED: &str = "no panic while a context is locked";

/// A context.
pub(super) struct Context {
    pub(super) id: u64,
    pub(super) worker: Arc<Worker>,
    /// The session that its steps belong to, whatever its cluster is by now.
    pub(super) session: Arc<WorkerSession>,
    view: Mutex<Arc<View>>,
    /// The longest time that a part of a function may take on another task.
    pub(super) part_limit: Option<Duration>,
    keep_alive: Duration,
    used: Mutex<Instant>,
    /// Charges for everything but tensors.
    pub(super) account: Arc<Account>,
    pub(super) handles: Handles,
    pub(super) functions: Functions,
    /// The order of operations, if the client does not wait for each.
    pub(super) queue: Option<Queue>,
    /// Tells this context from others of the same name on this task when it registers parts of functions elsewhere.
    pub(super) registrar: u64,
    /// Numbers the edges that cutting functions adds.
    pub(super) next_edge: AtomicU64,
    /// Its place among the tasks that know of each other.
    membership: Mutex<Option<Membership>>,
    /// Ends what runs in it.
    pub(super) cancellation: Cancellation,
    _charge: Charge,
}

/// The cluster as the client last described it.
pub(super) struct View {
    pub(super) id: u64,
    /// This task and its peers. All views share the state of the devices.
    pub(super) session: Arc<WorkerSession>,
    /// Where single ops send and receive: in a step that has the context's number.
    pub(super) rendezvous: Arc<StepRendezvous>,
    /// Devices that functions may use, those of this task first.
    pub(super) devices: Vec<DeviceSpec>,
    /// Incarnations of devices by full name.
    pub(super) incarnations: HashMap<String, u64>,
    /// Plans of ops and functions. They hold incarnations of devices and functions of tasks that may be others in the
    /// next view, so that one that is made while the view changes must not outlive it.
    pub(super) plans: Arc<Plans>,
}

impl Context {
    /// A context as a client wants it.
    pub(super) fn new(worker: &Arc<Worker>, new: NewContext, charge: Charge) -> Result<Arc<Context>> {
        let session = Arc::new(worker.eager_session(new.cluster.as_ref())?);
        let step = worker.step(new.id as i64);
        step.belongs_to(&session);
        let devices = new.cluster.map_or_else(Vec::new, |cluster| cluster.devices);
        let view = View::new(worker, new.id, new.view, &session, &devices)?;
        let account = Account::new(worker.device().memory().budget().clone());
        let registrar = random()?;
        let context = Arc::new(Context {
            id: new.id,
            worker: worker.clone(),
            session,
            view: Mutex::new(Arc::new(view)),
            part_limit: new.part_limit,
            keep_alive: new.keep_alive,
            used: Mutex::new(Instant::now()),
            handles: Handles::new(account.clone()),
            account,
            functions: Functions::default(),
            registrar,
            queue: new.is_async.then(Queue::default),
            next_edge: AtomicU64::new(0),
            membership: Mutex::default(),
            cancellation: Cancellation::new(),
            _charge: charge,
        });
        let others: Arc<dyn OtherDevices> = context.clone();
        context.session.envs().iter().for_each(|env| env.connect(Arc::downgrade(&others)));
        Ok(context)
    }

    /// Keeps its place among the tasks that know of each other until it ends.
    pub(super) fn join(&self, membership: Option<Membership>) {
        *self.membership.lock().expect(UNPOISONED) = membership;
    }

    /// The cluster as the client last described it.
    pub(super) fn view(&self) -> Arc<View> {
        self.view.lock().expect(UNPOISONED).clone()
    }

    /// Which of the client's clusters it belongs to.
    pub(super) fn view_id(&self) -> u64 {
        self.view.lock().expect(UNPOISONED).id
    }

    /// The task's devices, by the names that the client gave them.
    pub(super) fn device_attributes(&self) -> Vec<DeviceAttributes> {
        self.session.envs().iter().map(|env| attributes(&env.device)).collect()
    }

    /// Takes another view of the cluster.
    pub(super) fn update(&self, update: ContextUpdate) -> Result<Vec<DeviceAttributes>> {
        let current = self.view_id();
        ensure!(
            update.view == current + 1,
            InvalidArgument,
            "EagerService:UpdateContext failed. Context id: <{}> currently at view #{current} but received update \
             request at view #{}. View id should only be continuously incremented.",
            self.id,
            update.view
        );
        let Some(ClientCluster { own, cluster, devices }) = update.cluster else {
            let mut view = self.view.lock().expect(UNPOISONED);
            *view = Arc::new(view.renumbered(update.view));
            return Ok(Vec::new());
        };
        let peers = self.worker.peers_in(&cluster, &own)?;
        let session = Arc::new(self.session.among(peers));
        let view = View::new(&self.worker, self.id, update.view, &session, &devices)?;
        self.functions.forget_lost_components(&view.incarnations);
        let outdated = std::mem::replace(&mut *self.view.lock().expect(UNPOISONED), Arc::new(view));
        drop(outdated);
        Ok(self.device_attributes())
    }

    /// Notes that the client is there.
    pub(super) fn touch(&self) {
        *self.used.lock().expect(UNPOISONED) = Instant::now();
    }

    /// Whether the client has been silent for too long.
    pub(super) fn is_expired(&self) -> bool {
        !self.keep_alive.is_zero() && self.used.lock().expect(UNPOISONED).elapsed() > self.keep_alive
    }

    /// Waits for `running`; fails if the context ends before.
    pub(super) async fn until_ended<T>(&self, running: impl Future<Output = Result<T>>) -> Result<T> {
        match select(pin!(running), pin!(self.cancellation.cancelled())).await {
            Either::Left((done, _)) => done,
            Either::Right((why, _)) => Err(why),
        }
    }

    /// Ends what runs and gives everything back.
    pub(super) fn end(&self) {
        self.cancellation.cancel(status!(Cancelled, "The context {} was closed.", self.id));
        self.queue.iter().for_each(Queue::end);
        self.join(None);
        self.worker.cleanup_steps_of(&self.session);
        self.handles.clear();
        self.view().plans.clear();
        self.functions.clear_components();
        self.session.envs().iter().for_each(|env| env.resources.clear_all());
    }
}

impl View {
    fn new(
        worker: &Worker,
        context: u64,
        id: u64,
        session: &Arc<WorkerSession>,
        others: &[DeviceAttributes],
    ) -> Result<View> {
        let own = || session.envs().iter().map(|env| &env.device);
        let mut devices: Vec<DeviceSpec> = own().map(|device| device.spec().clone()).collect();
        let mut incarnations: HashMap<String, u64> =
            own().map(|device| (device.name().to_owned(), device.incarnation())).collect();
        for device in others {
            let spec = DeviceSpec::parse(&device.name)?;
            if !incarnations.contains_key(&device.name) {
                incarnations.insert(device.name.clone(), device.incarnation);
                devices.push(spec);
            }
        }
        let rendezvous = worker.step(context as i64).rendezvous(session);
        Ok(View { id, session: session.clone(), rendezvous, devices, incarnations, plans: Arc::default() })
    }

    fn renumbered(&self, id: u64) -> View {
        View {
            id,
            session: self.session.clone(),
            rendezvous: self.rendezvous.clone(),
            devices: self.devices.clone(),
            incarnations: self.incarnations.clone(),
            plans: self.plans.clone(),
        }
    }
}
