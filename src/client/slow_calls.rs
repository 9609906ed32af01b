//! Tells a worker that its sync waits for a slow answer, so that another worker can stand in.
//!
//! client-go has no counterpart. Go's scheduler does the same for threads: one that blocks in a system call hands its
//! processor over.
//! Flow: request without an answer -> **slow calls** -> workers
//!
//! # Guarantees
//! - A sync counts as waiting while any of its requests has been without an answer for longer than the worker's
//!   patience. (test: `pass_waits_while_a_call_is_slow`)
//! - Time at the gate does not count: all syncs wait there. (test: `wait_at_the_gate_is_no_slow_call`)

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

tokio::task_local! {
    static PASS: Arc<Pass>;
}

/// Is called with `true` when a sync begins to wait for a slow answer, and with `false` when it no longer does.
pub(crate) type OnSlow = Box<dyn Fn(bool) + Send + Sync>;

struct Pass {
    /// When an answer is slow.
    patience: Duration,
    on_slow: OnSlow,
    /// The number of requests without an answer for longer than that.
    calls: AtomicUsize,
    was_slow: AtomicBool,
}

/// Runs a sync; also returns whether it waited longer than `patience` for an answer.
///
/// # Cancel safety
/// That of the sync.
pub(crate) async fn noticing<T>(
    patience: Duration,
    on_slow: OnSlow,
    pass: impl Future<Output = T>,
) -> (T, bool) {
    let this =
        Arc::new(Pass { patience, on_slow, calls: AtomicUsize::new(0), was_slow: AtomicBool::new(false) });
    let ended = PASS.scope(this.clone(), pass).await;
    (ended, this.was_slow.load(Ordering::Relaxed))
}

/// Waits for the answer to a request.
///
/// # Cancel safety
/// That of `answer`.
pub(crate) async fn wait_for<T>(answer: impl Future<Output = T>) -> T {
    let Ok(pass) = PASS.try_with(Arc::clone) else { return answer.await };
    let mut answer = pin!(answer);
    if let Ok(answer) = tokio::time::timeout(pass.patience, &mut answer).await {
        return answer;
    }
    let _waiting = Waiting::begin(pass);
    answer.await
}

/// A request that waits for a slow answer, until dropped.
struct Waiting(Arc<Pass>);

impl Waiting {
    fn begin(pass: Arc<Pass>) -> Self {
        pass.was_slow.store(true, Ordering::Relaxed);
        if pass.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            (pass.on_slow)(true);
        }
        Self(pass)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::Relaxed) == 1 {
            (self.0.on_slow)(false);
        }
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("calls", &self.calls).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// When the sync began and ceased to wait, in milliseconds.
    async fn waits<T>(pass: impl Future<Output = T>) -> (Vec<(bool, u128)>, bool) {
        let (started, seen) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let seen_by = seen.clone();
        let on_slow: OnSlow =
            Box::new(move |waits| seen_by.lock().push((waits, started.elapsed().as_millis())));
        let (_, was_slow) = noticing(Duration::from_secs(2), on_slow, pass).await;
        (seen.lock().clone(), was_slow)
    }

    #[tokio::test(start_paused = true)]
    async fn pass_waits_while_a_call_is_slow() {
        let call = |ms| wait_for(sleep(Duration::from_millis(ms)));
        let quick = async { tokio::join!(call(1_900), call(1_999)) };
        assert_eq!(waits(quick).await, (vec![], false));
        let two_at_once = async { tokio::join!(call(2_500), call(3_000), call(10)) };
        assert_eq!(waits(two_at_once).await, (vec![(true, 2_000), (false, 3_000)], true));
        let one_after_the_other = async { (call(2_500).await, call(2_500).await) };
        let waited = vec![(true, 2_000), (false, 2_500), (true, 4_500), (false, 5_000)];
        assert_eq!(waits(one_after_the_other).await, (waited, true));
        let given_up = tokio::time::timeout(Duration::from_secs(3), call(60_000));
        assert_eq!(waits(given_up).await, (vec![(true, 2_000), (false, 3_000)], true));
    }
}
