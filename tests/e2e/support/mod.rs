//! What the cases speak to: a bed, a scene on it, and one way to wait.

mod bed;
mod embedded;
mod launcher;
mod objects;
mod operator;
mod real;
pub(crate) mod runs;
mod scene;

use std::fmt::Debug;
use std::time::Duration;

pub(crate) use bed::{Bed, LedgerEntry};
pub(crate) use embedded::seed;
pub(crate) use launcher::Launcher;
pub(crate) use objects::{condition_of, is_ready};
pub(crate) use operator::{Operator, program, run_to_end};
pub(crate) use runs::{
    both_beds, both_beds_with_kubectl, captured_log, embedded_bed, no_bed, on_embedded,
    on_embedded_with_kubectl, on_real, real_bed,
};
pub(crate) use scene::{Scene, condition};

/// How long a promise may take to come true. Generous: it bounds a failure, not a success, and a machine that
/// runs several control planes at once may be slow. In the embedded bed's own time nothing is.
fn patience() -> Duration {
    match runs::run_mode() {
        runs::Mode::Embedded => Duration::from_secs(60),
        runs::Mode::Real | runs::Mode::EmbeddedWithKubectl => Duration::from_secs(240),
    }
}

/// How often it is looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// Waits until `look` finds something, and returns it; at the deadline fails with what was seen last.
#[track_caller]
pub(crate) fn wait_until<T, S, F>(what: &str, look: F) -> impl Future<Output = T> + use<T, S, F>
where
    S: Debug,
    F: AsyncFnMut() -> Result<T, S>,
{
    let place = std::panic::Location::caller();
    let what = what.to_owned();
    wait(place, what, look)
}

async fn wait<T, S: Debug>(
    place: &'static std::panic::Location<'static>,
    what: String,
    mut look: impl AsyncFnMut() -> Result<T, S>,
) -> T {
    let patience = patience();
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) if tokio::time::Instant::now() > deadline => {
                panic!("{place}: waited {patience:?} for: {what}\nlast seen: {seen:#?}");
            }
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

/// Lets the bed run on for so long: the length of a fault, or the time in which nothing may happen.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
