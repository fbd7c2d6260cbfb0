//! The device and the colocation groups of a node, from the scopes that it is built in.

use super::{Operation, Scope};
use crate::Result;
use crate::attr::ToAttr;
use crate::device::DeviceSpec;
use crate::graph::NodeData;
use std::sync::Arc;

/// The attribute that lists a node's colocation groups.
pub(super) const CLASS: &str = "_class";

/// A scope's rule for devices.
#[derive(Clone)]
pub(super) enum DeviceRule {
    /// Parts of the device name that inner scopes may override.
    Spec(DeviceSpec),
    /// A function of the node, which has the device chosen by inner scopes.
    Fn(Arc<DeviceFn>),
}

type DeviceFn = dyn Fn(&NodeData) -> Result<String> + Send + Sync;

impl Scope {
    /// Sets a node's device and colocation groups.
    pub(super) fn place(&self, mut data: NodeData) -> Result<NodeData> {
        for rule in self.0.devices.iter().rev() {
            let device = match rule {
                DeviceRule::Spec(spec) => spec.overridden_by(&DeviceSpec::parse(&data.device)?).to_string(),
                DeviceRule::Fn(choose) => {
                    let chosen = choose(&data)?;
                    DeviceSpec::parse(&chosen)?.to_string()
                }
            };
            data.device = device;
        }
        if self.0.colocated.is_empty() {
            return Ok(data);
        }
        let mut groups: Vec<String> = data.attrs.get(CLASS).unwrap_or_default();
        for operation in &self.0.colocated {
            groups.extend(operation.colocation_groups());
            let device = operation.device();
            if !device.is_empty() {
                data.device = device;
            }
        }
        groups.sort();
        groups.dedup();
        data.attrs.set(CLASS, groups.to_attr()?);
        Ok(data)
    }
}

impl Operation {
    /// The operation's colocation groups, or the one named after it if it has none.
    pub fn colocation_groups(&self) -> Vec<String> {
        let groups: Vec<String> = self.attr(CLASS).unwrap_or_default();
        let groups: Vec<String> = groups.into_iter().filter(|group| group.starts_with("loc:@")).collect();
        if groups.is_empty() { vec![format!("loc:@{}", self.name())] } else { groups }
    }
}
