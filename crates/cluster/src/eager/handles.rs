//! The values that a context keeps for its client.

use super::account::{Account, Share};
use super::api::HandleName;
use ferroflow_core::{DType, Result, Status, Tensor, status};
use ferroflow_proto::tensorflow::core::platform::ErrorSourceProto;
use ferroflow_proto::tensorflow::core::platform::error_source_proto::ErrorSource;
use ferroflow_proto::tensorflow::eager::RemoteTensorHandle;
use prost::Message;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

/// Memory charged for a kept value beside that of its tensor.
const HANDLE_BYTES: usize = 192;

/// Marks a status that says that a value is not there.
const ERROR_SOURCE: &str = "type.googleapis.com/tensorflow.core.platform.ErrorSourceProto";

const UNPOISONED: &str = "no panic while handles are locked";

/// Values by the output that they are.
pub(super) struct Handles {
    kept: Mutex<HashMap<HandleName, Kept>>,
    account: Arc<Account>,
}

struct Kept {
    value: KeptValue,
    _share: Share,
}

/// A value that is kept.
#[derive(Clone)]
pub(super) enum KeptValue {
    /// A tensor of this task.
    Tensor(Tensor),
    /// Values of several devices, which a function takes as one argument.
    Packed(Arc<Packed>),
}

/// Values of several devices that a function takes as one argument.
pub(super) struct Packed {
    pub(super) dtype: DType,
    pub(super) values: Vec<PackedValue>,
}

/// The value of one device.
pub(super) enum PackedValue {
    /// A tensor of this task, on this device.
    Here(String, Tensor),
    /// A value that another task keeps.
    There(RemoteTensorHandle),
}

impl PackedValue {
    /// The device that holds it.
    pub(super) fn device(&self) -> String {
        match self {
            PackedValue::Here(device, _) => device.clone(),
            PackedValue::There(handle) => handle.device.clone(),
        }
    }
}

impl Handles {
    /// No values yet; what they take is charged to this account.
    pub(super) fn new(account: Arc<Account>) -> Handles {
        Handles { kept: Mutex::default(), account }
    }

    /// Keeps a value; if there is one already, that one stays. `unpooled` bytes of it are not charged to anybody yet.
    pub(super) fn keep(&self, name: HandleName, value: KeptValue, unpooled: usize) -> Result<()> {
        let share = self.account.charge(HANDLE_BYTES + unpooled)?;
        let kept = Kept { value, _share: share };
        let unwanted = match self.kept.lock().expect(UNPOISONED).entry(name) {
            Entry::Vacant(vacant) => {
                vacant.insert(kept);
                None
            }
            Entry::Occupied(_) => Some(kept),
        };
        drop(unwanted);
        Ok(())
    }

    /// A value.
    pub(super) fn get(&self, name: HandleName) -> Result<KeptValue> {
        let kept = self.kept.lock().expect(UNPOISONED);
        match kept.get(&name) {
            Some(kept) => Ok(kept.value.clone()),
            None => Err(missing(name).map_message(|message| {
                format!(
                    "{message}. One possible cause is that the tensor was accessed after deallocation in a distributed \
                     worker setup.Try setting `os.environ['TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE']='False'` in your \
                     client to disable async streaming behavior to see if it fixes the problem."
                )
            })),
        }
    }

    /// Lets go of a value.
    pub(super) fn release(&self, name: HandleName) -> Result<()> {
        let released = self.kept.lock().expect(UNPOISONED).remove(&name);
        released.map(drop).ok_or_else(|| missing(name))
    }

    /// Lets go of all values.
    pub(super) fn clear(&self) {
        let released = std::mem::take(&mut *self.kept.lock().expect(UNPOISONED));
        drop(released);
    }

    /// Number of values that are kept.
    pub(super) fn len(&self) -> usize {
        self.kept.lock().expect(UNPOISONED).len()
    }
}

/// The status for a value that is not there, in the words by which stock's coordinator recognizes it.
fn missing(name: HandleName) -> Status {
    let HandleName { op, output } = name;
    let source = ErrorSourceProto { error_source: ErrorSource::EagerRemoteMgr as i32 };
    status!(
        InvalidArgument,
        "Unable to find the relevant tensor remote_handle: Op ID: {op}, Output num: {output}"
    )
    .with_payload(ERROR_SOURCE, source.encode_to_vec())
}
