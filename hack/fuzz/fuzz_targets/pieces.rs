//! What both targets need.

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
}

/// Runs a check; the runtime is the same for all inputs.
pub fn block_on(check: impl Future<Output = ()>) {
    RUNTIME.with(|runtime| runtime.block_on(check));
}

/// Cuts a body into pieces whose size its content chooses.
pub fn of(body: &[u8]) -> Vec<Bytes> {
    let sum: usize = body.iter().map(|byte| usize::from(*byte)).sum();
    body.chunks(1 + sum % 61).map(Bytes::copy_from_slice).collect()
}
