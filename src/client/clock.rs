//! The wall clock of the process.

use jiff::Timestamp;
use tokio::time::Instant;

/// Returns the wall-clock time: an epoch, read once, plus the time elapsed since on tokio's clock.
///
/// The time follows tokio's clock in tests that pause it, and never jumps backwards when the
/// machine's clock is set. Create one `Clock` at startup and pass copies.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Timestamp,
    started: Instant,
}

impl Clock {
    /// Starts at the machine's current time.
    #[must_use]
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// Starts at a given time, for tests and simulated runs.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now() }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = jiff::SignedDuration::try_from(self.started.elapsed());
        elapsed.ok().and_then(|d| self.epoch.checked_add(d).ok()).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().as_second(), 90);
    }
}
