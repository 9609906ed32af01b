//! Starts many calls in growing batches: one, then two, four, and so on up to [`BATCH_MAX`], as long as all succeed.
//!
//! Mirrors kubernetes `pkg/controller/replicaset` (`slowStartBatch`).
//!
//! # Guarantees
//! - No call is made after the first batch with a failure, such as an exceeded quota.
//!   (test: `failure_stops_after_its_batch`)
//!
//! # Differences from kubernetes
//! Batches stop growing; there, up to 500 calls are made at once.

use futures_util::future;

/// The most calls at once: more would make the server slow for others, and finish hardly sooner.
pub(crate) const BATCH_MAX: usize = 8;

/// Makes `count` calls, numbered from 0, in batches that double from one to 8, and stops after a batch with a failure.
/// Returns the number of successful calls, and the first failure.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use windlass::controller::slow_start_batch;
/// let (made, failure) = slow_start_batch(10, |number| async move { if number < 5 { Ok(()) } else { Err("quota") } }).await;
/// assert_eq!((made, failure), (5, Some("quota")));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Cancel safety
/// Dropping the future drops the calls in flight.
pub async fn slow_start_batch<E, F>(count: usize, call: impl Fn(usize) -> F) -> (usize, Option<E>)
where
    F: Future<Output = Result<(), E>>,
{
    let (mut begun, mut succeeded, mut batch) = (0, 0, 1);
    while begun < count {
        let end = count.min(begun + batch);
        let outcomes = future::join_all((begun..end).map(&call)).await;
        let mut failure = None;
        for outcome in outcomes {
            match outcome {
                Ok(()) => succeeded += 1,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if failure.is_some() {
            return (succeeded, failure);
        }
        begun = end;
        batch = BATCH_MAX.min(batch * 2);
    }
    (succeeded, None)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Modelled on client-go's `TestSlowStartBatch`.
    #[tokio::test]
    async fn failure_stops_after_its_batch() {
        for (count, allowed, expected_successes, expected_calls) in
            [(0, 0, 0, 0), (10, 10, 10, 10), (10, 5, 5, 7)]
        {
            let calls = Cell::new(0);
            let call = |_| {
                calls.set(calls.get() + 1);
                std::future::ready(if calls.get() > allowed { Err("quota") } else { Ok(()) })
            };
            let (succeeded, failure) = slow_start_batch(count, call).await;
            assert_eq!((succeeded, calls.get()), (expected_successes, expected_calls));
            assert_eq!(failure.is_some(), allowed < count);
        }
    }
}
