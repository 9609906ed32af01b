//! The one wall clock.

use jiff::Timestamp;
use tokio::time::Instant;

/// Gives wall-clock stamps: an epoch, read once, plus the time that tokio's clock has run since.
///
/// So stamps follow tokio's clock in tests that pause it, and never jump backwards when somebody
/// sets the machine's clock. It is a value: make one at the start and hand out copies.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Timestamp,
    started: Instant,
}

impl Clock {
    /// Starts from the machine's clock, now.
    #[must_use]
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// Starts from a given time: for tests and simulated runs.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now() }
    }

    /// The time now.
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
