//! The objects of the benchmark, and a server in memory that lists them.
//!
//! Both sides make the same objects from the templates in `hack/bench/cache`, with the number of the object for `{n}`:
//! converged Foos and their Deployments, as a real API server prints them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use kube_client::Client;
use kube_client::client::Body;
use serde_json::Value;
use windlass::client::ApiClient;

pub(crate) const FOOS: &str = "/apis/samplecontroller.k8s.io/v1alpha1/foos";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
pub(crate) const PAGE: usize = 500;
/// The length of what a connection delivers at once.
const CHUNK: usize = 16 << 10;

/// A template without the white space that makes it readable.
pub(crate) struct Template(String);

impl Template {
    pub(crate) fn foo() -> Self {
        Self::compact(include_str!("../../hack/bench/cache/foo.json"))
    }

    pub(crate) fn deployment() -> Self {
        Self::compact(include_str!("../../hack/bench/cache/deployment.json"))
    }

    fn compact(text: &str) -> Self {
        Self(text.lines().map(str::trim).collect::<String>().replace("\": ", "\":"))
    }

    /// Returns the template without the member at this JSON pointer.
    pub(crate) fn without(&self, pointer: &str) -> Self {
        let mut object: Value = serde_json::from_str(&self.0).unwrap();
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
        parent.remove(member).unwrap();
        Self(object.to_string())
    }

    pub(crate) fn object(&self, number: usize) -> String {
        self.0.replace("{n}", &format!("{number:07}"))
    }

    /// Returns the lines of a watch, one for each object.
    pub(crate) fn watch(&self, count: usize) -> Bytes {
        let line = |number| format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", self.object(number));
        (0..count).map(line).collect::<String>().into()
    }

    /// Returns the pages of a list.
    pub(crate) fn pages(&self, count: usize) -> Vec<Bytes> {
        let numbers: Vec<usize> = (0..count).collect();
        let page = |(at, numbers): (usize, &[usize])| {
            let items: Vec<String> = numbers.iter().map(|number| self.object(*number)).collect();
            let next =
                if (at + 1) * PAGE < count { format!(",\"continue\":\"{}\"", at + 1) } else { String::new() };
            let items = items.join(",");
            format!(r#"{{"metadata":{{"resourceVersion":"90000000"{next}}},"items":[{items}]}}"#).into()
        };
        numbers.chunks(PAGE).enumerate().map(page).collect()
    }
}

/// A server in memory: pages by path. The watch that follows a list is silent, unless there are lines for it.
#[derive(Clone, Default)]
pub(crate) struct Server {
    pub(crate) pages: Arc<BTreeMap<&'static str, Vec<Bytes>>>,
    pub(crate) lines: Bytes,
}

impl Server {
    pub(crate) fn client(&self) -> ApiClient {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(server.answer(&request)))
        });
        ApiClient::new(Client::new(service, "default"))
    }

    fn answer(&self, request: &Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let query = request.uri().query().unwrap_or_default();
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let (body, is_silent) = if value("watch").is_some() {
            (self.lines.clone(), self.lines.is_empty())
        } else {
            let at = value("continue").map_or(0, |token| token.parse().unwrap());
            (self.pages[request.uri().path()][at].clone(), false)
        };
        let chunks = (0..body.len()).step_by(CHUNK).map(move |from| {
            let chunk = body.slice(from..body.len().min(from + CHUNK));
            Ok::<_, Infallible>(Frame::data(chunk))
        });
        let silence = stream::pending().take(usize::from(is_silent));
        let body = UnsyncBoxBody::new(StreamBody::new(stream::iter(chunks).chain(silence)));
        Response::new(body)
    }
}
