//! Takes events out of the lane and writes them, a few at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::correlator::{Correlated, EventCorrelator, TokenBucket, Write};
use super::counts::Counts;
use super::lane::{Lane, Taken};
use super::{EVENT_QPS, Event, EventType, Regarding};
use crate::api::ApiResource;
use crate::client::{ApiClient, Error};

/// How many writes are in flight at most, as in client-go.
pub(super) const WRITES_AT_ONCE: usize = 8;
/// How often a write is tried while the server is unreachable, and how long to wait in between.
const TRIES: u32 = 12;
pub(super) const RETRY: Duration = Duration::from_secs(10);
/// How long a Normal event waits for empty queues, and how often the queues are checked meanwhile.
pub(super) const HELD_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The longest note that the API server accepts, in bytes.
pub(super) const NOTE_MAX: usize = 1024;
/// How long the sink sleeps when nothing is due.
const LONG: Duration = Duration::from_secs(3600);

const EVENTS: ApiResource = ApiResource::new("events.k8s.io", "v1", "Event", "events");

/// Writes events; its owner runs it.
pub struct EventSink {
    lane: Arc<Lane>,
    counts: Arc<Counts>,
    client: ApiClient,
    /// The reporting instance.
    instance: String,
    correlator: EventCorrelator,
    rate: TokenBucket,
    /// Whether keys are queued.
    is_busy: Box<dyn Fn() -> bool + Send + Sync>,
    /// Writes of series that are due.
    series: Vec<Request>,
}

/// One request, with everything that a retry needs.
#[derive(Debug)]
struct Request {
    write: Write,
    body: Value,
    /// The event that the request is about; `None` for a series that has ended.
    event: Option<Event>,
    is_patch: bool,
}

type Writes = FuturesUnordered<BoxFuture<'static, (Request, Result<(), Error>)>>;

// === impl EventSink ===

impl EventSink {
    pub(super) fn new(lane: Arc<Lane>, counts: Arc<Counts>, client: ApiClient, instance: String) -> Self {
        Self {
            lane,
            counts,
            client,
            instance,
            correlator: EventCorrelator::new(),
            rate: rate(EVENT_QPS),
            is_busy: Box::new(|| false),
            series: Vec::new(),
        }
    }

    /// Sets the rate to `qps` events per second, after a burst of twice that.
    ///
    /// # Panics
    /// When `qps` is zero.
    #[must_use]
    pub fn with_qps(self, qps: u32) -> Self {
        assert!(qps > 0, "the rate of events must be above zero");
        Self { rate: rate(qps), ..self }
    }

    /// Makes Normal events wait while `is_busy` returns true, 30 s at most.
    #[must_use]
    pub fn waits_while(self, is_busy: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { is_busy: Box::new(is_busy), ..self }
    }

