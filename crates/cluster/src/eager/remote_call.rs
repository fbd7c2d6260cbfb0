//! Functions that a function of this task has another device run.

use super::across::remote_input;
use super::api::{HandleName, Input, Item, Operation};
use super::context::Context;
use super::handles::KeptValue;
use crate::random;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::resource::{HandleShape, ResourceHandle};
use ferroflow_core::{BoxFuture, DType, Result, Tensor, ensure, status};
use ferroflow_proto::tensorflow::NameAttrList;
use ferroflow_proto::tensorflow::eager::{self, RemoteTensorHandle, ResourceDtypeAndShape, operation};
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
        let peer = view.session.peers().of_device(&device).ok_or_else(unknown)?;
        let mut lent = Vec::new();
        let mut input = |argument: &Tensor| {
            let Some(resource) = unnamed(argument) else {
                let item = operation::input::Item::Tensor(argument.to_proto()?);
                return Ok(operation::Input { item: Some(item) });
            };
            let loan = Loan::new(self, argument)?;
            let handle = loan.handle(resource);
            lent.push(loan);
            Ok(remote_input(&handle))
        };
        let operation = eager::Operation {
            id: -1,
            name,
            attrs: attr,
            device,
            op_inputs: arguments.iter().map(&mut input).collect::<Result<_>>()?,
            is_function: true,
            ..Default::default()
        };
        let answer = peer.eager().enqueue(self.id, vec![eager::queue_item::Item::Operation(operation)]);
        let answer = self.until_ended(answer).await?.queue_response;
        drop(lent);
        ensure!(answer.len() == 1, Internal, "one operation has {} answers", answer.len());
        answer[0].tensor.iter().map(Tensor::from_proto).collect()
    }
}

/// A resource of this task that others cannot find, because it has no name.
fn unnamed(argument: &Tensor) -> Option<&ResourceHandle> {
    if argument.dtype() != DType::Resource {
        return None;
    }
    argument.units::<ResourceHandle>().ok()?.first().filter(|handle| handle.owned_resource().is_some())
}

/// A value that is kept while another task runs a function that uses it.
struct Loan<'a> {
    context: &'a Context,
    name: HandleName,
}

impl<'a> Loan<'a> {
    fn new(context: &'a Context, value: &Tensor) -> Result<Loan<'a>> {
        // Clients count from 0.
        let op = (random()? >> 1 | 1 << 62) as i64;
        let name = HandleName { op, output: 0 };
        context.handles.keep(name, KeptValue::Tensor(value.clone()), 0)?;
        Ok(Loan { context, name })
    }

    fn handle(&self, resource: &ResourceHandle) -> RemoteTensorHandle {
        let shape = |entry: &HandleShape| ResourceDtypeAndShape {
            dtype: entry.dtype.to_wire(),
            shape: Some(entry.shape.to_proto()),
        };
        RemoteTensorHandle {
            op_id: self.name.op,
            output_num: self.name.output,
            device: resource.device().to_owned(),
            op_device: resource.device().to_owned(),
            dtype: DType::Resource.to_wire(),
            resource_dtypes_and_shapes: resource.shapes().iter().map(shape).collect(),
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        // It is gone if the context has ended.
        let _ = self.context.handles.release(self.name);
    }
}
