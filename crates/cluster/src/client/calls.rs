//! Calls of a master as boxed futures.
//!
//! A crate that polls a future of another crate compiles all of it again: the steps of masters, their connections and
//! HTTP/2. Behind a box it is compiled here alone. These methods go before those of [`MasterApi`], which have the same
//! names.

use super::MasterClient;
use crate::api::{CallableOutcome, Devices, MasterApi, RunCallable, RunStep, StepOutcome};
use ferroflow_core::Result;
use ferroflow_proto::tensorflow::{CallableOptions, ConfigProto, GraphDef, PartialRunSetupRequest};
use std::pin::Pin;

/// A call that has not begun.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

macro_rules! boxed {
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty;)+) => {
        impl MasterClient {
            $(
                #[doc = concat!("[`MasterApi::", stringify!($name), "`], boxed.")]
                #[inline(never)]
                pub fn $name<'a>(&'a self, $($argument: $type),*) -> Call<'a, $output> {
                    Box::pin(MasterApi::$name(self, $($argument),*))
                }
            )+
        }
    };
}
boxed! {
    create_session(graph: GraphDef, config: ConfigProto, target: &'a str) -> String;
    extend_session(handle: &'a str, graph: GraphDef, version: i64) -> i64;
    run_step(step: RunStep) -> StepOutcome;
    partial_run_setup(request: PartialRunSetupRequest) -> String;
    close_session(handle: &'a str) -> ();
    list_devices(handle: &'a str) -> Devices;
    reset(containers: Vec<String>, device_filters: Vec<String>) -> ();
    make_callable(session: &'a str, options: CallableOptions, request_id: i64) -> i64;
    run_callable(call: RunCallable) -> CallableOutcome;
    release_callable(session: &'a str, handle: i64) -> ();
}
