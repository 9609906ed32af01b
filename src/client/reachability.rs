//! Tracks whether the API server answers, and logs its loss and its return.

use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::Error;

/// How long a returning server may deny roles and kinds that it has not loaded yet.
const SETTLING: Duration = Duration::from_secs(15);
/// How often the log repeats that the server does not answer.
const REMINDER: Duration = Duration::from_secs(60);
/// How long a server must have been lost for its return to end the waits of others: failures of single connections
/// must not undo their backoff.
const AWAY_MIN: Duration = Duration::from_secs(3);

/// Tracks whether requests get through. All requests of a process report here, so that a lost server
/// is one line in the log instead of one per kind and retry.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    state: Mutex<Contact>,
    /// Wakes who waits for a lost server.
    back: Notify,
}

#[derive(Debug, Default)]
struct Contact {
    /// Since when requests fail; `None` while they get through.
    lost_since: Option<Instant>,
    last_line: Option<Instant>,
    /// When a request was answered last.
    last_answer: Option<Instant>,
    /// When the server last came back.
    back_since: Option<Instant>,
    /// Since when no request was served; `None` while they are.
    unserved_since: Option<Instant>,
    /// When the server last served a request after it had been lost for a while.
    served_again: Option<Instant>,
    /// When the log last said that the server refuses the credentials; `None` while it accepts them.
    refused_line: Option<Instant>,
}

/// A change worth a log line.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Lost,
    StillLost(Duration),
    Back(Duration),
}

impl Contact {
    fn failed(&mut self, now: Instant) -> Option<Change> {
        self.unserved_since.get_or_insert(now);
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

    /// Records that a request was not answered. The server is lost only if no other request was answered meanwhile.
    fn silent(&mut self, sent: Instant, now: Instant) -> Option<Change> {
        if self.last_answer.is_some_and(|answer| answer >= sent) {
            return None;
        }
        self.failed(now)
    }

    fn answered(&mut self, now: Instant) -> Option<Change> {
        self.last_answer = Some(now);
        let since = self.lost_since.take()?;
        self.back_since = Some(now);
        Some(Change::Back(now - since))
    }

    /// Records that a request was served; returns whether that ends an outage.
    fn served(&mut self, now: Instant) -> bool {
        let ends_outage = self.unserved_since.take().is_some_and(|since| now - since >= AWAY_MIN);
        if ends_outage {
            self.served_again = Some(now);
        }
        ends_outage
    }

    /// Records whether the server refused the credentials of a request; returns whether that is worth a log line.
    fn refused(&mut self, is_refused: bool, now: Instant) -> bool {
        let is_news = is_refused && self.refused_line.is_none_or(|last| now - last >= REMINDER);
        if is_news {
            self.refused_line = Some(now);
        } else if !is_refused {
            self.refused_line = None;
        }
        is_news
    }

    fn is_settling(&self, now: Instant) -> bool {
        self.back_since.is_some_and(|back| now - back < SETTLING)
    }
}

impl Reachability {
    /// Records that a request was answered, with this status code.
    pub(crate) fn answered(&self, code: u16) {
        let now = Instant::now();
        let is_served = code != 429 && code < 500;
        let (change, ends_outage, is_refused) = {
            let state = &mut *self.state.lock();
            (state.answered(now), is_served && state.served(now), state.refused(code == 401, now))
        };
        if is_refused {
            tracing::warn!(
                remedy = "renew the token or certificate of the kubeconfig; in a Pod, check that its service account exists",
                "API server refuses the credentials (401); retrying with those that the kubeconfig or Pod has then"
            );
        }
        if let Some(Change::Back(away)) = change {
            tracing::info!(away_seconds = away.as_secs(), "API server answers again");
        }
        if ends_outage {
            self.back.notify_waiters();
        }
    }

    /// Waits until a server that was lost for at least three seconds serves a request: at once, if that has happened
    /// since `asked`. An overloaded server (429, 5xx) serves none.
    pub(crate) async fn is_back(&self, asked: Instant) {
        let mut back = pin!(self.back.notified());
        // From here on no notification is missed.
        back.as_mut().enable();
        let is_back = self.state.lock().served_again.is_some_and(|at| at >= asked);
        if !is_back {
            back.await;
        }
    }

