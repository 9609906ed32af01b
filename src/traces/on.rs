//! The spans themselves.

use std::fmt;
use std::time::Duration;

use futures_util::future::Either;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use opentelemetry::context::{FutureExt as _, WithContext};
use opentelemetry::trace::{Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::SdkTracer;
use tokio::time::Instant;

use super::{Failed, PutOff, Woken};

/// Starts the spans of syncs; the default starts none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<SdkTracer>);

/// What the next sync of a key tells of what came before it.
#[derive(Debug, Default)]
pub(crate) struct Carried(Option<Box<Earlier>>);

#[derive(Debug, Default)]
struct Earlier {
    /// When the event came that woke the key, which has been put off since.
    woken: Option<Instant>,
    times: i64,
    why: &'static str,
    /// The sync that failed, if it was sampled.
    failed: Option<SpanContext>,
}

/// The spans of a sync; none if it is not sampled.
#[derive(Debug)]
pub(crate) struct SyncTrace(Option<Spans>);

#[derive(Debug)]
struct Spans {
    /// From the event to the end of the sync.
    whole: Context,
    sync: Context,
}

/// The span of a request or a hook, if it is part of a sampled sync. Dropping it ends it.
#[derive(Debug, Default)]
pub(crate) struct Scope(Option<Context>);

// === impl Tracer ===

impl Tracer {
    pub(super) fn new(tracer: SdkTracer) -> Self {
        Self(Some(tracer))
    }

    /// Starts the spans of a sync whose key has waited this long since it was last added to the queue.
    pub(crate) fn sync<'a>(
        &self,
        carried: &mut Carried,
        waited: Duration,
        describe: impl FnOnce() -> Woken<'a>,
    ) -> SyncTrace {
        let Some(tracer) = &self.0 else { return SyncTrace(None) };
        let earlier = carried.0.take().unwrap_or_default();
        let (now, waited) =
            (opentelemetry::time::now(), earlier.woken.map_or(waited, |since| since.elapsed()));
        let began = now.checked_sub(waited).unwrap_or(now);
        let mut root =
            tracer.span_builder("sync").with_start_time(began).start_with_context(tracer, &Context::new());
        if !root.span_context().is_sampled() {
            return SyncTrace(None);
        }
        let woken = describe();
        let attributes = attributes(&woken);
        root.update_name(woken.controller);
        root.set_attributes(attributes.iter().cloned());
        if let Some(failed) = earlier.failed {
            root.add_link(failed, vec![KeyValue::new("windlass.link", "failed before")]);
        }
        // Requests find the tracer here.
        let whole = Context::new().with_value(tracer.clone()).with_span(root);
        let mut wait = tracer.span_builder("wait").with_start_time(began).start_with_context(tracer, &whole);
        if earlier.woken.is_some() {
            wait.set_attribute(KeyValue::new("windlass.put_off", earlier.times));
            wait.set_attribute(KeyValue::new("windlass.put_off.why", earlier.why));
        }
        wait.end_with_timestamp(now);
        let sync = tracer.span_builder("sync").with_start_time(now).with_attributes(attributes);
        let sync = whole.with_span(sync.start_with_context(tracer, &whole));
        SyncTrace(Some(Spans { whole, sync }))
    }
}

fn attributes(woken: &Woken<'_>) -> Vec<KeyValue> {
    let Woken { controller, kind, namespace, name, reasons, failures } = woken;
    let reasons = reasons.iter().cloned().map(StringValue::from).collect();
    let mut attributes = vec![
        KeyValue::new("windlass.controller", *controller),
        KeyValue::new("windlass.kind", (*kind).to_owned()),
        KeyValue::new("windlass.name", (*name).to_owned()),
        KeyValue::new("windlass.reasons", Value::Array(Array::String(reasons))),
        KeyValue::new("windlass.failures", i64::from(*failures)),
    ];
    attributes.extend(namespace.map(|namespace| KeyValue::new("k8s.namespace.name", namespace.to_owned())));
    attributes
}

// === impl Carried ===

