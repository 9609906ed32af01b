//! Notices when the server is lost and when it is back, and says each once.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A server that comes back denies what it has not loaded yet, roles and kinds, for this long at most.
const SETTLING: Duration = Duration::from_secs(15);
/// How often a server that stays away is mentioned again.
const REMINDER: Duration = Duration::from_secs(60);

/// Whether requests get through. All requests of a process report here, so that a server that is
/// away is one line in the log and not one per kind and retry.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when requests fail; `None` while they get through.
    lost_since: Option<Instant>,
    last_line: Option<Instant>,
    /// When it last came back.
    back_since: Option<Instant>,
}

/// What is worth a line.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Lost,
    StillLost(Duration),
    Back(Duration),
}

impl State {
    fn failed(&mut self, now: Instant) -> Option<Change> {
        let Some(since) = self.lost_since else {
            (self.lost_since, self.last_line) = (Some(now), Some(now));
            return Some(Change::Lost);
        };
        if self.last_line.is_some_and(|last| now - last < REMINDER) {
            return None;
        }
        self.last_line = Some(now);
        Some(Change::StillLost(now - since))
    }

    fn answered(&mut self, now: Instant) -> Option<Change> {
        let since = self.lost_since.take()?;
        self.back_since = Some(now);
        Some(Change::Back(now - since))
    }

    fn is_settling(&self, now: Instant) -> bool {
        self.back_since.is_some_and(|back| now - back < SETTLING)
    }
}

impl Reachability {
    /// A request got an answer, whatever it was.
    pub(crate) fn answered(&self) {
        let change = self.state.lock().answered(Instant::now());
        if let Some(Change::Back(away)) = change {
            tracing::info!(away_seconds = away.as_secs(), "API server answers again");
        }
    }

    /// Whether the server has come back only just now: what it denies may be what it has not loaded yet.
    pub(crate) fn is_settling(&self) -> bool {
        self.state.lock().is_settling(Instant::now())
    }

    /// A request got none.
    pub(crate) fn failed(&self, error: &(dyn std::error::Error + 'static)) {
        let change = self.state.lock().failed(Instant::now());
        match change {
            Some(Change::Lost) => {
                tracing::warn!(error, "API server does not answer; trying again until it does");
            }
            Some(Change::StillLost(away)) => {
                tracing::warn!(error, away_seconds = away.as_secs(), "API server still does not answer");
            }
            Some(Change::Back(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_server_is_reported_once() {
        let mut state = State::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(state.answered(at(0)), None);
        assert_eq!(state.failed(at(1)), Some(Change::Lost));
        assert_eq!(state.failed(at(2)), None);
        assert_eq!(state.failed(at(60)), None);
        assert_eq!(state.failed(at(61)), Some(Change::StillLost(Duration::from_secs(60))));
        assert_eq!(state.failed(at(62)), None);
        assert_eq!(state.answered(at(70)), Some(Change::Back(Duration::from_secs(69))));
        assert_eq!(state.answered(at(71)), None);
    }

    #[test]
    fn a_server_settles_for_a_while_after_it_came_back() {
        let mut state = State::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!state.is_settling(at(0)));
        state.failed(at(1));
        state.answered(at(2));
        assert!(state.is_settling(at(16)));
        assert!(!state.is_settling(at(17)));
    }
}
