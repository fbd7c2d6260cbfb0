//! Edges that cross devices: a send leaves a tensor at the step's rendezvous, a receive waits for it there.

use ferroflow_core::kernel::{FrameIteration, Init, Kernel, Outputs};
use ferroflow_core::op::{Op, OpClass};
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, kernels};
use std::borrow::Cow;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&SEND, &RECV, &HOST_SEND, &HOST_RECV];

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

/// The key outside loops; made once, because making it costs more than sending a small tensor.
fn key(init: &Init<'_>) -> Result<RendezvousKey> {
    Ok(RendezvousKey {
        source: init.attr("send_device")?,
        // The attribute is signed; the incarnation keeps its bits.
        source_incarnation: init.attr::<i64>("send_device_incarnation")? as u64,
        target: init.attr("recv_device")?,
        edge: init.attr("tensor_name")?,
        frame: 0,
        iteration: 0,
    })
}

fn in_frame(key: &RendezvousKey, frame: FrameIteration) -> Cow<'_, RendezvousKey> {
    if frame == FrameIteration::default() {
        return Cow::Borrowed(key);
    }
    Cow::Owned(RendezvousKey { frame: frame.frame, iteration: frame.iteration, ..key.clone() })
}

fn send_kernel(init: &Init<'_>) -> Result<Kernel> {
    let key = key(init)?;
    let nothing = Tensor::zeros(init.attr("T")?, Shape::vector(0));
    Kernel::sync(move |cx| {
        let dead = cx.is_dead();
        let tensor = if dead { nothing.clone() } else { cx.take(0)? };
        cx.step().rendezvous.send(&in_frame(&key, cx.frame()), Parcel { tensor, dead })?;
        Ok(Outputs::None)
    })
}

fn recv_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (key, node): (_, Arc<str>) = (key(init)?, init.node.into());
    let declared: DType = init.attr("tensor_type")?;
    Kernel::future(move |mut cx| {
        let frame = cx.cx().frame();
        let receiving = cx.step().rendezvous.recv(&in_frame(&key, frame));
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