impl Carried {
    /// Records that the key is looked at again later, so that its wait goes on.
    pub(crate) fn put_off(&mut self, tracer: &Tracer, put_off: PutOff) {
        if tracer.0.is_none() {
            return;
        }
        let earlier = self.0.get_or_insert_default();
        let now = Instant::now();
        earlier.woken.get_or_insert_with(|| now.checked_sub(put_off.waited).unwrap_or(now));
        earlier.times += 1;
        earlier.why = put_off.why;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

// === impl SyncTrace ===

impl SyncTrace {
    /// Returns the identifier of the trace, for the log.
    pub(crate) fn id(&self) -> Option<String> {
        self.0.as_ref().map(|spans| spans.sync.span().span_context().trace_id().to_string())
    }

    /// Runs the sync; its requests become parts of the trace.
    pub(crate) fn run<F: Future>(&self, sync: F) -> impl Future<Output = F::Output> + use<F> {
        within(self.0.as_ref().map(|spans| &spans.sync), sync)
    }

    /// Ends the spans. A failed sync is remembered for the retry, which links to it.
    pub(crate) fn ended(self, carried: &mut Carried, writes: usize, result: Result<&dyn fmt::Debug, Failed>) {
        let Some(Spans { whole, sync }) = self.0 else { return };
        let span = sync.span();
        span.set_attribute(KeyValue::new("windlass.writes", i64::try_from(writes).unwrap_or(i64::MAX)));
        match result {
            Ok(outcome) => span.set_attribute(KeyValue::new("windlass.outcome", format!("{outcome:?}"))),
            Err(failed) => {
                fail(&sync, failed);
                fail(&whole, failed);
                carried.0.get_or_insert_default().failed = Some(span.span_context().clone());
            }
        }
        span.end();
        whole.span().end();
    }
}

// === impl Scope ===

impl Scope {
    /// Runs the request or hook; its own requests become its children.
    pub(crate) fn run<F: Future>(&self, inner: F) -> impl Future<Output = F::Output> + use<F> {
        within(self.0.as_ref(), inner)
    }

    /// Ends the span.
    pub(crate) fn ended(self, failed: impl FnOnce() -> Option<Failed>) {
        let Some(context) = self.0 else { return };
        if let Some(failed) = failed() {
            fail(&context, failed);
        }
        context.span().end();
    }
}

// === free functions ===

/// Starts the span of a request to the API server, if a sampled sync makes it, and names the span in a header.
pub(crate) fn request<B>(request: &mut Request<B>) -> Scope {
    if !is_traced() {
        return Scope(None);
    }
    let (method, path) = (request.method(), request.uri().path());
    let attributes = vec![
        KeyValue::new("http.request.method", method.to_string()),
        KeyValue::new("url.path", path.to_owned()),
    ];
    let scope = child(request_name(method, path), SpanKind::Client, attributes);
    inject(&scope, request.headers_mut());
    scope
}

/// Starts the span of a call of an `http` task, and names it in a header. The address may be a secret.
#[cfg(feature = "http-tasks")]
pub(crate) fn call(headers: &mut HeaderMap) -> Scope {
    if !is_traced() {
        return Scope(None);
    }
    let attributes = vec![KeyValue::new("http.request.method", "POST")];
    let scope = child("POST".to_owned(), SpanKind::Client, attributes);
    inject(&scope, headers);
    scope
}

/// Starts the span of a hook that the current sync starts.
pub(crate) fn hook(task: &str, hook: &'static str, attempt: i32) -> Scope {
    if !is_traced() {
        return Scope(None);
    }
    let attributes = vec![
        KeyValue::new("windlass.task", task.to_owned()),
        KeyValue::new("windlass.hook", hook),
        KeyValue::new("windlass.attempt", i64::from(attempt)),
    ];
    child("hook".to_owned(), SpanKind::Internal, attributes)
}

/// Records the code of the answer to the current request.
pub(crate) fn answered(code: StatusCode) {
    with_current(|context| {
        let code = i64::from(code.as_u16());
        context.span().set_attribute(KeyValue::new("http.response.status_code", code));
    });
}

/// Records that something happened to the current request.
pub(crate) fn event(name: &'static str) {
    with_current(|context| context.span().add_event(name, Vec::new()));
}

fn is_traced() -> bool {
    Context::map_current(TraceContextExt::has_active_span)
}

fn with_current(tell: impl FnOnce(&Context)) {
    Context::map_current(|context| {
        if context.has_active_span() {
            tell(context);
        }
    });
}

fn child(name: String, kind: SpanKind, attributes: Vec<KeyValue>) -> Scope {
    let parent = Context::current();
    let span = parent.get::<SdkTracer>().map(|tracer| {
        let span = tracer.span_builder(name).with_kind(kind).with_attributes(attributes);
        span.start_with_context(tracer, &parent)
    });
    Scope(span.map(|span| parent.with_span(span)))
}

/// W3C Trace Context.
fn inject(scope: &Scope, headers: &mut HeaderMap) {
    let Some(context) = &scope.0 else { return };
    let span = context.span();
    let of = span.span_context();
    let text = format!("00-{}-{}-{:02x}", of.trace_id(), of.span_id(), of.trace_flags());
    headers.insert("traceparent", HeaderValue::from_str(&text).expect("hexadecimal digits"));
}

fn fail(context: &Context, failed: Failed) {
    let (span, Failed { class, code }) = (context.span(), failed);
    let kind = code.map_or_else(|| class.to_owned(), |code| code.to_string());
    span.set_attribute(KeyValue::new("error.type", kind));
    span.set_status(Status::error(class));
}

/// Polls a future with this context, if there is one, as the current one.
fn within<F: Future>(context: Option<&Context>, inner: F) -> Either<WithContext<F>, F> {
    match context {
        Some(context) => Either::Left(inner.with_context(context.clone())),
        None => Either::Right(inner),
    }
}

/// Returns method, plural and subresource: a name that is the same for all objects of a kind.
fn request_name(method: &Method, path: &str) -> String {
    let mut parts = path.trim_start_matches('/').split('/');
    let skipped = match parts.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return method.to_string(),
    };
    let mut rest: Vec<&str> = parts.skip(skipped).collect();
    if rest.len() > 2 && rest[0] == "namespaces" {
        rest.drain(..2);
    }
    match rest[..] {
        [] => method.to_string(),
        [plural] | [plural, _] => format!("{method} {plural}"),
        [plural, _, subresource, ..] => format!("{method} {plural}/{subresource}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_names_hold_no_object() {
        for (path, name) in [
            ("/api/v1/pods", "GET pods"),
            ("/api/v1/namespaces/a", "GET namespaces"),
            ("/api/v1/namespaces/a/pods/b", "GET pods"),
            ("/apis/apps/v1/namespaces/a/deployments", "GET deployments"),
            ("/apis/samplecontroller.k8s.io/v1alpha1/namespaces/a/foos/b/status", "GET foos/status"),
            ("/version", "GET"),
            ("/apis/apps/v1", "GET"),
        ] {
            assert_eq!(request_name(&Method::GET, path), name, "{path}");
        }
    }
}
