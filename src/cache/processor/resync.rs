//! How often handlers are notified of every object again.

use std::time::Duration;

/// A resync period: at least a second, as in client-go, and at most a year. No resync is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncPeriod(Duration);

/// A period that is too short or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resync period {0:?} is not between 1s and 1 year; use none for no resync")]
pub struct InvalidResyncPeriod(Duration);

impl ResyncPeriod {
    /// Shortest period.
    pub const MIN: Duration = Duration::from_secs(1);
    /// Longest period.
    pub const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// Checks a period.
    ///
    /// # Errors
    /// [`InvalidResyncPeriod`] if it is shorter than [`MIN`](Self::MIN) or longer than [`MAX`](Self::MAX).
    pub fn new(period: Duration) -> Result<Self, InvalidResyncPeriod> {
        let is_valid = (Self::MIN..=Self::MAX).contains(&period);
        is_valid.then_some(Self(period)).ok_or(InvalidResyncPeriod(period))
    }

    /// Returns the period.
    #[must_use]
    pub fn get(self) -> Duration {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resync_period_of_zero_or_forever_is_an_error() {
        for period in [Duration::ZERO, Duration::from_millis(999), Duration::MAX] {
            assert_eq!(ResyncPeriod::new(period), Err(InvalidResyncPeriod(period)));
        }
        for period in [ResyncPeriod::MIN, ResyncPeriod::MAX] {
            assert_eq!(ResyncPeriod::new(period).map(ResyncPeriod::get), Ok(period));
        }
    }
}
