//! A model of the API server's answers, in virtual time, in front of the embedded server.
//!
//! ```text
//! operator ─▶ operator's processors ─▶ requests in flight (429 beyond) ─▶ server's processors ─▶ latency, webhooks,
//!             failures ─▶ Sim
//! ```
//! A watch counts while it is opened. A pass costs processor time with its first request; without one it is over at once. The model's times are exact on average: tokio's timers fire on whole
//! milliseconds, so a part of a millisecond is waited for with a probability of that size.
//!
//! # Guarantees
//! - Latencies have the median and the 99th percentile that were asked for. (test: `latencies_have_median_and_p99`)
//! - The more requests are in flight, the longer each takes. (test: `latency_grows_with_what_is_in_flight`)
//! - Requests beyond the limit get 429 with Retry-After, as from an overloaded server. (test: `requests_beyond_the_limit_get_429`)
//! - Failures and webhooks hit only the requests that they name. (test: `rules_apply_to_named_requests_only`)
//! - Processor time is shared: requests wait for each other. (test: `requests_share_the_operators_processors`)
//! - So they do on the server, which may share the operator's processors. (test: `busy_server_answers_later`)
//! - A pass costs once, whatever its requests. (test: `first_request_of_a_pass_pays_for_it`)

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio::task;
use tokio::time::Instant;
use tower_service::Service;

use super::load::{Load, Span};
use crate::cache::ObjectName;
use crate::controller::{PassEnd, PassObserver};
use crate::sim::{ConnectionError, InProcessTransport, ReplyBody, Sim};
use crate::workqueue::Reasons;

/// The 99th percentile of the standard normal distribution.
pub(super) const Z99: f64 = 2.326_347_874;

/// A connection through the model; pass it to `kube_client::Client::new`.
#[derive(Clone)]
pub(super) struct ModelTransport {
    inner: InProcessTransport,
    load: Arc<Load>,
    state: Arc<Mutex<ModelState>>,
    began: Instant,
}

/// What the model has counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Requests by verb and code.
    pub(super) requests: BTreeMap<(String, u16), u64>,
    /// The time of all requests together, in seconds: their mean number in flight times the duration.
    pub(super) busy: f64,
    /// The most requests in flight at once.
    pub(super) peak: usize,
    pub(super) in_flight: usize,
    /// Processor time of the operator in seconds.
    pub(super) cpu: f64,
}

struct ModelState {
    rng: fastrand::Rng,
    counts: Counts,
    /// When each processor of the operator is free again.
    free_at: Vec<Instant>,
    /// The same of the server's; none if it shares the operator's.
    server_free_at: Vec<Instant>,
    /// The workers' tasks whose pass has not sent a request yet.
    unpaid: HashSet<task::Id>,
}

/// Tells the model when passes begin.
#[derive(Clone)]
pub(super) struct Passes(Arc<Mutex<ModelState>>);

