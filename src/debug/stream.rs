//! `/debug/stream`: snapshots of the process as server-sent events, for the page.
//!
//! ```text
//! Process ──(pulled, every 100 ms)──▶ Stream: one snapshot for all viewers ─▶ body of each response ─▶ EventSource
//! ```
//!
//! A response asks for the next snapshot only when its client has read the last one, so nothing is kept for a slow
//! client, and there is no task.
//!
//! # Guarantees
//! - A viewer gets a snapshot at once, and at most ten a second (test: `viewer_gets_at_most_ten_snapshots_a_second`)
//! - Nothing is read from the process while nobody looks (test: `nothing_is_read_while_nobody_looks`)
//! - A slow viewer gets the newest snapshot, and several share one (test: `slow_viewer_gets_the_newest_snapshot`)
//! - At most [`VIEWERS`] look at once (test: `viewers_are_limited`)

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior};

use super::process::Process;
use crate::server::{Answer, Page};

/// The time between two snapshots of a viewer.
const PERIOD: Duration = Duration::from_millis(100);
/// The number of responses at once, well below that of the server's connections.
pub(super) const VIEWERS: usize = 16;
/// The number of keys of each queue in a snapshot: all lanes, and some that wait.
const KEYS: usize = 48;

/// The snapshots for all viewers; see the module.
pub(super) struct Stream {
    process: Arc<Process>,
    viewers: Arc<Semaphore>,
    newest: Mutex<Option<(Instant, Bytes)>>,
}

// === impl Stream ===

impl Stream {
    pub(super) fn new(process: Arc<Process>) -> Arc<Self> {
        let viewers = Arc::new(Semaphore::new(VIEWERS));
        Arc::new(Self { process, viewers, newest: Mutex::new(None) })
    }

    /// Returns a response that ends with its client.
    pub(super) fn open(self: &Arc<Self>) -> Result<Answer, Page> {
        let full = || Page::text(503, "503: too many viewers; close another page\n");
        let viewer = self.viewers.clone().try_acquire_owned().map_err(|_| full())?;
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let events = futures_util::stream::unfold((self.clone(), ticks, viewer), async |mut viewer| {
            viewer.1.tick().await;
            let event = viewer.0.newest();
            Some((Ok::<_, Infallible>(Frame::data(event)), viewer))
        });
        let mut response = Response::new(StreamBody::new(events).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    /// Returns the newest snapshot as an event, which a viewer just before may have caused.
    fn newest(&self) -> Bytes {
        let mut newest = self.newest.lock();
        if let Some((at, event)) = &*newest
            && at.elapsed() < PERIOD / 2
        {
            return event.clone();
        }
        // Numbers, names and booleans always have a JSON form.
        let snapshot = serde_json::to_string(&self.process.snapshot(KEYS)).unwrap_or_default();
        let event = Bytes::from(format!("retry: 1000\ndata: {snapshot}\n\n"));
        *newest = Some((Instant::now(), event.clone()));
        event
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use serde_json::Value;

    use super::super::recorder::Recorder;
    use super::*;
    use crate::client::Clock;

    /// Returns a stream of an empty process, and how often it was read.
    fn stream() -> (Arc<Stream>, Arc<AtomicUsize>) {
        let (clock, reads) = (Clock::system(), Arc::<AtomicUsize>::default());
        let count = reads.clone();
        let caches = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        };
        let process = Process {
            controllers: Vec::new(),
            caches: Box::new(caches),
            recorder: Arc::new(Recorder::new(clock)),
            leadership: None,
            shards: None,
            clock,
            started: Instant::now(),
            switches: None,
        };
        (Stream::new(Arc::new(process)), reads)
    }

    async fn next(answer: &mut Answer) -> Value {
        let event = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        let event = String::from_utf8(event.to_vec()).unwrap();
        let data = event.strip_prefix("retry: 1000\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
        serde_json::from_str(data.unwrap_or_else(|| panic!("{event:?}"))).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn viewer_gets_at_most_ten_snapshots_a_second() {
        let (stream, reads) = stream();
        let mut answer = stream.open().unwrap();
        let started = Instant::now();
        assert_eq!(next(&mut answer).await["uptimeSeconds"], 0.0);
        for _ in 0..20 {
            next(&mut answer).await;
        }
        assert_eq!((started.elapsed(), reads.load(Ordering::Relaxed)), (Duration::from_secs(2), 21));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_read_while_nobody_looks() {
        let (stream, reads) = stream();
        tokio::time::sleep(60 * PERIOD).await;
        let mut answer = stream.open().unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 0);
        next(&mut answer).await;
        drop(answer);
        tokio::time::sleep(60 * PERIOD).await;
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_viewer_gets_the_newest_snapshot() {
        let (stream, reads) = stream();
        let (mut slow, mut other) = (stream.open().unwrap(), stream.open().unwrap());
        next(&mut slow).await;
        for _ in 0..50 {
            next(&mut other).await;
        }
        let before = reads.load(Ordering::Relaxed);
        assert_eq!(next(&mut slow).await["uptimeSeconds"], 4.9);
        assert_eq!(reads.load(Ordering::Relaxed), before, "both see the same snapshot");
        assert!(slow.body_mut().frame().now_or_never().is_none(), "nothing has piled up");
    }

    #[tokio::test(start_paused = true)]
    async fn viewers_are_limited() {
        let (stream, _) = stream();
        let mut viewers: Vec<_> = (0..VIEWERS).map(|_| stream.open().unwrap()).collect();
        assert_eq!(stream.open().unwrap_err().code, 503);
        viewers.pop();
        assert!(stream.open().is_ok());
    }
}
