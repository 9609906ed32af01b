//! The objects of the benchmark, and a server in memory that lists them.
//!
//! Both sides make the same objects from the templates in `hack/bench/cache`, with the number of the object for `{n}`:
//! converged Foos and their Deployments, as a real API server prints them. Deployments are protobuf, too, for who asks for it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use kube_client::Client;
use kube_client::client::Body;
use prost::encoding::{WireType, encode_key, encode_varint};
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

/// The Deployment of the template as protobuf, and its number there.
const MESSAGE: (&[u8], &[u8]) = (include_bytes!("../../hack/bench/cache/deployment.pb"), b"7654321");

/// Returns a Deployment as a protobuf message.
fn message(number: usize) -> Vec<u8> {
    let (mut message, number) = (MESSAGE.0.to_vec(), format!("{number:07}"));
    for at in memchr::memmem::find_iter(MESSAGE.0, MESSAGE.1) {
        message[at..at + MESSAGE.1.len()].copy_from_slice(number.as_bytes());
    }
    message
}

fn field(into: &mut Vec<u8>, number: u32, value: &[u8]) {
    encode_key(number, WireType::LengthDelimited, into);
    encode_varint(value.len() as u64, into);
    into.extend_from_slice(value);
}

/// Returns a `runtime.Unknown`.
fn enveloped(kind: &str, object: &[u8]) -> Vec<u8> {
    let (mut type_meta, mut body) = (Vec::new(), b"k8s\0".to_vec());
    field(&mut type_meta, 1, b"apps/v1");
    field(&mut type_meta, 2, kind.as_bytes());
    field(&mut body, 1, &type_meta);
    field(&mut body, 2, object);
    body
}

/// Returns the frames of a watch of Deployments as protobuf, one for each object.
pub(crate) fn protobuf_watch(count: usize) -> Bytes {
    let mut body = Vec::new();
    for number in 0..count {
        let (mut raw, mut frame) = (Vec::new(), Vec::new());
        field(&mut raw, 1, &enveloped("Deployment", &message(number)));
        field(&mut frame, 1, b"MODIFIED");
        field(&mut frame, 2, &raw);
        body.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_be_bytes());
        body.extend_from_slice(&frame);
    }
    body.into()
}

/// Returns the pages of a list of Deployments as protobuf.
pub(crate) fn protobuf_pages(count: usize) -> Vec<Bytes> {
    let numbers: Vec<usize> = (0..count).collect();
    let page = |(at, numbers): (usize, &[usize])| {
        let next = if (at + 1) * PAGE < count { (at + 1).to_string() } else { String::new() };
        let (mut meta, mut list) = (Vec::new(), Vec::new());
        field(&mut meta, 2, b"90000000");
        field(&mut meta, 3, next.as_bytes());
        field(&mut list, 1, &meta);
        numbers.iter().for_each(|number| field(&mut list, 2, &message(*number)));
        enveloped("DeploymentList", &list).into()
    };
    numbers.chunks(PAGE).enumerate().map(page).collect()
}

/// A server in memory: pages by path. The watch that follows a list is silent, unless there are lines for it.
#[derive(Clone, Default)]
pub(crate) struct Server {
    pub(crate) pages: Arc<BTreeMap<&'static str, Vec<Bytes>>>,
    /// Those of Deployments as protobuf.
    pub(crate) messages: Arc<Vec<Bytes>>,
    pub(crate) lines: Bytes,
    /// The lines as protobuf.
    pub(crate) frames: Bytes,
    /// Whether clients read JSON alone.
    pub(crate) is_json: bool,
}

impl Server {
    pub(crate) fn client(&self) -> ApiClient {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(server.answer(&request)))
        });
        ApiClient::new(Client::new(service, "default")).with_protobuf(!self.is_json)
    }

    fn answer(&self, request: &Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let query = request.uri().query().unwrap_or_default();
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let is_protobuf = request.headers()[header::ACCEPT].to_str().unwrap().contains("protobuf");
        let (body, is_silent) = if value("watch").is_some() {
            let body = if is_protobuf { &self.frames } else { &self.lines };
            (body.clone(), body.is_empty())
        } else {
            let at: usize = value("continue").map_or(0, |token| token.parse().unwrap());
            let pages = if is_protobuf { &self.messages } else { &self.pages[request.uri().path()] };
            (pages[at].clone(), false)
        };
        let chunks = (0..body.len()).step_by(CHUNK).map(move |from| {
            let chunk = body.slice(from..body.len().min(from + CHUNK));
            Ok::<_, Infallible>(Frame::data(chunk))
        });
        let silence = stream::pending().take(usize::from(is_silent));
        let body = UnsyncBoxBody::new(StreamBody::new(stream::iter(chunks).chain(silence)));
        let media = if is_protobuf { "application/vnd.kubernetes.protobuf" } else { "application/json" };
        Response::builder().header(header::CONTENT_TYPE, media).body(body).unwrap()
    }
}