/// A request's verb and the plural of its resource.
fn classify(request: &http::Request<Body>) -> (&'static str, String) {
    let path: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
    let path = match path.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    let path = match path {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    let is_watch =
        request.uri().query().is_some_and(|query| query.contains("watch=1") || query.contains("watch=true"));
    let verb = match (request.method().as_str(), path.len()) {
        ("GET", _) if is_watch => "watch",
        ("GET", 0 | 1) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", 1) => "deletecollection",
        ("DELETE", _) => "delete",
        _ => "other",
    };
    (verb, path.first().map(|plural| (*plural).to_owned()).unwrap_or_default())
}

/// Draws a duration with this median and 99th percentile.
fn draw(rng: &mut fastrand::Rng, median: Span, p99: Option<Span>) -> Duration {
    let Some(p99) = p99 else { return median.0 };
    let sigma = (p99.0.as_secs_f64() / median.0.as_secs_f64()).ln() / Z99;
    // Box and Muller: two uniform numbers make a normal one.
    let (a, b) = (1.0 - rng.f64(), rng.f64());
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    Duration::from_secs_f64(median.0.as_secs_f64() * (sigma * normal).exp())
}

/// Keeps the processor that is free first for this time, and returns when that will be over, from now.
fn occupy(free_at: &mut [Instant], cost: Duration) -> Duration {
    let now = Instant::now();
    let Some(first) = free_at.iter_mut().min() else { return cost };
    *first = (*first).max(now) + cost;
    *first - now
}

/// Rounds to whole milliseconds, at random so that the mean stays.
fn to_whole_millis(rng: &mut fastrand::Rng, time: Duration) -> Duration {
    let millis = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let rest = (time - millis).as_secs_f64() * 1000.0;
    if rng.f64() < rest { millis + Duration::from_millis(1) } else { millis }
}

// === impl ModelTransport ===

impl ModelTransport {
    /// Connects `user` to the server, through the model of `load`; its periods begin now.
    pub(super) fn new(sim: &Sim, user: &str, load: Arc<Load>, seed: u64) -> Self {
        let began = Instant::now();
        let free_at = vec![began; load.operator.cpus];
        let (rng, counts) = (fastrand::Rng::with_seed(seed), Counts::default());
        let server_free_at = vec![began; load.server.cpus];
        let state = ModelState { rng, counts, free_at, server_free_at, unpaid: HashSet::new() };
        Self { inner: InProcessTransport::new(sim, user), load, state: Arc::new(Mutex::new(state)), began }
    }

    /// Returns the observer that the operator has to tell of its passes.
    pub(super) fn passes(&self) -> Passes {
        Passes(self.state.clone())
    }

    /// Returns what was counted so far.
    pub(super) fn counts(&self) -> Counts {
        self.state.lock().counts.clone()
    }

    async fn answer(mut self, request: http::Request<Body>) -> Result<Response<ReplyBody>, ConnectionError> {
        let (verb, resource) = classify(&request);
        self.compute().await;
        let Some(under_way) = self.begin() else {
            self.count(verb, 429);
            return Ok(self.overloaded());
        };
        self.serve().await;
        tokio::time::sleep(self.latency(verb, &resource)).await;
        let answer = match self.failure(verb, &resource) {
            Some(code) => Ok(refusal(code)),
            None => self.inner.call(request).await,
        };
        drop(under_way);
        self.count(verb, answer.as_ref().map_or(0, |answer| answer.status().as_u16()));
        answer
    }

    /// Waits for a processor, and keeps it for the time that a request, and its pass, cost.
    async fn compute(&self) {
        let operator = self.load.operator;
        let pause = {
            let ModelState { rng, counts, free_at, unpaid, .. } = &mut *self.state.lock();
            let is_first = task::try_id().is_some_and(|task| unpaid.remove(&task));
            let of_pass = if is_first { operator.cpu_per_pass.0 } else { Duration::ZERO };
            let cost = operator.cpu_per_request.0 + of_pass;
            if cost.is_zero() {
                return;
            }
            counts.cpu += cost.as_secs_f64();
            to_whole_millis(rng, occupy(free_at, cost))
        };
        tokio::time::sleep(pause).await;
    }

    /// Waits for a processor of the server, and keeps it for the time that a request costs there.
    async fn serve(&self) {
        let cost = self.load.server.cpu_per_request.0;
        if cost.is_zero() {
            return;
        }
        let pause = {
            let ModelState { rng, free_at, server_free_at, .. } = &mut *self.state.lock();
            let processors = if server_free_at.is_empty() { free_at } else { server_free_at };
            to_whole_millis(rng, occupy(processors, cost))
        };
        tokio::time::sleep(pause).await;
    }

    /// Counts a request as in flight until the guard is dropped; `None` if there are too many.
    fn begin(&self) -> Option<impl Drop + use<>> {
        struct InFlight(Arc<Mutex<ModelState>>, Instant);
        impl Drop for InFlight {
            fn drop(&mut self) {
                let counts = &mut self.0.lock().counts;
                counts.in_flight -= 1;
                counts.busy += self.1.elapsed().as_secs_f64();
            }
        }
        let counts = &mut self.state.lock().counts;
        if counts.in_flight >= self.load.server.requests_in_flight {
            return None;
        }
        counts.in_flight += 1;
        counts.peak = counts.peak.max(counts.in_flight);
        Some(InFlight(self.state.clone(), Instant::now()))
    }

    fn latency(&self, verb: &str, resource: &str) -> Duration {
        let ModelState { rng, counts, .. } = &mut *self.state.lock();
        let server = &self.load.server;
        let rule = server.latency.iter().find(|rule| rule.which.matches(verb, resource));
        let mut time = rule.map(|rule| draw(rng, rule.median, rule.p99)).unwrap_or_default();
        if server.latency_growth > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let in_flight = counts.in_flight.max(1) as f64;
            time = time.mul_f64(in_flight.powf(server.latency_growth));
        }
        if matches!(verb, "create" | "update" | "patch" | "delete") {
            let webhooks = server.webhooks.iter().filter(|webhook| webhook.which.matches(verb, resource));
            time += webhooks.map(|webhook| webhook.takes.0).sum::<Duration>();
        }
        to_whole_millis(rng, time)
    }

    /// Draws whether a request fails, and with which code.
    fn failure(&self, verb: &str, resource: &str) -> Option<StatusCode> {
        let rng = &mut self.state.lock().rng;
        let now = self.began.elapsed();
        let mut rules = self.load.server.failures.iter().filter(|rule| {
            let is_over = rule.r#for.is_some_and(|length| now >= rule.from.0 + length.0);
            rule.which.matches(verb, resource) && now >= rule.from.0 && !is_over
        });
        let rule = rules.find(|rule| rng.f64() < rule.share)?;
        StatusCode::from_u16(rule.code).ok()
    }

    fn count(&self, verb: &str, code: u16) {
        *self.state.lock().counts.requests.entry((verb.to_owned(), code)).or_default() += 1;
    }

    /// Answers as a server that has too many requests: it has no resource yet, so this is no `Status`.
    fn overloaded(&self) -> Response<ReplyBody> {
        let text = "Too many requests, please try again later.";
        let mut response = answer(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", text.into());
        let seconds = self.load.server.retry_after.0.as_secs();
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        response
    }
}

/// A failure that the load asks for.
fn refusal(code: StatusCode) -> Response<ReplyBody> {
    let reason = if code == StatusCode::TOO_MANY_REQUESTS { "TooManyRequests" } else { "InternalError" };
    let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the server failed, as the load says", "reason": reason, "code": code.as_u16()});
    answer(code, "application/json", status.to_string().into())
}

fn answer(code: StatusCode, media: &'static str, body: Bytes) -> Response<ReplyBody> {
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

// === impl Passes ===

impl PassObserver for Passes {
    fn began(&self, _: usize, _: &ObjectName, _: &Reasons, _: i32, _: Duration) {
        if let Some(task) = task::try_id() {
            self.0.lock().unpaid.insert(task);
        }
    }

    fn held(&self, _: &ObjectName) {}

    fn ended(&self, _: usize, _: &ObjectName, _: PassEnd) {
        if let Some(task) = task::try_id() {
            self.0.lock().unpaid.remove(&task);
        }
    }
}

impl fmt::Debug for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passes")
    }
}

