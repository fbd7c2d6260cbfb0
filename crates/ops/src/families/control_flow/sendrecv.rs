//! Edges that cross devices: a send leaves a tensor at the step's rendezvous, a receive waits for it there.

use ferroflow_core::kernel::{Init, Kernel, Outputs};
use ferroflow_core::op::{Op, OpClass};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, kernels};
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&SEND, &RECV, &HOST_SEND, &HOST_RECV, &NAMED_SEND, &NAMED_RECV];

static SEND: Op = Op {
    name: "_Send",
    inputs: &["tensor: T"],
    attrs: &[
        "T: type",
        "tensor_name: string",
        "send_device: string",
        "send_device_incarnation: int",
        "recv_device: string",
        "client_terminated: bool = false",
    ],
    kernels: kernels![any send_kernel],
    class: OpClass::Send,
    cheap: true,
    ..Op::STATEFUL
};

static RECV: Op = Op {
    name: "_Recv",
    outputs: &["tensor: tensor_type"],
    attrs: &[
        "tensor_type: type",
        "tensor_name: string",
        "send_device: string",
        "send_device_incarnation: int",
        "recv_device: string",
        "client_terminated: bool = false",
    ],
    kernels: kernels![any recv_kernel],
    class: OpClass::Recv,
    cheap: true,
    distributed: true,
    ..Op::STATEFUL
};

static HOST_SEND: Op = Op { name: "_HostSend", ..SEND };

static HOST_RECV: Op = Op { name: "_HostRecv", ..RECV };

// Under these names the ops are known to programs, which then choose the names of tensors themselves.
static NAMED_SEND: Op = Op { name: "Send", ..SEND };

static NAMED_RECV: Op = Op { name: "Recv", ..RECV };

/// The key outside loops; made once, because making it costs more than sending a small tensor.
fn key(init: &Init<'_>) -> Result<RendezvousKey> {
    // The attribute is signed; the incarnation keeps its bits.
    let incarnation = init.attr::<i64>("send_device_incarnation")? as u64;
    let text = |name| init.attr::<String>(name);
    Ok(RendezvousKey::new(&text("send_device")?, incarnation, &text("recv_device")?, &text("tensor_name")?))
}

fn send_kernel(init: &Init<'_>) -> Result<Kernel> {
    let key = key(init)?;
    // What stock sends for a dead value, whatever the edge's type.
    let nothing = Tensor::zeros(DType::Float, Shape::vector(0));
    Kernel::sync(move |cx| {
        let parcel =
            if cx.is_dead() { Parcel::dead(nothing.clone()) } else { Parcel::of(cx.take_value(0)?)? };
        let at = cx.frame();
        cx.step().rendezvous.send(&key.at(at.frame, at.iteration), parcel)?;
        Ok(Outputs::None)
    })
}

fn recv_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (key, node): (_, Arc<str>) = (key(init)?, init.node.into());
    let declared: DType = init.attr("tensor_type")?;
    Kernel::future(move |mut cx| {
        let at = cx.cx().frame();
        let receiving = cx.step().rendezvous.recv(&key.at(at.frame, at.iteration));
        let node = node.clone();
        async move {
            let parcel = receiving.await?;
            if parcel.dead {
                return Ok(Outputs::Dead);
            }
            ensure!(
                parcel.tensor.dtype() == declared,
                Internal,
                "Output 0 of type {} does not match declared output type {declared} for node {{{{node {node}}}}}",
                parcel.tensor.dtype()
            );
            Ok(parcel.tensor.into())
        }
    })
}
