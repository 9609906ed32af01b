//! Identifies the requests of an operator by verb, resource, name and number.

use std::fmt;

use bytes::Bytes;
use http_body_util::Full;
use serde_json::Value;
use tower::Service;
use windlass::sim::InProcessTransport;

/// A request as the embedded server's transport takes it.
pub(crate) type Sent = http::Request<Full<Bytes>>;
/// A response of the transport.
pub(crate) type Reply = <InProcessTransport as Service<Sent>>::Response;

/// The identity of one request of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) resource: String,
    pub(crate) name: String,
    /// Counts requests with the same verb, resource and name, from 1.
    pub(crate) nth: usize,
}

/// A call and its response code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) call: Call,
    /// 0 until the response arrives, and if the connection breaks.
    pub(crate) code: u16,
}

// === impl Call ===

impl Call {
    pub(crate) fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete")
    }

    pub(crate) fn is_for_events(&self) -> bool {
        self.resource == "events"
    }

    /// Whether the call names this object or one of its children.
    pub(crate) fn is_of(&self, object: &str) -> bool {
        self.name.strip_prefix(object).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Parses a request; the caller sets `nth`.
    pub(crate) fn of(request: &Sent, body: &Bytes) -> Self {
        let mut parts: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
        parts.drain(..parts.len().min(if parts.first() == Some(&"api") { 2 } else { 3 }));
        if parts.first() == Some(&"namespaces") && parts.len() > 2 {
            parts.drain(..2);
        }
        let (resource, mut name, sub) = match parts[..] {
            [resource, name, sub] => (format!("{resource}/{sub}"), name.to_owned(), sub),
            [resource, name] => (resource.to_owned(), name.to_owned(), ""),
            _ => (parts.join("/"), String::new(), ""),
        };
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let verb = match request.method().as_str() {
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ if is_watch => "watch",
            _ if name.is_empty() => "list",
            _ => "get",
        };
        if verb == "create" && sub.is_empty() {
            let object: Value = serde_json::from_slice(body).unwrap_or_default();
            object["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut name);
        }
        if resource == "events" {
            // Names of Events are random.
            name.clear();
        }
        Self { verb, resource, name, nth: 0 }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}#{}", self.verb, self.resource, self.name, self.nth)
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.call, self.code)
    }
}