    /// Writes events until `shutdown`, then the buffered ones, with one try each and without the rate limit.
    ///
    /// # Cancel safety
    /// Not cancel-safe: end it by the token.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut writes = Writes::new();
        loop {
            let is_stopping = shutdown.is_cancelled();
            if is_stopping {
                self.lane.close();
            }
            let wait = self.begin_writes(&mut writes, &shutdown);
            if is_stopping && writes.is_empty() {
                self.counts.log_due(true);
                return;
            }
            let log_due = self.counts.log_due(false).map_or(LONG, |due| due - Instant::now());
            let lane = self.lane.clone();
            tokio::select! {
                biased;
                Some((request, outcome)) = writes.next() => self.ended(request, outcome),
                () = shutdown.cancelled(), if !is_stopping => {}
                () = lane.changed() => {}
                () = tokio::time::sleep(wait.min(log_due)) => {}
            }
        }
    }

    /// Starts the writes that are allowed now; returns how soon to check again if nothing else happens.
    fn begin_writes(&mut self, writes: &mut Writes, shutdown: &CancellationToken) -> Duration {
        let is_stopping = shutdown.is_cancelled();
        while writes.len() < WRITES_AT_ONCE {
            let wait = self.rate.wait();
            if !wait.is_zero() && !is_stopping {
                return wait;
            }
            let request = match self.next_request(is_stopping) {
                Ok(request) => request,
                Err(wait) => return wait,
            };
            self.rate.take();
            writes.push(Box::pin(write(self.client.clone(), request, shutdown.clone())));
        }
        LONG
    }

    /// Returns the next request, or how soon to check again if there is none.
    fn next_request(&mut self, is_stopping: bool) -> Result<Request, Duration> {
        loop {
            let is_busy = &self.is_busy;
            let may_go = |recorded: Instant| is_stopping || recorded.elapsed() >= HELD_MAX || !is_busy();
            let taken = self.lane.take(may_go);
            if let Taken::Event(event) = taken {
                if let Some(request) = self.correlate(*event) {
                    return Ok(request);
                }
                continue;
            }
            let is_held = matches!(taken, Taken::Held);
            if let Some(request) = self.series.pop() {
                return Ok(request);
            }
            let over = self.correlator.next_over(is_stopping);
            return over.map(|write| Request::series(write, None)).ok_or_else(|| {
                let next = self.correlator.next_look().map_or(LONG, |at| at - Instant::now());
                if is_held { LOOK_EVERY.min(next) } else { next }
            });
        }
    }

    fn correlate(&mut self, event: Event) -> Option<Request> {
        match self.correlator.correlate(&event) {
            Correlated::Create(write) => {
                let body = self.body(&event, &write);
                Some(Request { write, body, event: Some(event), is_patch: false })
            }
            Correlated::Patch(write) => Some(Request::series(write, Some(event))),
            Correlated::Counted => None,
            Correlated::Spam => {
                self.counts.dropped("too many events about one object");
                None
            }
        }
    }

    fn ended(&mut self, request: Request, outcome: Result<(), Error>) {
        let Request { write, event, is_patch, .. } = request;
        match outcome {
            Ok(()) => {
                self.counts.written();
                let next = self.correlator.written(&write);
                self.series.extend(next.map(|write| Request::series(write, event)));
            }
            Err(error) if is_patch && error.is_not_found() => {
                // The first event of the series has expired: this event starts another.
                self.correlator.failed(&write);
                let anew = event.and_then(|event| self.correlate(event));
                self.series.extend(anew);
            }
            Err(error) => {
                self.correlator.failed(&write);
                self.counts.failed(write.reason, &error);
            }
        }
    }

    fn body(&self, event: &Event, write: &Write) -> Value {
        let Regarding { api_version, kind, name, uid, resource_version, .. } = &event.regarding;
        json!({
            "apiVersion": EVENTS.api_version(),
            "kind": EVENTS.kind,
            "metadata": {"name": write.name, "namespace": write.namespace},
            "eventTime": format!("{:.6}", event.time),
            "reportingController": self.client.manager(),
            "reportingInstance": self.instance,
            "type": match event.event_type { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "reason": event.reason,
            "action": event.action,
            "note": cut(&event.note),
            "regarding": {
                "apiVersion": api_version,
                "kind": kind,
                "namespace": event.regarding.namespace,
                "name": name,
                "uid": uid,
                "resourceVersion": resource_version,
            },
        })
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSink").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Request {
    fn series(write: Write, event: Option<Event>) -> Self {
        let last = format!("{:.6}", write.last_observed);
        let body = json!({"series": {"count": write.count, "lastObservedTime": last}});
        Self { write, body, event, is_patch: true }
    }

    async fn send(&self, client: &ApiClient) -> Result<(), Error> {
        let Write { namespace, name, .. } = &self.write;
        if self.is_patch {
            client.patch_event(&EVENTS, namespace, name, &self.body).await
        } else {
            client.create_event(&EVENTS, namespace, &self.body).await
        }
    }
}

async fn write(
    client: ApiClient,
    request: Request,
    shutdown: CancellationToken,
) -> (Request, Result<(), Error>) {
    for attempt in 1.. {
        let Err(error) = request.send(&client).await else { break };
        if error.is_already_exists() && attempt > 1 {
            break; // An earlier try succeeded, and only its response was lost.
        }
        if !error.is_connection() || attempt == TRIES || shutdown.is_cancelled() {
            return (request, Err(error));
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(RETRY) => {}
        }
    }
    (request, Ok(()))
}

fn rate(qps: u32) -> TokenBucket {
    TokenBucket::new(Duration::from_secs(1) / qps, 2.0 * f64::from(qps))
}

pub(super) fn cut(note: &str) -> &str {
    let end = (0..=NOTE_MAX.min(note.len())).rev().find(|&i| note.is_char_boundary(i)).unwrap_or(0);
    &note[..end]
}
