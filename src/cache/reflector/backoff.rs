//! Exponential delays with jitter; computes durations and never sleeps.
//!
//! Mirrors apimachinery `wait.Backoff` as the reflector uses it.
//!
//! # Differences from client-go
//! The delay resets after [`RESET_AFTER`] without a failure, the documented intent; client-go's newer
//! code resets that long after the last start, even in the middle of an outage.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(800);
const CAP: Duration = Duration::from_secs(30);
const RESET_AFTER: Duration = Duration::from_secs(120);

/// The reflector's delays: 0.8 s, doubling to 30 s, each stretched by a random factor in [1, 2).
#[derive(Debug)]
pub(crate) struct Backoff {
    base: Duration,
    /// When the last delay ends.
    quiet_since: Option<Instant>,
    random: fastrand::Rng,
}

impl Backoff {
    pub(crate) fn new(random: fastrand::Rng) -> Self {
        Self { base: FIRST, quiet_since: None, random }
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub(crate) fn step(&mut self) -> Duration {
        let now = Instant::now();
        if self.quiet_since.is_some_and(|since| now.saturating_duration_since(since) >= RESET_AFTER) {
            self.base = FIRST;
        }
        let delay = self.base.mul_f64(1.0 + self.random.f64());
        self.base = (self.base * 2).min(CAP);
        self.quiet_since = Some(now + delay);
        delay
    }

    /// Makes the next delay the first one again.
    pub(crate) fn start_over(&mut self) {
        self.base = FIRST;
    }

    /// Returns a random delay between `from` and `to`, independent of the growing delays.
    pub(crate) fn spread(&mut self, from: Duration, to: Duration) -> Duration {
        from + (to - from).mul_f64(self.random.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double_to_a_cap_with_jitter() {
        let mut backoff = Backoff::new(fastrand::Rng::with_seed(1));
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let delay = backoff.step().as_secs_f64();
            assert!((base..base * 2.0).contains(&delay), "{delay} is not in [{base}, {})", base * 2.0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delays_start_over_after_two_quiet_minutes() {
        let mut backoff = Backoff::new(fastrand::Rng::with_seed(1));
        for _ in 0..6 {
            let delay = backoff.step();
            tokio::time::advance(delay).await;
        }
        assert!(backoff.step() > Duration::from_secs(25));
        tokio::time::advance(Duration::from_secs(60) + RESET_AFTER).await;
        assert!(backoff.step() < FIRST * 2);
    }
}
