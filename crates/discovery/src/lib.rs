//! Discovery: the role of a task, and the addresses of the others.

mod advertise;
pub mod doctor;
mod environment;
mod lookup;
pub mod meeting;
pub mod pmi;
mod port;
mod port_owner;
mod role;
mod source;
mod spelling;
mod topology;

pub use advertise::{Advertised, Wishes, advertise};
pub use environment::Environment;
pub use port::{PortChoice, ReservedPort, listen_on};
pub use port_owner::owner_of_port;
pub use role::{Overridden, Rank, Role, RoleRequest, is_chief, tf_config};
pub use source::{Source, TfConfig};
pub use spelling::nearest;
pub use topology::{Count, Topology};
