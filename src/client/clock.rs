//! The clocks of the process: the wall clock, and the time for which the machine slept.
//!
//! # Guarantees
//! - A node whose clock is set after the process has started does not leave it with wrong times.
//!   (test: `steps_of_the_wall_clock_are_followed`)
//! - Time that a test pauses or advances is followed, and the machine's is not. (test: `the_clock_follows_paused_time`)

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// How far the wall clock may be off before it is followed.
const STEP: SignedDuration = SignedDuration::from_secs(1);

/// Returns the wall-clock time: an epoch, read once, plus the time elapsed since on tokio's clock, plus the whole seconds
/// by which the machine's clock has been set since.
///
/// The time follows tokio's clock in tests that pause it. Create one `Clock` at startup and pass copies.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Timestamp,
    started: Instant,
    machine: Option<Machine>,
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug)]
struct Machine {
    started: std::time::Instant,
    wall: fn() -> Timestamp,
}

// === impl Clock ===

impl Clock {
    /// Starts at the machine's current time.
    #[must_use]
    pub fn system() -> Self {
        Self::following(Timestamp::now)
    }

    /// Starts at a given time, for tests and simulated runs.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now(), machine: None }
    }

    #[allow(clippy::disallowed_methods, reason = "tells whether tokio's clock is paused")]
    fn following(wall: fn() -> Timestamp) -> Self {
        let machine = Machine { started: std::time::Instant::now(), wall };
        Self { machine: Some(machine), ..Self::starting_at(wall()) }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = signed(self.started.elapsed());
        let expected = self.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX);
        let Some(machine) = self.machine else { return expected };
        let is_real = (elapsed - signed(machine.started.elapsed())).abs() < STEP;
        // NTP slews both clocks alike, so what they differ by changes only when somebody sets the wall clock.
        let steps = SignedDuration::from_secs((machine.wall)().duration_since(expected).as_secs());
        if is_real { expected.checked_add(steps).unwrap_or(expected) } else { expected }
    }
}

fn signed(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}

/// Returns for how long the machine was suspended since it was booted, as far as it can tell: tokio's clock and
/// [`std::time::Instant`] stand still then.
pub(super) fn time_asleep() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        let read = |clock| {
            let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
            Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
        };
        read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic))
    }
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time() {
        for clock in [Clock::starting_at(Timestamp::UNIX_EPOCH), Clock::system()] {
            let before = clock.now();
            for milliseconds in [900, 1_100, 88_000] {
                tokio::time::advance(Duration::from_millis(milliseconds)).await;
            }
            let passed = clock.now().duration_since(before);
            assert!(
                (passed - SignedDuration::from_secs(90)).abs() < SignedDuration::from_millis(1),
                "{passed:?}"
            );
        }
    }

    thread_local! {
        static WALL: Cell<Timestamp> = const { Cell::new(Timestamp::UNIX_EPOCH) };
    }

    #[tokio::test]
    async fn steps_of_the_wall_clock_are_followed() {
        let clock = Clock::following(|| WALL.get());
        let day = SignedDuration::from_hours(24);
        for (set_to, shown) in [
            (SignedDuration::from_millis(900), SignedDuration::ZERO),
            (day, day),
            (SignedDuration::from_millis(-900), SignedDuration::ZERO),
            (-day, -day),
        ] {
            WALL.set(Timestamp::UNIX_EPOCH + set_to);
            let off = clock.now().duration_since(Timestamp::UNIX_EPOCH + shown);
            assert!(off.abs() < STEP, "set to {set_to:?}, shown {off:?} beside {shown:?}");
        }
    }

    #[test]
    fn time_asleep_does_not_move_while_awake() {
        let before = time_asleep();
        assert!(time_asleep().abs_diff(before) < Duration::from_millis(100));
    }
}
