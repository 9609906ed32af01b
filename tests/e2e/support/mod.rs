//! Test support: beds (API servers), scenes (a namespace with an operator), and `wait_until`.

mod bed;
mod browser;
pub(crate) mod canary;
mod dry_run;
mod embedded;
mod launcher;
mod objects;
mod operator;
mod real;
pub(crate) mod runs;
mod scene;
mod slow_link;
mod tools;

use std::fmt::Debug;
use std::time::Duration;

pub(crate) use bed::{Bed, LedgerEntry};
pub(crate) use browser::Browser;
pub(crate) use dry_run::DryRun;
pub(crate) use embedded::{EmbeddedBed, seed};
pub(crate) use launcher::Launcher;
pub(crate) use objects::{condition_of, condition_status, is_ready, is_virtual, resource_of};
pub(crate) use operator::{Operator, program, run_to_end, status};
pub(crate) use runs::{
    both_beds, both_beds_with_kubectl, captured_log, embedded_bed, no_bed, on_embedded,
    on_embedded_with_kubectl, on_real, real_bed,
};
pub(crate) use scene::{Scene, condition};
pub(crate) use slow_link::SlowLink;
pub(crate) use tools::tool;

/// How long `wait_until` waits before it fails. Generous for the real bed, because a machine that runs several
/// control planes may be slow. On the embedded bed the time is virtual.
fn patience() -> Duration {
    match runs::run_mode() {
        runs::Mode::Embedded => Duration::from_secs(60),
        runs::Mode::Real | runs::Mode::EmbeddedWithKubectl => Duration::from_secs(240),
    }
}

/// How often `wait_until` polls.
const INTERVAL: Duration = Duration::from_millis(50);

/// Polls `look` until it returns `Ok`, and returns that value. Panics at the deadline with the last `Err`.
#[track_caller]
pub(crate) fn wait_until<T, S, F>(what: &str, look: F) -> impl Future<Output = T> + use<T, S, F>
where
    S: Debug,
    F: AsyncFnMut() -> Result<T, S>,
{
    let location = std::panic::Location::caller();
    let what = what.to_owned();
    wait(location, what, look)
}

async fn wait<T, S: Debug>(
    location: &'static std::panic::Location<'static>,
    what: String,
    mut look: impl AsyncFnMut() -> Result<T, S>,
) -> T {
    let patience = patience();
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) if tokio::time::Instant::now() > deadline => {
                panic!("{location}: waited {patience:?} for: {what}\nlast seen: {seen:#?}");
            }
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

/// Returns the number in an environment variable, or the default if it is not set.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => default,
    }
}

/// Lets this much time pass, as the length of a fault or as a period in which nothing may happen.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