    /// Whether the server returned only moments ago, and may deny what it has not loaded yet.
    pub(crate) fn is_settling(&self) -> bool {
        self.state.lock().is_settling(Instant::now())
    }

    /// Records that the connection of a request failed.
    pub(crate) fn failed(&self, error: &(dyn std::error::Error + 'static)) {
        let change = self.state.lock().failed(Instant::now());
        log(change.as_ref(), error);
    }

    /// Records that a request got no answer in this time, and returns the error: one object that hangs is no lost server.
    pub(crate) fn timed_out(&self, request: String, after: Duration) -> Error {
        let error = Error::Timeout { request, after };
        let now = Instant::now();
        let change = self.state.lock().silent(now.checked_sub(after).unwrap_or(now), now);
        log(change.as_ref(), &error);
        error
    }
}

fn log(change: Option<&Change>, error: &(dyn std::error::Error + 'static)) {
    match change {
        Some(Change::Lost) => {
            tracing::warn!(error, "API server does not answer; retrying until it does");
        }
        Some(Change::StillLost(away)) => {
            tracing::warn!(error, away_seconds = away.as_secs(), "API server still does not answer");
        }
        Some(Change::Back(_)) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_lost_server_is_reported_once() {
        let mut state = Contact::default();
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
    fn refused_credentials_are_reported_once_a_minute() {
        let reachability = Reachability::default();
        let log = crate::testing::capture_log();
        let reported = |code| {
            let before = log.lines().len();
            reachability.answered(code);
            log.lines().len() - before
        };
        assert_eq!([200, 401, 401, 200, 401].map(reported), [0, 1, 0, 0, 1]);
        assert!(log.lines()[0].starts_with("WARN API server refuses the credentials (401)"));
        let mut state = Contact::default();
        let start = Instant::now();
        let refused = [0, 59, 60].map(|seconds| state.refused(true, start + Duration::from_secs(seconds)));
        assert_eq!(refused, [true, false, true]);
    }

    #[test]
    fn one_silent_request_is_not_a_lost_server() {
        let mut state = Contact::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        state.answered(at(10));
        assert_eq!(state.silent(at(5), at(35)), None, "another request was answered meanwhile");
        state.answered(at(36));
        assert!(!state.is_settling(at(37)), "so nothing has come back");
        assert_eq!(state.silent(at(40), at(70)), Some(Change::Lost), "silence on all");
        assert_eq!(state.answered(at(71)), Some(Change::Back(Duration::from_secs(1))));
        assert!(state.is_settling(at(72)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_server_is_back() {
        let reachability = Reachability::default();
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let mut waits = Box::pin(reachability.is_back(Instant::now()));
        assert_eq!(waits.as_mut().now_or_never(), None);
        let almost = AWAY_MIN - Duration::from_millis(1);
        for (away, code, ended) in
            [(almost, 200, None), (AWAY_MIN, 429, None), (almost, 503, None), (AWAY_MIN, 403, Some(()))]
        {
            reachability.failed(&refused);
            tokio::time::advance(away).await;
            reachability.answered(code);
            assert_eq!(waits.as_mut().now_or_never(), ended, "{code} after {away:?}");
        }
    }

    /// A request that was on its way when the server came back fails after that.
    #[tokio::test(start_paused = true)]
    async fn a_return_before_the_wait_is_not_missed() {
        let reachability = Reachability::default();
        let asked = Instant::now();
        reachability.failed(&std::io::Error::from(std::io::ErrorKind::TimedOut));
        tokio::time::advance(AWAY_MIN).await;
        reachability.answered(200);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(reachability.is_back(asked).now_or_never(), Some(()));
        assert_eq!(reachability.is_back(Instant::now()).now_or_never(), None);
    }

    #[test]
    fn recovered_server_counts_as_settling_for_fifteen_seconds() {
        let mut state = Contact::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!state.is_settling(at(0)));
        state.failed(at(1));
        state.answered(at(2));
        assert!(state.is_settling(at(16)));
        assert!(!state.is_settling(at(17)));
    }
}
