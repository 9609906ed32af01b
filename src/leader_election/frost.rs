//! Freezes the futures of tests, as SIGSTOP freezes a process.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Whether a process is frozen, and who wakes it. Cheap to clone: all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Frost(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_frozen: bool,
    waker: Option<Waker>,
}

impl Frost {
    pub(super) fn set(&self, is_frozen: bool) {
        let mut state = self.0.lock();
        state.is_frozen = is_frozen;
        if !is_frozen && let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Runs a future, except while it is frozen.
    pub(super) async fn over<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.is_frozen {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            drop(state);
            future.as_mut().poll(context)
        })
        .await
    }
}
