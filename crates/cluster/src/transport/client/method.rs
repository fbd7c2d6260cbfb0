//! A method of a service at one address, and how it is called.

use super::super::rope::PREFIX_BYTES;
use super::channel::{CallHead, Channel};
use crate::waiting::Waiting;
use bytes::{BufMut, Bytes, BytesMut};
use ferroflow_core::Result;
use prost::Message;
use std::time::Duration;

/// How a method is called.
pub(super) struct Method {
    path: &'static str,
    head: CallHead,
    timeout: Option<Duration>,
}

/// Defines the methods of a service once: their names, and the head of every call.
macro_rules! methods {
    ($service:literal $($field:ident $name:literal $timeout:expr,)+) => {
        struct Methods { $($field: Method,)+ }

        impl Methods {
            fn new(address: &str) -> Result<Methods> {
                Ok(Methods { $($field: Method::new(address, concat!($service, $name), $timeout)?,)+ })
            }
        }
    };
}

pub(super) use methods;

impl Method {
    /// A call of `path`, given up after `timeout` if there is one.
    pub(super) fn new(address: &str, path: &'static str, timeout: Option<Duration>) -> Result<Method> {
        Ok(Method { path, head: CallHead::new(address, path, timeout)?, timeout })
    }

    /// Service and method.
    pub(super) fn path(&self) -> &'static str {
        self.path
    }

    /// How a wait for its answer speaks: calls that run something may take long.
    pub(super) fn waiting(&self) -> Waiting {
        match self.path.rsplit('/').next() {
            Some("RunGraph" | "RecvTensor" | "RunComponentFunction") => Waiting::for_work(),
            _ => Waiting::new(),
        }
    }

    /// What all its calls begin with.
    pub(super) fn head(&self) -> &CallHead {
        &self.head
    }

    /// Sends a message and waits for the one that answers it.
    pub(super) async fn unary<R: Message + Default>(
        &self,
        channel: &Channel,
        request: &impl Message,
        hint: u64,
    ) -> Result<R> {
        let message = encode(request);
        let answered = async {
            let mut answer = channel.call(&self.head, [message], hint).await?;
            let message = answer.message().decode().await?;
            answer.finish().await?;
            Ok(message)
        };
        match self.timeout {
            Some(timeout) => channel.within(timeout, answered).await,
            None => answered.await,
        }
    }
}

/// A message with its prefix.
fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + length);
    out.put_u8(0);
    out.put_u32(length as u32);
    message.encode_raw(&mut out);
    out.freeze()
}
