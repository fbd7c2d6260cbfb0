//! Functions that a function of this task has another device run.

use super::api::{Input, Item, Operation};
use super::context::Context;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::{BoxFuture, DType, Result, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::NameAttrList;
use ferroflow_proto::tensorflow::eager::{self, operation};
use ferroflow_runtime::OtherDevices;
use std::sync::Arc;

impl OtherDevices for Context {
    fn call(
        self: Arc<Self>,
        function: NameAttrList,
        device: String,
        arguments: Vec<Tensor>,
    ) -> BoxFuture<Result<Vec<Tensor>>> {
        Box::pin(async move { self.call_on(function, &device, arguments).await })
    }
}

impl Context {
    async fn call_on(
        self: &Arc<Self>,
        function: NameAttrList,
        device: &str,
        arguments: Vec<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let view = self.view();
        let wanted = DeviceSpec::parse(device)?;
        // Those of this task come first.
        let found = view.devices.iter().find(|device| wanted.matches(device));
        let unknown = || status!(InvalidArgument, "Client for target {device} not found.");
        let device = found.ok_or_else(unknown)?.to_string();
        let NameAttrList { name, attr } = function;
        if self.session.env_on(&device).is_some() {
            let operation = Operation {
                id: -1,
                name,
                attrs: attr,
                device,
                inputs: arguments.into_iter().map(Input::Tensor).collect(),
                is_function: true,
                ..Operation::default()
            };
            // It belongs to an operation that has its turn already.
            return Ok(self.run_item(Item::Operation(operation), true).await?.tensors);
        }
        if let Some(keeper) = arguments.iter().find_map(anonymous) {
            bail!(
                Unimplemented,
                "RemoteCall of {name} on {device} with a resource of {keeper} that has no name: call it on {keeper}, or \
                 without RemoteCall"
            );
        }
        let peer = view.session.peers().of_device(&device).ok_or_else(unknown)?;
        let input = |argument: &Tensor| {
            let item = operation::input::Item::Tensor(argument.to_proto()?);
            Ok(operation::Input { item: Some(item) })
        };
        let operation = eager::Operation {
            id: -1,
            name,
            attrs: attr,
            device,
            op_inputs: arguments.iter().map(input).collect::<Result<_>>()?,
            is_function: true,
            ..Default::default()
        };
        let answer = peer.eager().enqueue(self.id, vec![eager::queue_item::Item::Operation(operation)]);
        let answer = self.until_ended(answer).await?.queue_response;
        ensure!(answer.len() == 1, Internal, "one operation has {} answers", answer.len());
        answer[0].tensor.iter().map(Tensor::from_proto).collect()
    }
}

/// The device of a resource that other tasks cannot find, because it has no name.
fn anonymous(argument: &Tensor) -> Option<&str> {
    if argument.dtype() != DType::Resource {
        return None;
    }
    let handles = argument.units::<ResourceHandle>().ok()?;
    handles.iter().find(|handle| handle.container().is_empty()).map(ResourceHandle::device)
}
