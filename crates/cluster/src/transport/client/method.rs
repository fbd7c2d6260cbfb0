//! A method of a service at one address.

use super::super::rope::PREFIX_BYTES;
use super::channel::{CallHead, Channel};
use crate::logged_wait::LoggedWait;
use bytes::{BufMut, Bytes, BytesMut};
use ferroflow_core::Result;
use prost::Message;
use std::time::Duration;

/// A method: its path, prebuilt request head and timeout.
pub(super) struct Method {
    path: &'static str,
    head: CallHead,
    timeout: Option<Duration>,
}

/// Declares the methods of a service as a struct with one [`Method`] per field.
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
    /// Prepares calls of `path` that fail after `timeout`.
    pub(super) fn new(address: &str, path: &'static str, timeout: Option<Duration>) -> Result<Method> {
        Ok(Method { path, head: CallHead::new(address, path, timeout)?, timeout })
    }

    /// Returns the path: service and method.
    pub(super) fn path(&self) -> &'static str {
        self.path
    }

    /// Returns how to log waits for its response: calls that run something may take long.
    pub(super) fn waiting(&self) -> LoggedWait {
        match self.path.rsplit('/').next() {
            Some("RunGraph" | "RecvTensor" | "RunComponentFunction") => LoggedWait::for_work(),
            _ => LoggedWait::new(),
        }
    }

    /// Returns the head that its calls share.
    pub(super) fn head(&self) -> &CallHead {
        &self.head
    }

    /// Sends a message and waits for the response.
    pub(super) async fn unary<R: Message + Default>(
        &self,
        channel: &Channel,
        request: &impl Message,
        hint: u64,
    ) -> Result<R> {
        let message = encode(request);
        let responded = async {
            let mut response = channel.call(&self.head, [message], hint).await?;
            let message = response.message().decode().await?;
            response.finish().await?;
            Ok(message)
        };
        match self.timeout {
            Some(timeout) => channel.within(timeout, responded).await,
            None => responded.await,
        }
    }
}

/// Encodes a message with its gRPC prefix.
fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + length);
    out.put_u8(0);
    out.put_u32(length as u32);
    message.encode_raw(&mut out);
    out.freeze()
}