impl Service<http::Request<Body>> for ModelTransport {
    type Response = Response<ReplyBody>;
    type Error = ConnectionError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::super::load::{Failures, Latency, Operator, Server, Webhook, Which, millis};
    use super::*;
    use crate::sim::Settings;

    fn model(server: Server, operator: Operator) -> ModelTransport {
        let load = Load { server, operator, ..Load::default() };
        ModelTransport::new(&Sim::new(Settings::default()), "operator", Arc::new(load), 1)
    }

    /// An operator that costs nothing, on two processors.
    fn free() -> Operator {
        Operator { cpu_per_request: millis(0), cpu_per_pass: millis(0), cpus: 2 }
    }

    fn constant(median: u64) -> Vec<Latency> {
        vec![Latency { which: Which::default(), median: millis(median), p99: None }]
    }

    fn request(method: &str, uri: &str) -> http::Request<Body> {
        http::Request::builder().method(method).uri(uri).body(Body::empty()).unwrap()
    }

    async fn get(model: &ModelTransport, uri: &str) -> (u16, Duration) {
        let began = Instant::now();
        let answer = model.clone().call(request("GET", uri)).await.unwrap();
        (answer.status().as_u16(), began.elapsed())
    }

    #[test]
    fn requests_are_classified_as_the_server_does() {
        let cases = [
            ("GET", "/api/v1/pods?watch=true", ("watch", "pods")),
            ("GET", "/api/v1/namespaces/default/pods?limit=5", ("list", "pods")),
            ("GET", "/apis/apps/v1/namespaces/default/deployments/a", ("get", "deployments")),
            ("PATCH", "/apis/apps/v1/namespaces/default/deployments/a/status", ("patch", "deployments")),
            ("GET", "/api/v1/namespaces/default", ("get", "namespaces")),
            ("POST", "/api/v1/namespaces/default/pods", ("create", "pods")),
        ];
        for (method, uri, (verb, resource)) in cases {
            assert_eq!(classify(&request(method, uri)), (verb, resource.to_owned()), "{method} {uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn latencies_have_median_and_p99() {
        let latency = Latency { which: Which::default(), median: millis(20), p99: Some(millis(100)) };
        let model = model(Server { latency: vec![latency], ..Server::default() }, Operator::default());
        let mut times: Vec<Duration> = (0..20_000).map(|_| model.latency("get", "pods")).collect();
        times.sort();
        let near = |time: Duration, wanted: f64| (time.as_secs_f64() / wanted - 1.0).abs() < 0.1;
        assert!(
            near(times[10_000], 0.02) && near(times[19_800], 0.1),
            "{:?} {:?}",
            times[10_000],
            times[19_800]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_limit_get_429() {
        let server = Server { latency: constant(50), requests_in_flight: 2, ..Server::default() };
        let model = model(server, free());
        let mut requests = JoinSet::new();
        for _ in 0..3 {
            let mut model = model.clone();
            requests.spawn(
                async move { model.call(request("GET", "/api/v1/namespaces/default")).await.unwrap() },
            );
        }
        let answers = requests.join_all().await;
        let refused: Vec<_> = answers.iter().filter(|answer| answer.status() == 429).collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].headers()["retry-after"], "1");
        assert_eq!(refused[0].headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!((model.counts().peak, model.counts().in_flight), (2, 0));
        assert!((model.counts().busy - 0.1).abs() < 1e-9);
    }

    #[tokio::test(start_paused = true)]
    async fn rules_apply_to_named_requests_only() {
        let which =
            |verb: &str, resource: &str| Which { verb: verb.to_owned(), resource: resource.to_owned() };
        let failures =
            Failures { which: which("list", "pods"), share: 1.0, code: 503, from: millis(0), r#for: None };
        let webhook = Webhook { which: which("", "pods"), takes: millis(1000) };
        let server = Server {
            latency: constant(5),
            failures: vec![failures],
            webhooks: vec![webhook],
            ..Server::default()
        };
        let model = model(server, free());
        let ms = Duration::from_millis;
        assert_eq!(get(&model, "/api/v1/pods").await, (503, ms(5)));
        assert_eq!(get(&model, "/api/v1/services").await, (200, ms(5)));
        assert_eq!(model.latency("create", "pods"), ms(1005));
        assert_eq!(model.latency("create", "services"), ms(5));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_share_the_operators_processors() {
        let server = Server { latency: Vec::new(), ..Server::default() };
        let model = model(server, Operator { cpu_per_request: millis(10), ..free() });
        let began = Instant::now();
        let mut requests = JoinSet::new();
        for _ in 0..10 {
            let mut model = model.clone();
            requests.spawn(async move { model.call(request("GET", "/api/v1/pods")).await.unwrap() });
        }
        requests.join_all().await;
        assert_eq!(began.elapsed(), Duration::from_millis(50));
        assert!((model.counts().cpu - 0.1).abs() < 1e-9);
    }

    #[tokio::test(start_paused = true)]
    async fn busy_server_answers_later() {
        let took = async |cpus, operator| {
            let server =
                Server { latency: constant(5), cpu_per_request: millis(10), cpus, ..Server::default() };
            let model = model(server, operator);
            let (began, mut requests) = (Instant::now(), JoinSet::new());
            for _ in 0..8 {
                let mut model = model.clone();
                requests.spawn(async move { model.call(request("GET", "/api/v1/pods")).await.unwrap() });
            }
            requests.join_all().await;
            began.elapsed()
        };
        let ms = Duration::from_millis;
        assert_eq!(took(4, free()).await, ms(25), "two rounds on four processors");
        assert_eq!(took(0, free()).await, ms(45), "four on the operator's two");
        let busy = Operator { cpu_per_request: millis(10), ..free() };
        assert_eq!(took(0, busy).await, ms(85), "which it needs for its own work, too");
        assert_eq!(took(8, busy).await, ms(55), "here it does not share them");
    }

    #[tokio::test(start_paused = true)]
    async fn latency_grows_with_what_is_in_flight() {
        let server = Server { latency: constant(10), latency_growth: 0.5, ..Server::default() };
        let model = model(server, free());
        let mut requests = JoinSet::new();
        for _ in 0..4 {
            let model = model.clone();
            requests.spawn(async move { get(&model, "/api/v1/pods").await.1.as_millis() });
        }
        let mut took = requests.join_all().await;
        took.sort_unstable();
        // 10 ms times the roots of 1 to 4, in whole milliseconds.
        assert_eq!((took[0], took[3]), (10, 20), "{took:?}");
        assert!((14..=15).contains(&took[1]) && (17..=18).contains(&took[2]), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn first_request_of_a_pass_pays_for_it() {
        let server = Server { latency: Vec::new(), ..Server::default() };
        let model = model(server, Operator { cpu_per_pass: millis(10), ..free() });
        let (passes, key, ms) = (model.passes(), "ns/a".parse().unwrap(), Duration::from_millis);
        let mut worker = JoinSet::new();
        worker.spawn(async move {
            let mut took = vec![get(&model, "/api/v1/pods").await.1];
            for _ in 0..2 {
                passes.began(0, &key, &Reasons::default(), 0, Duration::ZERO);
                took.push(get(&model, "/api/v1/pods").await.1);
                took.push(get(&model, "/api/v1/pods").await.1);
            }
            took
        });
        assert_eq!(worker.join_all().await, [[ms(0), ms(10), ms(0), ms(10), ms(0)]]);
    }
}
